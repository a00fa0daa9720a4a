//! The actor of one upstream: takes offers, sees each through in a task of its own, and reports the verdict.
//!
//! How to try (breaker, limits, pauses, deadlines) is the performer's business. An item that is offered again while it is
//! under way is not performed twice at once: the second offer waits for the end of the first and then goes back to the
//! relay, which knows whether the item still lies in the outbox.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use orlog_effect::Performer;
use orlog_model::{Confirmation, Verdict, Work};
use prometheus_client::metrics::counter::Counter;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::metrics::Metrics;
use crate::offer::Offer;

/// The actor.
pub(crate) struct Provider;

/// What it needs.
pub(crate) struct Arguments {
    pub(crate) performer: Arc<Performer>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What every task needs.
struct Hands {
    performer: Arc<Performer>,
    metrics: Arc<Metrics>,
    verdicts: Verdicts,
}

/// The upstream's counters, looked up once.
struct Verdicts {
    accepted: Counter,
    succeeded: Counter,
    failed: Counter,
    timed_out: Counter,
}

impl Verdicts {
    fn of_upstream(upstream: &str, metrics: &Metrics) -> Self {
        let counter = |verdict: &str| {
            let labels = [("upstream", upstream.to_owned()), ("verdict", verdict.to_owned())];
            metrics.effects.get_or_create(&labels).clone()
        };
        Self {
            accepted: counter("accepted"),
            succeeded: counter("succeeded"),
            failed: counter("failed"),
            timed_out: counter("timed_out"),
        }
    }

    fn of(&self, verdict: &Verdict) -> &Counter {
        match verdict {
            Verdict::Accepted => &self.accepted,
            Verdict::Succeeded { .. } => &self.succeeded,
            Verdict::Failed { .. } => &self.failed,
            Verdict::TimedOut { .. } => &self.timed_out,
        }
    }
}

/// Offers to take.
pub(crate) struct Message(pub(crate) Vec<Offer>);

/// What it holds. Dropping it gives up what is under way; the offers go back to the relay.
pub(crate) struct State {
    hands: Arc<Hands>,
    under_way: Waiting,
    tasks: JoinSet<()>,
}

impl Actor for Provider {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let Arguments { performer, metrics } = arguments;
        let verdicts = Verdicts::of_upstream(&performer.upstream().name, &metrics);
        let hands = Arc::new(Hands { performer, metrics, verdicts });
        Ok(State { hands, under_way: Arc::default(), tasks: JoinSet::new() })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        Message(offers): Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        while state.tasks.try_join_next().is_some() {}
        for offer in offers {
            state.take(offer);
        }
        Ok(())
    }
}

impl State {
    fn take(&mut self, offer: Offer) {
        if let Some((under_way, offer)) = UnderWay::begin(&self.under_way, offer) {
            self.tasks.spawn(see_through(Arc::clone(&self.hands), offer, under_way));
        }
    }
}

async fn see_through(hands: Arc<Hands>, offer: Offer, under_way: UnderWay) {
    let begun = Instant::now();
    let done = if offer.in_doubt {
        hands.performer.resume(&offer.item).await
    } else {
        hands.performer.perform(&offer.item).await
    };
    let metrics = &hands.metrics;
    metrics.effect_attempts.inc_by(u64::from(done.attempts));
    metrics.effect_seconds.observe(begun.elapsed().as_secs_f64());
    hands.verdicts.of(&done.verdict).inc();
    let silent = done.verdict == Verdict::Accepted && !wants_acceptance(&offer.item.work);
    offer.conclude(done.verdict, done.attempts, silent);
    drop(under_way);
}

fn wants_acceptance(work: &Work) -> bool {
    matches!(work, Work::Command(command) if command.confirmation == Confirmation::Acceptance)
}

/// The items under way, each with the later offers of it.
type Waiting = Arc<Mutex<HashMap<Uuid, Vec<Offer>>>>;

/// An item's place among those under way. When it is given up, the later offers go back to their relay: the first one may
/// belong to a relay that is gone, and then nobody else would ask again.
struct UnderWay {
    all: Waiting,
    id: Uuid,
}

impl UnderWay {
    fn begin(all: &Waiting, offer: Offer) -> Option<(Self, Offer)> {
        let id = offer.item.id;
        match all.lock().unwrap_or_else(PoisonError::into_inner).entry(id) {
            Entry::Occupied(mut later) => {
                later.get_mut().push(offer);
                None
            }
            Entry::Vacant(place) => {
                place.insert(Vec::new());
                Some((Self { all: Arc::clone(all), id }, offer))
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let later = self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        drop(later);
    }
}
