//! Wall clock for tests in real time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use orlog_model::{Clock, Timestamp};

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
    #[expect(clippy::disallowed_methods, reason = "the only use of real time in tests")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let remaining = at.duration_since(self.now());
                if remaining.is_zero() {
                    return;
                }
                tokio::time::sleep(remaining).await;
            }
        })
    }
}
