//! Pool of the decisions that cost more than the thread of an actor may spend.
//!
//! A saga actor decides on a thread of the Tokio runtime, which also serves other tenants and the
//! HTTP API. It abandons a decision there at the light budget and runs it again here. The pool uses
//! half of the cores, and each tenant has an equal share of its time (see [`FairQueue`]).
//!
//! The threads are blocking threads of the Tokio runtime. A waiting decision occupies none of them:
//! a thread ends when no decision waits.

use std::any::Any;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use orlog_model::{InstanceKey, TenantId};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::instance::fair_queue::FairQueue;
use crate::telemetry::metrics::Metrics;

/// Number of positions for sagas. Two sagas of one position share the estimate.
const POSITIONS: usize = 4096;
/// Number of light decisions of a saga in the pool before one is tried on the thread of its actor
/// again.
const LIGHT_DECISIONS: u8 = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Pool of heavy decisions of all shards of a process.
pub(crate) struct DecisionPool {
    threads: usize,
    state: Mutex<PoolState>,
    heavy_sagas: HeavySagas,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct PoolState {
    queue: FairQueue<Job>,
    /// Threads that run decisions.
    threads: usize,
}

impl DecisionPool {
    /// Creates a pool. `threads`: 0 means half of the cores.
    pub(crate) fn new(threads: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2),
            threads => threads,
        };
        Arc::new(Self {
            threads: threads.max(1),
            state: Mutex::default(),
            heavy_sagas: HeavySagas::default(),
            metrics,
        })
    }

    /// Returns the estimates of the sagas.
    pub(crate) fn heavy_sagas(&self) -> &HeavySagas {
        &self.heavy_sagas
    }

    /// Runs work of a tenant on the pool. Continues its panic here. Work that has not started when
    /// the caller stops waiting does not run.
    pub(crate) async fn run<T, F>(self: &Arc<Self>, tenant: &TenantId, work: F) -> T
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (reply, response) = oneshot::channel::<Result<T, Box<dyn Any + Send>>>();
        self.push(
            tenant,
            Box::new(move || {
                if !reply.is_closed() {
                    // The caller may have stopped during the work.
                    drop(reply.send(catch_unwind(AssertUnwindSafe(work))));
                }
            }),
        );

        match response
            .await
            .expect("the pool runs each job whose caller waits")
        {
            Ok(value) => value,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn push(self: &Arc<Self>, tenant: &TenantId, job: Job) {
        self.metrics.decisions_offloaded.inc();
        self.metrics.decisions_queued.inc();

        let mut state = self.state.lock();
        state.queue.push(tenant, job);
        if state.threads == self.threads {
            return;
        }
        state.threads += 1;
        drop(state);

        let pool = Arc::clone(self);
        tokio::task::spawn_blocking(move || pool.work());
    }

    /// Runs decisions until none waits.
    fn work(&self) {
        while let Some((tenant, job)) = self.next() {
            self.metrics.decisions_queued.dec();
            let started = Instant::now();
            // Without the lock: the other threads take their decisions meanwhile.
            job();
            let time = started.elapsed();
            self.state.lock().queue.finish(&tenant, time);

            let tenant = self.metrics.tenants.counters(&tenant);
            tenant.decision_seconds.inc_by(time.as_secs_f64());
        }
    }

    fn next(&self) -> Option<(TenantId, Job)> {
        let mut state = self.state.lock();
        let next = state.queue.pop();

        // Under the lock of the queue, so that a job that is pushed now starts another thread.
        if next.is_none() {
            state.threads -= 1;
        }
        next
    }
}

/// Estimate whether the next decision of a saga is heavy, from its last ones.
///
/// A saga with a heavy decision decides in the pool until a number of decisions there were light,
/// so that the thread of its actor rarely abandons one. The positions are hashes with a random key:
/// no tenant can choose the position of another.
pub(crate) struct HeavySagas {
    hasher: RandomState,
    /// Number of light decisions until a decision is tried on the thread of its actor, for each
    /// position.
    remaining: Box<[AtomicU8]>,
}

