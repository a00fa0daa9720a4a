//! System clock: the only module that reads the clock of the host.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use orlog_model::{Clock, Timestamp};

/// Interval at which a sleep rereads the clock, so that it detects when the clock was set.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Clock of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system time")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let left = at.duration_since(self.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(POLL_INTERVAL)).await;
            }
        })
    }
}

/// Current time on both clocks of the host, with full precision. Converts an [`Instant`] to a
/// wall-clock time. Never used for decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    instant: Instant,
    nanos: u64,
}

impl ClockReading {
    /// Reads both clocks.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system time")]
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), nanos: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Returns nanoseconds since 1970.
    pub(crate) fn nanos(&self) -> u64 {
        self.nanos
    }

    /// Returns nanoseconds since 1970 of an earlier instant.
    pub(crate) fn nanos_at(&self, at: Instant) -> u64 {
        let ago = self.instant.saturating_duration_since(at);
        self.nanos.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Converts a time to nanoseconds since 1970.
pub(crate) fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(0).saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleep_ends_at_its_deadline() {
        let clock = SystemClock;
        let at = clock.now().saturating_add(Duration::from_millis(5));
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
        clock.sleep_until(Timestamp::from_millis(0)).await;
    }
}
