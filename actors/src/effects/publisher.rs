//! Publishes facts and workflow commands between sagas to the bus under the id of their work item, so
//! that the bus deduplicates repetitions.

use std::sync::Arc;

use orlog_bus::subject::{Subject, SubjectKind};
use orlog_bus::{Bus, Error as BusError, Message as BusMessage, codec, workflow};
use orlog_effect::ExecutionResult;
use orlog_model::{
    CorrelationId, DeadLetter, DeadLetterOriginal, DeadLetterReason, Event, EventId, Fact, Failure,
    InstanceKey, ParentRef, SagaName, Work, WorkItem, WorkOutcome, WorkflowAction, WorkflowCommand,
};
use orlog_store::Error as StoreError;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::Value;
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

/// Publishes a batch. A message that cannot be built, because the instance cannot be read, returns to the
/// relay.
async fn publish(bus: &dyn Bus, dispatches: Vec<WorkDispatch>) {
    let mut batch = Vec::with_capacity(dispatches.len());
    for dispatch in dispatches {
        match message(&dispatch) {
            Ok(Some(message)) => batch.push((dispatch, bus.sign(message))),
            Ok(None) => accept(dispatch),
            Err(error) => {
                let (key, trace, id) =
                    (&dispatch.item.instance, dispatch.item.trace.as_ref(), dispatch.item.id);
                log_instance!(ERROR, key, trace, %id, %error, "publish failed; retrying");
            }
        }
    }
    publish_batch(bus, batch).await;
}

/// Publishes messages in order. If the bus rejects the batch, it is split until the rejected messages are
/// found; the bus deduplicates messages that it has already stored.
async fn publish_batch(bus: &dyn Bus, batch: Vec<(WorkDispatch, BusMessage)>) {
    let mut batches = vec![batch];
    while let Some(mut batch) = batches.pop() {
        let messages = batch.iter().map(|(_, message)| message.clone()).collect();
        match publish_with_retry::publish_with_retry(bus, messages, LOG_LABEL).await {
            Ok(()) => batch.into_iter().for_each(|(dispatch, _)| accept(dispatch)),
            Err(_) if batch.len() > 1 => {
                batches.push(batch.split_off(batch.len() / 2));
                batches.push(batch);
            }
            Err(error) => batch.into_iter().for_each(|(dispatch, message)| reject(dispatch, message, &error)),
        }
    }
}

/// Ends an item whose message the bus rejects permanently. The parent of a child saga that cannot be
/// started receives a failure; any other message becomes a dead letter.
fn reject(dispatch: WorkDispatch, message: BusMessage, error: &BusError) {
    let (reason, item) = (DeadLetterReason::BusRejected, &dispatch.item);
    let (key, trace, id) = (&item.instance, item.trace.as_ref(), item.id);
    log_instance!(ERROR, key, trace, %id, %error, "the bus rejected a message permanently");
    if matches!(item.work, Work::StartChild(_)) {
        let failure = Failure { code: reason.as_str().to_owned(), message: error.to_string() };
        let outcome = WorkOutcome::Failed { event: None, failure, payload: Value::Null };
        return dispatch.complete(ExecutionResult::without_attempt(outcome), false);
    }
    let BusMessage { subject, headers, payload, .. } = message;
    let original = DeadLetterOriginal::Message { subject, headers, payload: payload.to_vec() };
    let (tenant, instance) = (key.tenant.clone(), Some(key.clone()));
    let context = &dispatch.instances.context;
    let (node, at, text) = (&context.node, item.created_at, error.to_string());
    let dead_letter = orlog_engine::dead_letter_message(tenant, original, reason, text, node, at);
    dispatch.dead_letter(DeadLetter { instance, ..dead_letter });
}

fn accept(dispatch: WorkDispatch) {
    dispatch.complete(ExecutionResult::without_attempt(WorkOutcome::Accepted), true);
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
            let (depth, user) = ancestry(dispatch)?;
            let parent = ParentRef { key: item.instance.clone(), work_id: item.id, depth: depth + 1 };
            let (event, data) = (start.event.clone(), start.data.clone());
            let action = WorkflowAction::Start { parent, event, data, user };
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

/// Returns the number of ancestors of the requesting saga, and the user who started it. Both are constant, so
/// they are not stored in every item.
fn ancestry(dispatch: &WorkDispatch) -> Result<(u16, Option<String>), StoreError> {
    let instance = dispatch.instances.context.reader.instance(&dispatch.item.instance)?;
    let Some(instance) = instance else { return Ok((0, None)) };
    let depth = instance.parent.map_or(0, |parent| parent.depth);
    Ok((depth, instance.users.and_then(|users| users.started_by)))
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
        user: None,
    }
}
