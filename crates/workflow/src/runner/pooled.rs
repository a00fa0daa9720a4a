//! Pooled workers: many processes share a backend, claim instances and execute them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, error, warn};

use super::claims::Claims;
use crate::backend::{
    After, Backend, BackendError, Claim, InstanceId, NEVER_MS, Save, StoredInstance, Watcher,
};
use crate::checkpoint::Snapshots;
use crate::clock::Clock;
use crate::driver::{Driver, recover};
use crate::machine::panic_message;
use crate::outcome::RunError;
use crate::registry::TaskRegistry;
use crate::retry::millis;
use crate::state::State;

/// Delay after an error of the backend, and before other workers see an instance that this worker
/// cannot execute.
const ERROR_DELAY: Duration = Duration::from_secs(5);
/// Delay after other workers claimed all instances that this worker fetched.
const CONTENTION_DELAY: Duration = Duration::from_millis(5);

/// Worker that claims instances of a backend and executes them.
///
/// A worker fetches available instances, then claims them; another worker may claim them in
/// between. It executes an instance until it ends or waits. Heartbeats extend the claims. If a
/// worker crashes, its claims expire and other workers continue its instances from the last
/// snapshot. A former holder cannot write.
///
/// ```
/// use std::sync::Arc;
/// use orlog_workflow::{
///     Client, Context, MemoryBackend, PooledWorker, TaskError, TaskRegistry, Workflow,
/// };
///
/// async fn double(_: &Context, number: u32) -> Result<u32, TaskError> {
///     Ok(number * 2)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workflow = Workflow::builder("double").then("double", double).build()?;
/// let backend = Arc::new(MemoryBackend::new());
/// let registry = TaskRegistry::new().workflow(&workflow);
/// let worker = PooledWorker::new("worker-1", backend.clone(), registry).spawn();
///
/// let client = Client::new(backend);
/// client.start(&workflow, "d-1", 21).await?;
/// assert_eq!(client.outcome::<u32>("d-1").await?, 42);
///
/// worker.shutdown();
/// worker.join().await;
/// # Ok(())
/// # }
/// ```
pub struct PooledWorker {
    name: Arc<str>,
    backend: Arc<dyn Backend>,
    registry: Arc<TaskRegistry>,
    clock: Clock,
    claim_ttl: Duration,
    heartbeat_interval: Duration,
    batch: usize,
    concurrency: usize,
}

impl PooledWorker {
    /// Returns a worker. Its name is stored with its claims.
    #[must_use]
    pub fn new(
        name: impl Into<Arc<str>>,
        backend: Arc<dyn Backend>,
        registry: TaskRegistry,
    ) -> Self {
        Self {
            name: name.into(),
            backend,
            registry: Arc::new(registry),
            clock: Clock::default(),
            claim_ttl: Duration::from_mins(5),
            heartbeat_interval: Duration::from_mins(2),
            batch: 1,
            concurrency: 256,
        }
    }

    /// Sets the time after which a claim without a heartbeat expires. Default: 5 min.
    #[must_use]
    pub fn claim_ttl(mut self, ttl: Duration) -> Self {
        self.claim_ttl = ttl;
        self
    }

    /// Sets the interval of heartbeats, which extend the claims: at most half of the time of
    /// [`Self::claim_ttl`]. Default: 2 min.
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = interval;
        self
    }

    /// Sets the maximum number of instances that one request fetches and claims. Default: 1.
    #[must_use]
    pub fn batch(mut self, instances: usize) -> Self {
        self.batch = instances.max(1);
        self
    }

    /// Sets the maximum number of instances that are executed concurrently. Default: 256.
    #[must_use]
    pub fn concurrency(mut self, instances: usize) -> Self {
        self.concurrency = instances.max(1);
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Starts the worker.
    #[must_use]
    pub fn spawn(self) -> WorkerHandle {
        let stop = watch::Sender::new(false);
        // At least two heartbeats in the life of a claim, so that one can be lost.
        let interval = self.heartbeat_interval.min(self.claim_ttl / 2);
        let claims = Claims::new(
            Arc::clone(&self.backend),
            self.clock,
            self.claim_ttl,
            interval,
        );

        let task = tokio::spawn(
            Running {
                stop: stop.subscribe(),
                worker: self,
                claims,
                instances: JoinSet::new(),
            }
            .run(),
        );

        WorkerHandle { stop, task }
    }
}

