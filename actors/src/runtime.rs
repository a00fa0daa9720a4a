//! Handle of the runtime: start, control, query, drain, stop.

pub(crate) mod gauges;
pub(crate) mod limits;
pub(crate) mod live_limits;
pub(crate) mod operations;
pub(crate) mod ownership;
pub(crate) mod preview;

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::Bus;
use orlog_bus::subject::SubjectKind;
use orlog_effect::{Catalog, CatalogChange, LeaseEnd};
use orlog_model::{Change, Clock, ControlRequest, Input, InstanceKey, Timestamp};
use orlog_store::Reader;
use ractor::{Actor, ActorCell, ActorRef, ActorStatus};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::effects;
use crate::effects::providers::{ProviderRegistry, ReloadCatalog};
use crate::instance::completion::{Completion, ControlError, ControlResult};
use crate::instance::decision_pool::DecisionPool;
use crate::instance::ignored_events::IgnoredEvent;
use crate::instance::program_registry::ProgramRegistry;
use crate::instance::waiters::{Awaited, InstanceWaiter};
use crate::root::{self, RootActor};
use crate::runtime::limits::{Limits, LimitsError};
use crate::runtime::live_limits::LiveLimits;
use crate::shard::committer::CommitObserver;
use crate::shard::dead_letter_publisher::DeadLetterEncoder;
use crate::shard::event_source::EventSource;
use crate::shard::running::{
    RunningShard, RunningShards, ShardDependencies, ShardTemplate, WorkObstacle,
};
use crate::shard::submission::Submission;
use crate::supervision::RestartIntensity;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tracer::Tracer;

/// Poll interval while a draining runtime becomes idle.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Dependencies of a runtime.
pub struct RuntimeDependencies {
    /// Bus for facts and events.
    pub bus: Arc<dyn Bus>,
    /// Sources of events.
    pub sources: Vec<EventSource>,
    /// Catalog of upstreams.
    pub catalog: Arc<Catalog>,
    /// Program registry.
    pub programs: Arc<ProgramRegistry>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Table of the running shards, with the mapping of instances to slots. The runtime fills it.
    pub running: Arc<RunningShards>,
    /// Shards that this process owns from the start; others can be acquired later.
    pub shards: Vec<ShardDependencies>,
    /// Encoder of the published part of a dead letter.
    pub dead_letter_encoder: DeadLetterEncoder,
    /// Observer of all commits.
    pub observer: Option<Arc<dyn CommitObserver>>,
    /// Creates spans.
    pub tracer: Option<Arc<dyn Tracer>>,
}

/// Configuration of a runtime.
#[derive(Clone, Debug, Default)]
pub struct RuntimeConfig {
    /// Name of this node, for the history.
    pub node: String,
    /// Limits of each shard.
    pub limits: Limits,
    /// Restart limit of shards and providers.
    pub intensity: RestartIntensity,
    /// Subject kind of events that are published to the bus.
    pub submitted_event_kind: SubjectKind,
    /// Maximum number of tenants with separate metric series; all others share one.
    pub tenant_series: usize,
    /// Whether streams that lost messages are read from a position that skips no message.
    pub accept_data_loss: bool,
    /// Whether the results of effects are published as events, unless their providers have
    /// published them.
    pub publishes_results: bool,
}

/// Health of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeHealth {
    /// Every shard is running.
    pub is_running: bool,
    /// The store has free space.
    pub has_capacity: bool,
    /// The runtime accepts new work.
    pub accepting: bool,
}

/// Error of a runtime that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The limits contradict each other.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// An actor did not start; contains the reason.
    #[error("cannot start: {0}")]
    Start(String),
    /// The shard is already running here.
    #[error("shard {0} is already running")]
    AlreadyRunning(u16),
}

/// The runtime of a node.
pub struct Runtime {
    pub(crate) root: ActorRef<root::Message>,
    ended: Mutex<Option<JoinHandle<()>>>,
    pub(crate) shards: Arc<RunningShards>,
    pub(crate) lost: Mutex<mpsc::UnboundedReceiver<u16>>,
    pub(crate) shared: Arc<ShardTemplate>,
    submitted_event_kind: SubjectKind,
    pub(crate) lease: LeaseEnd,
}

