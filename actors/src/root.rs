//! Root supervisor: starts effect execution and the shards, and restarts crashed actors within the
//! restart limit. The limit applies to each child: a fault that concerns every shard at once does not add
//! up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{mpsc, oneshot};

use crate::effects::supervisor::{self, EffectsSupervisorActor};
use crate::restart::{RestartIntensity, RestartTracker};
use crate::shard::actor::{self, ShardActor};
use crate::shard::running::{RunningShard, RunningShards};
use crate::telemetry::metrics::{ActorKind, LiveActorGuard};

/// Root actor.
pub(crate) struct RootActor;

/// Arguments of the root actor.
pub(crate) struct Arguments {
    pub(crate) effects: supervisor::Arguments,
    /// Registry of running shards, filled by the root actor.
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
    Start(Box<actor::Arguments>, Arc<RunningShard>, oneshot::Sender<Result<(), String>>),
    /// Stop a shard; reply when it has stopped.
    Stop(u16, oneshot::Sender<()>),
}

/// A supervised shard.
struct ShardChild {
    arguments: actor::Arguments,
    actor: Option<ActorRef<actor::Message>>,
    restarts: RestartTracker,
}

/// Role of an actor.
#[derive(Clone, Copy)]
enum ChildRole {
    Effects,
    Shard(u16),
    Unknown,
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
    _alive: LiveActorGuard,
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
                state.quiesce_all().await;
                done.send(()).ok();
            }
            Message::QuiesceShard(index, done) => {
                state.quiesce(index).await;
                done.send(()).ok();
            }
            Message::Start(arguments, running, reply) => {
                drop(reply.send(state.add(*arguments, running, myself.get_cell()).await));
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
        match event {
            SupervisionEvent::ActorFailed(crashed, reason) => {
                state.restart(crashed.get_id(), &reason.to_string(), myself.get_cell()).await
            }
            SupervisionEvent::ActorTerminated(crashed, _, reason) => {
                let reason = reason.unwrap_or_else(|| "stopped".to_owned());
                state.restart(crashed.get_id(), &reason, myself.get_cell()).await
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }
}

impl State {
    async fn start_effects(&mut self, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let (actor, _) =
            Actor::spawn_linked(None, EffectsSupervisorActor, self.arguments.effects.clone(), me).await?;
        self.effects = Some(actor.get_id());
        Ok(())
    }

    async fn add(
        &mut self,
        arguments: actor::Arguments,
        running: Arc<RunningShard>,
        me: ActorCell,
    ) -> Result<(), String> {
        let index = running.index;
        let restarts = RestartTracker::default();
        self.children.insert(index, ShardChild { arguments, actor: None, restarts });
        // Before its first event: observers of that event must find the shard.
        self.arguments.shards.insert(running);
        let started = self.start_shard(index, me).await.map_err(|error| error.to_string());
        if started.is_err() {
            self.remove_child(index);
        }
        started
    }

    async fn remove(&mut self, index: u16) {
        let Some(child) = self.remove_child(index) else { return };
        if let Some(actor) = child.actor {
            // An error means that it has crashed meanwhile.
            drop(actor.stop_and_wait(None, None).await);
        }
        child.arguments.instances.close();
    }

    fn remove_child(&mut self, index: u16) -> Option<ShardChild> {
        self.arguments.shards.remove(index);
        self.children.remove(&index)
    }

    async fn start_shard(&mut self, index: u16, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let Some(child) = self.children.get_mut(&index) else { return Ok(()) };
        let (actor, _) = Actor::spawn_linked(None, ShardActor, child.arguments.clone(), me).await?;
        child.actor = Some(actor);
        if self.quiescing {
            self.quiesce(index).await;
        }
        Ok(())
    }

    async fn quiesce_all(&self) {
        for index in self.children.keys() {
            self.quiesce(*index).await;
        }
    }

    async fn quiesce(&self, index: u16) {
        let actor = self.children.get(&index).and_then(|child| child.actor.as_ref());
        let Some(actor) = actor else { return };
        let (done, quiet) = oneshot::channel();
        // Errors mean that the shard is crashing; it receives the message again after its restart.
        drop(actor.cast(actor::Message::Quiesce(done)));
        quiet.await.ok();
    }

    /// Restarts a crashed actor; a failed start counts as another crash. A shard that another process has
    /// acquired is released instead.
    async fn restart(
        &mut self,
        crashed: ActorId,
        reason: &str,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        let intensity = self.arguments.intensity;
        let child_role = self.child_role(crashed);
        let mut reason = reason.to_owned();
        loop {
            let started = match child_role {
                // Stopped on purpose.
                ChildRole::Unknown => return Ok(()),
                // `Stop` removes it.
                ChildRole::Shard(index) if self.is_released(index) => return Ok(()),
                ChildRole::Shard(index) if self.is_lost(index) => {
                    self.lose(index);
                    return Ok(());
                }
                _ if !self.admit(child_role) => break,
                ChildRole::Shard(index) => self.restart_shard(index, &reason, me.clone()).await,
                ChildRole::Effects => {
                    tracing::error!(reason, "effects supervisor crashed; restarting");
                    self.arguments.effects.metrics.count_restart(ActorKind::Root, ActorKind::Effects);
                    self.start_effects(me.clone()).await
                }
            };
            match started {
                Ok(()) => return Ok(()),
                Err(error) => reason = error.to_string(),
            }
        }
        let child = match child_role {
            ChildRole::Shard(index) => format!("shard {index}"),
            ChildRole::Effects | ChildRole::Unknown => "effects supervisor".to_owned(),
        };
        let RestartIntensity { max_restarts, period } = intensity;
        Err(format!("{child}: more than {max_restarts} restarts within {period:?}: {reason}").into())
    }

    /// Counts a restart of a child; returns `false` if it exceeds the limit.
    fn admit(&mut self, child: ChildRole) -> bool {
        let restarts = match child {
            ChildRole::Shard(index) => self.children.get_mut(&index).map(|child| &mut child.restarts),
            ChildRole::Effects => Some(&mut self.effects_restarts),
            ChildRole::Unknown => None,
        };
        restarts.is_none_or(|restarts| restarts.admit(self.arguments.intensity, Instant::now()))
    }

    fn child_role(&self, id: ActorId) -> ChildRole {
        let is = |child: &ShardChild| child.actor.as_ref().is_some_and(|actor| actor.get_id() == id);
        match self.children.iter().find(|(_, child)| is(child)) {
            Some((index, _)) => ChildRole::Shard(*index),
            None if self.effects == Some(id) => ChildRole::Effects,
            None => ChildRole::Unknown,
        }
    }

    fn is_released(&self, index: u16) -> bool {
        self.children.get(&index).is_some_and(|child| child.arguments.instances.is_released())
    }

    fn is_lost(&self, index: u16) -> bool {
        self.children.get(&index).is_some_and(|child| child.arguments.instances.is_lost())
    }

    fn lose(&mut self, index: u16) {
        let Some(running) = self.arguments.shards.get(index) else { return };
        tracing::warn!(shard = index, "shard lost to another process; stopped");
        self.remove_child(index);
        running.instances.close();
        running.instances.epoch().cancel();
        let loses = self.arguments.loses.clone();
        tokio::spawn(async move {
            if let Err(error) = running.close().await {
                tracing::warn!(shard = index, %error, "store of a lost shard did not close cleanly");
            }
            // An error means that there is no receiver.
            loses.send(index).ok();
        });
    }

    async fn restart_shard(
        &mut self,
        index: u16,
        reason: &str,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        tracing::error!(shard = index, reason, "shard crashed; restarting from durable state");
        if let Some(child) = self.children.get(&index) {
            let instances = &child.arguments.instances;
            instances.close();
            instances.context.metrics.count_restart(ActorKind::Root, ActorKind::Shard);
        }
        self.start_shard(index, me).await
    }
}
