//! What one saga tells another: begin, stop, and how it ended.
//!
//! These travel over the bus, addressed to one instance, so that it does not matter which process has it. Each has the id
//! of the work item behind it: told twice, it counts once.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{EventId, EventType, Failure, InstanceKey, Timestamp, TraceParent};

/// How many sagas may stand above one: against definitions that begin each other without end.
pub const MAX_DEPTH: u16 = 16;

/// A word from another saga to one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowCommand {
    /// The id of the work item behind it.
    pub id: EventId,
    /// When it was ordered.
    pub at: Timestamp,
    /// W3C trace context.
    pub trace: Option<TraceParent>,
    /// What is said.
    pub order: WorkflowOrder,
}

/// What sagas say to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowOrder {
    /// Begin.
    Start {
        /// Who begins it, and as which work.
        parent: Parent,
        /// The event that begins it; its first start event without one.
        event: Option<EventType>,
        /// The data of that event.
        data: Value,
    },
    /// Cancel, if it was begun by the sender and has not ended.
    Stop {
        /// The sender.
        from: InstanceKey,
        /// For the record.
        reason: String,
    },
    /// What was begun has ended.
    Ended(Ended),
}

/// The saga that began an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Which instance.
    pub key: InstanceKey,
    /// The work item that asked for it.
    pub work_id: Uuid,
    /// How many sagas stand above: 1 where the parent has no parent.
    pub depth: u16,
}

/// How a saga that was begun has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The work item that asked for it.
    pub work_id: Uuid,
    /// Why it did not complete; `None`: it completed.
    pub failure: Option<Failure>,
    /// The last fact it told at its end.
    pub event: Option<EventType>,
    /// The data of that fact.
    pub data: Value,
}

impl WorkflowOrder {
    /// `start`, `stop` or `ended`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            WorkflowOrder::Start { .. } => "start",
            WorkflowOrder::Stop { .. } => "stop",
            WorkflowOrder::Ended(_) => "ended",
        }
    }
}
