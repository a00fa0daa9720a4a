//! One shard: its store, its committer, and the actors that use them.
//!
//! Children start in reverse order of the data flow. A crashed saga actor is replaced; a crash of
//! another child stops the shard, and its supervisor restarts it from durable state.

use std::ops::Range;
use std::sync::Arc;

use orlog_bus::Bus;
use orlog_model::Change;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, ActorRuntime, SupervisionEvent};
use tokio::sync::oneshot;

use crate::abort_on_drop::AbortOnDrop;
use crate::effects::provider_registry::ProviderRegistry;
use crate::instance::completion::Completion;
use crate::instance::mailbox::{Mailbox, PASSIVATED};
use crate::instance::registry::{Incarnation, InstanceRegistry, StartActor};
use crate::instance::saga::{SagaActor, SagaActorArguments};
use crate::shard::buffer_activation;
use crate::shard::committer::CommitObserver;
use crate::shard::committer::{self, CommitterActor, SharedWriter};
use crate::shard::dead_letter_publisher::{self, DeadLetterEncoder, DeadLetterPublisherActor};
use crate::shard::event_source::EventSource;
use crate::shard::fresh_queue::FreshQueue;
use crate::shard::fresh_rows::FreshRows;
use crate::shard::ingester::{self, IngesterActor};
use crate::shard::relay::{self, RelayActor};
use crate::shard::submission::{CommitterHandle, Submission};
use crate::shard::timer::{self, TimerActor};
use crate::telemetry::log_instance;
use crate::telemetry::metrics::{ActorKind, LiveActorGuard};

/// Shard actor.
pub(crate) struct ShardActor;

/// Arguments of a shard, reused for every incarnation.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) name: String,
    pub(crate) slots: Range<u16>,
    pub(crate) instances: Arc<InstanceRegistry>,
    pub(crate) writer: SharedWriter,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) sources: Vec<EventSource>,
    pub(crate) providers: Arc<ProviderRegistry>,
    pub(crate) dead_letter_encoder: DeadLetterEncoder,
    pub(crate) observer: Option<Arc<dyn CommitObserver>>,
}

/// Messages of a shard.
pub(crate) enum Message {
    /// Passivate idle instances and remove expired dedupe keys.
    Housekeeping,
    /// Stop ingestion and timers; reply when done.
    Quiesce(oneshot::Sender<()>),
    /// All instances with buffered inputs are active; contains a reason if their activation failed.
    Activated(String),
}

/// State of a shard.
pub(crate) struct State {
    instances: Arc<InstanceRegistry>,
    helpers: Vec<(ActorId, &'static str)>,
    ingesters: Vec<ActorRef<ingester::Message>>,
    timer: ActorRef<timer::Message>,
    quiescing: bool,
    _activating: AbortOnDrop,
    _alive: LiveActorGuard,
}

impl Actor for ShardActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let me = myself.get_cell();
        let instances = Arc::clone(&arguments.instances);
        let capacity = instances.context.limits.max_fresh_rows;
        let (work, timers) = (Arc::new(FreshQueue::new(capacity)), Arc::new(FreshQueue::new(capacity)));
        let fresh = FreshRows::new(Arc::clone(&work), Arc::clone(&timers));
        let (committing, committer) = start_committer(&arguments, fresh, me.clone()).await?;
        let start = saga_starter(&instances, committer.clone(), me.clone());
        instances.open(Incarnation { committer, start });
        let relaying = relay::Arguments {
            instances: Arc::clone(&instances),
            providers: arguments.providers,
            fresh: work,
        };
        let (relay, _) = Actor::spawn_linked(None, RelayActor, relaying, me.clone()).await?;
        let firing = timer::Arguments { instances: Arc::clone(&instances), fresh: timers };
        let (timer, _) = Actor::spawn_linked(None, TimerActor, firing, me.clone()).await?;
        let publishing = dead_letter_publisher::Arguments {
            instances: Arc::clone(&instances),
            bus: Arc::clone(&arguments.bus),
            show: arguments.dead_letter_encoder,
        };
        let (publisher, _) =
            Actor::spawn_linked(None, DeadLetterPublisherActor, publishing, me.clone()).await?;
        let mut helpers = vec![
            (committing, "committer"),
            (relay.get_id(), "relay"),
            (timer.get_id(), "timer"),
            (publisher.get_id(), "dead_letter_publisher"),
        ];
        let mut ingesters = Vec::new();
        for source in arguments.sources {
            let ingesting = ingester::Arguments {
                instances: Arc::clone(&instances),
                bus: Arc::clone(&arguments.bus),
                source,
                name: arguments.name.clone(),
                slots: arguments.slots.clone(),
            };
            let (ingester, _) = Actor::spawn_linked(None, IngesterActor, ingesting, me.clone()).await?;
            helpers.push((ingester.get_id(), "ingester"));
            ingesters.push(ingester);
        }
        drop(myself.send_interval(instances.context.limits.idle_timeout / 4, || Message::Housekeeping));
        let alive = instances.context.metrics.actor_started(ActorKind::Shard);
        let activating = buffer_activation::activate_buffered(Arc::clone(&instances));
        let activating = AbortOnDrop::spawn(&myself, activating, Message::Activated);
        let quiescing = false;
        Ok(State { instances, helpers, ingesters, timer, quiescing, _activating: activating, _alive: alive })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Housekeeping => state.tidy()?,
            Message::Quiesce(done) => {
                state.quiescing = true;
                // Errors mean that they have already stopped.
                for ingester in &state.ingesters {
                    drop(ingester.stop_and_wait(None, None).await);
                }
                drop(state.timer.stop_and_wait(None, None).await);
                done.send(()).ok();
            }
            Message::Activated(reason) if reason.is_empty() => {}
            Message::Activated(reason) => return Err(reason.into()),
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
            SupervisionEvent::ActorTerminated(_, _, Some(reason)) if reason == PASSIVATED => Ok(()),
            SupervisionEvent::ActorTerminated(crashed, _, reason) => {
                state.handle_crash(&crashed, &reason.unwrap_or_else(|| "stopped".to_owned()))
            }
            SupervisionEvent::ActorFailed(crashed, reason) => {
                state.handle_crash(&crashed, &reason.to_string())
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }

