//! Relay from the outbox to the providers: dispatches work in order per destination, up to the
//! window of each tenant and upstream.
//!
//! The committer hands over the work items of durable commits in memory. The relay reads the store
//! only at start, after an overflow of that queue, and for items that did not fit into its memory.
//! Items that a provider returns unfinished are dispatched again under the same id.

use std::sync::Arc;
use std::time::Duration;

use orlog_effect::ExecutionProgress;
use orlog_model::{Clock, Destination, OutboxKey};
use orlog_store::Reader;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::effects::providers::ProviderRegistry;
use crate::effects::work_dispatch::{DispatchOrigin, RelayMessage, WorkDispatch};
use crate::instance::InstanceRegistry;
use crate::shard::fresh_queue::{FreshQueue, OutboxRow, StoredWork};
use crate::shard::outbox_queues::{OutboxQueues, PAGE, Turn};
use crate::supervision::ActorTask;
use crate::telemetry::metrics::{ActorKind, GaugeGuard, Metrics};
use crate::telemetry::tracer::Tracer;

/// Delay before a returned item is dispatched again.
const RETURN_DELAY: Duration = Duration::from_millis(100);

/// Relay actor.
pub(crate) struct RelayActor;

/// Arguments of the relay.
pub(crate) struct Arguments {
    pub(crate) registry: Arc<InstanceRegistry>,
    pub(crate) providers: Arc<ProviderRegistry>,
    pub(crate) fresh: Arc<FreshQueue<StoredWork>>,
    pub(crate) reader: Reader,
    /// Maximum number of items in a window.
    pub(crate) window_size: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: String,
    pub(crate) publishes_results: bool,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

/// State of the relay.
pub(crate) struct State {
    origin: Arc<DispatchOrigin>,
    providers: Arc<ProviderRegistry>,
    fresh: Arc<FreshQueue<StoredWork>>,
    queues: OutboxQueues,
    /// Highest item that was stored when the relay started. Items up to it may have had an attempt
    /// in flight at a crash.
    recovering: u64,
    returned: Vec<(OutboxKey, ExecutionProgress)>,
    _watch: ActorTask,
    _alive: GaugeGuard,
}

impl Actor for RelayActor {
    type Msg = RelayMessage;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<RelayMessage>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let Arguments {
            registry,
            providers,
            fresh,
            reader,
            window_size,
            metrics,
            ..
        } = arguments;

        // A task waits for the queue in place of the actor, which handles returned items meanwhile.
        let actor = myself.clone();
        let queue = Arc::clone(&fresh);
        let counted = Arc::clone(&metrics);
        let watch = async move {
            queue
                .wake(actor, || {
                    RelayMessage::Wake(counted.messages_enqueued(ActorKind::Relay, 1))
                })
                .await
        };

        Ok(State {
            providers,
            fresh,
            queues: OutboxQueues::new(reader.clone(), window_size),
            // No attempt of a later item can precede this start.
            recovering: reader.last_sequence(),
            returned: Vec::new(),
            _watch: ActorTask::spawn(&myself, watch, RelayMessage::Ended),
            _alive: metrics.actor_started(ActorKind::Relay),
            origin: Arc::new(DispatchOrigin {
                relay: myself,
                epoch: registry.lifecycle.epoch(),
                registry,
                reader,
                clock: arguments.clock,
                node: arguments.node,
                publishes_results: arguments.publishes_results,
                metrics,
                tracer: arguments.tracer,
            }),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<RelayMessage>,
        message: RelayMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            // The next owner, or the next incarnation, reads the outbox.
            RelayMessage::Wake(_)
            | RelayMessage::Capacity(_)
            | RelayMessage::Returned(..)
            | RelayMessage::DispatchReturned
                if state.origin.epoch.ended().is_stopped() => {}
            RelayMessage::Wake(waited) => {
                drop(waited);
                state.dispatch_fresh()?;
            }
            RelayMessage::Capacity(window) => {
                state.queues.resume(&window);
                state.dispatch_turns()?;
            }
            RelayMessage::Returned(key, progress, waited) => {
                drop(waited);
                // One timer for all items that return meanwhile.
                if state.returned.is_empty() {
                    drop(myself.send_after(RETURN_DELAY, || RelayMessage::DispatchReturned));
                }
                state.returned.push((key, progress));
            }
            RelayMessage::DispatchReturned => state.dispatch_returned()?,
            RelayMessage::Ended(result) => result?,
        }
        Ok(())
    }
}

impl State {
    fn dispatch_returned(&mut self) -> Result<(), orlog_store::Error> {
        for (key, progress) in std::mem::take(&mut self.returned) {
            // The result can be committed meanwhile, for example that of an earlier attempt.
            let Some(item) = self.origin.reader.outbox_item(&key)? else {
                continue;
            };

            let destination = key.destination.clone();
            let window = self
                .queues
                .window(&destination, &|destination: &Destination| {
                    self.providers.window(destination)
                });
            let work = OutboxRow::boxed(key, item);
            let dispatch = WorkDispatch::new(&self.origin, window, work, progress);
            // At once and not in a turn: the item had its turn when it was dispatched first.
            self.providers.route(&destination, vec![dispatch]);
        }
        Ok(())
    }

    /// Takes the items of new commits and dispatches them.
    fn dispatch_fresh(&mut self) -> Result<(), orlog_store::Error> {
        let batch = self.fresh.take();
        let providers = Arc::clone(&self.providers);
        let assign = |destination: &Destination| providers.window(destination);
        if batch.rescan {
            self.queues.rescan(&assign)?;
        }

        // The queues keep at most a page of a destination in memory.
        let mut rows = batch.rows.into_iter();
        while rows.len() > PAGE {
            rows.by_ref()
                .take(PAGE)
                .for_each(|work| self.queues.offer(work, &assign));
            self.dispatch_turns()?;
        }

        rows.for_each(|work| self.queues.offer(work, &assign));
        self.dispatch_turns()
    }

    fn dispatch_turns(&mut self) -> Result<(), orlog_store::Error> {
        while let Some(Turn {
            window,
            destination,
            items,
        }) = self.queues.next_turn()?
        {
            let dispatches = items.into_iter().map(|work| {
                // The previous incarnation may have crashed during an attempt of this item.
                let in_doubt = work.key.sequence <= self.recovering;
                let progress = ExecutionProgress {
                    in_doubt,
                    ..ExecutionProgress::default()
                };
                WorkDispatch::new(&self.origin, Arc::clone(&window), work, progress)
            });
            self.providers.route(&destination, dispatches.collect());
        }
        Ok(())
    }
}
