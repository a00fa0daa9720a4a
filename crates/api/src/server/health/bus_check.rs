//! Shared result of the bus check: `/health` requires no credentials, so its requests must not cost
//! requests to the bus.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Maximum age of a result. Default: 1s.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Error of a failed check. The reason is in the log only, because it can contain addresses of
/// servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bus does not respond; the log of the node has the reason")]
pub(crate) struct BusUnavailable;

/// Latest result of the bus check. At most one check is in flight; it continues if its caller
/// disconnects.
#[derive(Default)]
pub(crate) struct BusCheck {
    last: Arc<Mutex<Option<CheckedBus>>>,
}

#[derive(Clone, Copy)]
struct CheckedBus {
    at: Instant,
    result: Result<(), BusUnavailable>,
}

impl BusCheck {
    /// Returns the latest result, or checks the bus if the result is too old.
    ///
    /// # Errors
    /// If the check failed.
    pub(crate) async fn result<F>(&self, check: impl FnOnce() -> F) -> Result<(), BusUnavailable>
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        // Callers that arrive during a check wait for its lock, then use its result.
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some(checked) = last.filter(|checked| checked.at.elapsed() < MAX_AGE) {
            return checked.result;
        }

        let check = check();
        // The task owns the lock, so that a caller that disconnects does not cancel the check for
        // the others.
        let checking = tokio::spawn(async move {
            let was_ok = last.is_none_or(|checked| checked.result.is_ok());
            let result = check.await.map_err(|reason| {
                // Probes repeat the check constantly; the log has the first failure only.
                if was_ok {
                    tracing::warn!(reason, "bus check failed");
                }
                BusUnavailable
            });
            *last = Some(CheckedBus {
                at: Instant::now(),
                result,
            });

            result
        });

        checking.await.unwrap_or(Err(BusUnavailable))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Checks that count themselves and have this result.
    fn counted(
        count: &Arc<AtomicUsize>,
        result: Result<(), &'static str>,
    ) -> impl FnOnce() -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + use<>
    {
        let count = Arc::clone(count);
        move || {
            Box::pin(async move {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                result.map_err(str::to_owned)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_callers_cost_one_request_for_each_interval() {
        let (check, count) = (BusCheck::default(), Arc::new(AtomicUsize::new(0)));
        for interval in 1..=3 {
            let callers = (0..100).map(|_| check.result(counted(&count, Ok(()))));
            assert!(
                futures::future::join_all(callers)
                    .await
                    .iter()
                    .all(Result::is_ok)
            );
            assert_eq!(count.load(Ordering::Relaxed), interval);
            tokio::time::advance(MAX_AGE).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn disconnected_callers_cost_no_further_request() {
        let (check, count) = (BusCheck::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..100 {
            let request = check.result(counted(&count, Ok(())));
            // The caller disconnects as soon as its check waits.
            let disconnected = tokio::time::timeout(Duration::ZERO, request).await;
            drop(disconnected);
        }
        assert_eq!(check.result(counted(&count, Ok(()))).await, Ok(()));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn failure_is_shared_and_names_no_server() {
        let (check, count) = (BusCheck::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let failed = check
                .result(counted(&count, Err("10.1.2.3:4222: no connection")))
                .await
                .unwrap_err();
            assert!(!failed.to_string().contains("10.1.2.3"), "{failed}");
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(check.result(counted(&count, Ok(()))).await, Ok(()));
    }
}