    async fn post_stop(&self, _: ActorRef<Message>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.instances.close();
        Ok(())
    }
}

/// Returns the function that starts saga actors under this shard. A weak reference keeps the registry
/// from owning itself.
fn saga_starter(instances: &Arc<InstanceRegistry>, committer: CommitterHandle, me: ActorCell) -> StartActor {
    let instances = Arc::downgrade(instances);
    Box::new(move |mailbox: &Arc<Mailbox>| {
        let arguments = SagaActorArguments {
            mailbox: Arc::clone(mailbox),
            instances: instances.upgrade()?,
            committer: committer.clone(),
        };
        ActorRuntime::spawn_linked_instant(None, SagaActor, arguments, me.clone())
            .map(|(actor, _)| actor)
            .inspect_err(|error| log_instance!(ERROR, mailbox.key, None, %error, "cannot start a saga actor"))
            .ok()
    })
}

async fn start_committer(
    arguments: &Arguments,
    fresh: FreshRows,
    me: ActorCell,
) -> Result<(ActorId, CommitterHandle), ActorProcessingErr> {
    let (started, committer) = oneshot::channel();
    let committing = committer::Arguments {
        writer: Arc::clone(&arguments.writer),
        instances: Arc::clone(&arguments.instances),
        observer: arguments.observer.clone(),
        fresh,
        started,
    };
    let (actor, _) = Actor::spawn_linked(None, CommitterActor, committing, me).await?;
    Ok((actor.get_id(), committer.await?))
}

impl State {
    fn tidy(&self) -> Result<(), ActorProcessingErr> {
        self.instances.passivate_idle();
        let context = &self.instances.context;
        let before = context.reader.dedupe_horizon(context.clock.now())?;
        if context.reader.is_dedupe_purge_due(before)? {
            let (reader, committer) = (context.reader.clone(), self.instances.committer()?);
            // Counting reads all expired keys.
            drop(tokio::task::spawn_blocking(move || {
                if let Err(error) = reader.count_expired_dedupe_keys(before) {
                    tracing::warn!(%error, "expired dedupe keys cannot be counted");
                }
                // An error means that the shard has stopped.
                drop(committer.submit(Submission::new(Change::PurgeDedupe { before }, Completion::None)));
            }));
        }
        Ok(())
    }

    /// Handles the crash of a child: a saga actor is replaced; any other child stops the shard.
    fn handle_crash(&self, crashed: &ActorCell, reason: &str) -> Result<(), ActorProcessingErr> {
        let helper = self.helpers.iter().find(|(id, _)| *id == crashed.get_id());
        match helper {
            Some((_, "ingester" | "timer")) if self.quiescing => Ok(()),
            Some((_, name)) => Err(format!("{name} crashed: {reason}").into()),
            None => {
                if self.instances.restart_actor(crashed.get_id()) {
                    self.instances.context.metrics.count_restart(ActorKind::Shard, ActorKind::Saga);
                    tracing::warn!(reason, "saga actor crashed; restarting");
                }
                Ok(())
            }
        }
    }
}