impl Runtime {
    /// Builds the actor tree and starts it.
    ///
    /// # Errors
    /// If the limits contradict each other or an actor cannot start.
    pub async fn start(
        dependencies: RuntimeDependencies,
        config: RuntimeConfig,
    ) -> Result<Self, RuntimeError> {
        config.limits.check()?;
        let metrics = Arc::new(Metrics::new(config.tenant_series));
        let decisions = DecisionPool::new(config.limits.transition_threads, Arc::clone(&metrics));

        let providers =
            ProviderRegistry::new(Arc::clone(&dependencies.catalog), Arc::clone(&metrics));
        let effects = effects::Arguments {
            registry: Arc::clone(&providers),
            bus: Arc::clone(&dependencies.bus),
            batch: Arc::default(),
            metrics: Arc::clone(&metrics),
            intensity: config.intensity,
        };

        let shards = dependencies.running;
        let (loses, lost) = mpsc::unbounded_channel();
        let tree = root::Arguments {
            effects,
            shards: Arc::clone(&shards),
            loses,
            intensity: config.intensity,
        };

        let started = Actor::spawn(None, RootActor, tree).await;
        let (root, ended) = started.map_err(|error| RuntimeError::Start(error.to_string()))?;

        let shared = Arc::new(ShardTemplate {
            node: config.node,
            live_limits: Arc::new(LiveLimits::new(&config.limits)),
            limits: config.limits,
            slots: shards.slots().clone(),
            accept_data_loss: config.accept_data_loss,
            publishes_results: config.publishes_results,
            bus: dependencies.bus,
            sources: dependencies.sources,
            providers,
            programs: dependencies.programs,
            decisions,
            dead_letter_encoder: dependencies.dead_letter_encoder,
            observer: dependencies.observer,
            clock: dependencies.clock,
            metrics,
            tracer: dependencies.tracer,
        });

        let runtime = Self {
            root,
            ended: Mutex::new(Some(tokio::spawn(end_shards(ended, Arc::clone(&shards))))),
            shards,
            lost: Mutex::new(lost),
            shared,
            submitted_event_kind: config.submitted_event_kind,
            lease: LeaseEnd::default(),
        };

        for shard in dependencies.shards {
            runtime.acquire_shard(shard).await?;
        }
        Ok(runtime)
    }

    /// Activates another catalog, created by [`Catalog::rebuild`] from the one that this runtime
    /// was started with. Unchanged upstreams keep their state. Attempts in flight at changed
    /// upstreams finish there; waiting items continue with the new catalog.
    ///
    /// # Errors
    /// If the effects supervisor is not running; then the old catalog stays active.
    pub async fn reload_catalog(&self, next: Arc<Catalog>) -> Result<CatalogChange, ControlError> {
        let supervisor = self
            .shared
            .providers
            .supervisor()
            .ok_or(ControlError::Unavailable)?;

        let (reply, response) = oneshot::channel();
        supervisor
            .cast(ReloadCatalog(next, reply))
            .map_err(|_| ControlError::Unavailable)?;

        response.await.map_err(|_| ControlError::Unavailable)
    }

    /// Applies the limits that can change while shards run: those of instances in memory, states
    /// and attempts.
    ///
    /// # Errors
    /// If the limits contradict each other; then none is applied.
    pub fn reload_limits(&self, limits: &Limits) -> Result<(), LimitsError> {
        limits.check()?;
        self.shared.live_limits.replace(limits);
        Ok(())
    }

    /// Sends a control request to one instance; returns when the consequences are durable.
    ///
    /// # Errors
    /// If the instance does not exist, its status does not permit the request, or its shard is
    /// unavailable.
    pub async fn control(
        &self,
        key: &InstanceKey,
        control: ControlRequest,
    ) -> Result<ControlResult, ControlError> {
        self.deliver(key, Input::Control(control), None).await
    }

    /// Sends a control request as [`Self::control`] does, once for its idempotency key: `record`
    /// is the [`Change::RequestKey`] that is committed with it, also if it changes nothing.
    ///
    /// # Errors
    /// Those of [`Self::control`], and [`Rejection::KeyReused`](orlog_engine::Rejection::KeyReused) if another request has the key.
    pub async fn control_once(
        &self,
        key: &InstanceKey,
        control: ControlRequest,
        record: Change,
    ) -> Result<ControlResult, ControlError> {
        self.deliver(key, Input::Control(control), Some(record))
            .await
    }

