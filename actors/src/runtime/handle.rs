//! The one handle to the running system: start, instruct, look, drain, stop.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::Bus;
use orlog_bus::subject::Kind;
use orlog_effect::{Catalog, Renewal};
use orlog_model::{Change, Clock, Control, Input, InstanceKey, Slots, Timestamp};
use orlog_store::Reader;
use ractor::{Actor, ActorCell, ActorRef, ActorStatus};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::instance::mailbox::Envelope;

use crate::effects::provider_registry::Hands;
use crate::effects::provider_registry::Renew;
use crate::effects::supervisor;
use crate::instance::completion::Done;
use crate::instance::programs::Programs;
use crate::instance::registry::Context;
use crate::restart::Intensity;
use crate::root::{self, Root};
use crate::runtime::control::{ControlError, Controlled};
use crate::runtime::limits::{Limits, LimitsError};
use crate::shard::committer::CommitObserver;
use crate::shard::dead_letter_publisher::ShowLetter;
use crate::shard::event_source::EventSource;
use crate::telemetry::metrics::Metrics;

use crate::shard::running::{Running, ShardParts, Shards};
use crate::shard::submission::Submission;
use crate::telemetry::tracer::Tracer;

/// How often a draining runtime looks whether it is at rest.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// What a runtime is built from.
pub struct Parts {
    /// Whither facts and events go.
    pub bus: Arc<dyn Bus>,
    /// Whence events come.
    pub sources: Vec<EventSource>,
    /// The upstreams.
    pub catalog: Arc<Catalog>,
    /// The programs.
    pub programs: Arc<Programs>,
    /// The present.
    pub clock: Arc<dyn Clock>,
    /// The shards that this process owns from the start; others can be taken later.
    pub shards: Vec<ShardParts>,
    /// What of a dead letter is published.
    pub letters: ShowLetter,
    /// Hears of every commit.
    pub observer: Option<Arc<dyn CommitObserver>>,
    /// Makes spans.
    pub tracer: Option<Arc<dyn Tracer>>,
}

/// How a runtime behaves.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The name of this node, for the record.
    pub node: String,
    /// Bounds of each shard.
    pub limits: Limits,
    /// How often shards and providers may be restarted.
    pub intensity: Intensity,
    /// Which tenants are spread.
    pub slots: Slots,
    /// The kind under which an event goes to the bus.
    pub submitted_as: Kind,
    /// Tenants with metrics of their own; all others share theirs.
    pub tenant_series: usize,
}

/// How the runtime does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Every shard is up.
    pub up: bool,
    /// There is room in the store.
    pub room: bool,
    /// It takes new work.
    pub accepting: bool,
}

/// A runtime that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The bounds contradict each other.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// An actor did not start; the text says why.
    #[error("cannot start: {0}")]
    Start(String),
    /// The shard runs here already.
    #[error("shard {0} runs already")]
    Taken(u16),
}

/// The running system.
pub struct Runtime {
    pub(crate) root: ActorRef<root::Message>,
    ended: Mutex<Option<JoinHandle<()>>>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) lost: Mutex<mpsc::UnboundedReceiver<u16>>,
    pub(crate) hands: Arc<Hands>,
    pub(crate) making: Making,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) metrics: Arc<Metrics>,
    accepting: std::sync::atomic::AtomicBool,
}

/// What every shard is made with.
pub(crate) struct Making {
    pub(crate) letters: ShowLetter,
    pub(crate) sources: Vec<EventSource>,
    pub(crate) config: Config,
    pub(crate) programs: Arc<Programs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Option<Arc<dyn CommitObserver>>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

impl Runtime {
    /// Builds the tree and starts it.
    ///
    /// # Errors
    /// When the bounds contradict each other or an actor cannot start.
    pub async fn start(parts: Parts, config: Config) -> Result<Self, RuntimeError> {
        config.limits.check()?;
        let metrics = Arc::new(Metrics::new(config.tenant_series));
        let hands = Hands::new(Arc::clone(&parts.catalog));
        let effects = supervisor::Arguments {
            hands: Arc::clone(&hands),
            bus: Arc::clone(&parts.bus),
            metrics: Arc::clone(&metrics),
            intensity: config.intensity,
        };
        let shards = Arc::new(Shards::new(config.slots.clone()));
        let (loses, lost) = mpsc::unbounded_channel();
        let tree =
            root::Arguments { effects, shards: Arc::clone(&shards), loses, intensity: config.intensity };
        let started = Actor::spawn(None, Root, tree).await;
        let (root, ended) = started.map_err(|error| RuntimeError::Start(error.to_string()))?;
        let making = Making {
            letters: parts.letters,
            sources: parts.sources,
            config,
            programs: parts.programs,
            clock: parts.clock,
            observer: parts.observer,
            tracer: parts.tracer,
        };
        let runtime = Self {
            root,
            ended: Mutex::new(Some(ended)),
            shards,
            lost: Mutex::new(lost),
            hands,
            making,
            bus: parts.bus,
            metrics,
            accepting: true.into(),
        };
        for shard in parts.shards {
            runtime.take(shard).await?;
        }
        Ok(runtime)
    }

    /// Puts another catalog in force, made by [`Catalog::renewed`] of the one this runtime was started with. Upstreams that
    /// did not change go on as they are; attempts under way at the others go on to their end, and what waits there goes on
    /// where the new catalog says.
    ///
    /// # Errors
    /// When the hands are not up; then the old catalog stays in force.
    pub async fn renew(&self, next: Arc<Catalog>) -> Result<Renewal, ControlError> {
        let supervisor = self.hands.supervisor().ok_or(ControlError::Unavailable)?;
        let (reply, answer) = oneshot::channel();
        supervisor.cast(Renew(next, reply)).map_err(|_| ControlError::Unavailable)?;
        answer.await.map_err(|_| ControlError::Unavailable)
    }

