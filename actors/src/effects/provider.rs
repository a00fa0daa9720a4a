//! Provider actor of one upstream: receives work items, executes each in its own task, and reports the
//! outcome.
//!
//! The effect executor applies circuit breaker, limits, backoff and deadlines.
//!
//! A reload that changes the upstream starts a new provider and retires this one. Attempts in flight
//! finish here. Items that wait for their next attempt move to the new provider under the same id and
//! keep their attempt count.

use std::sync::Arc;
use std::time::Instant;

use orlog_effect::EffectExecutor;
use orlog_model::{Confirmation, Work, WorkOutcome};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;

use crate::effects::provider_registry::ProviderMessage;
use crate::effects::provider_registry::ProviderRegistry;
use crate::effects::work_dispatch::InFlightGuard;
use crate::effects::work_dispatch::WorkDispatch;
use crate::telemetry::metrics::{ActorKind, LiveActorGuard, Metrics, OutcomeMetrics};

/// Provider actor.
pub(crate) struct ProviderActor;

/// Arguments of a provider.
pub(crate) struct Arguments {
    pub(crate) executor: Arc<EffectExecutor>,
    pub(crate) registry: Arc<ProviderRegistry>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Context of every task.
struct ProviderContext {
    executor: Arc<EffectExecutor>,
    registry: Arc<ProviderRegistry>,
    outcomes: Arc<OutcomeMetrics>,
}

/// State of a provider. Dropping it abandons the items in flight; they return to the relay.
pub(crate) struct State {
    own: Arc<ProviderContext>,
    tasks: JoinSet<()>,
    _alive: LiveActorGuard,
}

impl Actor for ProviderActor {
    type Msg = ProviderMessage;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<ProviderMessage>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let Arguments { executor, registry, metrics } = arguments;
        let outcomes = metrics.effects.outcomes(&executor.upstream().name);
        let alive = metrics.actor_started(ActorKind::Provider);
        Ok(State {
            own: Arc::new(ProviderContext { executor, registry, outcomes }),
            tasks: JoinSet::new(),
            _alive: alive,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<ProviderMessage>,
        message: ProviderMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProviderMessage::Dispatch(dispatches, waited) => {
                drop(waited);
                state.take(dispatches);
            }
            ProviderMessage::Retire => state.retire(myself),
            ProviderMessage::Ended => myself.stop(None),
        }
        Ok(())
    }
}

impl State {
    fn take(&mut self, dispatches: Vec<WorkDispatch>) {
        while self.tasks.try_join_next().is_some() {}
        for dispatch in dispatches {
            if let Some((guard, dispatch)) = self.own.registry.in_flight().register(dispatch) {
                self.tasks.spawn(run_dispatch(Arc::clone(&self.own), dispatch, guard));
            }
        }
    }

    /// Retires the effect executor; later items are handed over at once.
    fn retire(&mut self, myself: ActorRef<ProviderMessage>) {
        let mut in_flight = std::mem::take(&mut self.tasks);
        self.tasks.spawn(async move {
            while in_flight.join_next().await.is_some() {}
            // An error means that it has been stopped meanwhile.
            drop(myself.cast(ProviderMessage::Ended));
        });
    }
}

async fn run_dispatch(own: Arc<ProviderContext>, mut dispatch: WorkDispatch, guard: InFlightGuard) {
    let started = Instant::now();
    let progress = dispatch.progress;
    // If the task is aborted, an attempt may have been in flight.
    dispatch.progress.in_doubt = true;
    let epoch = Arc::clone(dispatch.place.epoch());
    let result = tokio::select! {
        biased;
        result = own.executor.continue_from(&mut dispatch.item, progress, &dispatch.place) => result,
        () = epoch.cancelled() => return,
    };
    let done = match result {
        Ok(done) => done,
        Err(_) if epoch.ended().is_stopped() => return,
        Err(progress) => {
            dispatch.progress = progress;
            drop(guard);
            let destination = dispatch.key.destination.clone();
            return own.registry.route(&destination, vec![dispatch]);
        }
    };
    own.outcomes.count(&done.outcome, started.elapsed());
    let silent = done.outcome == WorkOutcome::Accepted && !requires_acceptance(&dispatch.item.work);
    dispatch.complete(done, silent);
    drop(guard);
}

fn requires_acceptance(work: &Work) -> bool {
    matches!(work, Work::Command(command) if command.confirmation == Confirmation::Acceptance)
}
