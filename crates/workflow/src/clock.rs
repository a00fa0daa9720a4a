//! Clock of a runner: the wall clock, or the virtual time of a test.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::retry::millis;

/// Clock of a runner. Deadlines, delays and claims count from it.
///
/// [`Clock::default`] is the wall clock. [`Clock::virtual_time`] follows the clock of Tokio, which
/// a test can pause: delays and timeouts then take no time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    origin: Option<(u64, Instant)>,
}

impl Clock {
    /// Returns a clock that follows the clock of Tokio, from the current wall-clock time on.
    #[must_use]
    pub fn virtual_time() -> Self {
        Self {
            origin: Some((wall_clock_ms(), Instant::now())),
        }
    }

    /// Returns the time, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        match self.origin {
            Some((start, instant)) => start.saturating_add(millis(instant.elapsed())),
            None => wall_clock_ms(),
        }
    }

    /// Waits until a time, in milliseconds since the Unix epoch. The wall clock may be set
    /// meanwhile, so the caller compares again.
    pub(crate) async fn wait_until(&self, due_ms: u64) {
        tokio::time::sleep(Duration::from_millis(due_ms.saturating_sub(self.now_ms()))).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock of the runners")]
fn wall_clock_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, millis)
}