impl std::fmt::Debug for PooledWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PooledWorker")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Handle of a worker. Dropping it does not stop the worker.
#[derive(Debug)]
pub struct WorkerHandle {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl WorkerHandle {
    /// Stops the worker: it claims nothing more, its started tasks end and are stored, and it
    /// releases its instances.
    pub fn shutdown(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the worker has stopped.
    pub async fn join(self) {
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }

    /// Stops the worker at once, like a crash: started tasks are dropped, and its claims expire.
    pub async fn abort(self) {
        self.task.abort();
        // The error states that the worker is aborted.
        self.task.await.ok();
    }
}

/// Running worker.
struct Running {
    worker: PooledWorker,
    claims: Claims,
    stop: watch::Receiver<bool>,
    instances: JoinSet<()>,
}

/// Result of one request for instances.
enum Fetch {
    Claimed,
    /// Nothing is available until this time.
    Nothing {
        until_ms: u64,
    },
}

impl Running {
    async fn run(mut self) {
        let mut heartbeats = JoinSet::new();
        heartbeats.spawn(self.claims.clone().keep());
        let mut available = self.worker.backend.hub().available();

        debug!(worker = %self.worker.name, "worker starts");

        while !*self.stop.borrow() {
            // Instances that have ended free their places.
            while self.instances.try_join_next().is_some() {}
            let has_capacity = self.instances.len() < self.worker.concurrency;
            let mut until_ms = NEVER_MS;

            if has_capacity {
                // Before the instances are fetched, so that a notification in between is not lost.
                available.borrow_and_update();
                match self.fetch().await {
                    Fetch::Claimed => continue,
                    Fetch::Nothing { until_ms: next } => until_ms = next,
                }
            }

            tokio::select! {
                // Without a handle, nothing stops the worker.
                Ok(()) = self.stop.changed() => {}
                _ = available.changed(), if has_capacity => {}
                _ = self.instances.join_next(), if !self.instances.is_empty() => {}
                () = self.worker.clock.wait_until(until_ms), if until_ms != NEVER_MS => {}
            }
        }

        // The instances end their running tasks, and are released.
        while self.instances.join_next().await.is_some() {}
        debug!(worker = %self.worker.name, "worker stops");
    }

    /// Fetches and claims instances, and starts them.
    async fn fetch(&mut self) -> Fetch {
        match self.try_fetch().await {
            Ok(fetch) => fetch,
            Err(error) => {
                warn!(worker = %self.worker.name, %error, "instances not fetched");
                Fetch::Nothing {
                    until_ms: self.after(ERROR_DELAY),
                }
            }
        }
    }

    async fn try_fetch(&mut self) -> Result<Fetch, BackendError> {
        let limit = self
            .worker
            .batch
            .min(self.worker.concurrency - self.instances.len());

        let backend = Arc::clone(&self.worker.backend);
        let fetched = backend.fetch(limit, self.worker.clock.now_ms()).await?;

        // Until the next known due time. The hub reports instances that become available earlier.
        if fetched.ids.is_empty() {
            return Ok(Fetch::Nothing {
                until_ms: fetched.next_ms,
            });
        }

        // Before the claims, so that no signal is missed in between.
        let mut watchers: Vec<(InstanceId, Watcher)> = fetched
            .ids
            .iter()
            .map(|id| (Arc::clone(id), backend.hub().watch(id)))
            .collect();

        let now_ms = self.worker.clock.now_ms();
        let until_ms = now_ms.saturating_add(millis(self.worker.claim_ttl));
        let claim = Claim {
            holder: Arc::clone(&self.worker.name),
            now_ms,
            until_ms,
        };

        let claimed = backend.claim(&fetched.ids, &claim).await?;
        // Other workers claimed them at the same time. The next instances are available at once.
        if claimed.is_empty() {
            return Ok(Fetch::Nothing {
                until_ms: self.after(CONTENTION_DELAY),
            });
        }

        for stored in claimed {
            // Only some of the fetched instances may be claimed, and in another order.
            let Some(at) = watchers.iter().position(|(id, _)| *id == stored.id) else {
                continue;
            };
            let (_, watcher) = watchers.swap_remove(at);
            self.start(stored, watcher, until_ms);
        }
        Ok(Fetch::Claimed)
    }

