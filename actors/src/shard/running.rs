//! Shards that currently run in this process. Shards are added and removed at run time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlog_bus::Bus;
use orlog_effect::LeaseEnd;
use orlog_model::{Change, Clock, Input, InstanceKey, SlotAssigner};
use orlog_store::{Reader, Writer};
use parking_lot::RwLock;
use tokio::sync::{Mutex, oneshot};

use crate::effects::providers::ProviderRegistry;
use crate::instance::InstanceRegistry;
use crate::instance::completion::{Completion, ControlError, ControlResult};
use crate::instance::decision_pool::DecisionPool;
use crate::instance::ignored_events::IgnoredEvents;
use crate::instance::live_instances::LiveInstances;
use crate::instance::mailbox::Envelope;
use crate::instance::program_registry::ProgramRegistry;
use crate::instance::saga::state::QuarantinedInstances;
use crate::runtime::limits::Limits;
use crate::runtime::live_limits::LiveLimits;
use crate::shard::committer::{CommitObserver, SharedWriter, WriterState};
use crate::shard::dead_letter_publisher::DeadLetterEncoder;
use crate::shard::event_source::EventSource;
use crate::shard::subscribe::LostStreams;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tracer::Tracer;

/// Dependencies of a shard.
pub struct ShardDependencies {
    /// Shard number.
    pub index: u16,
    /// Slots of the shard.
    pub slots: Range<u16>,
    /// Writer of the store.
    pub writer: Writer,
    /// Reader of the store.
    pub reader: Reader,
}

/// Dependencies and settings that the shards of a process share. The shard actor gives its children
/// what each uses.
pub(crate) struct ShardTemplate {
    pub(crate) node: String,
    pub(crate) limits: Limits,
    /// Those of the limits that a reload changes.
    pub(crate) live_limits: Arc<LiveLimits>,
    pub(crate) slots: SlotAssigner,
    /// Whether streams that lost messages are read.
    pub(crate) accept_data_loss: bool,
    /// Whether the results of effects are published as events.
    pub(crate) publishes_results: bool,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) sources: Vec<EventSource>,
    pub(crate) providers: Arc<ProviderRegistry>,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) decisions: Arc<DecisionPool>,
    pub(crate) dead_letter_encoder: DeadLetterEncoder,
    pub(crate) observer: Option<Arc<dyn CommitObserver>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

/// A running shard: what survives a restart of its actor.
pub(crate) struct RunningShard {
    pub(crate) index: u16,
    pub(crate) slots: Range<u16>,
    pub(crate) registry: Arc<InstanceRegistry>,
    pub(crate) live: Arc<LiveInstances>,
    pub(crate) quarantined: Arc<QuarantinedInstances>,
    pub(crate) ignored_events: Arc<IgnoredEvents>,
    pub(crate) lost_streams: Arc<LostStreams>,
    pub(crate) writer: SharedWriter,
    pub(crate) reader: Reader,
    pub(crate) shared: Arc<ShardTemplate>,
}

impl RunningShard {
    pub(crate) fn new(
        dependencies: ShardDependencies,
        shared: &Arc<ShardTemplate>,
        lease: LeaseEnd,
    ) -> Arc<Self> {
        let ShardTemplate {
            live_limits,
            metrics,
            ..
        } = &**shared;
        let live = LiveInstances::new(Arc::clone(live_limits), Arc::clone(metrics));
        Arc::new(Self {
            index: dependencies.index,
            slots: dependencies.slots,
            registry: InstanceRegistry::new(Arc::clone(&live), lease, metrics.inputs.clone()),
            live,
            quarantined: Arc::default(),
            ignored_events: Arc::default(),
            lost_streams: Arc::default(),
            writer: Arc::new(Mutex::new(WriterState {
                writer: dependencies.writer,
                failed: false,
            })),
            reader: dependencies.reader,
            shared: Arc::clone(shared),
        })
    }

    /// Returns the name of the shard at its streams.
    pub(crate) fn name(&self) -> String {
        format!("shard-{}", self.index)
    }

    /// Returns true if the shard is idle, except for jobs in its outbox that wait for workers.
    pub(crate) fn awaits_only_workers(&self, providers: &ProviderRegistry) -> bool {
        // The instances first: when they are idle, their work is in the outbox.
        self.is_quiet()
            && self.reader.outbox_destinations().is_ok_and(|pending| {
                pending
                    .iter()
                    .all(|destination| providers.awaits_workers(destination))
            })
    }

