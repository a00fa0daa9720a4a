//! Publishes facts and workflow commands between sagas to the bus under the id of their work item, so
//! that the bus deduplicates repetitions.

use std::sync::Arc;

use orlog_bus::subject::{Subject, SubjectKind};
use orlog_bus::{Bus, Message as BusMessage, codec, workflow};
use orlog_model::{
    CorrelationId, Event, EventId, Fact, InstanceKey, ParentRef, SagaName, Work, WorkItem, WorkOutcome,
    WorkflowAction, WorkflowCommand,
};
use orlog_store::Error as StoreError;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

use crate::abort_on_drop::AbortOnDrop;
use crate::effects::work_dispatch::WorkDispatch;
use crate::publish_with_retry;
use crate::telemetry::log_instance;
use crate::telemetry::metrics::{ActorKind, LiveActorGuard, MailboxGuard, Metrics};

/// Label for log records.
const LOG_LABEL: &str = "facts and workflow commands";
/// Maximum number of work items per batch.
const MAX_BATCH: usize = 1024;

/// Publisher actor.
pub(crate) struct PublisherActor;

/// Arguments of the publisher.
pub(crate) struct Arguments {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Messages of the publisher.
pub(crate) enum Message {
    /// Facts and workflow commands to publish.
    Dispatches(Vec<WorkDispatch>, MailboxGuard),
    /// The publishing task ended.
    Ended(String),
}

/// State of the publisher. Dropping it abandons queued and in-flight items; they return to the relay.
pub(crate) struct State {
    waiting: mpsc::UnboundedSender<(WorkDispatch, MailboxGuard)>,
    metrics: Arc<Metrics>,
    _publishing: AbortOnDrop,
    _alive: LiveActorGuard,
}

impl Actor for PublisherActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        Arguments { bus, metrics }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let (waiting, dispatches) = mpsc::unbounded_channel();
        let publishing = AbortOnDrop::spawn(&myself, publish_all(bus, dispatches), Message::Ended);
        let alive = metrics.actor_started(ActorKind::Publisher);
        Ok(State { waiting, metrics, _publishing: publishing, _alive: alive })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Dispatches(dispatches, waited) => {
                drop(waited);
                for dispatch in dispatches {
                    let waiting = state.metrics.messages_enqueued(ActorKind::Publisher, 1);
                    // On an error the item is dropped and returns to the relay.
                    drop(state.waiting.send((dispatch, waiting)));
                }
            }
            Message::Ended(reason) => return Err(reason.into()),
        }
        Ok(())
    }
}

/// Publishes one batch after the other: messages of an instance keep their order, even if the bus is
/// unavailable for a while. Items that arrive meanwhile form the next batch.
async fn publish_all(
    bus: Arc<dyn Bus>,
    mut waiting: mpsc::UnboundedReceiver<(WorkDispatch, MailboxGuard)>,
) -> String {
    let mut dispatches = Vec::new();
    while waiting.recv_many(&mut dispatches, MAX_BATCH).await > 0 {
        dispatches.retain(|(dispatch, _)| !dispatch.place.epoch().ended().is_stopped());
        publish(&*bus, dispatches.drain(..).map(|(dispatch, _)| dispatch).collect()).await;
    }
    "all senders are dropped".to_owned()
}

async fn publish(bus: &dyn Bus, dispatches: Vec<WorkDispatch>) {
    let all: Result<Vec<_>, _> =
        dispatches.iter().filter_map(|dispatch| message(dispatch).transpose()).collect();
    if let Ok(all) = all
        && publish_with_retry::publish_with_retry(bus, all, LOG_LABEL).await.is_ok()
    {
        return dispatches.into_iter().for_each(accept);
    }
    // One message makes the batch fail: publish one by one to find it.
    for dispatch in dispatches {
        match publish_one(bus, &dispatch).await {
            Ok(()) => accept(dispatch),
            Err(reason) => {
                let (key, trace, id) =
                    (&dispatch.item.instance, dispatch.item.trace.as_ref(), dispatch.item.id);
                log_instance!(ERROR, key, trace, %id, reason, "publish failed; retrying");
            }
        }
    }
}

async fn publish_one(bus: &dyn Bus, dispatch: &WorkDispatch) -> Result<(), String> {
    let message = message(dispatch).map_err(|error| error.to_string())?;
    let one = message.into_iter().collect();
    publish_with_retry::publish_with_retry(bus, one, LOG_LABEL).await.map_err(|error| error.to_string())
}

fn accept(dispatch: WorkDispatch) {
    dispatch.complete(orlog_effect::ExecutionResult::without_attempt(WorkOutcome::Accepted), true);
}

fn message(dispatch: &WorkDispatch) -> Result<Option<BusMessage>, StoreError> {
    let item = &dispatch.item;
    let key = |saga: &SagaName, correlation: &CorrelationId| InstanceKey {
        tenant: item.instance.tenant.clone(),
        saga: saga.clone(),
        correlation: correlation.clone(),
    };
    Ok(match &item.work {
        Work::Fact(fact) => Some(fact_message(item, fact)),
        Work::StartChild(start) => {
            let parent =
                ParentRef { key: item.instance.clone(), work_id: item.id, depth: depth(dispatch)? + 1 };
            let action =
                WorkflowAction::Start { parent, event: start.event.clone(), data: start.data.clone() };
            Some(command_message(item, &key(&start.saga, &start.correlation), action))
        }
        Work::CancelChild(stop) => {
            let action = WorkflowAction::Cancel { from: item.instance.clone(), reason: stop.reason.clone() };
            Some(command_message(item, &key(&stop.saga, &stop.correlation), action))
        }
        Work::NotifyParent(end) => {
            Some(command_message(item, &end.to, WorkflowAction::ChildEnded(end.ended.clone())))
        }
        Work::Command(_) | Work::Effect(_) => None,
    })
}

/// Returns the number of ancestors of the requesting saga. It is constant, so it is not stored in every
/// item.
fn depth(dispatch: &WorkDispatch) -> Result<u16, StoreError> {
    let instance = dispatch.instances.context.reader.instance(&dispatch.item.instance)?;
    Ok(instance.and_then(|instance| instance.parent).map_or(0, |parent| parent.depth))
}

fn command_message(item: &WorkItem, to: &InstanceKey, action: WorkflowAction) -> BusMessage {
    let id = workflow::command_event_id(item.id);
    let command = WorkflowCommand { id, at: item.created_at, trace: item.trace.clone(), action };
    workflow::encode(to, &item.instance, &command)
}

fn fact_message(item: &WorkItem, fact: &Fact) -> BusMessage {
    let InstanceKey { tenant, saga, correlation } = &item.instance;
    let subject =
        Subject::new(tenant.clone(), SubjectKind::WorkflowEvent, saga.as_str(), correlation.as_str());
    codec::encode(&event(item, fact), subject.to_string())
}

/// Converts a fact to an event.
fn event(item: &WorkItem, fact: &Fact) -> Event {
    Event {
        id: EventId::new(item.id.to_string()).expect("a UUID is short ASCII"),
        tenant: item.instance.tenant.clone(),
        kind: fact.kind.clone(),
        source: format!("orlog:{}", item.instance.saga),
        subject: Some(item.instance.correlation.to_string()),
        time: item.created_at,
        correlation: Some(item.instance.correlation.clone()),
        causation: Some(item.causation.to_string()),
        trace: item.trace.clone(),
        schema_version: 1,
        data: fact.data.clone(),
    }
}
