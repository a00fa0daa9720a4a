//! Commands between sagas: start, cancel, and the result of a child.
//!
//! The bus transports these commands, addressed to one instance, so the sender does not depend on
//! the process that owns the instance. Each command has the id of its work item: a second delivery
//! has no effect.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{EventId, EventType, Failure, InstanceKey, Timestamp, TraceParent};

/// Maximum number of ancestors of a saga. It stops definitions that start each other without end.
pub const MAX_CHILD_DEPTH: u16 = 16;

/// Command of another saga to one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowCommand {
    /// Id of the work item of the command.
    pub id: EventId,
    /// Time of the request.
    pub at: Timestamp,
    /// W3C trace context.
    pub trace: Option<TraceParent>,
    /// Action of the command.
    pub action: WorkflowAction,
}

/// Action of a workflow command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowAction {
    /// Start the instance.
    Start {
        /// Parent instance and its work item.
        parent: ParentRef,
        /// Start event. Default: the first start event of the saga.
        event: Option<EventType>,
        /// Data of that event.
        data: Value,
        /// User who started the parent, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
    /// Cancel the instance, if the sender started it and it has not ended.
    Cancel {
        /// Sending instance.
        from: InstanceKey,
        /// Reason, for the record.
        reason: String,
    },
    /// Report the end of a child saga.
    ChildEnded(ChildResult),
}

/// Parent of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentRef {
    /// Key of the parent instance.
    pub key: InstanceKey,
    /// Work item that started the child.
    pub work_id: Uuid,
    /// Number of ancestors: 1 if the parent has no parent.
    pub depth: u16,
}

/// Policy for a child saga that runs when its parent ends, is cancelled, or no longer awaits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentEndPolicy {
    /// The child is cancelled. A late success is compensated.
    #[default]
    Stop,
    /// The child continues, and its result is ignored.
    Abandon,
    /// The parent waits for the end of the child before it compensates or ends.
    Wait,
}

/// Result of a child saga.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildResult {
    /// Work item that started the child.
    pub work_id: Uuid,
    /// Failure; `None` if the child completed.
    pub failure: Option<Failure>,
    /// Last fact that the child emitted at its end.
    pub event: Option<EventType>,
    /// Data of that fact.
    pub data: Value,
}

impl WorkflowAction {
    /// Returns `start`, `cancel` or `child_ended`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            WorkflowAction::Start { .. } => "start",
            WorkflowAction::Cancel { .. } => "cancel",
            WorkflowAction::ChildEnded(_) => "child_ended",
        }
    }
}