    /// Returns true if nothing is in flight; the outbox may have work items.
    pub(crate) fn has_settled(&self) -> bool {
        self.is_quiet() && self.registry.lifecycle.epoch().dispatched() == 0
    }

    /// Returns true if no instance has inputs and all dead letters are published.
    fn is_quiet(&self) -> bool {
        self.live.is_idle()
            && self
                .reader
                .unpublished_dead_letters(0, 1)
                .is_ok_and(|dead_letters| dead_letters.is_empty())
    }

    /// Ends the shard in this process at once: no attempt runs and nothing is committed.
    pub(crate) fn end(&self) {
        self.registry.release();
        self.registry.lifecycle.epoch().cancel();
    }

    /// Closes the store, even if other code still holds references.
    pub(crate) async fn close(&self) -> Result<(), orlog_store::Error> {
        self.registry.close();
        let mut state = Arc::clone(&self.writer).lock_owned().await;
        // Closing writes to the disk.
        let closed = tokio::task::spawn_blocking(move || state.writer.close()).await;
        closed.unwrap_or(Err(orlog_store::Error::Closed))
    }
}

/// Running shards by number. Returned references stay usable after a shard has stopped: its store
/// then returns that it is closed.
#[derive(Default)]
pub struct RunningShards {
    slots: SlotAssigner,
    running: RwLock<BTreeMap<u16, Arc<RunningShard>>>,
    is_draining: AtomicBool,
}

/// Reason why a process takes no new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkObstacle {
    /// The process stops soon.
    #[error("this node is draining; use another node, or retry after its restart")]
    Draining,
    /// New work could not be stored.
    #[error("a store has no free space; free disk space")]
    StoreFull,
}

impl RunningShards {
    /// Creates the table of a process, which a runtime fills.
    #[must_use]
    pub fn new(slots: SlotAssigner) -> Arc<Self> {
        Arc::new(Self {
            slots,
            running: RwLock::default(),
            is_draining: AtomicBool::new(false),
        })
    }

    /// Checks that the process takes new work: on a full or draining node it would wait, and its
    /// sender would not learn of it.
    ///
    /// # Errors
    /// The reason why it takes none.
    pub(crate) fn check_takes_work(&self) -> Result<(), WorkObstacle> {
        if self.is_draining() {
            return Err(WorkObstacle::Draining);
        }

        // All shards of a process share their metrics.
        let running = self.running.read();
        let is_full = running
            .values()
            .next()
            .is_some_and(|shard| shard.shared.metrics.is_store_full());
        if is_full {
            return Err(WorkObstacle::StoreFull);
        }
        Ok(())
    }

    /// Returns whether the process drains.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Records that the process drains, from now on until its end.
    pub(crate) fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Returns the mapping of instances to slots.
    pub(crate) fn slots(&self) -> &SlotAssigner {
        &self.slots
    }

    pub(crate) fn insert(&self, shard: Arc<RunningShard>) {
        self.running.write().insert(shard.index, shard);
    }

    pub(crate) fn remove(&self, index: u16) -> Option<Arc<RunningShard>> {
        self.running.write().remove(&index)
    }

    pub(crate) fn get(&self, index: u16) -> Option<Arc<RunningShard>> {
        self.running.read().get(&index).cloned()
    }

    /// Returns the shard of an instance.
    pub(crate) fn owner_of(&self, key: &InstanceKey) -> Option<Arc<RunningShard>> {
        let slot = self.slots.slot_of(key).0;
        let running = self.running.read();
        running
            .values()
            .find(|shard| shard.slots.contains(&slot))
            .cloned()
    }

    /// Delivers an input to an instance; returns when the consequences are durable.
    ///
    /// # Errors
    /// If the instance rejects the input, or its shard is unavailable.
    pub(crate) async fn deliver(
        &self,
        key: &InstanceKey,
        input: Input,
        extra: Option<Change>,
    ) -> Result<ControlResult, ControlError> {
        let shard = self.owner_of(key).ok_or(ControlError::Unavailable)?;

        let (reply, response) = oneshot::channel();
        let envelope = Envelope {
            extra_change: extra,
            ..Envelope::new(input, Completion::Reply(reply, None))
        };

        shard.registry.deliver(key, envelope)?;
        response.await.unwrap_or(Err(ControlError::Unavailable))
    }

    /// Returns all running shards, ordered by number.
    pub(crate) fn all(&self) -> Vec<Arc<RunningShard>> {
        self.running.read().values().cloned().collect()
    }
}
