//! Clocks for tests in real time.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use orlog_model::{Clock, SteadyTime, Timestamp};

/// Start of the steady clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Maximum duration of one sleep.
const LONGEST_SLEEP: Duration = Duration::from_hours(24 * 365);

/// Real time.
#[derive(Clone, Copy, Debug)]
pub struct WallClock;

impl WallClock {
    /// Returns the shared clock.
    #[must_use]
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

impl Clock for WallClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only use of real time in tests"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn steady(&self) -> SteadyTime {
        SteadyTime::default().saturating_add(START.elapsed())
    }

    fn sleep_until(&self, at: SteadyTime) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let left = at.duration_since(self.steady()).min(LONGEST_SLEEP);
        Box::pin(tokio::time::sleep(left))
    }
}

/// Real time, except that the wall clock can be set. Clones share the setting.
#[derive(Clone, Debug, Default)]
pub struct SettableClock {
    offset_ms: Arc<AtomicI64>,
}

impl SettableClock {
    /// Sets the wall clock to this difference to the real one, in milliseconds.
    pub fn set_offset(&self, offset_ms: i64) {
        self.offset_ms.store(offset_ms, Ordering::SeqCst);
    }
}

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        let offset = self.offset_ms.load(Ordering::SeqCst);
        Timestamp::from_millis(WallClock.now().as_millis().saturating_add(offset))
    }

    fn steady(&self) -> SteadyTime {
        WallClock.steady()
    }

    fn sleep_until(&self, at: SteadyTime) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { WallClock.sleep_until(at).await })
    }
}
