//! Publishes facts, effect results and workflow commands between sagas to the bus under an id that
//! depends on their work item, so that the bus deduplicates repetitions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use compact_str::{CompactString, format_compact};
use orlog_bus::codec::{self, EventRef};
use orlog_bus::effect_queue::{ResultRef, carry, encode_result_event};
use orlog_bus::subject::{SubjectKind, format_subject};
use orlog_bus::{Bus, Error as BusError, Message as BusMessage, workflow};
use orlog_effect::ExecutionResult;
use orlog_model::{
    CorrelationId, DeadLetter, DeadLetterOriginal, DeadLetterReason, Fact, Failure, InstanceKey,
    ParentRef, ResultEvent, SagaName, Work, WorkItem, WorkOutcome, WorkflowAction, WorkflowCommand,
};
use orlog_store::Error as StoreError;
use serde_json::Value;
use smallvec::{SmallVec, smallvec};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::effects::work_dispatch::WorkDispatch;
use crate::effects::work_mailbox::WorkMailbox;
use crate::publish::publish_batch;
use crate::supervision::TaskKind;
use crate::telemetry::log_instance;
use crate::telemetry::metrics::ActorKind;

/// Label for log records.
const LOG_LABEL: &str = "facts, effect results and workflow commands";
/// Space for the signature of a result, in bytes.
const SIGNATURE_BYTES: usize = 128;
/// Maximum number of work items per batch.
const MAX_BATCH: usize = 1024;

/// Publisher actor.
pub(crate) struct Publisher;

impl TaskKind for Publisher {
    const KIND: ActorKind = ActorKind::Publisher;
}

/// Batch that is published. It survives a crash of the actor: the next one continues with it.
pub(crate) type PublisherBatch = Arc<Mutex<Vec<PreparedItem>>>;

/// Work item with its messages.
pub(crate) struct PreparedItem {
    dispatch: WorkDispatch,
    /// One message, or a result and a fact that cannot carry it.
    messages: SmallVec<[Arc<BusMessage>; 2]>,
    /// Fact that the bus rejected; its result is published before it becomes a dead letter.
    rejected: Option<(Arc<BusMessage>, BusError)>,
}

/// Publishes one batch after the other: messages of an instance keep their order, even if the bus
/// is unavailable for a while. Items that arrive meanwhile form the next batch.
pub(crate) async fn publish_all(
    bus: Arc<dyn Bus>,
    mailbox: Arc<WorkMailbox>,
    batch: PublisherBatch,
) -> Result<(), String> {
    // The items of a crashed predecessor come first: an instance expects its messages in order.
    let mut batch = batch.lock().await;
    loop {
        publish_batch(
            &*bus,
            LOG_LABEL,
            &mut batch,
            |item| item.messages.as_slice(),
            finish,
        )
        .await;

        let Some(dispatches) = mailbox.take(MAX_BATCH).await else {
            return Ok(());
        };

        batch.extend(
            dispatches
                .into_iter()
                .filter_map(|dispatch| prepare(&*bus, dispatch)),
        );
    }
}

/// Ends a published or rejected item. Returns the item if its result is still to be published.
fn finish(mut item: PreparedItem, result: Result<(), BusError>) -> Option<PreparedItem> {
    match result {
        Ok(()) => match item.rejected {
            None => accept(item.dispatch),
            Some((fact, error)) => reject(item.dispatch, &fact, &error),
        },
        Err(error) => {
            let message = item.messages.pop().expect("each item has a message");

            // The result is a message of its own and not to blame for the fact: it is published
            // first.
            if !item.messages.is_empty() {
                return Some(PreparedItem {
                    rejected: Some((message, error)),
                    ..item
                });
            }
            match item.rejected {
                Some((fact, error)) => reject(item.dispatch, &fact, &error),
                None => reject(item.dispatch, &message, &error),
            }
        }
    }
    None
}

