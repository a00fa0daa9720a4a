//! Bounded pool of the requests that read the stores at the same time.
//!
//! A request that finds the pool exhausted waits, then fails. So a burst of requests does not
//! occupy the threads and the read transactions that the shards need.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{Code, Problem};
use super::quotas::CallerBudgets;

/// Pool of concurrent reads.
#[derive(Clone)]
pub(crate) struct ReadPool {
    permits: Arc<Semaphore>,
    timeout: Duration,
}

/// Permit to read; free again when dropped.
#[derive(Debug)]
pub(crate) struct ReadPermit {
    _of_caller: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl ReadPool {
    pub(crate) fn new(reads: usize, timeout: Duration) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(reads)),
            timeout,
        }
    }

    /// Waits for a permit to read. A caller uses at most its share of the pool.
    pub(crate) async fn acquire(
        &self,
        caller: Option<&CallerBudgets>,
    ) -> Result<ReadPermit, Problem> {
        let permit = tokio::time::timeout(self.timeout, async {
            let of_caller = match caller {
                Some(caller) => Some(Arc::clone(&caller.reads).acquire_owned().await.ok()?),
                None => None,
            };
            let of_all = Arc::clone(&self.permits).acquire_owned().await.ok()?;

            Some(ReadPermit {
                _of_caller: of_caller,
                _of_all: of_all,
            })
        });
        permit.await.ok().flatten().ok_or_else(|| {
            Problem::new(
                Code::Unavailable,
                "too many requests read the stores; retry, or raise http.max_concurrent_reads",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn request_waits_for_a_reader_and_then_fails() {
        let pool = ReadPool::new(1, Duration::from_millis(10));
        let first = pool.acquire(None).await.expect("it is the only one");
        let problem = pool.acquire(None).await.expect_err("the pool is exhausted");
        assert!(
            format!("{problem:?}").contains("http.max_concurrent_reads"),
            "{problem:?}"
        );
        drop(first);
        assert!(pool.acquire(None).await.is_ok());
    }
}
