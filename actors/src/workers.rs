//! Workers: performs effects whose commands come from a queue, with other processes that do the same.
//!
//! ```text
//! pool ── crew (one per effect) ── one task a job
//! ```
//!
//! A crew never asks for more jobs than it has hands. A job is seen through by `pool/job.rs`.

mod group;
mod job;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashSet;
use orlog_bus::effect_queue::{EffectQueue, Wanted};
use orlog_effect::Catalog;
use orlog_model::{Clock, EffectName};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorStatus, SupervisionEvent};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::restart::Restarts;
use crate::telemetry::metrics::{ActorKind, Alive, Metrics};
use crate::telemetry::tracer::Tracer;
use group::Crew;
use shared::Shared;

pub use shared::PoolConfig;

/// What a pool is built from.
pub struct PoolParts {
    /// Whence jobs come and whither results go.
    pub queue: Arc<dyn EffectQueue>,
    /// Who performs.
    pub catalog: Arc<Catalog>,
    /// The present.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Makes spans.
    pub tracer: Option<Arc<dyn Tracer>>,
}

/// A pool that cannot start.
#[derive(Debug, thiserror::Error)]
#[error("the workers cannot start: {0}")]
pub struct PoolError(String);

/// The workers of a process.
pub struct Pool {
    foreman: ActorRef<Renewed>,
    ended: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    shared: Arc<Shared>,
}

/// The catalog has changed: there may be other effects. Answered when their crews stand.
pub(crate) struct Renewed(oneshot::Sender<()>);

impl Pool {
    /// Starts a crew for each effect in the catalog.
    ///
    /// # Errors
    /// When the queue cannot be reached.
    pub async fn start(parts: PoolParts, config: PoolConfig) -> Result<Self, PoolError> {
        let PoolParts { queue, catalog, clock, metrics, tracer } = parts;
        let shared = Arc::new(Shared {
            queue,
            catalog,
            clock,
            metrics,
            tracer,
            config,
            jobs: AtomicUsize::new(0),
            under_way: DashSet::new(),
            draining: watch::Sender::new(false),
        });
        let started = Actor::spawn(None, Foreman, Arc::clone(&shared)).await;
        let (foreman, ended) = started.map_err(|error| PoolError(error.to_string()))?;
        Ok(Self { foreman, ended: tokio::sync::Mutex::new(Some(ended)), shared })
    }

    /// Jobs in hand.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.shared.jobs.load(Ordering::Acquire)
    }

    /// Whether it asks for no more jobs.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    /// Whether it works; `false` when its crews died too often, or it was stopped.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.foreman.get_status() == ActorStatus::Running
    }

    /// The catalog has changed: crews for new effects begin, those of effects that are gone end what they have.
    pub async fn renew(&self) {
        let (done, renewed) = oneshot::channel();
        // Errors mean that it is stopped.
        drop(self.foreman.cast(Renewed(done)));
        renewed.await.ok();
    }

    /// Asks for no more jobs and waits until none is in hand, `deadline` long at most; `true` when it came to rest.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.shared.draining.send_replace(true);
        let at_rest = async {
            while self.jobs() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(deadline, at_rest).await.is_ok()
    }

    /// Gives up what is in hand: the queue gives it to others.
    pub async fn stop(&self) {
        self.foreman.stop(None);
        self.ended().await;
    }

    /// Returns when it has given up, or was stopped.
    pub async fn ended(&self) {
        let mut ended = self.ended.lock().await;
        if let Some(task) = ended.as_mut() {
            // The task only fails when it is aborted, which nobody does.
            drop(task.await);
            *ended = None;
        }
    }
}

/// The supervisor of the crews.
struct Foreman;

struct Crews {
    shared: Arc<Shared>,
    standing: BTreeMap<EffectName, ActorRef<group::Message>>,
    restarts: Restarts,
    _alive: Alive,
}

impl Actor for Foreman {
    type Msg = Renewed;
    type State = Crews;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        myself: ActorRef<Renewed>,
        shared: Arc<Shared>,
    ) -> Result<Crews, ActorProcessingErr> {
        let alive = shared.metrics.begin(ActorKind::Foreman);
        let (standing, restarts) = (BTreeMap::new(), Restarts::default());
        let mut crews = Crews { shared, standing, restarts, _alive: alive };
        crews.renew(&myself.get_cell()).await?;
        Ok(crews)
    }

    async fn handle(
        &self,
        myself: ActorRef<Renewed>,
        Renewed(done): Renewed,
        crews: &mut Crews,
    ) -> Result<(), ActorProcessingErr> {
        crews.renew(&myself.get_cell()).await?;
        // An error means that nobody waits for it.
        done.send(()).ok();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Renewed>,
        event: SupervisionEvent,
        crews: &mut Crews,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(dead, why) => {
                crews.replace(&dead, &why.to_string(), &myself.get_cell()).await
            }
            SupervisionEvent::ActorTerminated(dead, _, why) => {
                crews.replace(&dead, &why.unwrap_or_default(), &myself.get_cell()).await
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }
}

impl Crews {
    async fn renew(&mut self, me: &ActorCell) -> Result<(), ActorProcessingErr> {
        let names = self.shared.catalog.effects().into_iter();
        let wanted: BTreeSet<EffectName> = names.filter_map(|(name, _)| EffectName::new(name).ok()).collect();
        let gone: Vec<_> = self.standing.keys().filter(|effect| !wanted.contains(*effect)).cloned().collect();
        for effect in gone {
            if let Some(crew) = self.standing.remove(&effect) {
                // An error means that it is gone already.
                drop(crew.cast(group::Message::Leave));
            }
        }
        for effect in wanted {
            if !self.standing.contains_key(&effect) {
                self.start(effect, me.clone()).await?;
            }
        }
        Ok(())
    }

    async fn start(&mut self, effect: EffectName, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let Shared { config, .. } = &*self.shared;
        let wanted =
            Wanted { effect: effect.clone(), tenants: config.tenants.clone(), ack_wait: config.ack_wait };
        let arguments = group::Arguments { shared: Arc::clone(&self.shared), wanted };
        let (crew, _) = Actor::spawn_linked(None, Crew, arguments, me).await?;
        self.standing.insert(effect, crew);
        Ok(())
    }

    /// Starts another in the place of a dead one, unless that happens too often. One that has left has no successor.
    async fn replace(
        &mut self,
        dead: &ActorCell,
        why: &str,
        me: &ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        let found = self.standing.iter().find(|(_, crew)| crew.get_id() == dead.get_id());
        let Some(effect) = found.map(|(effect, _)| effect.clone()) else { return Ok(()) };
        self.standing.remove(&effect);
        if self.shared.is_draining() {
            return Ok(());
        }
        if !self.restarts.admit(self.shared.config.intensity, Instant::now()) {
            return Err(format!("workers die too often: {why}").into());
        }
        tracing::warn!(%effect, why, "the workers of an effect died and are started again");
        self.shared.metrics.count_restart(ActorKind::Foreman, ActorKind::Crew);
        self.start(effect, me.clone()).await
    }
}
