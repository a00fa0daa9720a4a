//! Work of an instance in API responses: the outbox and the attempts.

use orlog_model::{OutboxKey, WorkItem, WorkKind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::sagas::attempts::FailedAttemptRecord;

/// Attempt to execute a work item.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptView {
    /// Work item id.
    work_id: String,
    label: String,
    upstream: String,
    /// `succeeded`, `rejected`, `throttled`, `unavailable`, `response_lost` or `timed_out`.
    outcome: &'static str,
    /// End time of the attempt.
    at: String,
    duration_ms: u64,
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
    id: String,
    /// `command`, `effect`, `fact` or `saga`.
    kind: &'static str,
    /// Display name, for example `payments.charge`.
    label: String,
    /// Sequence in its destination.
    sequence: u64,
    created_at: String,
    /// Time after which it is not started any more.
    deadline: Option<String>,
}

impl OutboxView {
    pub(crate) fn of(work: &[(OutboxKey, WorkItem)], complete: bool) -> Self {
        let items = work.iter().map(|(key, item)| OutboxItemView {
            id: item.id.to_string(),
            kind: kind(key.destination.kind),
            label: item.work.label().into(),
            sequence: key.sequence,
            created_at: item.created_at.to_string(),
            deadline: item.deadline.map(|at| at.to_string()),
        });
        Self { items: items.collect(), complete }
    }
}

impl AttemptView {
    pub(crate) fn of(made: &FailedAttemptRecord) -> Self {
        Self {
            work_id: made.work.to_string(),
            label: made.label.clone(),
            upstream: made.upstream.clone(),
            outcome: made.outcome.as_str(),
            at: made.at.to_string(),
            duration_ms: u64::try_from(made.duration.as_millis()).unwrap_or(u64::MAX),
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