impl Default for HeavySagas {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            remaining: (0..POSITIONS).map(|_| AtomicU8::new(0)).collect(),
        }
    }
}

impl HeavySagas {
    /// Returns the position of the saga of an instance.
    pub(crate) fn position(&self, key: &InstanceKey) -> usize {
        let hash = self.hasher.hash_one((&key.tenant, &key.saga));
        usize::try_from(hash % POSITIONS as u64).unwrap_or_default()
    }

    pub(crate) fn is_heavy(&self, position: usize) -> bool {
        self.remaining[position].load(Ordering::Relaxed) > 0
    }

    /// Records a decision that exceeded the light budget.
    pub(crate) fn record_heavy(&self, position: usize) {
        self.remaining[position].store(LIGHT_DECISIONS, Ordering::Relaxed);
    }

    /// Records a decision in the pool that was light.
    pub(crate) fn record_light(&self, position: usize) {
        self.remaining[position]
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining| {
                Some(remaining.saturating_sub(1))
            })
            .ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn pool(threads: usize) -> Arc<DecisionPool> {
        DecisionPool::new(threads, Arc::default())
    }

    /// The pool has one thread, which a decision of one tenant occupies; the runtime has one
    /// thread, too.
    #[tokio::test]
    async fn decisions_wait_for_a_thread_without_blocking_the_runtime() {
        let pool = pool(1);
        let (release, released) = mpsc::channel::<()>();
        let busy = {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move {
                pool.run(&tenant("busy"), move || released.recv().is_ok())
                    .await
            })
        };
        let next = {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.run(&tenant("next"), || 7).await })
        };
        while pool.metrics.decisions_queued.get() != 1 || pool.state.lock().threads != 1 {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        assert!(busy.await.unwrap());
        assert_eq!(next.await.unwrap(), 7);
        assert_eq!(pool.metrics.decisions_offloaded.get(), 2);
    }

    #[tokio::test]
    async fn panic_of_a_decision_continues_in_its_actor_and_ends_no_thread() {
        let pool = pool(1);
        let crashing = {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.run(&tenant("a"), || panic!("a bug")).await })
        };
        let crashed: Result<(), _> = crashing.await;
        assert!(crashed.is_err_and(|error| error.is_panic()));
        assert_eq!(pool.run(&tenant("a"), || 1).await, 1);
    }

    #[tokio::test]
    async fn abandoned_decision_does_not_run() {
        let pool = pool(1);
        let (release, released) = mpsc::channel::<()>();
        let busy = {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move {
                pool.run(&tenant("a"), move || released.recv().is_ok())
                    .await
            })
        };
        while pool.state.lock().threads == 0 {
            tokio::task::yield_now().await;
        }
        let (started, starts) = mpsc::channel::<()>();
        let other = tenant("b");
        let mut abandoned = Box::pin(pool.run(&other, move || started.send(()).is_ok()));
        assert!(futures::poll!(&mut abandoned).is_pending());
        drop(abandoned);
        release.send(()).unwrap();
        assert!(busy.await.unwrap());
        assert_eq!(pool.run(&tenant("b"), || 2).await, 2);
        assert!(
            starts.recv().is_err(),
            "the job was dropped without a start"
        );
    }

    #[test]
    fn saga_is_heavy_until_its_decisions_were_light() {
        let sagas = HeavySagas::default();
        let position = 7;
        assert!(!sagas.is_heavy(position));
        sagas.record_heavy(position);
        for _ in 0..LIGHT_DECISIONS {
            assert!(sagas.is_heavy(position));
            sagas.record_light(position);
        }
        assert!(!sagas.is_heavy(position));
        sagas.record_light(position);
        assert!(!sagas.is_heavy(position));
    }
}