/// Returns the item with its signed messages; ends an item without one. If a message cannot be
/// created, because the instance cannot be read or the code panics, the item returns to the relay.
fn prepare(bus: &dyn Bus, dispatch: WorkDispatch) -> Option<PreparedItem> {
    if dispatch.origin().epoch.ended().is_stopped() {
        dispatch.abandon();
        return None;
    }

    // A panic that crashed the actor would lose the other items of the batch until the next start.
    let created = AssertUnwindSafe(|| {
        let messages = messages(bus, &dispatch)?.into_iter();
        Ok::<_, StoreError>(
            messages
                .map(|message| Arc::new(bus.sign(message)))
                .collect::<SmallVec<_>>(),
        )
    });

    let error = match catch_unwind(created) {
        Ok(Ok(messages)) if messages.is_empty() => {
            accept(dispatch);
            return None;
        }
        Ok(Ok(messages)) => {
            return Some(PreparedItem {
                dispatch,
                messages,
                rejected: None,
            });
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "a panic".to_owned(),
    };

    let item = &dispatch.work.item;
    log_instance!(
        ERROR, item.instance, item.trace.as_ref(), id = %item.id, error,
        "publish failed; retrying"
    );
    dispatch.return_to_relay();
    None
}

/// Ends an item whose message the bus rejects permanently. The parent of a child saga that cannot
/// be started receives a failure; any other message becomes a dead letter.
fn reject(dispatch: WorkDispatch, message: &BusMessage, error: &BusError) {
    let reason = DeadLetterReason::BusRejected;
    let item = &dispatch.work.item;
    log_instance!(
        ERROR, item.instance, item.trace.as_ref(), id = %item.id, %error,
        "the bus rejected a message permanently"
    );

    if matches!(item.work, Work::StartChild(_)) {
        let failure = Failure {
            code: reason.as_str().to_owned(),
            message: error.to_string(),
        };
        let outcome = WorkOutcome::Failed {
            event: None,
            failure,
            payload: Value::Null,
        };
        return dispatch.complete(ExecutionResult::without_attempt(outcome), false);
    }

    let original = DeadLetterOriginal::Message {
        subject: message.subject.clone(),
        headers: message.headers.clone(),
        payload: message.payload.to_vec(),
    };
    let dead_letter = orlog_engine::dead_letter_message(
        item.instance.tenant.clone(),
        original,
        reason,
        error.to_string(),
        &dispatch.origin().node,
        item.created_at,
    );
    let instance = Some(item.instance.clone());
    dispatch.dead_letter(DeadLetter {
        instance,
        ..dead_letter
    });
}

fn accept(dispatch: WorkDispatch) {
    dispatch.complete(
        ExecutionResult::without_attempt(WorkOutcome::Accepted),
        true,
    );
}

fn messages(
    bus: &dyn Bus,
    dispatch: &WorkDispatch,
) -> Result<SmallVec<[BusMessage; 2]>, StoreError> {
    let item = &dispatch.work.item;
    let key = |saga: &SagaName, correlation: &CorrelationId| InstanceKey {
        tenant: item.instance.tenant.clone(),
        saga: saga.clone(),
        correlation: correlation.clone(),
    };
    // The bus adds its signature after the size is known.
    let limit = bus.max_message_size().saturating_sub(SIGNATURE_BYTES);

    Ok(match &item.work {
        Work::Fact(
            fact @ Fact {
                result: Some(result),
                ..
            },
        ) => fact_with_result(item, fact, result, limit),
        Work::Fact(fact) => smallvec![fact_message(item, fact)],
        Work::PublishResult(result) => {
            smallvec![encode_result_event(
                &result_ref(item, result, None),
                &result_id(result),
                limit
            )]
        }
        Work::StartChild(start) => {
            let (depth, user) = ancestry(dispatch)?;
            let parent = ParentRef {
                key: item.instance.clone(),
                work_id: item.id,
                depth: depth + 1,
            };
            let action = WorkflowAction::Start {
                parent,
                event: start.event.clone(),
                data: start.data.clone(),
                user,
            };
            smallvec![command_message(
                item,
                &key(&start.saga, &start.correlation),
                action
            )]
        }
        Work::CancelChild(stop) => {
            let action = WorkflowAction::Cancel {
                from: item.instance.clone(),
                reason: stop.reason.clone(),
            };
            smallvec![command_message(
                item,
                &key(&stop.saga, &stop.correlation),
                action
            )]
        }
        Work::NotifyParent(end) => {
            smallvec![command_message(
                item,
                &end.to,
                WorkflowAction::ChildEnded(end.ended.clone())
            )]
        }
        Work::Command(_) | Work::Effect(_) => SmallVec::new(),
    })
}

/// Returns the number of ancestors of the requesting saga, and the user who started it. Both are
/// constant, so they are not stored in every item.
fn ancestry(dispatch: &WorkDispatch) -> Result<(u16, Option<String>), StoreError> {
    let instance = dispatch
        .origin()
        .reader
        .instance(&dispatch.work.item.instance)?;
    let Some(instance) = instance else {
        return Ok((0, None));
    };
    let depth = instance.parent.map_or(0, |parent| parent.depth);
    Ok((depth, instance.users.and_then(|users| users.started_by)))
}

fn command_message(item: &WorkItem, to: &InstanceKey, action: WorkflowAction) -> BusMessage {
    let id = workflow::command_event_id(item.id);
    let command = WorkflowCommand {
        id,
        at: item.created_at,
        trace: item.trace.clone(),
        action,
    };
    workflow::encode(to, &item.instance, &command)
}

fn fact_message(item: &WorkItem, fact: &Fact) -> BusMessage {
    let InstanceKey {
        tenant,
        saga,
        correlation,
    } = &item.instance;
    let correlation = correlation.as_str();

    let mut id = Uuid::encode_buffer();
    let event = EventRef {
        id: item.id.hyphenated().encode_lower(&mut id),
        tenant,
        kind: fact.kind.as_str(),
        source: &format_compact!("orlog:{saga}"),
        subject: Some(correlation),
        time: item.created_at,
        correlation: Some(correlation),
        causation: Some(item.causation.as_str()),
        trace: item.trace.as_ref(),
        schema_version: 1,
        data: &fact.data,
        user: None,
        attributes: None,
    };
    let subject = format_subject(
        tenant,
        SubjectKind::WorkflowEvent,
        saga.as_str(),
        correlation,
    );
    codec::encode(event, subject)
}

/// Returns one message, or two if the fact cannot carry the result.
fn fact_with_result(
    item: &WorkItem,
    fact: &Fact,
    result: &ResultEvent,
    limit: usize,
) -> SmallVec<[BusMessage; 2]> {
    let payload = result.has_payload_of_fact.then_some(&fact.data);
    let carried = result_ref(item, result, payload);
    match carry(fact_message(item, fact), &carried, limit) {
        Ok(message) => smallvec![message],
        Err(fact) => smallvec![
            encode_result_event(&carried, &result_id(result), limit),
            fact
        ],
    }
}

/// Returns the id of a result that has a message of its own. A work item that is requested again
/// under its id has another result.
fn result_id(result: &ResultEvent) -> CompactString {
    format_compact!("{}:{}", result.work_id, result.requested_at.as_millis())
}

fn result_ref<'a>(
    item: &'a WorkItem,
    result: &'a ResultEvent,
    payload: Option<&'a Value>,
) -> ResultRef<'a> {
    ResultRef {
        instance: &item.instance,
        command_id: result.work_id,
        effect: &result.effect,
        causation: None,
        trace: item.trace.as_ref(),
        outcome: &result.outcome,
        payload,
        facts: &[],
        attempts: result.attempts,
        attempt_log: result.attempt_log.as_deref(),
        at: item.created_at,
    }
}
