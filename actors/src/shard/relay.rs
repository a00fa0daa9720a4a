//! Relay from the outbox to the providers: dispatches work in order per destination, up to the window of
//! each tenant and upstream.
//!
//! The committer hands over the work items of durable commits in memory. The relay reads the store only
//! at start, after an overflow of that queue, and for items that did not fit into its memory. If a
//! provider crashes, its unfinished items are dispatched again under the same id.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_effect::ExecutionProgress;
use orlog_model::{Destination, OutboxKey};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::abort_on_drop::AbortOnDrop;
use crate::effects::provider_registry::ProviderRegistry;
use crate::effects::window::{RelayMessage, WindowPlace};
use crate::effects::work_dispatch::{DispatchSpan, WorkDispatch};
use crate::instance::registry::InstanceRegistry;
use crate::shard::epoch::ShardEpoch;
use crate::shard::fresh_queue::FreshQueue;
use crate::shard::fresh_rows::StoredWork;
use crate::shard::outbox_queues::{OutboxQueues, Turn};
use crate::telemetry::metrics::{ActorKind, LiveActorGuard};
use crate::telemetry::trace_context;

/// Delay before a returned item is dispatched again.
const RETURN_DELAY: Duration = Duration::from_millis(100);

/// Relay actor.
pub(crate) struct RelayActor;

/// Arguments of the relay.
pub(crate) struct Arguments {
    pub(crate) instances: Arc<InstanceRegistry>,
    pub(crate) providers: Arc<ProviderRegistry>,
    pub(crate) fresh: Arc<FreshQueue<StoredWork>>,
}

/// State of the relay.
pub(crate) struct State {
    instances: Arc<InstanceRegistry>,
    providers: Arc<ProviderRegistry>,
    fresh: Arc<FreshQueue<StoredWork>>,
    epoch: Arc<ShardEpoch>,
    queues: OutboxQueues,
    /// Highest item that was stored when the relay started. Items up to it may have had an attempt in
    /// flight at a crash.
    recovering: u64,
    returned: Vec<(OutboxKey, ExecutionProgress)>,
    _watch: AbortOnDrop,
    _alive: LiveActorGuard,
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
        let context = &arguments.instances.context;
        let queues = OutboxQueues::new(context.reader.clone(), context.limits.max_in_flight_per_window);
        let recovering = arguments.instances.context.reader.last_sequence();
        let fresh = Arc::clone(&arguments.fresh);
        let metrics = Arc::clone(&arguments.instances.context.metrics);
        let (actor, alive) = (myself.clone(), metrics.actor_started(ActorKind::Relay));
        let watch = async move {
            let wake = || RelayMessage::Wake(metrics.messages_enqueued(ActorKind::Relay, 1));
            while actor.cast(wake()).is_ok() {
                fresh.wait_filled().await;
            }
            "the relay stopped".to_owned()
        };
        Ok(State {
            epoch: arguments.instances.epoch(),
            instances: arguments.instances,
            providers: arguments.providers,
            fresh: arguments.fresh,
            queues,
            recovering,
            returned: Vec::new(),
            _watch: AbortOnDrop::spawn(&myself, watch, RelayMessage::Ended),
            _alive: alive,
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
                if state.epoch.ended().is_stopped() => {}
            RelayMessage::Wake(waited) => {
                drop(waited);
                state.dispatch_fresh(&myself)?;
            }
            RelayMessage::Capacity(window) => {
                state.queues.resume(&window);
                state.dispatch_turns(&myself)?;
            }
            RelayMessage::Returned(key, progress, waited) => {
                drop(waited);
                if state.returned.is_empty() {
                    drop(myself.send_after(RETURN_DELAY, || RelayMessage::DispatchReturned));
                }
                state.returned.push((key, progress));
            }
            RelayMessage::DispatchReturned => state.dispatch_returned(&myself)?,
            RelayMessage::Ended(reason) => return Err(reason.into()),
        }
        Ok(())
    }
}

impl State {
    fn dispatch_returned(&mut self, myself: &ActorRef<RelayMessage>) -> Result<(), orlog_store::Error> {
        let assign = |destination: &Destination| self.providers.window(destination);
        for (key, progress) in std::mem::take(&mut self.returned) {
            if let Some(item) = self.instances.context.reader.outbox_item(&key)? {
                let window = self.queues.window(&key.destination, &assign);
                let destination = key.destination.clone();
                let new_dispatch = new_dispatch(
                    &self.instances,
                    WindowPlace::enter(window, myself.clone(), &self.epoch),
                    (key, item),
                    progress,
                );
                self.providers.route(&destination, vec![new_dispatch]);
            }
        }
        Ok(())
    }

    /// Takes the items of new commits and dispatches them.
    fn dispatch_fresh(&mut self, myself: &ActorRef<RelayMessage>) -> Result<(), orlog_store::Error> {
        let batch = self.fresh.take();
        let assign = |destination: &Destination| self.providers.window(destination);
        if batch.rescan {
            self.queues.rescan(&assign)?;
        }
        batch.rows.into_iter().for_each(|row| self.queues.offer(row, &assign));
        self.dispatch_turns(myself)
    }

    fn dispatch_turns(&mut self, myself: &ActorRef<RelayMessage>) -> Result<(), orlog_store::Error> {
        while let Some(Turn { window, destination, items }) = self.queues.next_turn()? {
            let dispatches = items.into_iter().map(|row| {
                let progress = ExecutionProgress {
                    in_doubt: row.0.sequence <= self.recovering,
                    ..ExecutionProgress::default()
                };
                let place = WindowPlace::enter(Arc::clone(&window), myself.clone(), &self.epoch);
                new_dispatch(&self.instances, place, row, progress)
            });
            self.providers.route(&destination, dispatches.collect());
        }
        Ok(())
    }
}

fn new_dispatch(
    instances: &Arc<InstanceRegistry>,
    place: WindowPlace,
    (key, mut item): StoredWork,
    progress: ExecutionProgress,
) -> WorkDispatch {
    instances.context.metrics.dispatched.inc();
    let follows = instances.context.tracer.is_some();
    let above = follows.then(|| trace_context::start_work_span(&mut item)).flatten();
    let followed = above.map(|parent| DispatchSpan { parent, started: Instant::now() });
    let instances = Arc::clone(instances);
    WorkDispatch { item, progress, key, instances, place, concluded: false, span: followed }
}
