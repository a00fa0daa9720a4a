//! Root supervisor: starts effect execution and the shards, and restarts crashed actors within the
//! restart limit. The limit applies to each child: a fault that concerns every shard at once does
//! not add up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{mpsc, oneshot};

use crate::effects::{self, EffectsSupervisorActor};
use crate::shard::running::{RunningShard, RunningShards};
use crate::shard::{self, ShardActor};
use crate::supervision::{RestartIntensity, RestartTracker, exit_of};
use crate::telemetry::metrics::{ActorKind, GaugeGuard};

/// Root actor.
pub(crate) struct RootActor;

/// Arguments of the root actor.
pub(crate) struct Arguments {
    pub(crate) effects: effects::Arguments,
    /// Running shards, filled by the root actor.
    pub(crate) shards: Arc<RunningShards>,
    /// Receives the numbers of shards that another process has acquired.
    pub(crate) loses: mpsc::UnboundedSender<u16>,
    pub(crate) intensity: RestartIntensity,
}

/// Messages of the root actor.
pub(crate) enum Message {
    /// Stop ingestion and timers in every shard; reply when done.
    Quiesce(oneshot::Sender<()>),
    /// Stop ingestion and timers in one shard; reply when done.
    QuiesceShard(u16, oneshot::Sender<()>),
    /// Start a shard; reply when it runs, or with the reason if it does not.
    Start(Arc<RunningShard>, oneshot::Sender<Result<(), String>>),
    /// Stop a shard; reply when it has stopped.
    Stop(u16, oneshot::Sender<()>),
}

/// A supervised shard.
struct ShardChild {
    shard: Arc<RunningShard>,
    actor: Option<ActorRef<shard::Message>>,
    restarts: RestartTracker,
}

/// State of the root actor.
pub(crate) struct State {
    arguments: Arguments,
    /// Shards by number.
    children: BTreeMap<u16, ShardChild>,
    effects: Option<ActorId>,
    /// Restarts of the effects supervisor.
    effects_restarts: RestartTracker,
    quiescing: bool,
    _alive: GaugeGuard,
}

impl Actor for RootActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let alive = arguments.effects.metrics.actor_started(ActorKind::Root);
        let mut state = State {
            arguments,
            children: BTreeMap::new(),
            effects: None,
            effects_restarts: RestartTracker::default(),
            quiescing: false,
            _alive: alive,
        };
        state.start_effects(myself.get_cell()).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        // Reply errors mean that the caller no longer waits.
        match message {
            Message::Quiesce(done) => {
                state.quiescing = true;
                for index in state.children.keys() {
                    state.quiesce(*index).await;
                }
                done.send(()).ok();
            }
            Message::QuiesceShard(index, done) => {
                state.quiesce(index).await;
                done.send(()).ok();
            }
            Message::Start(shard, reply) => {
                drop(reply.send(state.add(shard, myself.get_cell()).await));
            }
            Message::Stop(index, done) => {
                state.remove(index).await;
                done.send(()).ok();
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some((crashed, reason)) = exit_of(event) else {
            return Ok(());
        };
        if state.effects == Some(crashed.get_id()) {
            return state.restart_effects(reason, myself.get_cell()).await;
        }

        let found = state.children.iter().find(|(_, child)| {
            child
                .actor
                .as_ref()
                .is_some_and(|actor| actor.get_id() == crashed.get_id())
        });
        match found {
            Some((index, _)) => state.restart_shard(*index, reason, myself.get_cell()).await,
            // Stopped on purpose.
            None => Ok(()),
        }
    }
}

impl State {
    async fn start_effects(&mut self, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let (actor, _) = Actor::spawn_linked(
            None,
            EffectsSupervisorActor,
            self.arguments.effects.clone(),
            me,
        )
        .await?;
        self.effects = Some(actor.get_id());
        Ok(())
    }

    async fn add(&mut self, shard: Arc<RunningShard>, me: ActorCell) -> Result<(), String> {
        let index = shard.index;
        self.children.insert(
            index,
            ShardChild {
                shard: Arc::clone(&shard),
                actor: None,
                restarts: RestartTracker::default(),
            },
        );

        // Before its first event: observers of that event must find the shard.
        self.arguments.shards.insert(shard);

        let started = self
            .start_shard(index, me)
            .await
            .map_err(|error| error.to_string());
        if started.is_err() {
            self.remove_child(index);
        }
        started
    }

