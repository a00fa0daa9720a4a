//! The supervisor of the hands: one provider actor for each upstream, and the publisher of facts.
//!
//! They stand beside the shards, not under them: breakers and limits belong to an upstream, whoever asks.

use std::sync::Arc;
use std::time::Instant;

use orlog_bus::Bus;
use orlog_effect::{Catalog, Performer, Renewal};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::effects::provider::{self, Provider};
use crate::effects::provider_registry::Renew;
use crate::effects::provider_registry::{Hands, Who};
use crate::effects::publisher::{self, Publisher};
use crate::restart::{Intensity, Restarts};
use crate::telemetry::metrics::{ActorKind, Alive, Metrics};

/// The actor.
pub(crate) struct Effects;

/// What it needs.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) hands: Arc<Hands>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) intensity: Intensity,
}

/// What it holds.
pub(crate) struct State {
    arguments: Arguments,
    restarts: Restarts,
    _alive: Alive,
}

impl Actor for Effects {
    type Msg = Renew;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Renew>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let alive = arguments.metrics.begin(ActorKind::Effects);
        let state = State { arguments, restarts: Restarts::default(), _alive: alive };
        for performer in state.arguments.hands.catalog().performers() {
            state.start_provider(performer, myself.get_cell()).await?;
        }
        state.start_publisher(myself.get_cell()).await?;
        state.arguments.hands.put_supervisor(myself);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Renew>,
        Renew(next, reply): Renew,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let renewal = state.renew(&next, myself.get_cell()).await?;
        // An error means that nobody waits for the answer any more.
        drop(reply.send(renewal));
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Renew>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(dead, _) | SupervisionEvent::ActorTerminated(dead, _, _) => {
                state.replace(&dead, myself.get_cell()).await
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }
}

impl State {
    /// The new providers stand before the new catalog sends anything to them, and the old ones hand over after it has
    /// taken the place of the old catalog: so nothing finds nobody.
    async fn renew(&self, next: &Catalog, me: ActorCell) -> Result<Renewal, ActorProcessingErr> {
        let hands = &self.arguments.hands;
        for performer in hands.catalog().fresh(next) {
            self.start_provider(performer, me.clone()).await?;
        }
        let renewal = hands.catalog().adopt(next);
        renewal.retired.iter().for_each(|performer| hands.retire(performer));
        Ok(renewal)
    }

    async fn start_provider(
        &self,
        performer: Arc<Performer>,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        let arguments = provider::Arguments {
            performer: Arc::clone(&performer),
            hands: Arc::clone(&self.arguments.hands),
            metrics: Arc::clone(&self.arguments.metrics),
        };
        let (actor, _) = Actor::spawn_linked(None, Provider, arguments, me).await?;
        self.arguments.hands.put_provider(performer, actor);
        Ok(())
    }

    async fn start_publisher(&self, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let needs = publisher::Arguments {
            bus: Arc::clone(&self.arguments.bus),
            metrics: Arc::clone(&self.arguments.metrics),
        };
        let (actor, _) = Actor::spawn_linked(None, Publisher, needs, me).await?;
        self.arguments.hands.put_publisher(actor);
        Ok(())
    }

    /// Starts another in the place of a dead one, unless that happens too often. One that is retired has a successor.
    async fn replace(&mut self, dead: &ActorCell, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let who = self.arguments.hands.who(dead.get_id());
        if let Who::Provider(performer) = &who
            && performer.is_retired()
        {
            tracing::info!(upstream = performer.upstream().name, "a provider that was replaced has ended");
            self.arguments.hands.remove_provider(performer);
            return Ok(());
        }
        if !self.restarts.admit(self.arguments.intensity, Instant::now()) {
            return Err("providers die too often".into());
        }
        match who {
            Who::Provider(performer) => {
                let upstream = &performer.upstream().name;
                tracing::warn!(upstream, "a provider died and is started again");
                self.arguments.metrics.count_restart(ActorKind::Effects, ActorKind::Provider);
                self.start_provider(performer, me).await
            }
            Who::Publisher => {
                tracing::warn!("the publisher died and is started again");
                self.arguments.metrics.count_restart(ActorKind::Effects, ActorKind::Publisher);
                self.start_publisher(me).await
            }
            Who::Nobody => Ok(()),
        }
    }
}
