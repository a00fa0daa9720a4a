//! The top of the tree: starts the hands and the shards, and restarts what dies, within reason.

use std::collections::BTreeMap;
use std::time::Instant;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use crate::effects::{self, Effects};
use crate::restart::{Intensity, Restarts};
use crate::shard::{self, Shard};

/// The actor.
pub(crate) struct Root;

/// What it needs.
pub(crate) struct Arguments {
    pub(crate) effects: effects::Arguments,
    pub(crate) shards: Vec<shard::Arguments>,
    pub(crate) intensity: Intensity,
}

/// What it is told.
pub(crate) enum Message {
    /// Take no more events and fire no more timers, in every shard; tell when it is so.
    Quiesce(oneshot::Sender<()>),
}

/// What it holds.
pub(crate) struct State {
    arguments: Arguments,
    /// Which shard an actor is.
    shards: BTreeMap<ActorId, (usize, ActorRef<shard::Message>)>,
    restarts: Restarts,
    quiescing: bool,
}

impl Actor for Root {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let count = arguments.shards.len();
        let mut state =
            State { arguments, shards: BTreeMap::new(), restarts: Restarts::default(), quiescing: false };
        state.start_effects(myself.get_cell()).await?;
        for index in 0..count {
            state.start_shard(index, myself.get_cell()).await?;
        }
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Message::Quiesce(done) = message;
        state.quiescing = true;
        state.quiesce().await;
        // An error means that whoever asked does not wait any more.
        done.send(()).ok();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(dead, why) => {
                state.restart(dead.get_id(), &why.to_string(), myself.get_cell()).await
            }
            SupervisionEvent::ActorTerminated(dead, _, why) => {
                let why = why.unwrap_or_else(|| "stopped".to_owned());
                state.restart(dead.get_id(), &why, myself.get_cell()).await
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }
}

impl State {
    async fn start_effects(&self, me: ActorCell) -> Result<(), ActorProcessingErr> {
        Actor::spawn_linked(None, Effects, self.arguments.effects.clone(), me).await?;
        Ok(())
    }

    async fn start_shard(&mut self, index: usize, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let arguments = self.arguments.shards[index].clone();
        let (actor, _) = Actor::spawn_linked(None, Shard, arguments, me).await?;
        self.shards.insert(actor.get_id(), (index, actor));
        if self.quiescing {
            self.quiesce().await;
        }
        Ok(())
    }

    async fn quiesce(&self) {
        for (_, shard) in self.shards.values() {
            let (done, quiet) = oneshot::channel();
            // Errors mean that the shard is dying; it is told again when it is back.
            drop(shard.cast(shard::Message::Quiesce(done)));
            quiet.await.ok();
        }
    }

    /// Starts another in the place of a dead one; one that does not even start counts as another death.
    async fn restart(&mut self, dead: ActorId, why: &str, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let intensity = self.arguments.intensity;
        let shard = self.shards.remove(&dead).map(|(index, _)| index);
        let mut why = why.to_owned();
        while self.restarts.admit(intensity, Instant::now()) {
            let started = if let Some(index) = shard {
                self.restart_shard(index, &why, me.clone()).await
            } else {
                tracing::error!(why, "the effects supervisor died and is started again");
                self.start_effects(me.clone()).await
            };
            match started {
                Ok(()) => return Ok(()),
                Err(error) => why = error.to_string(),
            }
        }
        Err(format!("more than {} restarts within {:?}: {why}", intensity.restarts, intensity.period).into())
    }

    async fn restart_shard(
        &mut self,
        index: usize,
        why: &str,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        tracing::error!(shard = index, why, "a shard died and is started again from what is durable");
        let directory = &self.arguments.shards[index].directory;
        directory.close();
        directory.context.metrics.restarts.inc();
        self.start_shard(index, me).await
    }
}
