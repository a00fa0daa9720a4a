//! The actor of one upstream: takes offers, sees each through in a task of its own, and reports the verdict.
//!
//! How to try (breaker, limits, pauses, deadlines) is the performer's business.
//!
//! A reload that changes the upstream starts another provider beside this one and retires this one: attempts under way go
//! on to their end here, and what waits for its next attempt goes on there, under the same id, with its attempts counted.

use std::sync::Arc;
use std::time::Instant;

use orlog_effect::Performer;
use orlog_model::{Confirmation, Verdict, Work};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;

use crate::effects::provider_registry::Hands;
use crate::effects::provider_registry::Provide;
use crate::effects::work_dispatch::Offer;
use crate::effects::work_dispatch::Place;
use crate::telemetry::metrics::{ActorKind, Alive, Metrics, Verdicts};

/// The actor.
pub(crate) struct Provider;

/// What it needs.
pub(crate) struct Arguments {
    pub(crate) performer: Arc<Performer>,
    pub(crate) hands: Arc<Hands>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What every task needs.
struct Own {
    performer: Arc<Performer>,
    hands: Arc<Hands>,
    verdicts: Arc<Verdicts>,
}

/// What it holds. Dropping it gives up what is under way; the offers go back to the relay.
pub(crate) struct State {
    own: Arc<Own>,
    tasks: JoinSet<()>,
    _alive: Alive,
}

impl Actor for Provider {
    type Msg = Provide;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Provide>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let Arguments { performer, hands, metrics } = arguments;
        let verdicts = metrics.effects.verdicts(&performer.upstream().name);
        let alive = metrics.begin(ActorKind::Provider);
        Ok(State { own: Arc::new(Own { performer, hands, verdicts }), tasks: JoinSet::new(), _alive: alive })
    }

    async fn handle(
        &self,
        myself: ActorRef<Provide>,
        message: Provide,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Provide::Offers(offers, waited) => {
                drop(waited);
                state.take(offers);
            }
            Provide::Retire => state.retire(myself),
            Provide::Ended => myself.stop(None),
        }
        Ok(())
    }
}

impl State {
    fn take(&mut self, offers: Vec<Offer>) {
        while self.tasks.try_join_next().is_some() {}
        for offer in offers {
            if let Some((place, offer)) = self.own.hands.under_way().begin(offer) {
                self.tasks.spawn(see_through(Arc::clone(&self.own), offer, place));
            }
        }
    }

    /// What comes after this finds the performer retired and is handed on at once.
    fn retire(&mut self, myself: ActorRef<Provide>) {
        let mut under_way = std::mem::take(&mut self.tasks);
        self.tasks.spawn(async move {
            while under_way.join_next().await.is_some() {}
            // An error means that it has been stopped meanwhile.
            drop(myself.cast(Provide::Ended));
        });
    }
}

async fn see_through(own: Arc<Own>, mut offer: Offer, place: Place) {
    let begun = Instant::now();
    let progress = offer.progress;
    // Should the task be given up, an attempt may have been under way.
    offer.progress.in_doubt = true;
    let done = match own.performer.go_on(&mut offer.item, progress).await {
        Ok(done) => done,
        Err(progress) => {
            offer.progress = progress;
            drop(place);
            let lane = offer.item.work.lane();
            return own.hands.take(&lane, vec![offer]);
        }
    };
    own.verdicts.count(&done.verdict, begun.elapsed());
    let silent = done.verdict == Verdict::Accepted && !wants_acceptance(&offer.item.work);
    offer.conclude(done, silent);
    drop(place);
}

fn wants_acceptance(work: &Work) -> bool {
    matches!(work, Work::Command(command) if command.confirmation == Confirmation::Acceptance)
}