    fn start(&mut self, stored: StoredInstance, watcher: Watcher, until_ms: u64) {
        let id = Arc::clone(&stored.id);
        let epoch = stored.epoch;
        let instance = Instance {
            backend: Arc::clone(&self.worker.backend),
            registry: Arc::clone(&self.worker.registry),
            clock: self.worker.clock,
            stop: self.stop.clone(),
        };
        let claims = self.claims.clone();
        let claimed_id = Arc::clone(&id);

        // The task waits for its claim to be stored: it must not end before.
        let (ready, is_ready) = tokio::sync::oneshot::channel::<()>();
        let task = self.instances.spawn(async move {
            is_ready.await.ok();
            // Values of the user can panic while they are serialized. The claim must not be
            // extended then.
            let execution = AssertUnwindSafe(instance.execute(stored, watcher));
            if let Err(panic) = execution.catch_unwind().await {
                let reason = panic_message(&*panic);
                error!(
                    instance = %claimed_id,
                    reason,
                    "instance interrupted; it continues after its claim has expired"
                );
            }
            claims.remove(&claimed_id, epoch);
        });

        self.claims.add(id, epoch, until_ms, task);
        // The task was aborted if it does not wait.
        ready.send(()).ok();
    }

    fn after(&self, delay: Duration) -> u64 {
        self.worker.clock.now_ms().saturating_add(millis(delay))
    }
}

/// Execution of one claimed instance.
struct Instance {
    backend: Arc<dyn Backend>,
    registry: Arc<TaskRegistry>,
    clock: Clock,
    stop: watch::Receiver<bool>,
}

impl Instance {
    async fn execute(self, stored: StoredInstance, watcher: Watcher) {
        let id = Arc::clone(&stored.id);
        if let Err(error) = self.try_execute(stored, watcher).await {
            error!(
                instance = %id,
                %error,
                "instance interrupted; it continues after its claim has expired"
            );
        }
    }

    async fn try_execute(self, stored: StoredInstance, watcher: Watcher) -> Result<(), RunError> {
        let definition = match self.registry.resolve(&stored, self.backend.as_ref()).await {
            Ok(definition) => definition,
            Err(error) => {
                error!(instance = %stored.id, %error, "this worker cannot execute the instance");
                return Ok(self.release(stored).await?);
            }
        };

        let mut state =
            State::decode(&stored.state).map_err(|reason| RunError::Value { reason })?;
        let is_changed = recover(&definition, &mut state, self.clock.now_ms());

        let hash = Arc::clone(&definition.hash);
        let checkpoint = Snapshots::new(
            Arc::clone(&self.backend),
            &stored,
            hash,
            &state,
            watcher,
            true,
        );

        let driver = Driver {
            definition,
            instance: stored.id,
            state,
            clock: self.clock,
            checkpoint,
            progress: None,
            stop: Some(self.stop),
            is_changed,
        };
        driver.drive().await.map(drop)
    }

    /// Releases an instance that this worker cannot execute, for workers with other functions. It
    /// does so after a delay, because this worker may claim it again. The instance is due after
    /// those that were available meanwhile, so that it delays none of them twice.
    async fn release(mut self, stored: StoredInstance) -> Result<(), BackendError> {
        let retry_ms = self.clock.now_ms().saturating_add(millis(ERROR_DELAY));
        tokio::select! {
            () = self.clock.wait_until(retry_ms) => {}
            Ok(_) = self.stop.wait_for(|stop| *stop) => {}
        }

        let save = Save {
            id: stored.id,
            epoch: stored.epoch,
            hash: stored.hash,
            state: stored.state,
            // No signal is consumed.
            last_signal: 0,
            then: After::Release {
                wake_ms: self.clock.now_ms(),
            },
        };
        self.backend.save(save).await
    }
}
