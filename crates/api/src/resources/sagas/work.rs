//! Work of an instance in API responses: the outbox and the attempts.

use orlog_model::{AttemptRecord, Failure, InstanceFailure, OutboxKey, WorkItem, WorkKind};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use orlog_node::redact::{HiddenValues, Redaction};
use orlog_node::sagas::attempts::FailedAttemptRecord;

/// Error of an instance or a work item.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureView {
    /// Code for programs.
    code: String,
    /// Error message.
    message: String,
}

/// Attempt to execute a work item.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptView {
    /// Work item id.
    #[schema(format = "uuid")]
    work_id: String,
    label: String,
    upstream: String,
    #[serde(flatten)]
    attempt: AttemptRecordView,
}

/// How an attempt ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptRecordView {
    /// Number of the attempt, from 1 for the first since the start of the node.
    number: u32,
    /// `succeeded`, `rejected`, `throttled`, `unavailable`, `response_lost` or `timed_out`.
    outcome: &'static str,
    /// Start time of the attempt.
    #[schema(format = "date-time")]
    at: String,
    duration_ms: u64,
    /// Failure code; empty for a success.
    code: String,
    /// Failure message; empty for a success.
    message: String,
    /// Beginning of the response that the upstream sent with the failure.
    response: Option<String>,
}

/// Uncompleted work of the instance.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct OutboxView {
    items: Vec<OutboxItemView>,
    /// The whole outbox was scanned; otherwise there may be more items.
    complete: bool,
}

/// Work item in the outbox.
#[derive(Debug, Serialize, ToSchema)]
struct OutboxItemView {
    /// Idempotency key.
    #[schema(format = "uuid")]
    id: String,
    /// `command`, `effect`, `fact` or `saga`.
    kind: &'static str,
    /// Display name, for example `payments.charge`.
    label: String,
    /// `high`, `normal` or `low`.
    priority: &'static str,
    /// Sequence in its destination.
    sequence: u64,
    #[schema(format = "date-time")]
    created_at: String,
    /// Time after which it is not started any more.
    #[schema(format = "date-time")]
    deadline: Option<String>,
}

impl OutboxView {
    pub(crate) fn of(work: &[(OutboxKey, WorkItem)], complete: bool) -> Self {
        let items = work.iter().map(|(key, item)| OutboxItemView {
            id: item.id.to_string(),
            kind: kind(key.destination.kind),
            label: item.work.label().into(),
            priority: key.destination.priority.as_str(),
            sequence: key.sequence,
            created_at: item.created_at.to_string(),
            deadline: item.deadline.map(|at| at.to_string()),
        });
        Self {
            items: items.collect(),
            complete,
        }
    }
}

impl FailureView {
    pub(crate) fn of(failure: &Failure, hidden: &HiddenValues) -> Self {
        Self {
            code: failure.code.clone(),
            message: hidden.remove_from(&failure.message),
        }
    }
}

impl FailureView {
    /// Creates the view of the code and the message only.
    pub(crate) fn of_instance(failure: &InstanceFailure, hidden: &HiddenValues) -> Self {
        Self {
            code: failure.code.clone(),
            message: hidden.remove_from(&failure.message),
        }
    }
}

impl AttemptView {
    pub(crate) fn of(
        failed: &FailedAttemptRecord,
        hidden: &HiddenValues,
        redact: &Redaction,
    ) -> Self {
        Self {
            work_id: failed.work.to_string(),
            label: failed.label.clone(),
            upstream: failed.upstream.clone(),
            attempt: AttemptRecordView::of(&failed.attempt, hidden, redact),
        }
    }
}

impl AttemptRecordView {
    /// Creates the view. The values that the rules hide in the response are also removed from the
    /// message.
    pub(crate) fn of(record: &AttemptRecord, hidden: &HiddenValues, redact: &Redaction) -> Self {
        let response = record.response.as_deref();
        let quoted: Option<Value> = response.and_then(|text| serde_json::from_str(text).ok());
        // The message can quote the response of the upstream as well as values of the instance.
        let message = redact
            .hidden_values(&quoted)
            .remove_from(&hidden.remove_from(&record.message));

        Self {
            number: record.number,
            outcome: record.outcome.as_str(),
            at: record.at.to_string(),
            duration_ms: record.duration_ms,
            code: record.code.clone(),
            message,
            response: response.map(|text| match redact.redact_text(text) {
                Value::String(text) => hidden.remove_from(&text),
                value => hidden.remove_from(&value.to_string()),
            }),
        }
    }
}

/// Returns the name of a kind of work.
pub(crate) fn kind(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Command => "command",
        WorkKind::Effect => "effect",
        WorkKind::Fact => "fact",
        WorkKind::Saga => "saga",
    }
}
