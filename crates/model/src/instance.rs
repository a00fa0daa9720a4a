//! Snapshot of one saga instance: all state that is required to decide its next input.

use std::fmt;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    EventId, EventType, Failure, InstanceUsers, Name, ParentRef, SagaName, Task, Timestamp, TraceParent,
    WorkKind,
};

/// Snapshot of one saga instance. Its size does not grow with its age.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Definition to which the instance is pinned.
    pub definition: DefinitionRef,
    /// State version, incremented by each transition. Used for optimistic concurrency.
    pub version: u64,
    /// Status of the instance.
    pub status: Status,
    /// Whether inputs are buffered instead of applied.
    pub paused: bool,
    /// State of the program, opaque to other components.
    #[serde(with = "serde_bytes")]
    pub state: Vec<u8>,
    /// Waits of the instance, for operators and queries.
    pub waits: Vec<Wait>,
    /// Armed timers.
    pub timers: Vec<ArmedTimer>,
    /// Pending work, which has no result yet.
    pub pending_work: Vec<PendingWork>,
    /// Business reference, if the definition sets it.
    pub reference: Option<String>,
    /// Input of the last transition.
    pub last_input: EventId,
    /// Last failure.
    pub last_error: Option<Failure>,
    /// Node that committed the last transition.
    pub node: CompactString,
    /// Trace of the event that started the instance.
    pub trace: Option<TraceParent>,
    /// Time of the first transition.
    pub created_at: Timestamp,
    /// Time of the last transition.
    pub updated_at: Timestamp,
    /// Open human tasks.
    #[serde(default)]
    pub tasks: Vec<Task>,
    /// Parent saga, if any.
    #[serde(default)]
    pub parent: Option<Box<ParentRef>>,
    /// Id of the run: of this instance since its start event. The ids of its work derive from it.
    pub run_id: Uuid,
    /// Users of the instance; `None` if it was stored by a release that recorded none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<InstanceUsers>,
    /// Result of the run; `None` while it is active, and if it ended without a fact. An instance with a result has
    /// users: values have no field names, and absent fields are at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<SagaResult>>,
}

/// Result of an ended instance: the last fact of the transition that ended it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SagaResult {
    /// Event type of the fact.
    pub event: EventType,
    /// Data of the fact.
    pub data: Value,
}

impl Instance {
    /// Returns whether the result of pending work became a dead letter.
    #[must_use]
    pub fn has_unapplied_result(&self) -> bool {
        self.pending_work.iter().any(|work| work.dead_letter.is_some())
    }

    /// Returns whether the instance has ended, has no pending work or child sagas, and is not paused.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.status.is_final()
            && !self.paused
            && self.pending_work.is_empty()
            && self.timers.is_empty()
            && self.tasks.is_empty()
    }
}

/// Definition ref: saga, version and hash of one definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionRef {
    /// Name of the saga.
    pub saga: SagaName,
    /// Version number, assigned by the author.
    pub version: u32,
    /// First 16 bytes of the SHA-256 of the source: the identity of the definition.
    pub hash: [u8; 16],
}

/// Status of an instance. `paused` is a separate flag.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    /// Executing steps.
    Running,
    /// Compensating completed steps.
    Compensating,
    /// Final: all steps completed.
    Completed,
    /// Final: a step failed, and all completed steps were compensated.
    Failed,
    /// Final: cancelled, and all completed steps were compensated.
    Cancelled,
    /// A compensation failed permanently; an operator must decide.
    Stuck,
}

impl Status {
    /// All statuses, in display order.
    pub const ALL: [Status; 6] = [
        Status::Running,
        Status::Compensating,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
        Status::Stuck,
    ];

    /// Returns whether the status is final: no further action, neither automatic nor by an operator.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }

    /// Returns the displayed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Status of an instance and its `paused` flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusSnapshot {
    /// Status.
    pub status: Status,
    /// Whether inputs are buffered instead of applied.
    pub paused: bool,
    /// Whether a result of its pending work became a dead letter. Rows are read by position.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_unapplied_result: bool,
}

impl StatusSnapshot {
    /// Returns the status of a snapshot.
    #[must_use]
    pub fn from_instance(instance: &Instance) -> Self {
        Self {
            status: instance.status,
            paused: instance.paused,
            has_unapplied_result: instance.has_unapplied_result(),
        }
    }

    /// Returns whether the instance requires an operator.
    #[must_use]
    pub fn needs_attention(self) -> bool {
        self.attention().is_some()
    }

    /// Returns why the instance requires an operator: it is stuck, a result of its work could not be applied, or it
    /// is paused.
    #[must_use]
    pub fn attention(self) -> Option<&'static str> {
        if self.status == Status::Stuck {
            Some("stuck")
        } else if self.has_unapplied_result {
            Some("unapplied_result")
        } else if self.paused && !self.status.is_final() {
            Some("paused")
        } else {
            None
        }
    }
}

/// Condition for which the instance waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Kind of the condition.
    pub kind: WaitKind,
    /// Name of the event type, step or timer.
    pub name: Name,
    /// Deadline, if any.
    pub until: Option<Timestamp>,
}

/// Kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// Event.
    Event,
    /// Result of an effect or of a command.
    WorkResult,
    /// Timer only.
    Timer,
    /// Decision of an operator.
    Operator,
    /// Human task.
    Task,
    /// End of another saga.
    Saga,
}

/// Armed timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmedTimer {
    /// Name, unique within the instance.
    pub name: Name,
    /// Hash of the input that armed the timer and of its name.
    pub token: u64,
    /// Due time.
    pub due: Timestamp,
    /// Span of the transition that armed the timer, if it is traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

/// Pending work: a work item without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingWork {
    /// Idempotency key.
    pub id: Uuid,
    /// Kind of the work.
    pub kind: WorkKind,
    /// Tag that the program assigned.
    pub tag: Name,
    /// Time of the transition that requested it last. The same work can be requested again under its id.
    pub requested_at: Timestamp,
    /// Whether its success is applied after the instance has ended, because it must be compensated. False for
    /// a command that an event confirms: its acceptance is no success.
    pub survives_end: bool,
    /// Dead letter of its result, if the result could not be applied. The work stays pending until the dead letter is
    /// redriven. It is the last field, because rows are read by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<Uuid>,
}
