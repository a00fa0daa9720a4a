//! Parts of an instance as users see them: in responses of the API, and as the variables of the
//! conditions of a search. Times are RFC 3339.

use orlog_model::{
    DefinitionRef, EventType, Instance, InstanceFailure, ParentRef, Reference, Task, Wait,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::redact::{HiddenValues, Redaction};

/// Reference to a definition.
#[derive(Debug, Serialize, ToSchema)]
pub struct DefinitionRefView {
    /// Version number set by the author.
    version: u32,
    /// Hash of the definition, in hexadecimal.
    hash: String,
}

/// Input that an instance waits for.
#[derive(Debug, Serialize, ToSchema)]
pub struct WaitView {
    /// `event`, `work_result`, `timer`, `operator`, `task` or `saga`.
    kind: &'static str,
    name: String,
    /// Deadline, if there is one.
    #[schema(format = "date-time")]
    until: Option<String>,
    /// Identifies this wait: a later wait for the same has another token. See `wait_token` of
    /// signals.
    token: String,
}

/// Last error of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub struct LastErrorView {
    #[serde(flatten)]
    error: InstanceFailureView,
    /// Error with which the instance stopped running forward, if the last one came later.
    cause: Option<InstanceFailureView>,
}

/// Error of an instance, and where and when it occurred.
#[derive(Debug, Serialize, ToSchema)]
struct InstanceFailureView {
    /// Code for programs.
    code: String,
    /// Error message.
    message: String,
    /// Failed step or work; null if the error concerns the whole saga.
    step: Option<String>,
    /// Number of attempts of the failed work.
    attempts: Option<u32>,
    /// Time of the error; null if an earlier release recorded it.
    at: Option<String>,
}

/// Open task.
#[derive(Debug, Serialize, ToSchema)]
pub struct OpenTaskView {
    #[schema(format = "uuid")]
    id: String,
    #[serde(flatten)]
    form: TaskSpecView,
}

/// Specification of a task.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskSpecView {
    /// Label set by the program.
    tag: String,
    title: String,
    /// Roles that may claim it; empty: every role.
    roles: Vec<String>,
    /// Users who can neither claim, be assigned, nor complete it: `starter`, `previous`.
    not_by: Vec<&'static str>,
    /// Assignee.
    assignee: Option<String>,
    /// User who claimed it.
    claimed_by: Option<String>,
    /// Due time.
    #[schema(format = "date-time")]
    due: Option<String>,
    /// Possible outcomes; empty: completion only.
    outcomes: Vec<String>,
    /// Data displayed to the user.
    data: Value,
    #[schema(format = "date-time")]
    opened_at: String,
}

/// Parent saga of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub struct ParentView {
    saga: String,
    correlation: String,
    /// Work item that started it.
    #[schema(format = "uuid")]
    work_id: String,
    /// Number of ancestor sagas.
    depth: u16,
}

/// Returns the business reference of an instance without the values that it must not quote.
#[must_use]
pub fn reference_view(instance: &Instance, hidden: &HiddenValues) -> Option<Reference> {
    instance
        .reference
        .as_ref()
        .map(|reference| reference.map(|text| hidden.remove_from(text)))
}

impl DefinitionRefView {
    /// Creates the view of a reference.
    #[must_use]
    pub fn of(program: &DefinitionRef) -> Self {
        Self {
            version: program.version,
            hash: hex::encode(program.hash),
        }
    }
}

impl OpenTaskView {
    /// Creates the view of a task without the hidden values of its data.
    #[must_use]
    pub fn of(task: &Task, redact: &Redaction) -> Self {
        Self {
            id: task.id.to_string(),
            form: TaskSpecView::of(task, redact),
        }
    }
}

impl ParentView {
    /// Creates the view of a parent.
    #[must_use]
    pub fn of(parent: &ParentRef) -> Self {
        let ParentRef {
            key,
            work_id,
            depth,
        } = parent;
        Self {
            saga: key.saga.to_string(),
            correlation: key.correlation.to_string(),
            work_id: work_id.to_string(),
            depth: *depth,
        }
    }
}

impl WaitView {
    /// Creates the views of the waits of an instance.
    #[must_use]
    pub fn all(instance: &Instance) -> Vec<Self> {
        let waits = instance.waits.iter();
        waits.map(|wait| Self::of(instance, wait)).collect()
    }

    fn of(instance: &Instance, wait: &Wait) -> Self {
        Self {
            kind: wait.kind.as_str(),
            name: wait.name.to_string(),
            until: wait.until.map(|at| at.to_string()),
            token: instance.wait_token(wait).to_string(),
        }
    }
}

impl LastErrorView {
    /// Creates the view of the last error of an instance, if it has one.
    #[must_use]
    pub fn of(instance: &Instance, hidden: &HiddenValues) -> Option<Self> {
        let last = instance.last_error.as_deref()?;
        let view = |error: &InstanceFailure| InstanceFailureView {
            code: error.code.clone(),
            message: hidden.remove_from(&error.message),
            step: error.step.as_ref().map(ToString::to_string),
            attempts: error.attempts,
            at: error.at.map(|at| at.to_string()),
        };

        Some(Self {
            error: view(last),
            cause: last.cause.as_deref().map(view),
        })
    }
}

impl TaskSpecView {
    /// Creates the view of a task without the hidden values of its data.
    #[must_use]
    pub fn of(task: &Task, redact: &Redaction) -> Self {
        let form = &task.spec;
        Self {
            tag: form.tag.to_string(),
            // The title is rendered with the data, so that it can quote hidden values.
            title: redact.hidden_values([&form.data]).remove_from(&form.title),
            roles: form.roles.clone(),
            not_by: form.not_by.iter().map(|user| user.as_str()).collect(),
            assignee: form.assignee.clone(),
            claimed_by: task.claimed_by.clone(),
            due: form.due.map(|due| due.to_string()),
            outcomes: form.outcomes.iter().map(EventType::to_string).collect(),
            data: redact.redact(form.data.clone()),
            opened_at: task.opened_at.to_string(),
        }
    }
}
