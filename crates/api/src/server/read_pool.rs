//! Bounded pool of the requests that read the stores at the same time.
//!
//! A request that finds the pool exhausted waits, then fails. So a burst of requests does not
//! occupy the threads and the read transactions that the shards need.

use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::blocking::finish;
use super::problem::{Code, Problem};
use super::quotas::CallerBudgets;
use super::read_control::ReadControl;

/// Nice value of the threads that read. A thread of the default value gets about nine times their
/// share of a core, and runs before them when it wakes up.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Pool of concurrent reads.
#[derive(Clone)]
pub(crate) struct ReadPool {
    admissions: Arc<Semaphore>,
    timeout: Duration,
    threads: Arc<ReadThreads>,
}

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

/// Place of an admitted read; free again when dropped.
#[derive(Debug)]
struct ReadPlace {
    _of_caller: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl ReadPool {
    /// Creates a pool of this many reads.
    pub(crate) fn new(reads: usize, timeout: Duration) -> Self {
        Self {
            admissions: Arc::new(Semaphore::new(reads)),
            timeout,
            threads: Arc::new(ReadThreads::new(reads)),
        }
    }

    /// Reads on a thread of the pool; `read` passes the control to its scans. The scans end when
    /// the future is dropped: the request has ended, timed out, or lost its client.
    ///
    /// # Errors
    /// The error of `read`; [`Code::Unavailable`] if it does not begin in time, or if the process
    /// is shutting down.
    pub(crate) async fn read<T, F>(
        &self,
        caller: Option<&CallerBudgets>,
        read: F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<ReadControl>) -> Result<T, Problem> + Send + 'static,
    {
        let place = tokio::time::timeout(self.timeout, self.admit(caller)).await;
        let place = place.ok().flatten().ok_or_else(|| {
            let detail = "too many requests read the stores; retry, or raise \
                          http.max_concurrent_reads";
            Problem::new(Code::Unavailable, detail)
        })?;

        let control = Arc::<ReadControl>::default();
        let _request = control.cancel_on_drop();
        let reading = self.threads.runtime().spawn_blocking(move || {
            let _place = place;
            read(&control)
        });
        finish(reading).await
    }

    /// Waits for a place. A caller uses at most its share of the pool.
    async fn admit(&self, caller: Option<&CallerBudgets>) -> Option<ReadPlace> {
        let of_caller = match caller {
            Some(caller) => Some(Arc::clone(&caller.reads).acquire_owned().await.ok()?),
            None => None,
        };
        Some(ReadPlace {
            _of_caller: of_caller,
            _of_all: Arc::clone(&self.admissions).acquire_owned().await.ok()?,
        })
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Returns why a read fails beside one that does not end.
    async fn rejection_beside_a_read(pool: &ReadPool) -> String {
        let (began, wait_until_began) = tokio::sync::oneshot::channel();
        let (end, wait_for_end) = std::sync::mpsc::channel::<()>();
        let first = pool.read(None, move |_| {
            began.send(()).expect("the test waits for it");
            wait_for_end.recv().expect("the test ends the read");
            Ok(())
        });
        let second = async {
            wait_until_began.await.expect("the first read begins");
            let second = pool.read(None, |_| Ok(())).await;
            end.send(()).expect("the first read waits for it");
            second.expect_err("the first read does not end")
        };

        let (first, problem) = tokio::join!(first, second);
        first.expect("the first read ends");
        assert!(pool.read(None, |_| Ok(())).await.is_ok());
        format!("{problem:?}")
    }

    #[tokio::test]
    async fn request_waits_for_a_place_and_then_fails() {
        let pool = ReadPool::new(1, Duration::from_millis(10));
        let text = rejection_beside_a_read(&pool).await;
        assert!(text.contains("http.max_concurrent_reads"), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn reads_have_a_lower_priority() {
        let pool = ReadPool::new(1, Duration::from_secs(1));
        let nice = pool
            .read(None, |_| Ok(rustix::process::getpriority_process(None)))
            .await
            .expect("the read succeeds");
        assert_eq!(nice.expect("it is readable"), NICE);
    }
}
