//! Bounded pool of the requests and pages that read the stores at the same time.
//!
//! A request that finds the pool exhausted waits, then fails. So a burst of requests does not
//! occupy the threads and the read transactions that the shards need.

use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking::{ShuttingDown, finish};

/// Nice value of the threads that read. A thread of the default value gets about nine times their
/// share of a core, and runs before them when it wakes up.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Pool of concurrent reads.
pub(super) struct ReadPool {
    permits: Arc<Semaphore>,
    timeout: Duration,
    threads: ReadThreads,
}

/// No thread was free in time.
#[derive(Debug, thiserror::Error)]
#[error("too many requests read the stores; retry, or raise http.max_concurrent_reads")]
pub struct PoolExhausted;

/// Threads that read. Encoding a page can take a core for milliseconds; the threads that commit and
/// serve requests have priority over them.
struct ReadThreads(Option<Runtime>);

impl ReadThreads {
    fn new(count: usize) -> Self {
        // Only its threads that may block are used: no task runs on it, so that it needs no worker.
        // A read uses neither timers nor sockets.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(count)
            .thread_name("orlog-read")
            .on_thread_start(lower_priority)
            .build();
        Self(Some(
            runtime.expect("a runtime without drivers uses no resources"),
        ))
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it is taken at the end only")
    }
}

impl Drop for ReadThreads {
    fn drop(&mut self) {
        // A runtime that waits for its threads cannot be dropped by an async task.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(target_os = "linux")]
fn lower_priority() {
    // On Linux the priority belongs to the thread. Without it, reads only compete more.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        // Idle threads end, and others start.
        static REPORTED: Once = Once::new();
        REPORTED.call_once(|| {
            tracing::warn!(%error, "threads that read have the priority of all others");
        });
    }
}

/// Elsewhere the priority belongs to the whole process.
#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

/// Permit to read; free again when dropped.
#[derive(Debug)]
pub(super) struct ReadPermit {
    _of_caller: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl ReadPool {
    pub(super) fn new(reads: usize, timeout: Duration) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(reads)),
            timeout,
            threads: ReadThreads::new(reads),
        }
    }

    /// Reads on a thread of the pool, and frees the permit at the end of the read.
    ///
    /// # Errors
    /// The error of `read`, or [`ShuttingDown`].
    pub(super) async fn run<T, E, F>(&self, permit: ReadPermit, read: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<ShuttingDown> + Send + 'static,
        F: FnOnce() -> Result<T, E> + Send + 'static,
    {
        let reading = self.threads.runtime().spawn_blocking(move || {
            // Freed by the thread, because a read occupies it also after its client has
            // disconnected.
            let _permit = permit;
            read()
        });
        finish(reading).await
    }

    /// Waits for a permit to read. A caller uses at most its share of the pool.
    ///
    /// # Errors
    /// If none is free in time.
    pub(super) async fn acquire(
        &self,
        share: Option<&Arc<Semaphore>>,
    ) -> Result<ReadPermit, PoolExhausted> {
        let permit = tokio::time::timeout(self.timeout, async {
            // The share first: a request that waits for it must not hold a place of the pool.
            let of_caller = match share {
                Some(share) => Some(Arc::clone(share).acquire_owned().await.ok()?),
                None => None,
            };
            let of_all = Arc::clone(&self.permits).acquire_owned().await.ok()?;

            Some(ReadPermit {
                _of_caller: of_caller,
                _of_all: of_all,
            })
        });
        permit.await.ok().flatten().ok_or(PoolExhausted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn request_waits_for_a_reader_and_then_fails() {
        let pool = ReadPool::new(1, Duration::from_millis(10));
        let first = pool.acquire(None).await.expect("it is the only one");
        let error = pool.acquire(None).await.expect_err("the pool is exhausted");
        assert!(
            error.to_string().contains("http.max_concurrent_reads"),
            "{error}"
        );
        drop(first);
        assert!(pool.acquire(None).await.is_ok());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn reads_have_a_lower_priority() {
        let pool = ReadPool::new(1, Duration::from_secs(1));
        let permit = pool.acquire(None).await.expect("it is the only one");
        let nice = pool
            .run(permit, || {
                Ok::<_, ShuttingDown>(rustix::process::getpriority_process(None))
            })
            .await
            .expect("the read succeeds");
        assert_eq!(nice.expect("it is readable"), NICE);
    }
}
