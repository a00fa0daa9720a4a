//! The work of an instance as callers see it: what lies in the outbox, and what was tried.

use orlog_model::{OutboxKey, WorkItem, WorkKind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::attempts::Made;

/// An attempt at a work item.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct AttemptView {
    /// Of which work item.
    work_id: String,
    label: String,
    upstream: String,
    /// `done`, `refused`, `busy`, `down`, `lost` or `timed_out`.
    ending: &'static str,
    /// When it ended.
    at: String,
    took_ms: u64,
}

/// The instance's work that is not done.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(in crate::api) struct Outbox {
    items: Vec<OutboxItem>,
    /// The whole outbox was looked at; if not, there may be more items.
    complete: bool,
}

/// A work item in the outbox.
#[derive(Debug, Serialize, ToSchema)]
struct OutboxItem {
    /// The idempotency key.
    id: String,
    /// `command`, `effect`, `fact` or `saga`.
    kind: &'static str,
    /// What people call it, for example `payments.charge`.
    label: String,
    /// Its place in its lane.
    sequence: u64,
    created_at: String,
    /// Not begun any more after this.
    deadline: Option<String>,
}

impl Outbox {
    pub(super) fn of(work: &[(OutboxKey, WorkItem)], complete: bool) -> Self {
        let items = work.iter().map(|(key, item)| OutboxItem {
            id: item.id.to_string(),
            kind: kind(key.lane.kind),
            label: item.work.label(),
            sequence: key.sequence,
            created_at: item.created_at.to_string(),
            deadline: item.deadline.map(|at| at.to_string()),
        });
        Self { items: items.collect(), complete }
    }
}

impl AttemptView {
    pub(super) fn of(made: &Made) -> Self {
        Self {
            work_id: made.work.to_string(),
            label: made.label.clone(),
            upstream: made.upstream.clone(),
            ending: made.ending.as_str(),
            at: made.at.to_string(),
            took_ms: u64::try_from(made.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// The word for a kind of work.
pub(super) fn kind(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Command => "command",
        WorkKind::Effect => "effect",
        WorkKind::Fact => "fact",
        WorkKind::Saga => "saga",
    }
}