    /// Instructs one instance; returns when the consequences are durable.
    ///
    /// # Errors
    /// When the instance does not exist, its status forbids it, or its shard is not available.
    pub async fn control(&self, key: &InstanceKey, control: Control) -> Result<Controlled, ControlError> {
        self.deliver(key, Input::Control(control), None).await
    }

    pub(crate) async fn deliver(
        &self,
        key: &InstanceKey,
        input: Input,
        extra: Option<Change>,
    ) -> Result<Controlled, ControlError> {
        let shard = self.shard(key)?;
        let (reply, answer) = oneshot::channel();
        let envelope = Envelope { extra, ..Envelope::new(input, Done::Reply(reply, None)) };
        shard.directory.dispatch(key, envelope)?;
        answer.await.unwrap_or(Err(ControlError::Unavailable))
    }

    /// Makes a change in every shard; returns when it is durable everywhere.
    ///
    /// # Errors
    /// When a shard is not available.
    pub async fn change_everywhere(&self, change: &Change) -> Result<(), ControlError> {
        for shard in self.shards.all() {
            submit(&shard, change.clone()).await?;
        }
        Ok(())
    }

    /// Returns once everything that the committers were given before is durable, in every shard.
    ///
    /// # Errors
    /// When a shard is not available.
    pub async fn barrier(&self) -> Result<(), ControlError> {
        // Committers keep the order. No marker is that old, so this changes nothing.
        self.change_everywhere(&Change::PurgeApplied { before: Timestamp::from_millis(0) }).await
    }

    fn shard(&self, key: &InstanceKey) -> Result<Arc<Running>, ControlError> {
        self.shards.of(key).ok_or(ControlError::Unavailable)
    }

    /// The store of the shard an instance lives in; `None` when another process owns it.
    #[must_use]
    pub fn reader(&self, key: &InstanceKey) -> Option<Reader> {
        self.shards.of(key).map(|shard| shard.directory.context.reader.clone())
    }

    /// The stores of all shards of this process, in the order of their numbers.
    pub fn readers(&self) -> impl Iterator<Item = Reader> {
        self.numbered_readers().map(|(_, reader)| reader)
    }

    /// As [`Runtime::readers`], with the numbers.
    pub fn numbered_readers(&self) -> impl Iterator<Item = (u16, Reader)> {
        let shards = self.shards.all().into_iter();
        shards.map(|shard| (shard.index, shard.directory.context.reader.clone()))
    }

    pub(crate) fn contexts(&self) -> impl Iterator<Item = Arc<Context>> {
        self.shards.all().into_iter().map(|shard| Arc::clone(&shard.directory.context))
    }

    pub(crate) fn context(&self, key: &InstanceKey) -> Option<Arc<Context>> {
        self.shards.of(key).map(|shard| Arc::clone(&shard.directory.context))
    }

    /// What it counts.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The deepest mailboxes, deepest first. Looks at every live instance.
    #[must_use]
    pub fn deepest_mailboxes(&self, count: usize) -> Vec<(InstanceKey, usize)> {
        let mut depths: Vec<_> =
            self.shards.all().iter().flat_map(|s| s.directory.depths().collect::<Vec<_>>()).collect();
        depths.sort_by_key(|(_, depth)| std::cmp::Reverse(*depth));
        depths.truncate(count);
        depths
    }

    /// How it does.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            up: self.root.get_status() == ActorStatus::Running
                && self.shards.all().iter().all(|shard| shard.directory.committer().is_ok()),
            room: !self.metrics.is_store_full(),
            accepting: self.accepting.load(std::sync::atomic::Ordering::Acquire),
        }
    }

    /// The root of the actor tree, for tests that kill at random.
    #[must_use]
    pub fn root(&self) -> ActorCell {
        self.root.get_cell()
    }

    /// Returns when the tree has given up, or was stopped.
    pub async fn ended(&self) {
        // The handle stays where it is until the task has ended: whoever stops waiting leaves it for the next.
        let mut ended = self.ended.lock().await;
        if let Some(task) = ended.as_mut() {
            // The root's task only fails when it is aborted, which nobody does.
            drop(task.await);
            *ended = None;
        }
    }

    /// Takes no more events, fires no more timers, and waits until nothing is under way, `deadline` long at most.
    /// `true` when it came to rest; otherwise what is left is in the store and goes on at the next start.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.accepting.store(false, std::sync::atomic::Ordering::Release);
        tokio::time::timeout(deadline, async {
            let (done, quiet) = oneshot::channel();
            // Errors mean that the tree is gone, and nothing is under way.
            drop(self.root.cast(root::Message::Quiesce(done)));
            quiet.await.ok();
            while !self.is_at_rest() {
                tokio::time::sleep(DRAIN_LOOK).await;
            }
        })
        .await
        .is_ok()
    }

    fn is_at_rest(&self) -> bool {
        self.shards.all().iter().all(|shard| shard.rests())
    }

    /// Stops the tree, brings the stores' tables up to date and closes them, whoever still holds a part of this.
    ///
    /// # Errors
    /// When a store cannot be flushed; what is committed is safe in its journal.
    pub async fn stop(&self) -> Result<(), orlog_store::Error> {
        self.root.stop(None);
        self.ended().await;
        let mut closed = Ok(());
        for shard in self.shards.all() {
            closed = closed.and(shard.close().await);
        }
        closed
    }
}

pub(crate) async fn submit(shard: &Running, change: Change) -> Result<(), ControlError> {
    let (done, answer) = Done::for_someone();
    shard.directory.committer()?.submit(Submission::of(change, done))?;
    answer.await.unwrap_or(Err(ControlError::Unavailable)).map(|_| ())
}
