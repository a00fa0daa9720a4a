//! Tasks in API responses.

use orlog_model::{EventType, Exclusion, Instance, TaskEvent, TaskEventKind, TaskRow};
use serde::Serialize;
use utoipa::ToSchema;

use orlog_node::redact::Redaction;
use orlog_node::sagas::view::TaskSpecView;

/// Page of tasks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskPage {
    pub(crate) items: Vec<TaskView>,
    /// Cursor of the next page; null after the last one.
    pub(crate) next_cursor: Option<String>,
}

/// Human task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskView {
    #[schema(format = "uuid")]
    id: String,
    saga: String,
    correlation: String,
    /// `open`, `claimed`, `completed` or `closed`.
    status: &'static str,
    #[serde(flatten)]
    spec: TaskSpecView,
    /// Selected outcome.
    outcome: Option<String>,
    #[schema(format = "date-time")]
    updated_at: String,
}

/// Task with its events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskDetail {
    #[serde(flatten)]
    task: TaskView,
    /// Users whom the rules of `not_by` exclude at the moment.
    exclusions: Vec<ExclusionView>,
    /// Events, oldest first.
    events: Vec<TaskEventView>,
}

/// Users whom a rule excludes from claiming, being assigned and completing a task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExclusionView {
    /// `starter`: the user who started the instance; `previous`: the user who completed its
    /// previous task.
    rule: &'static str,
    /// Excluded user; null: all users, because the instance does not record the user of the rule.
    user: Option<String>,
}

/// Event of a task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskEventView {
    /// `opened`, `claimed`, `released`, `reassigned`, `escalated`, `completed` or `closed`.
    kind: &'static str,
    /// User who performed the action; null: the saga.
    user: Option<String>,
    /// Reason, if stated.
    reason: Option<String>,
    #[schema(format = "date-time")]
    at: String,
    /// New assignee.
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee: Option<String>,
    /// New roles that may claim it.
    #[serde(skip_serializing_if = "Option::is_none")]
    roles: Option<Vec<String>>,
    /// Selected outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
}

impl TaskView {
    pub(crate) fn of(row: &TaskRow, redact: &Redaction) -> Self {
        Self {
            id: row.task.id.to_string(),
            saga: row.instance.saga.to_string(),
            correlation: row.instance.correlation.to_string(),
            status: row.status.as_str(),
            spec: TaskSpecView::of(&row.task, redact),
            outcome: row.outcome.as_ref().map(EventType::to_string),
            updated_at: row.updated_at.to_string(),
        }
    }
}

impl TaskDetail {
    pub(crate) fn of(
        row: &TaskRow,
        instance: Option<&Instance>,
        events: &[TaskEvent],
        redact: &Redaction,
    ) -> Self {
        let users = instance.and_then(|instance| instance.users.as_ref());
        let exclusions = row.task.spec.not_by.iter().filter_map(|rule| {
            let user = match rule.resolve(users)? {
                Exclusion::User(user) => Some(user.to_owned()),
                Exclusion::AllUsers => None,
            };
            Some(ExclusionView {
                rule: rule.as_str(),
                user,
            })
        });

        Self {
            task: TaskView::of(row, redact),
            exclusions: exclusions.collect(),
            events: events.iter().map(TaskEventView::of).collect(),
        }
    }
}

impl TaskEventView {
    pub(crate) fn of(event: &TaskEvent) -> Self {
        let mut roles = None;
        let mut assignee = None;
        let mut outcome = None;
        match &event.kind {
            TaskEventKind::Reassigned {
                roles: to,
                assignee: who,
            }
            | TaskEventKind::Escalated {
                roles: to,
                assignee: who,
            } => {
                (roles, assignee) = (Some(to.clone()), who.clone());
            }
            TaskEventKind::Completed { outcome: chosen } => {
                outcome = chosen.as_ref().map(EventType::to_string);
            }
            TaskEventKind::Opened
            | TaskEventKind::Claimed
            | TaskEventKind::Released
            | TaskEventKind::Closed => {}
        }

        Self {
            kind: event.kind.as_str(),
            user: event.user.clone(),
            reason: event.reason.clone(),
            at: event.at.to_string(),
            assignee,
            roles,
            outcome,
        }
    }
}
