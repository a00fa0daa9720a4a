//! The supervisor of the hands: one provider actor for each upstream, and the publisher of facts.
//!
//! They stand beside the shards, not under them: breakers and limits belong to an upstream, whoever asks.

use std::sync::Arc;
use std::time::Instant;

use orlog_bus::Bus;
use orlog_effect::Performer;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::hands::Hands;
use crate::metrics::Metrics;
use crate::provider::{self, Provider};
use crate::publisher::Publisher;
use crate::restart::{Intensity, Restarts};

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

/// It takes no messages.
pub(crate) enum Message {}

/// What it holds.
pub(crate) struct State {
    arguments: Arguments,
    restarts: Restarts,
}

impl Actor for Effects {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let state = State { arguments, restarts: Restarts::default() };
        for performer in state.arguments.hands.performers() {
            state.start_provider(Arc::clone(performer), myself.get_cell()).await?;
        }
        state.start_publisher(myself.get_cell()).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {}
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
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
    async fn start_provider(
        &self,
        performer: Arc<Performer>,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        let name = performer.upstream().name.clone();
        let arguments = provider::Arguments { performer, metrics: Arc::clone(&self.arguments.metrics) };
        let (actor, _) = Actor::spawn_linked(None, Provider, arguments, me).await?;
        self.arguments.hands.put_provider(name, actor);
        Ok(())
    }

    async fn start_publisher(&self, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let (actor, _) = Actor::spawn_linked(None, Publisher, Arc::clone(&self.arguments.bus), me).await?;
        self.arguments.hands.put_publisher(actor);
        Ok(())
    }

    /// Starts another in the place of a dead one, unless that happens too often.
    async fn replace(&mut self, dead: &ActorCell, me: ActorCell) -> Result<(), ActorProcessingErr> {
        if !self.restarts.admit(self.arguments.intensity, Instant::now()) {
            return Err("providers die too often".into());
        }
        let name = self.arguments.hands.upstream_of(dead.get_id());
        tracing::warn!(upstream = name.as_deref().unwrap_or("facts"), "a provider died and is started again");
        let mut performers = self.arguments.hands.performers();
        match name.and_then(|name| performers.find(|p| p.upstream().name == name).cloned()) {
            Some(performer) => self.start_provider(performer, me).await,
            None => self.start_publisher(me).await,
        }
    }
}
