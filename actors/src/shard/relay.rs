//! Relay from the outbox to the providers: dispatches work in order per destination, up to the
//! in-flight limit.
//!
//! The commit counter of the store wakes the relay, which reads the store. New work and work that is
//! found after a crash take the same path. If a provider crashes, its unfinished items are dispatched
//! again under the same id.

use std::collections::BTreeMap;
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
use crate::telemetry::metrics::{ActorKind, LiveActorGuard};
use crate::telemetry::trace_context;

/// Number of items of a destination read per page.
const PAGE: usize = 256;
/// Delay before a returned item is dispatched again.
const RETURN_DELAY: Duration = Duration::from_millis(100);

/// Relay actor.
pub(crate) struct RelayActor;

/// Arguments of the relay.
pub(crate) struct Arguments {
    pub(crate) instances: Arc<InstanceRegistry>,
    pub(crate) providers: Arc<ProviderRegistry>,
}

/// State of the relay.
pub(crate) struct State {
    instances: Arc<InstanceRegistry>,
    providers: Arc<ProviderRegistry>,
    destinations: BTreeMap<Destination, DestinationCursor>,
    /// Highest item that was stored when the relay started. Items up to it may have had an attempt in
    /// flight at a crash.
    recovering: u64,
    returned: Vec<(OutboxKey, ExecutionProgress)>,
    _watch: AbortOnDrop,
    _alive: LiveActorGuard,
}

/// Read position of a destination.
struct DestinationCursor {
    after: u64,
    window: Arc<DestinationWindow>,
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
        let reader = &arguments.instances.context.reader;
        let (mut commits, recovering) = (reader.watch(), reader.last_sequence());
        let metrics = Arc::clone(&arguments.instances.context.metrics);
        let (actor, alive) = (myself.clone(), metrics.actor_started(ActorKind::Relay));
        let watch = async move {
            let wake = || RelayMessage::Wake(metrics.messages_enqueued(ActorKind::Relay, 1));
            while actor.cast(wake()).is_ok() && commits.changed().await.is_ok() {}
            "the store was closed".to_owned()
        };
        Ok(State {
            instances: arguments.instances,
            providers: arguments.providers,
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
                state.dispatch_all(&myself)?;
            }
            RelayMessage::Returned(key, progress, waited) => {
                drop(waited);
                if state.returned.is_empty() {
                    let metrics = Arc::clone(&state.instances.context.metrics);
                    let wake = move || RelayMessage::Wake(metrics.messages_enqueued(ActorKind::Relay, 1));
                    drop(myself.send_after(RETURN_DELAY, wake));
                }
                state.returned.push((key, progress));
            }
            RelayMessage::Ended(reason) => return Err(reason.into()),
        }
        Ok(())
    }
}

impl State {
    fn dispatch_all(&mut self, myself: &ActorRef<RelayMessage>) -> Result<(), orlog_store::Error> {
        for (key, progress) in std::mem::take(&mut self.returned) {
            if let Some(item) = self.instances.context.reader.outbox_item(&key)? {
                let window = Arc::clone(&self.position(&key.destination).window);
                let destination = key.destination.clone();
                let new_dispatch = self.new_dispatch(myself, window, (key, item), progress);
                self.providers.route(&destination, vec![new_dispatch]);
            }
        }
        for destination in self.instances.context.reader.outbox_destinations()? {
            while self.dispatch_page(&destination, myself)? {}
        }
        Ok(())
    }

    fn position(&mut self, destination: &Destination) -> &mut DestinationCursor {
        if !self.destinations.contains_key(destination) {
            let fresh = DestinationCursor { after: 0, window: Arc::default() };
            self.destinations.insert(destination.clone(), fresh);
        }
        self.destinations.get_mut(destination).expect("it was inserted above")
    }

    /// Dispatches one page of a destination; returns `true` if more items may be dispatched now.
    fn dispatch_page(
        &mut self,
        destination: &Destination,
        myself: &ActorRef<RelayMessage>,
    ) -> Result<bool, orlog_store::Error> {
        let limit = self.instances.context.limits.max_in_flight_per_destination;
        let position = self.position(destination);
        let window = Arc::clone(&position.window);
        let after = position.after;
        let free = limit.saturating_sub(window.in_flight.load(Ordering::Acquire)).min(PAGE);
        if free == 0 {
            window.starved.store(true, Ordering::Release);
            // Capacity that becomes free between the check and the flag would cause no wake-up.
            return Ok(window.in_flight.load(Ordering::Acquire) < limit
                && window.starved.swap(false, Ordering::AcqRel));
        }
        let page = self.instances.context.reader.outbox(destination, after, free)?;
        let more = page.len() == free;
        let position = self.position(destination);
        if let Some((last, _)) = page.last() {
            position.after = last.sequence;
            let dispatches = page.into_iter().map(|row| {
                let progress = ExecutionProgress { attempts: 0, in_doubt: row.0.sequence <= self.recovering };
                self.new_dispatch(myself, Arc::clone(&window), row, progress)
            });
            let dispatches: Vec<WorkDispatch> = dispatches.collect();
            self.providers.route(destination, dispatches);
        }
        Ok(more)
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
