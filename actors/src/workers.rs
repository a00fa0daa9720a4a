//! Worker pool: executes effects whose commands come from a queue that several processes share.
//!
//! ```text
//! worker pool ── worker group ── one task per job
//! ```
//!
//! There is one worker group per effect; with a list of tenants, one per effect and tenant. A
//! worker group never requests more jobs than it has free capacity. `workers/job.rs` executes a
//! job.

mod consumers;
mod group;
mod job;
mod shared;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dashmap::{DashMap, DashSet};
use orlog_bus::effect_queue::{EffectQueue, JobSubscription};
use orlog_effect::Catalog;
use orlog_model::{Clock, EffectName, TenantId};
use ractor::{
    Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, ActorStatus, SupervisionEvent,
};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::supervision::{RestartTracker, TaskActor, exit_of};
use crate::telemetry::metrics::{ActorKind, GaugeGuard, Metrics};
use crate::telemetry::tracer::Tracer;
use group::{WorkerGroup, fetch_jobs};
use shared::{ReturnedDeliveries, WorkerPoolState};

pub use consumers::JobConsumer;
pub use shared::{GroupKey, WorkerPoolConfig};

/// Dependencies of a worker pool.
pub struct WorkerPoolDependencies {
    /// Queue of jobs and results.
    pub queue: Arc<dyn EffectQueue>,
    /// Catalog of effect executors.
    pub catalog: Arc<Catalog>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Creates spans.
    pub tracer: Option<Arc<dyn Tracer>>,
}

/// Error of a worker pool that cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the worker pool: {0}")]
pub struct WorkerPoolError(String);

/// Worker pool of a process.
pub struct WorkerPool {
    supervisor: ActorRef<CatalogReloaded>,
    ended: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    shared: Arc<WorkerPoolState>,
}

/// Notification of a changed catalog with possibly new effects. Replied to when their worker groups
/// run.
pub(crate) struct CatalogReloaded(oneshot::Sender<()>);

impl WorkerPool {
    /// Starts a worker group for each effect in the catalog. The groups retry until the queue is
    /// available.
    ///
    /// # Errors
    /// If the supervisor cannot start.
    pub async fn start(
        dependencies: WorkerPoolDependencies,
        config: WorkerPoolConfig,
    ) -> Result<Self, WorkerPoolError> {
        let WorkerPoolDependencies {
            queue,
            catalog,
            clock,
            metrics,
            tracer,
        } = dependencies;
        let shared = Arc::new(WorkerPoolState {
            queue,
            catalog,
            clock,
            metrics,
            tracer,
            config,
            jobs: AtomicUsize::new(0),
            receiving: AtomicUsize::new(0),
            subscriptions: DashMap::new(),
            in_flight: DashSet::new(),
            returned: ReturnedDeliveries::default(),
            draining: watch::Sender::new(false),
        });

        let started = Actor::spawn(None, WorkerSupervisorActor, Arc::clone(&shared)).await;
        let (supervisor, ended) = started.map_err(|error| WorkerPoolError(error.to_string()))?;

        Ok(Self {
            supervisor,
            ended: tokio::sync::Mutex::new(Some(ended)),
            shared,
        })
    }

