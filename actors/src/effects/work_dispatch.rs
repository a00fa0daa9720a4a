//! A work item in somebody's hands. It is concluded with a verdict, or it comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use orlog_effect::{self as effect, Progress};
use orlog_model::{Change, Input, OutboxKey, Outcome, TraceParent, WorkItem};
use ractor::ActorRef;
use uuid::Uuid;

use crate::instance::completion::Done;
use crate::instance::mailbox::Envelope;
use crate::instance::registry::Directory;
use crate::shard::submission::{Submission, Unavailable};
use crate::telemetry::metrics::{ActorKind, Waiting};
use crate::telemetry::tracer::{Concluded, Hands};

/// What the relay is told.
pub(crate) enum Message {
    /// There may be something in the outbox, or room in a lane.
    Wake(Waiting),
    /// An offer came back unfinished; how far it had come.
    Returned(OutboxKey, Progress, Waiting),
    /// The task that watches the store ended.
    Ended(String),
}

/// What a lane has under way.
#[derive(Default)]
pub(crate) struct Room {
    pub(crate) offered: AtomicUsize,
    /// The relay stopped at the limit and wants to hear when there is room.
    pub(crate) starved: AtomicBool,
}

/// A work item on its way. Dropped without [`Offer::conclude`], it comes back.
pub(crate) struct Offer {
    pub(crate) item: WorkItem,
    /// How far it has come in other hands; in doubt when an attempt may have been under way as the process died.
    pub(crate) progress: Progress,
    pub(crate) key: OutboxKey,
    pub(crate) directory: Arc<Directory>,
    pub(crate) relay: ActorRef<Message>,
    pub(crate) room: Arc<Room>,
    pub(crate) concluded: bool,
    /// Where somebody makes spans of it.
    pub(crate) followed: Option<Followed>,
}

/// What the span of an offer needs besides.
pub(crate) struct Followed {
    /// The span above.
    pub(crate) parent: TraceParent,
    /// When it was offered.
    pub(crate) begun: Instant,
}

impl Offer {
    /// There is a verdict: an input of the instance, or, where nobody needs to hear of it, the end of the row.
    pub(crate) fn conclude(mut self, done: effect::Done, silent: bool) {
        self.trace(&done);
        self.concluded = if silent { self.settle() } else { self.report(done) }.is_ok();
    }

    fn trace(&self, done: &effect::Done) {
        let tracer = self.directory.context.tracer.as_ref();
        if let (Some(tracer), Some(Followed { parent, begun })) = (tracer, &self.followed) {
            let (item, verdict, attempts) = (&self.item, &done.verdict, done.attempts);
            tracer.concluded(&Concluded {
                item,
                parent,
                hands: Hands::Own,
                verdict,
                attempts,
                begun: *begun,
            });
        }
    }

    fn settle(&self) -> Result<(), Unavailable> {
        let settle = Change::Settle(self.key.clone());
        self.directory.committer()?.submit(Submission::of(settle, Done::Nothing))
    }

    fn report(&self, done: effect::Done) -> Result<(), Unavailable> {
        let effect::Done { verdict, attempts, facts, trace } = done;
        let outcome = Outcome {
            work_id: self.item.id,
            outbox: self.key.clone(),
            verdict,
            attempts,
            at: self.directory.context.clock.now(),
            facts,
            trace: trace.or_else(|| self.item.trace.clone()),
        };
        let envelope = Envelope::new(Input::Outcome(outcome), Done::Nothing);
        self.directory.dispatch(&self.item.instance, envelope)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.room.offered.fetch_sub(1, Ordering::AcqRel);
        let waiting = || self.directory.context.metrics.wait(ActorKind::Relay, 1);
        // Errors mean that the relay is gone; the next one reads the outbox from its beginning.
        if !self.concluded {
            drop(self.relay.cast(Message::Returned(self.key.clone(), self.progress, waiting())));
        } else if self.room.starved.swap(false, Ordering::AcqRel) {
            drop(self.relay.cast(Message::Wake(waiting())));
        }
    }
}

/// The items under way, each with the later offers of it.
#[derive(Default)]
pub(crate) struct UnderWay {
    items: DashMap<Uuid, Vec<Offer>>,
}

/// An item's place among those under way. When it is given up, the later offers go back to their relay: the first one may
/// belong to a relay that is gone, and then nobody else would ask again.
pub(crate) struct Place {
    all: Arc<UnderWay>,
    id: Uuid,
}

impl UnderWay {
    /// A place for an offer; `None` when its item is under way already.
    pub(crate) fn begin(self: &Arc<Self>, mut offer: Offer) -> Option<(Place, Offer)> {
        let id = offer.item.id;
        match self.items.entry(id) {
            Entry::Occupied(mut later) => {
                // Whatever the first one comes to, there may have been an attempt.
                offer.progress.in_doubt = true;
                later.get_mut().push(offer);
                None
            }
            Entry::Vacant(place) => {
                place.insert(Vec::new());
                Some((Place { all: Arc::clone(self), id }, offer))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Dropped outside the map's lock.
        let later = self.all.items.remove(&self.id);
        drop(later);
    }
}
