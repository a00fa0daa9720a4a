//! One shard: its store, its committer, and everybody who works with it.
//!
//! Children start from the end of the stream to its source. A dead saga is replaced; a dead helper fells the shard, and
//! its supervisor starts it anew from what is durable.

use std::ops::Range;
use std::sync::Arc;

use orlog_bus::Bus;
use orlog_model::Change;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, ActorRuntime, SupervisionEvent};
use tokio::sync::oneshot;

use crate::effects::provider_registry::Hands;
use crate::instance::completion::Done;
use crate::instance::mailbox::{Cell, PASSIVATED};
use crate::instance::registry::{Directory, Incarnation, StartActor};
use crate::instance::saga::{Saga, SagaArguments};
use crate::shard::committer::CommitObserver;
use crate::shard::committer::{self, CommitterActor, WriterSlot};
use crate::shard::dead_letter_publisher::{self, Postman, ShowLetter};
use crate::shard::event_source::EventSource;
use crate::shard::ingester::{self, Ingester};
use crate::shard::relay::{self, Relay};
use crate::shard::submission::{Committer, Submission};
use crate::shard::timer::{self, Timer};
use crate::telemetry::about;
use crate::telemetry::metrics::{ActorKind, Alive};

/// Instances with kept inputs that are looked at in one go at the start.
const HELD_PAGE: usize = 1_000;

/// The actor.
pub(crate) struct Shard;

/// What it needs, for every life anew.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) name: String,
    pub(crate) slots: Range<u16>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) writer: WriterSlot,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) sources: Vec<EventSource>,
    pub(crate) hands: Arc<Hands>,
    pub(crate) letters: ShowLetter,
    pub(crate) observer: Option<Arc<dyn CommitObserver>>,
}

/// What it is told.
pub(crate) enum Message {
    /// Put idle instances to rest, and forget markers of events that are long past.
    Tidy,
    /// Take no more events and fire no more timers; tell when it is so.
    Quiesce(oneshot::Sender<()>),
}

/// What it holds.
pub(crate) struct State {
    directory: Arc<Directory>,
    helpers: Vec<(ActorId, &'static str)>,
    ingesters: Vec<ActorRef<ingester::Message>>,
    timer: ActorRef<timer::Message>,
    quiescing: bool,
    _alive: Alive,
}

impl Actor for Shard {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let me = myself.get_cell();
        let directory = Arc::clone(&arguments.directory);
        let (committing, committer) = start_committer(&arguments, me.clone()).await?;
        let start = saga_starter(&directory, committer.clone(), me.clone());
        directory.open(Incarnation { committer, start });
        let relaying = relay::Arguments { directory: Arc::clone(&directory), hands: arguments.hands };
        let (relay, _) = Actor::spawn_linked(None, Relay, relaying, me.clone()).await?;
        let (timer, _) = Actor::spawn_linked(None, Timer, Arc::clone(&directory), me.clone()).await?;
        let publishing = dead_letter_publisher::Arguments {
            directory: Arc::clone(&directory),
            bus: Arc::clone(&arguments.bus),
            show: arguments.letters,
        };
        let (postman, _) = Actor::spawn_linked(None, Postman, publishing, me.clone()).await?;
        wake_held(&directory)?;
        let mut helpers = vec![
            (committing, "committer"),
            (relay.get_id(), "relay"),
            (timer.get_id(), "timer"),
            (postman.get_id(), "postman"),
        ];
        let mut ingesters = Vec::new();
        for source in arguments.sources {
            let ingesting = ingester::Arguments {
                directory: Arc::clone(&directory),
                bus: Arc::clone(&arguments.bus),
                source,
                name: arguments.name.clone(),
                slots: arguments.slots.clone(),
            };
            let (ingester, _) = Actor::spawn_linked(None, Ingester, ingesting, me.clone()).await?;
            helpers.push((ingester.get_id(), "ingester"));
            ingesters.push(ingester);
        }
        drop(myself.send_interval(directory.context.limits.idle / 4, || Message::Tidy));
        let alive = directory.context.metrics.begin(ActorKind::Shard);
        Ok(State { directory, helpers, ingesters, timer, quiescing: false, _alive: alive })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Tidy => state.tidy()?,
            Message::Quiesce(done) => {
                state.quiescing = true;
                // Errors mean that they have gone already.
                for ingester in &state.ingesters {
                    drop(ingester.stop_and_wait(None, None).await);
                }
                drop(state.timer.stop_and_wait(None, None).await);
                done.send(()).ok();
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(_, _, Some(why)) if why == PASSIVATED => Ok(()),
            SupervisionEvent::ActorTerminated(dead, _, why) => {
                state.bury(&dead, &why.unwrap_or_else(|| "stopped".to_owned()))
            }
            SupervisionEvent::ActorFailed(dead, why) => state.bury(&dead, &why.to_string()),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }

