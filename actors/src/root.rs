//! The top of the tree: starts the hands and the shards, and restarts what dies, within reason.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{mpsc, oneshot};

use crate::effects::supervisor::{self, Effects};
use crate::restart::{Intensity, Restarts};
use crate::shard::actor::{self, Shard};
use crate::shard::running::{Running, Shards};
use crate::telemetry::metrics::{ActorKind, Alive};

/// The actor.
pub(crate) struct Root;

/// What it needs.
pub(crate) struct Arguments {
    pub(crate) effects: supervisor::Arguments,
    /// The shards that run, as all others see them. Filled here.
    pub(crate) shards: Arc<Shards>,
    /// Hears of shards that another process has taken.
    pub(crate) loses: mpsc::UnboundedSender<u16>,
    pub(crate) intensity: Intensity,
}

/// What it is told.
pub(crate) enum Message {
    /// Take no more events and fire no more timers, in every shard; tell when it is so.
    Quiesce(oneshot::Sender<()>),
    /// The same in one shard.
    QuiesceOne(u16, oneshot::Sender<()>),
    /// Start a shard; tell when it runs, or why it does not.
    Start(Box<actor::Arguments>, Arc<Running>, oneshot::Sender<Result<(), String>>),
    /// Stop a shard; tell when it has stopped.
    Stop(u16, oneshot::Sender<()>),
}

/// A shard that is to run.
struct Child {
    arguments: actor::Arguments,
    actor: Option<ActorRef<actor::Message>>,
}

/// Who an actor is.
#[derive(Clone, Copy)]
enum Who {
    Effects,
    Shard(u16),
    Nobody,
}

/// What it holds.
pub(crate) struct State {
    arguments: Arguments,
    /// By number.
    children: BTreeMap<u16, Child>,
    effects: Option<ActorId>,
    restarts: Restarts,
    quiescing: bool,
    _alive: Alive,
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
        let alive = arguments.effects.metrics.begin(ActorKind::Root);
        let mut state = State {
            arguments,
            children: BTreeMap::new(),
            effects: None,
            restarts: Restarts::default(),
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
        // Errors of a reply mean that whoever asked does not wait any more.
        match message {
            Message::Quiesce(done) => {
                state.quiescing = true;
                state.quiesce_all().await;
                done.send(()).ok();
            }
            Message::QuiesceOne(index, done) => {
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
    async fn start_effects(&mut self, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let (actor, _) = Actor::spawn_linked(None, Effects, self.arguments.effects.clone(), me).await?;
        self.effects = Some(actor.get_id());
        Ok(())
    }

    async fn add(
        &mut self,
        arguments: actor::Arguments,
        running: Arc<Running>,
        me: ActorCell,
    ) -> Result<(), String> {
        let index = running.index;
        self.children.insert(index, Child { arguments, actor: None });
        // Before its first event: whoever is told of it must find it.
        self.arguments.shards.put(running);
        let started = self.start_shard(index, me).await.map_err(|error| error.to_string());
        if started.is_err() {
            self.forget(index);
        }
        started
    }

    async fn remove(&mut self, index: u16) {
        let Some(child) = self.forget(index) else { return };
        if let Some(actor) = child.actor {
            // An error means that it has died meanwhile.
            drop(actor.stop_and_wait(None, None).await);
        }
        child.arguments.directory.close();
    }

    fn forget(&mut self, index: u16) -> Option<Child> {
        self.arguments.shards.remove(index);
        self.children.remove(&index)
    }

    async fn start_shard(&mut self, index: u16, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let Some(child) = self.children.get_mut(&index) else { return Ok(()) };
        let (actor, _) = Actor::spawn_linked(None, Shard, child.arguments.clone(), me).await?;
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
        // Errors mean that the shard is dying; it is told again when it is back.
        drop(actor.cast(actor::Message::Quiesce(done)));
        quiet.await.ok();
    }

    /// Starts another in the place of a dead one; one that does not even start counts as another death. A shard that another
    /// process has taken is let go instead.
    async fn restart(&mut self, dead: ActorId, why: &str, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let intensity = self.arguments.intensity;
        let who = self.who(dead);
        let mut why = why.to_owned();
        loop {
            let started = match who {
                // Stopped on purpose.
                Who::Nobody => return Ok(()),
                Who::Shard(index) if self.is_lost(index) => {
                    self.lose(index);
                    return Ok(());
                }
                _ if !self.restarts.admit(intensity, Instant::now()) => break,
                Who::Shard(index) => self.restart_shard(index, &why, me.clone()).await,
                Who::Effects => {
                    tracing::error!(why, "the effects supervisor died and is started again");
                    self.arguments.effects.metrics.count_restart(ActorKind::Root, ActorKind::Effects);
                    self.start_effects(me.clone()).await
                }
            };
            match started {
                Ok(()) => return Ok(()),
                Err(error) => why = error.to_string(),
            }
        }
        Err(format!("more than {} restarts within {:?}: {why}", intensity.restarts, intensity.period).into())
    }

    fn who(&self, id: ActorId) -> Who {
        let is = |child: &Child| child.actor.as_ref().is_some_and(|actor| actor.get_id() == id);
        match self.children.iter().find(|(_, child)| is(child)) {
            Some((index, _)) => Who::Shard(*index),
            None if self.effects == Some(id) => Who::Effects,
            None => Who::Nobody,
        }
    }

    fn is_lost(&self, index: u16) -> bool {
        self.children.get(&index).is_some_and(|child| child.arguments.directory.is_lost())
    }

    fn lose(&mut self, index: u16) {
        let Some(running) = self.arguments.shards.get(index) else { return };
        tracing::warn!(shard = index, "another process has taken this shard; it does not run here any more");
        self.forget(index);
        running.directory.close();
        let loses = self.arguments.loses.clone();
        tokio::spawn(async move {
            if let Err(error) = running.close().await {
                tracing::warn!(shard = index, %error, "the store of a lost shard did not close in good order");
            }
            // An error means that nobody minds.
            loses.send(index).ok();
        });
    }

    async fn restart_shard(
        &mut self,
        index: u16,
        why: &str,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        tracing::error!(shard = index, why, "a shard died and is started again from what is durable");
        if let Some(child) = self.children.get(&index) {
            let directory = &child.arguments.directory;
            directory.close();
            directory.context.metrics.count_restart(ActorKind::Root, ActorKind::Shard);
        }
        self.start_shard(index, me).await
    }
}
