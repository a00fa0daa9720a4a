//! The system's clock: the one place that reads it.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use orlog_model::{Clock, Timestamp};

/// A sleep looks at the clock this often, so that it notices when the clock was set.
const LOOK: Duration = Duration::from_secs(30);

/// Tells the time of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the door through which the present enters")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let left = at.since(self.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LOOK)).await;
            }
        })
    }
}

/// The present on both clocks of the host, as precisely as it tells: what makes a time for people of an [`Instant`]. Never for a
/// decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present {
    instant: Instant,
    nanos: u64,
}

impl Present {
    /// Looks at both.
    #[expect(clippy::disallowed_methods, reason = "this is the door through which the present enters")]
    pub(crate) fn look() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), nanos: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Nanoseconds since 1970.
    pub(crate) fn nanos(&self) -> u64 {
        self.nanos
    }

    /// The same of a moment before.
    pub(crate) fn nanos_at(&self, at: Instant) -> u64 {
        let ago = self.instant.saturating_duration_since(at);
        self.nanos.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A time in nanoseconds since 1970.
pub(crate) fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.millis()).unwrap_or(0).saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_ends_when_its_time_has_come() {
        let clock = SystemClock;
        let at = clock.now().after(Duration::from_millis(5));
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
        clock.sleep_until(Timestamp::from_millis(0)).await;
    }
}