    /// Returns the number of jobs in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.jobs.load(Ordering::Acquire)
    }

    /// Returns true if the pool requests no more jobs.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    /// Returns true if the pool is running; `false` after a stop or too many crashes of worker
    /// groups.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.supervisor.get_status() == ActorStatus::Running
    }

    /// Applies a changed catalog: starts worker groups for new effects and drains those of removed
    /// effects.
    pub async fn reload(&self) {
        let (done, renewed) = oneshot::channel();
        // Errors mean that it is stopped.
        drop(self.supervisor.cast(CatalogReloaded(done)));
        renewed.await.ok();
    }

    /// Requests no more jobs and waits up to `deadline` until no job is in flight, except those
    /// that no external worker has claimed, and until the queue delivers none any more; returns
    /// `true` if the pool became idle.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.shared.draining.send_replace(true);
        let idle = async {
            loop {
                let unclaimed = self
                    .shared
                    .catalog
                    .unclaimed_jobs(self.shared.clock.steady());
                let is_receiving = self.shared.receiving.load(Ordering::Acquire) > 0;
                if self.in_flight() <= unclaimed && !is_receiving {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(deadline, idle).await.is_ok()
    }

    /// Abandons the jobs in flight: the queue delivers them to other workers.
    pub async fn stop(&self) {
        self.supervisor.stop(None);
        self.ended().await;
    }

    /// Waits until the pool has failed or is stopped.
    pub async fn ended(&self) {
        let mut ended = self.ended.lock().await;
        if let Some(task) = ended.as_mut() {
            // The task fails only if it is aborted, and no code aborts it.
            drop(task.await);
            *ended = None;
        }
    }
}

/// Supervisor of the worker groups.
struct WorkerSupervisorActor;

struct WorkerGroups {
    shared: Arc<WorkerPoolState>,
    groups: BTreeMap<GroupKey, RunningGroup>,
    restarts: RestartTracker,
    _alive: GaugeGuard,
}

struct RunningGroup {
    actor: ActorId,
    /// Set when the group must request no more jobs.
    leaving: watch::Sender<bool>,
}

impl Actor for WorkerSupervisorActor {
    type Msg = CatalogReloaded;
    type State = WorkerGroups;
    type Arguments = Arc<WorkerPoolState>;

    async fn pre_start(
        &self,
        myself: ActorRef<CatalogReloaded>,
        shared: Arc<WorkerPoolState>,
    ) -> Result<WorkerGroups, ActorProcessingErr> {
        let alive = shared.metrics.actor_started(ActorKind::WorkerSupervisor);
        let mut state = WorkerGroups {
            shared,
            groups: BTreeMap::new(),
            restarts: RestartTracker::default(),
            _alive: alive,
        };
        state.renew(&myself.get_cell()).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<CatalogReloaded>,
        CatalogReloaded(done): CatalogReloaded,
        state: &mut WorkerGroups,
    ) -> Result<(), ActorProcessingErr> {
        state.renew(&myself.get_cell()).await?;
        // An error means that no caller waits for it.
        done.send(()).ok();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<CatalogReloaded>,
        event: SupervisionEvent,
        state: &mut WorkerGroups,
    ) -> Result<(), ActorProcessingErr> {
        let Some((crashed, reason)) = exit_of(event) else {
            return Ok(());
        };
        state
            .replace(crashed.get_id(), &reason, &myself.get_cell())
            .await
    }
}

impl WorkerGroups {
    async fn renew(&mut self, me: &ActorCell) -> Result<(), ActorProcessingErr> {
        let names = self.shared.catalog.effects().into_iter();
        let tenants = self.tenants();
        let required: BTreeSet<GroupKey> = names
            .filter_map(|(name, _)| EffectName::new(name).ok())
            .flat_map(|effect| groups_of(&effect, &tenants))
            .collect();

        let removed: Vec<_> = self
            .groups
            .keys()
            .filter(|key| !required.contains(*key))
            .cloned()
            .collect();

        for key in removed {
            self.shared.subscriptions.remove(&key);
            if let Some(worker_group) = self.groups.remove(&key) {
                worker_group.leaving.send_replace(true);
            }
        }

        for key in required {
            if !self.groups.contains_key(&key) {
                self.start(key, me.clone()).await?;
            }
        }
        Ok(())
    }

    /// Returns the tenants that have groups of their own; `None` stands for all tenants together.
    fn tenants(&self) -> Vec<Option<TenantId>> {
        match &self.shared.config.tenants {
            Some(tenants) => tenants.iter().cloned().map(Some).collect(),
            None => vec![None],
        }
    }

    async fn start(&mut self, key: GroupKey, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let WorkerPoolState { config, .. } = &*self.shared;
        let jobs = self.shared.queue.subscribe_jobs(JobSubscription {
            effect: key.effect.clone(),
            tenant: key.tenant.clone(),
            served: config.tenants.clone().unwrap_or_default(),
            ack_wait: config.ack_wait,
        });
        self.shared.subscriptions.insert(key.clone(), jobs.state());

        let leaving = watch::Sender::new(false);
        let fetch = fetch_jobs(jobs, Arc::clone(&self.shared), leaving.subscribe());
        let actor = TaskActor::<WorkerGroup>::spawn(me, &self.shared.metrics, fetch)
            .await?
            .get_id();
        self.groups.insert(key, RunningGroup { actor, leaving });
        Ok(())
    }

    /// Restarts a crashed worker group within the restart limit. A drained group has no successor.
    async fn replace(
        &mut self,
        crashed: ActorId,
        reason: &str,
        me: &ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        let found = self
            .groups
            .iter()
            .find(|(_, worker_group)| worker_group.actor == crashed);
        let Some(key) = found.map(|(key, _)| key.clone()) else {
            return Ok(());
        };

        self.groups.remove(&key);
        if self.shared.is_draining() {
            return Ok(());
        }

        if !self
            .restarts
            .admit(self.shared.config.intensity, Instant::now())
        {
            return Err(format!("worker groups exceeded the restart limit: {reason}").into());
        }

        tracing::warn!(group = %key, reason, "worker group crashed; restarting");
        self.shared
            .metrics
            .count_restart(ActorKind::WorkerSupervisor, ActorKind::WorkerGroup);
        self.start(key, me.clone()).await
    }
}

fn groups_of(effect: &EffectName, tenants: &[Option<TenantId>]) -> Vec<GroupKey> {
    tenants
        .iter()
        .map(|tenant| GroupKey {
            effect: effect.clone(),
            tenant: tenant.clone(),
        })
        .collect()
}