    pub(crate) async fn deliver(
        &self,
        key: &InstanceKey,
        input: Input,
        extra: Option<Change>,
    ) -> Result<ControlResult, ControlError> {
        self.shards.deliver(key, input, extra).await
    }

    /// Applies a change to every shard; returns when it is durable in all shards.
    ///
    /// # Errors
    /// If a shard is unavailable.
    pub async fn apply_to_all_shards(&self, change: &Change) -> Result<(), ControlError> {
        for shard in self.shards.all() {
            submit_change(&shard, change.clone()).await?;
        }
        Ok(())
    }

    /// Waits until all earlier submissions to the committers are durable, in every shard.
    ///
    /// # Errors
    /// If a shard is unavailable.
    pub async fn commit_barrier(&self) -> Result<(), ControlError> {
        // Committers keep the order. No dedupe key is that old, so this changes nothing.
        self.apply_to_all_shards(&Change::PurgeDedupe {
            before: Timestamp::from_millis(0),
        })
        .await
    }

    /// Registers a request that waits for the end of an instance. A commit costs no more with many
    /// of them: they are found by their instance.
    ///
    /// # Errors
    /// If the shard is unavailable, or the runtime drains.
    pub fn watch_end(&self, key: &InstanceKey) -> Result<InstanceWaiter, ControlError> {
        self.watch(key, Awaited::End)
    }

    /// Registers a request that waits for lines of the jobs of an instance, or for its end, as
    /// [`Runtime::watch_end`].
    ///
    /// # Errors
    /// If the shard is unavailable, or the runtime drains.
    pub fn watch_lines(&self, key: &InstanceKey) -> Result<InstanceWaiter, ControlError> {
        self.watch(key, Awaited::Lines)
    }

    fn watch(&self, key: &InstanceKey, awaited: Awaited) -> Result<InstanceWaiter, ControlError> {
        let waiter = self.shard(key)?.registry.watch(key, awaited)?;
        // Checked after the registration: a drain ends the waits that are registered.
        if self.shards.is_draining() {
            Err(ControlError::Unavailable)
        } else {
            Ok(waiter)
        }
    }

    fn shard(&self, key: &InstanceKey) -> Result<Arc<RunningShard>, ControlError> {
        self.shards.owner_of(key).ok_or(ControlError::Unavailable)
    }

    /// Returns the store reader of the shard of an instance; `None` if another process owns it.
    #[must_use]
    pub fn reader(&self, key: &InstanceKey) -> Option<Reader> {
        self.shards.owner_of(key).map(|shard| shard.reader.clone())
    }

    /// Returns the last events that an instance ignored, oldest first, of those of its shard that are
    /// in memory.
    #[must_use]
    pub fn ignored_events(&self, key: &InstanceKey) -> Vec<IgnoredEvent> {
        let shard = self.shards.owner_of(key);
        shard.map_or_else(Vec::new, |shard| shard.ignored_events.of(key))
    }

    /// Returns the store readers of all shards of this process, ordered by number.
    pub fn readers(&self) -> impl Iterator<Item = Reader> {
        self.numbered_readers().map(|(_, reader)| reader)
    }

    /// Returns the store readers as [`Runtime::readers`], with their shard numbers.
    pub fn numbered_readers(&self) -> impl Iterator<Item = (u16, Reader)> {
        let shards = self.shards.all().into_iter();
        shards.map(|shard| (shard.index, shard.reader.clone()))
    }

    /// Returns the metrics.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// Passes each live instance and its number of queued inputs to `visit`.
    pub fn for_each_mailbox(&self, mut visit: impl FnMut(&InstanceKey, usize)) {
        for shard in self.shards.all() {
            shard.live.for_each_depth(&mut visit);
        }
    }

    /// Returns the deepest mailboxes, deepest first. Visits every live instance.
    #[must_use]
    pub fn deepest_mailboxes(&self, count: usize) -> Vec<(InstanceKey, usize)> {
        let mut depths = Vec::new();
        self.for_each_mailbox(|key, depth| depths.push((key.clone(), depth)));
        depths.sort_by_key(|(_, depth)| std::cmp::Reverse(*depth));
        depths.truncate(count);
        depths
    }

