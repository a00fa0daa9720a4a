//! Tasks as callers see them.

use orlog_model::{EventType, Task, TaskEvent, TaskRow, TaskStep};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A page of tasks.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Found {
    pub(super) items: Vec<TaskView>,
    /// The cursor of the next page; null after the last one.
    pub(super) next: Option<String>,
}

/// A task.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct TaskView {
    id: String,
    saga: String,
    correlation: String,
    /// `open`, `claimed`, `completed` or `closed`.
    status: &'static str,
    #[serde(flatten)]
    form: FormView,
    /// What was chosen.
    outcome: Option<String>,
    updated_at: String,
}

/// What somebody is asked.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct FormView {
    /// The program's label for it.
    tag: String,
    title: String,
    /// Who may take it; empty: everybody.
    roles: Vec<String>,
    /// Who is to do it.
    assignee: Option<String>,
    /// Who has taken it.
    claimed_by: Option<String>,
    /// When it should be done.
    due: Option<String>,
    /// What can be chosen; empty: only that it is done.
    outcomes: Vec<String>,
    /// What the person sees.
    data: Value,
    opened_at: String,
}

/// A task and what happened to it.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct TaskDetail {
    #[serde(flatten)]
    task: TaskView,
    /// Oldest first.
    events: Vec<TaskEventView>,
}

/// Something that happened to a task.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct TaskEventView {
    /// `opened`, `claimed`, `released`, `reassigned`, `escalated`, `completed` or `closed`.
    what: &'static str,
    /// Who did it; null: the saga.
    by: Option<String>,
    /// Why, where somebody said so.
    reason: Option<String>,
    at: String,
    /// To whom it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee: Option<String>,
    /// Those who may take it since.
    #[serde(skip_serializing_if = "Option::is_none")]
    roles: Option<Vec<String>>,
    /// What was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
}

impl FormView {
    pub(in crate::api) fn of(task: &Task) -> Self {
        let form = &task.form;
        Self {
            tag: form.tag.to_string(),
            title: form.title.clone(),
            roles: form.roles.clone(),
            assignee: form.assignee.clone(),
            claimed_by: task.claimed_by.clone(),
            due: form.due.map(|due| due.to_string()),
            outcomes: form.outcomes.iter().map(EventType::to_string).collect(),
            data: form.data.clone(),
            opened_at: task.opened_at.to_string(),
        }
    }
}

impl TaskView {
    pub(in crate::api) fn of(row: &TaskRow) -> Self {
        Self {
            id: row.task.id.to_string(),
            saga: row.instance.saga.to_string(),
            correlation: row.instance.correlation.to_string(),
            status: row.status.as_str(),
            form: FormView::of(&row.task),
            outcome: row.outcome.as_ref().map(EventType::to_string),
            updated_at: row.updated_at.to_string(),
        }
    }
}

impl TaskDetail {
    pub(super) fn of(row: &TaskRow, events: &[TaskEvent]) -> Self {
        Self { task: TaskView::of(row), events: events.iter().map(TaskEventView::of).collect() }
    }
}

impl TaskEventView {
    pub(in crate::api) fn of(event: &TaskEvent) -> Self {
        let (mut roles, mut assignee, mut outcome) = (None, None, None);
        match &event.step {
            TaskStep::Reassigned { roles: to, assignee: who }
            | TaskStep::Escalated { roles: to, assignee: who } => {
                (roles, assignee) = (Some(to.clone()), who.clone());
            }
            TaskStep::Completed { outcome: chosen } => outcome = chosen.as_ref().map(EventType::to_string),
            TaskStep::Opened | TaskStep::Claimed | TaskStep::Released | TaskStep::Closed => {}
        }
        Self {
            what: event.step.as_str(),
            by: event.by.clone(),
            reason: event.reason.clone(),
            at: event.at.to_string(),
            assignee,
            roles,
            outcome,
        }
    }
}
