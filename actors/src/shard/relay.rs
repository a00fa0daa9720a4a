//! Relay from the outbox to the providers: dispatches work in order per destination, up to the
//! in-flight limit.
//!
//! The committer hands over the work items of durable commits in memory. The relay reads the store only
//! at start, after an overflow of that queue, and for items that did not fit into its memory. If a
//! provider crashes, its unfinished items are dispatched again under the same id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use orlog_effect::ExecutionProgress;
use orlog_model::{Destination, OutboxKey, WorkItem};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::abort_on_drop::AbortOnDrop;
use crate::effects::provider_registry::ProviderRegistry;
use crate::effects::work_dispatch::{DestinationWindow, DispatchSpan, RelayMessage, WorkDispatch};
use crate::instance::registry::InstanceRegistry;
use crate::shard::destination_queue::DestinationQueue;
use crate::shard::fresh_queue::FreshQueue;
use crate::shard::fresh_rows::StoredWork;
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
    destinations: BTreeMap<Destination, DestinationQueue>,
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
            instances: arguments.instances,
            providers: arguments.providers,
            fresh: arguments.fresh,
            destinations: BTreeMap::new(),
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
            RelayMessage::Wake(waited) => {
                drop(waited);
                state.dispatch_fresh(&myself)?;
            }
            RelayMessage::Capacity(destination, waited) => {
                drop(waited);
                state.dispatch_destination(&destination, &myself)?;
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
        for (key, progress) in std::mem::take(&mut self.returned) {
            if let Some(item) = self.instances.context.reader.outbox_item(&key)? {
                let window = Arc::clone(&self.queue(&key.destination).window);
                let destination = key.destination.clone();
                let new_dispatch = self.new_dispatch(myself, window, (key, item), progress);
                self.providers.route(&destination, vec![new_dispatch]);
            }
        }
        Ok(())
    }

    /// Takes the items of new commits and dispatches them.
    fn dispatch_fresh(&mut self, myself: &ActorRef<RelayMessage>) -> Result<(), orlog_store::Error> {
        let batch = self.fresh.take();
        let mut filled = BTreeSet::new();
        if batch.rescan {
            self.destinations.values_mut().for_each(DestinationQueue::reset);
            for destination in self.instances.context.reader.outbox_destinations()? {
                self.queue(&destination).reset();
                filled.insert(destination);
            }
        }
        for row in batch.rows {
            let destination = &row.0.destination;
            if !filled.contains(destination) {
                filled.insert(destination.clone());
            }
            self.queue(&row.0.destination).offer(row);
        }
        filled.iter().try_for_each(|destination| self.dispatch_destination(destination, myself))
    }

    fn queue(&mut self, destination: &Destination) -> &mut DestinationQueue {
        if !self.destinations.contains_key(destination) {
            self.destinations.insert(destination.clone(), DestinationQueue::new(destination));
        }
        self.destinations.get_mut(destination).expect("it was inserted above")
    }

    fn dispatch_destination(
        &mut self,
        destination: &Destination,
        myself: &ActorRef<RelayMessage>,
    ) -> Result<(), orlog_store::Error> {
        while self.dispatch_page(destination, myself)? {}
        Ok(())
    }

    /// Dispatches one page of a destination; returns `true` if more items may be dispatched now.
    fn dispatch_page(
        &mut self,
        destination: &Destination,
        myself: &ActorRef<RelayMessage>,
    ) -> Result<bool, orlog_store::Error> {
        let limit = self.instances.context.limits.max_in_flight_per_destination;
        let reader = self.instances.context.reader.clone();
        let queue = self.queue(destination);
        queue.fill(destination, &reader)?;
        if queue.items.is_empty() {
            return Ok(false);
        }
        let window = Arc::clone(&queue.window);
        let free = limit.saturating_sub(window.in_flight.load(Ordering::Acquire));
        if free == 0 {
            window.starved.store(true, Ordering::Release);
            // Capacity that becomes free between the check and the flag would cause no message.
            return Ok(window.in_flight.load(Ordering::Acquire) < limit
                && window.starved.swap(false, Ordering::AcqRel));
        }
        let items = queue.take(free);
        let dispatches = items.into_iter().map(|row| {
            let progress = ExecutionProgress { attempts: 0, in_doubt: row.0.sequence <= self.recovering };
            self.new_dispatch(myself, Arc::clone(&window), row, progress)
        });
        let dispatches: Vec<WorkDispatch> = dispatches.collect();
        self.providers.route(destination, dispatches);
        Ok(true)
    }

    fn new_dispatch(
        &self,
        myself: &ActorRef<RelayMessage>,
        window: Arc<DestinationWindow>,
        (key, mut item): (OutboxKey, WorkItem),
        progress: ExecutionProgress,
    ) -> WorkDispatch {
        window.in_flight.fetch_add(1, Ordering::AcqRel);
        self.instances.context.metrics.dispatched.inc();
        let instances = Arc::clone(&self.instances);
        let follows = instances.context.tracer.is_some();
        let above = follows.then(|| trace_context::start_work_span(&mut item)).flatten();
        let followed = above.map(|parent| DispatchSpan { parent, started: Instant::now() });
        WorkDispatch {
            item,
            progress,
            key,
            instances,
            relay: myself.clone(),
            window,
            concluded: false,
            span: followed,
        }
    }
}