    /// Returns the streams that lost messages and are not read, with the reason.
    #[must_use]
    pub fn lost_streams(&self) -> std::collections::BTreeMap<String, String> {
        self.shards
            .all()
            .iter()
            .flat_map(|shard| shard.lost_streams.all())
            .collect()
    }

    /// Returns the health of the runtime.
    #[must_use]
    pub fn health(&self) -> RuntimeHealth {
        RuntimeHealth {
            is_running: self.root.get_status() == ActorStatus::Running
                && self
                    .shards
                    .all()
                    .iter()
                    .all(|shard| shard.registry.lifecycle.committer().is_ok()),
            has_capacity: !self.shared.metrics.is_store_full(),
            accepting: !self.shards.is_draining(),
        }
    }

    /// Checks that the runtime takes new work.
    ///
    /// # Errors
    /// The reason why it takes none.
    pub fn check_takes_work(&self) -> Result<(), WorkObstacle> {
        self.shards.check_takes_work()
    }

    /// Returns the root of the actor tree, for tests that kill random actors.
    #[must_use]
    pub fn root(&self) -> ActorCell {
        self.root.get_cell()
    }

    /// Waits until the actor tree has failed or is stopped.
    pub async fn ended(&self) {
        // The handle stays in place until the task has ended, so that another caller can wait if
        // this one is cancelled.
        let mut ended = self.ended.lock().await;
        if let Some(task) = ended.as_mut() {
            // The task fails only if it is aborted, and no code aborts it.
            drop(task.await);
            *ended = None;
        }
    }

    /// Stops ingestion and timers, and waits up to `timeout` until no work is in flight. Jobs that
    /// no worker has claimed are not in flight. Returns `true` if the runtime became idle;
    /// otherwise the remaining work is in the store and continues at the next start.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.shards.begin_drain();
        self.shards
            .all()
            .iter()
            .for_each(|shard| shard.registry.waiters.close());

        tokio::time::timeout(deadline, async {
            // Ingestion first: no new input arrives while the actors become idle.
            let (done, quiet) = oneshot::channel();
            // Errors mean that the tree has stopped and no work is in flight.
            drop(self.root.cast(root::Message::Quiesce(done)));
            quiet.await.ok();
            while !self.is_idle() {
                tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
            }
        })
        .await
        .is_ok()
    }

    fn is_idle(&self) -> bool {
        let providers = &self.shared.providers;
        let shards = self.shards.all();

        // In this order: a job that is posted or claimed in between is in flight.
        let unclaimed = providers
            .catalog()
            .unclaimed_jobs(self.shared.clock.steady());
        let dispatched: usize = shards
            .iter()
            .map(|shard| shard.registry.lifecycle.epoch().dispatched())
            .sum();
        dispatched <= unclaimed
            && shards
                .iter()
                .all(|shard| shard.awaits_only_workers(providers))
    }

    /// Stops the actor tree, flushes the stores and closes them, even if other code still holds
    /// references.
    ///
    /// # Errors
    /// If a store cannot be flushed; committed data is safe in its journal.
    pub async fn stop(&self) -> Result<(), orlog_store::Error> {
        self.root.stop(None);
        self.ended().await;

        let mut closed = Ok(());
        for shard in self.shards.all() {
            // Each store is closed, also after one of them has failed.
            closed = closed.and(shard.close().await);
        }
        closed
    }
}

/// Waits for the end of the root, and ends the shards that it leaves without a supervisor.
async fn end_shards(root: JoinHandle<()>, shards: Arc<RunningShards>) {
    // The task of the root fails only if it is aborted, and no code aborts it.
    drop(root.await);
    shards.all().iter().for_each(|shard| shard.end());
}

pub(crate) async fn submit_change(
    shard: &RunningShard,
    change: Change,
) -> Result<(), ControlError> {
    let (done, response) = Completion::for_caller();
    shard
        .registry
        .lifecycle
        .committer()?
        .submit(Submission::new(change, done))?;
    response
        .await
        .unwrap_or(Err(ControlError::Unavailable))
        .map(|_| ())
}
