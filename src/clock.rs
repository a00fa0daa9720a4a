//! The system's clock: the one place that reads it.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

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