    async fn remove(&mut self, index: u16) {
        let Some(child) = self.remove_child(index) else {
            return;
        };
        if let Some(actor) = child.actor {
            // An error means that it has crashed meanwhile.
            drop(actor.stop_and_wait(None, None).await);
        }
        child.shard.registry.close();
    }

    fn remove_child(&mut self, index: u16) -> Option<ShardChild> {
        self.arguments.shards.remove(index);
        self.children.remove(&index)
    }

    async fn start_shard(&mut self, index: u16, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let Some(child) = self.children.get_mut(&index) else {
            return Ok(());
        };
        let (actor, _) =
            Actor::spawn_linked(None, ShardActor, Arc::clone(&child.shard), me).await?;
        child.actor = Some(actor);

        // A shard that restarts during a drain must not read events again.
        if self.quiescing {
            self.quiesce(index).await;
        }
        Ok(())
    }

    async fn quiesce(&self, index: u16) {
        let actor = self
            .children
            .get(&index)
            .and_then(|child| child.actor.as_ref());
        let Some(actor) = actor else { return };

        let (done, quiet) = oneshot::channel();
        // Errors mean that the shard is crashing; it receives the message again after its restart.
        drop(actor.cast(shard::Message::Quiesce(done)));
        quiet.await.ok();
    }

    /// Restarts the effects supervisor; a failed start counts as another crash.
    async fn restart_effects(
        &mut self,
        mut reason: String,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        let intensity = self.arguments.intensity;
        while self.effects_restarts.admit(intensity, Instant::now()) {
            tracing::error!(reason, "effects supervisor crashed; restarting");
            self.arguments
                .effects
                .metrics
                .count_restart(ActorKind::Root, ActorKind::Effects);
            match self.start_effects(me.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(exceeded("effects supervisor", intensity, &reason))
    }

    /// Restarts a shard; a failed start counts as another crash. A shard that another process has
    /// acquired is released instead.
    async fn restart_shard(
        &mut self,
        index: u16,
        mut reason: String,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        let intensity = self.arguments.intensity;
        while let Some(child) = self.children.get_mut(&index) {
            let registry = &child.shard.registry;
            // `Stop` removes it.
            if registry.lifecycle.is_released() {
                return Ok(());
            }
            if registry.lifecycle.is_lost() {
                self.lose(index);
                return Ok(());
            }

            if !child.restarts.admit(intensity, Instant::now()) {
                return Err(exceeded(&format!("shard {index}"), intensity, &reason));
            }

            tracing::error!(
                shard = index,
                reason,
                "shard crashed; restarting from durable state"
            );
            registry.close();
            self.arguments
                .effects
                .metrics
                .count_restart(ActorKind::Root, ActorKind::Shard);

            match self.start_shard(index, me.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => reason = error.to_string(),
            }
        }
        Ok(())
    }

    fn lose(&mut self, index: u16) {
        let Some(ShardChild { shard, .. }) = self.remove_child(index) else {
            return;
        };

        tracing::warn!(shard = index, "shard lost to another process; stopped");
        shard.registry.close();
        // The new owner executes the same work: attempts must not run twice.
        shard.registry.lifecycle.epoch().cancel();

        // Closing a store may take a while, and the other shards need their supervisor.
        let loses = self.arguments.loses.clone();
        tokio::spawn(async move {
            if let Err(error) = shard.close().await {
                tracing::warn!(
                    shard = index, %error,
                    "store of a lost shard did not close cleanly"
                );
            }
            // An error means that there is no receiver.
            loses.send(index).ok();
        });
    }
}

fn exceeded(child: &str, intensity: RestartIntensity, reason: &str) -> ActorProcessingErr {
    let RestartIntensity {
        max_restarts,
        period,
    } = intensity;
    format!("{child}: more than {max_restarts} restarts within {period:?}: {reason}").into()
}
