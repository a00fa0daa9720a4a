//! System clock: the only module that reads the clock of the host.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use orlog_model::{Clock, SteadyTime, Timestamp};

/// Start of the steady clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Clock of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place that reads the system time"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn steady(&self) -> SteadyTime {
        SteadyTime::default().saturating_add(START.elapsed())
    }

    fn sleep_until(&self, at: SteadyTime) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // Longer than any process; a sleep without end would overflow.
        let left = at.duration_since(self.steady()).min(LONGEST_SLEEP);
        Box::pin(tokio::time::sleep(left))
    }
}

/// Maximum duration of one sleep.
const LONGEST_SLEEP: Duration = Duration::from_hours(24 * 365 * 10);

/// Current time on both clocks of the host, with full precision. Converts an [`Instant`] to a
/// wall-clock time. Never used for decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    instant: Instant,
    pub(crate) system: SystemTime,
}

impl ClockReading {
    /// Reads both clocks.
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place that reads the system time"
    )]
    pub(crate) fn now() -> Self {
        Self {
            instant: Instant::now(),
            system: SystemTime::now(),
        }
    }

    /// Returns the wall-clock time of an earlier instant.
    pub(crate) fn system_at(&self, at: Instant) -> SystemTime {
        let ago = self.instant.saturating_duration_since(at);
        self.system
            .checked_sub(ago)
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// Converts a time; times before 1970 become 1970.
pub(crate) fn system_time(at: Timestamp) -> SystemTime {
    let since = Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(0));
    SystemTime::UNIX_EPOCH
        .checked_add(since)
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleep_ends_at_its_deadline() {
        let clock = SystemClock;
        let at = clock.steady().saturating_add(Duration::from_millis(5));
        clock.sleep_until(at).await;
        assert!(clock.steady() >= at);
        clock.sleep_until(SteadyTime::default()).await;
        clock.sleep_until_due(Timestamp::from_millis(0)).await;
    }
}
