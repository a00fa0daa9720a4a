//! Bounded pool of the requests that read the stores at the same time.
//!
//! A request that finds the pool exhausted waits, then fails. So a burst of requests does not
//! occupy the threads and the read transactions that the shards need. The admitted reads take turns
//! (`read_turns.rs`).

use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::blocking::finish;
use super::problem::{Code, Problem};
use super::quotas::CallerBudgets;
use super::read_turns::{ReadControl, ReadTurns};

/// Nice value of the threads that read. A thread of the default value gets about nine times their
/// share of a core, and runs before them when it wakes up.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Pool of concurrent reads.
#[derive(Clone)]
pub(crate) struct ReadPool {
    admissions: Arc<Semaphore>,
    turns: ReadTurns,
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
    /// Creates a pool that admits `reads` at the same time, of which `running` run.
    pub(crate) fn new(reads: usize, running: usize, timeout: Duration) -> Self {
        Self {
            admissions: Arc::new(Semaphore::new(reads)),
            turns: ReadTurns::new(running),
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
        let deadline = Instant::now() + self.timeout;
        let place = tokio::time::timeout_at(deadline, self.admit(caller)).await;
        let place = place.ok().flatten().ok_or_else(|| {
            let detail = "too many requests read the stores; retry, or raise \
                          http.max_concurrent_reads";
            Problem::new(Code::Unavailable, detail)
        })?;
        let turn = tokio::time::timeout_at(deadline, self.turns.begin(caller)).await;
        let turn = turn.ok().flatten().ok_or_else(|| {
            let detail = "the reads of other requests take all turns; retry";
            Problem::new(Code::Unavailable, detail)
        })?;

        let control = ReadControl::new(self.turns.clone(), caller.cloned(), turn);
        let _request = control.cancel_on_drop();
        let reading = self.threads.runtime().spawn_blocking(move || {
            let _place = place;
            let _turn = control.end_turn_on_drop();
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
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Instant;

    use futures::future::join_all;
    use orlog_node::config::HttpServerConfig;
    use orlog_store::ScanControl as _;

    use super::*;
    use crate::server::quotas::{CallerKey, Quotas};
    use crate::server::running_reads::running_reads;

    const TIMEOUT: Duration = Duration::from_secs(30);
    const READS: usize = 16;

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
    async fn request_waits_for_a_place_and_a_turn_and_then_fails() {
        let without_place = ReadPool::new(1, 1, Duration::from_millis(10));
        let text = rejection_beside_a_read(&without_place).await;
        assert!(text.contains("http.max_concurrent_reads"), "{text}");

        let without_turn = ReadPool::new(2, 1, Duration::from_millis(10));
        let text = rejection_beside_a_read(&without_turn).await;
        assert!(text.contains("take all turns"), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn reads_have_a_lower_priority() {
        let pool = ReadPool::new(1, 1, Duration::from_secs(1));
        let nice = pool
            .read(None, |_| Ok(rustix::process::getpriority_process(None)))
            .await
            .expect("the read succeeds");
        assert_eq!(nice.expect("it is readable"), NICE);
    }

    #[tokio::test]
    async fn long_read_lets_others_run_between_groups() {
        let pool = ReadPool::new(READS, 1, TIMEOUT);
        let (began, wait_until_began) = tokio::sync::oneshot::channel();
        let is_second_done = Arc::new(AtomicBool::new(false));

        let is_done = Arc::clone(&is_second_done);
        let long = pool.read(None, move |control| {
            began.send(()).expect("the test waits for it");
            let deadline = Instant::now() + TIMEOUT;
            while !is_done.load(Ordering::SeqCst) {
                assert!(Instant::now() < deadline, "no other read runs");
                control.before_group()?;
            }
            Ok(())
        });
        let short = async {
            wait_until_began.await.expect("the long read begins");
            let read = pool.read(None, move |_| {
                is_second_done.store(true, Ordering::SeqCst);
                Ok(())
            });
            read.await
        };

        let (long, short) = tokio::join!(long, short);
        long.expect("the long read ends");
        short.expect("the short read ends");
    }

    #[tokio::test]
    async fn at_most_the_turns_run_at_the_same_time() {
        let pool = ReadPool::new(READS, 2, TIMEOUT);
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let reads = (0..READS).map(|_| {
            let running = Arc::clone(&running);
            let most = Arc::clone(&most);
            pool.read(None, move |control| {
                for _ in 0..50 {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    control.before_group()?;
                }
                Ok(())
            })
        });
        for read in join_all(reads).await {
            read.expect("each read ends");
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn many_reads_of_one_caller_delay_the_read_of_another_by_one_group_each() {
        const GROUPS: usize = 20;
        let running = running_reads();
        let many = running * 8;
        let config = HttpServerConfig {
            max_concurrent_reads: many * 2,
            ..HttpServerConfig::default()
        };
        let pool = ReadPool::new(config.max_concurrent_reads, running, TIMEOUT);
        let quotas = Quotas::new(&config, 1_000);
        let begin = |user: &str| {
            let key = CallerKey::User(user.into());
            quotas.begin(key, Instant::now()).expect("few requests")
        };
        let noisy = begin("noisy");
        let quiet = begin("quiet");

        let groups = Arc::new(AtomicUsize::new(0));
        let is_done = Arc::new(AtomicBool::new(false));
        let reads = (0..many).map(|_| {
            let groups = Arc::clone(&groups);
            let is_done = Arc::clone(&is_done);
            pool.read(Some(&noisy.budgets), move |control| {
                let deadline = Instant::now() + TIMEOUT;
                while !is_done.load(Ordering::SeqCst) {
                    assert!(Instant::now() < deadline, "the other caller does not read");
                    groups.fetch_add(1, Ordering::SeqCst);
                    control.before_group()?;
                }
                Ok(())
            })
        });
        let groups_of_noisy = Arc::clone(&groups);
        let ending = Arc::clone(&is_done);
        let quiet_read = async {
            while groups_of_noisy.load(Ordering::SeqCst) < many {
                tokio::task::yield_now().await;
            }
            let read = pool.read(Some(&quiet.budgets), move |control| {
                let before = groups_of_noisy.load(Ordering::SeqCst);
                for _ in 0..GROUPS {
                    control.before_group()?;
                }
                ending.store(true, Ordering::SeqCst);
                Ok(groups_of_noisy.load(Ordering::SeqCst) - before)
            });
            read.await.expect("the read ends")
        };

        let (noisy_reads, delay) = tokio::join!(join_all(reads), quiet_read);
        for read in noisy_reads {
            read.expect("each read ends");
        }
        // Without a limit for each caller: all reads of the caller before each group.
        let most = GROUPS * running * 2;
        assert!(delay <= most, "{delay} groups");
    }
}
