//! From the outbox to the hands: offers work in order, lane by lane, and never more at once than a lane may have.
//!
//! Woken by the store's commit counter, it reads the store; so fresh work and work found after a crash take one path. An
//! offer that comes back unfinished (its provider died) is offered again, under the same id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use orlog_effect::Progress;
use orlog_model::{Lane, OutboxKey, WorkItem};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::abort_on_drop::Driver;
use crate::effects::provider_registry::Hands;
use crate::effects::work_dispatch::{Followed, Message, Offer, Room};
use crate::instance::registry::Directory;
use crate::telemetry::metrics::{ActorKind, Alive};
use crate::telemetry::trace_context;

/// Items read from a lane at once.
const PAGE: usize = 256;
/// Pause before an offer that came back is made again.
const RETURN_PAUSE: Duration = Duration::from_millis(100);

/// The actor.
pub(crate) struct Relay;

/// What it needs.
pub(crate) struct Arguments {
    pub(crate) directory: Arc<Directory>,
    pub(crate) hands: Arc<Hands>,
}

/// What it holds.
pub(crate) struct State {
    directory: Arc<Directory>,
    hands: Arc<Hands>,
    lanes: BTreeMap<Lane, Position>,
    /// Of items up to here, which lay there when the relay started, an attempt may have been under way when the process died.
    recovering: u64,
    returned: Vec<(OutboxKey, Progress)>,
    _watch: Driver,
    _alive: Alive,
}

/// How far a lane has been read.
struct Position {
    after: u64,
    room: Arc<Room>,
}

impl Actor for Relay {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let reader = &arguments.directory.context.reader;
        let (mut commits, recovering) = (reader.watch(), reader.last_sequence());
        let metrics = Arc::clone(&arguments.directory.context.metrics);
        let (actor, alive) = (myself.clone(), metrics.begin(ActorKind::Relay));
        let watch = async move {
            let wake = || Message::Wake(metrics.wait(ActorKind::Relay, 1));
            while actor.cast(wake()).is_ok() && commits.changed().await.is_ok() {}
            "the store was closed".to_owned()
        };
        Ok(State {
            directory: arguments.directory,
            hands: arguments.hands,
            lanes: BTreeMap::new(),
            recovering,
            returned: Vec::new(),
            _watch: Driver::start(&myself, watch, Message::Ended),
            _alive: alive,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Wake(waited) => {
                drop(waited);
                state.offer_all(&myself)?;
            }
            Message::Returned(key, progress, waited) => {
                drop(waited);
                if state.returned.is_empty() {
                    let metrics = Arc::clone(&state.directory.context.metrics);
                    let wake = move || Message::Wake(metrics.wait(ActorKind::Relay, 1));
                    drop(myself.send_after(RETURN_PAUSE, wake));
                }
                state.returned.push((key, progress));
            }
            Message::Ended(why) => return Err(why.into()),
        }
        Ok(())
    }
}

impl State {
    fn offer_all(&mut self, myself: &ActorRef<Message>) -> Result<(), orlog_store::Error> {
        for (key, progress) in std::mem::take(&mut self.returned) {
            if let Some(item) = self.directory.context.reader.outbox_item(&key)? {
                let room = Arc::clone(&self.position(&key.lane).room);
                let lane = key.lane.clone();
                let offer = self.offer(myself, room, (key, item), progress);
                self.hands.take(&lane, vec![offer]);
            }
        }
        for lane in self.directory.context.reader.lanes()? {
            while self.offer_page(&lane, myself)? {}
        }
        Ok(())
    }

    fn position(&mut self, lane: &Lane) -> &mut Position {
        if !self.lanes.contains_key(lane) {
            let fresh = Position { after: 0, room: Arc::default() };
            self.lanes.insert(lane.clone(), fresh);
        }
        self.lanes.get_mut(lane).expect("it was inserted above")
    }

    /// Offers one page of a lane; `true` when there may be more to offer now.
    fn offer_page(&mut self, lane: &Lane, myself: &ActorRef<Message>) -> Result<bool, orlog_store::Error> {
        let limit = self.directory.context.limits.offered_per_lane;
        let position = self.position(lane);
        let room = Arc::clone(&position.room);
        let after = position.after;
        let free = limit.saturating_sub(room.offered.load(Ordering::Acquire)).min(PAGE);
        if free == 0 {
            room.starved.store(true, Ordering::Release);
            // Room that came between the look and the note would not be told of.
            return Ok(
                room.offered.load(Ordering::Acquire) < limit && room.starved.swap(false, Ordering::AcqRel)
            );
        }
        let page = self.directory.context.reader.outbox(lane, after, free)?;
        let more = page.len() == free;
        let position = self.position(lane);
        if let Some((last, _)) = page.last() {
            position.after = last.sequence;
            let offers = page.into_iter().map(|row| {
                let progress = Progress { attempts: 0, in_doubt: row.0.sequence <= self.recovering };
                self.offer(myself, Arc::clone(&room), row, progress)
            });
            let offers: Vec<Offer> = offers.collect();
            self.hands.take(lane, offers);
        }
        Ok(more)
    }

    fn offer(
        &self,
        myself: &ActorRef<Message>,
        room: Arc<Room>,
        (key, mut item): (OutboxKey, WorkItem),
        progress: Progress,
    ) -> Offer {
        room.offered.fetch_add(1, Ordering::AcqRel);
        self.directory.context.metrics.offered.inc();
        let directory = Arc::clone(&self.directory);
        let follows = directory.context.tracer.is_some();
        let above = follows.then(|| trace_context::offered(&mut item)).flatten();
        let followed = above.map(|parent| Followed { parent, begun: Instant::now() });
        Offer { item, progress, key, directory, relay: myself.clone(), room, concluded: false, followed }
    }
}