    async fn post_stop(&self, _: ActorRef<Message>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.directory.close();
        Ok(())
    }
}

/// Wakes the instances that had begun or were resumed, and had not come to what was kept for them.
fn wake_held(directory: &Directory) -> Result<(), ActorProcessingErr> {
    let reader = &directory.context.reader;
    let mut last = None;
    loop {
        let page = reader.held_keys(last.as_ref(), HELD_PAGE)?;
        for key in &page {
            if reader.instance(key)?.is_some_and(|instance| !instance.paused) {
                directory.wake(key)?;
            }
        }
        match page.into_iter().next_back() {
            Some(key) => last = Some(key),
            None => return Ok(()),
        }
    }
}

/// Starts saga actors under this shard. The directory must not keep itself alive, hence the weak reference.
fn saga_starter(directory: &Arc<Directory>, committer: Committer, me: ActorCell) -> StartActor {
    let directory = Arc::downgrade(directory);
    Box::new(move |cell: &Arc<Cell>| {
        let arguments = SagaArguments {
            cell: Arc::clone(cell),
            directory: directory.upgrade()?,
            committer: committer.clone(),
        };
        ActorRuntime::spawn_linked_instant(None, Saga, arguments, me.clone())
            .map(|(actor, _)| actor)
            .inspect_err(|error| about!(ERROR, cell.key, None, %error, "cannot start a saga actor"))
            .ok()
    })
}

async fn start_committer(
    arguments: &Arguments,
    me: ActorCell,
) -> Result<(ActorId, Committer), ActorProcessingErr> {
    let (started, committer) = oneshot::channel();
    let committing = committer::Arguments {
        slot: Arc::clone(&arguments.writer),
        directory: Arc::clone(&arguments.directory),
        observer: arguments.observer.clone(),
        started,
    };
    let (actor, _) = Actor::spawn_linked(None, CommitterActor, committing, me).await?;
    Ok((actor.get_id(), committer.await?))
}

impl State {
    fn tidy(&self) -> Result<(), ActorProcessingErr> {
        self.directory.passivate();
        let context = &self.directory.context;
        let before = context.reader.remembered_since(context.clock.now())?;
        if context.reader.is_purge_due(before)? {
            let purge = Change::PurgeApplied { before };
            self.directory.committer()?.submit(Submission::of(purge, Done::Nothing))?;
        }
        Ok(())
    }

    /// A child died: a saga is replaced, a helper fells the shard.
    fn bury(&self, dead: &ActorCell, why: &str) -> Result<(), ActorProcessingErr> {
        let helper = self.helpers.iter().find(|(id, _)| *id == dead.get_id());
        match helper {
            Some((_, "ingester" | "timer")) if self.quiescing => Ok(()),
            Some((_, name)) => Err(format!("the {name} died: {why}").into()),
            None => {
                if self.directory.revive(dead.get_id()) {
                    self.directory.context.metrics.count_restart(ActorKind::Shard, ActorKind::Saga);
                    tracing::warn!(why, "a saga actor died; another goes on with its inputs");
                }
                Ok(())
            }
        }
    }
}
