//! Snapshot of one saga instance: all state that is required to decide its next input.

use std::fmt;

use compact_str::CompactString;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    Event, EventId, EventType, InstanceFailure, InstanceUsers, Name, ParentRef, PendingWork,
    Reference, SagaName, Task, TimerFired, Timestamp, TraceParent, WaitToken,
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
    pub reference: Option<Reference>,
    /// Input of the last transition.
    pub last_input: EventId,
    /// Last failure.
    pub last_error: Option<Box<InstanceFailure>>,
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
    /// Result of the run; `None` while it is active, and if it ended without a fact. An instance
    /// with a result has users: values have no field names, and absent fields are at the end.
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
        self.pending_work
            .iter()
            .any(|work| work.dead_letter.is_some())
    }

    /// Returns the token of one of its waits. It is the same while the wait lasts, and another one
    /// for a later wait for the same condition. A wait for an event ends when an event of its type
    /// is applied.
    #[must_use]
    pub fn wait_token(&self, wait: &Wait) -> WaitToken {
        // A wait for an event or an operator has no work, timer or task. The hash of the input that
        // began it takes their place. The version does not: after a restore, other inputs lead to
        // the same version.
        let (id, at) = self
            .subject_of(wait)
            .unwrap_or((wait.origin.into(), Timestamp::default()));

        WaitToken::of(&[
            self.run_id.as_bytes(),
            wait.kind.as_str().as_bytes(),
            wait.name.as_str().as_bytes(),
            &id.to_le_bytes(),
            &at.as_millis().to_le_bytes(),
        ])
    }

    /// Returns whether the instance waits under this token.
    #[must_use]
    pub fn waits_under(&self, token: WaitToken) -> bool {
        self.waits.iter().any(|wait| self.wait_token(wait) == token)
    }

    /// Returns the identity of the work, timer or task for which an instance waits; `None` if it
    /// waits for an event or for an operator.
    #[must_use]
    pub fn subject_of(&self, wait: &Wait) -> Option<(u128, Timestamp)> {
        match wait.kind {
            WaitKind::Event | WaitKind::Operator => None,
            WaitKind::WorkResult | WaitKind::Saga => {
                let work = self
                    .pending_work
                    .iter()
                    .find(|work| work.tag == wait.name)?;
                Some((work.id.as_u128(), work.requested_at))
            }
            WaitKind::Timer => {
                let timer = self.timers.iter().find(|timer| timer.name == wait.name)?;
                Some((timer.token.into(), timer.due))
            }
            WaitKind::Task => {
                let task = self.tasks.iter().find(|task| task.spec.tag == wait.name)?;
                Some((task.id.as_u128(), task.opened_at))
            }
        }
    }

    /// Returns the signal that a fired timer delivers; `None` if the timer is stale or delivers
    /// none.
    #[must_use]
    pub fn scheduled_signal(&self, fired: &TimerFired) -> Option<&ScheduledSignal> {
        self.timers
            .iter()
            .find(|timer| timer.is(fired))?
            .signal
            .as_deref()
    }

    /// Returns whether the instance has ended, has no pending work or child sagas, and is not
    /// paused.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.status.is_final()
            // A paused instance can have buffered inputs, which its resume must find.
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
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
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

    /// Returns whether the status is final: no further action, neither automatic nor by an
    /// operator.
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

    /// Returns why the instance requires an operator: it is stuck, a result of its work could not
    /// be applied, or it is paused.
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

/// Condition for which the instance waits. [`Instance::wait_token`] identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Kind of the condition.
    pub kind: WaitKind,
    /// Name of the event type, step or timer.
    pub name: Name,
    /// Deadline, if any.
    pub until: Option<Timestamp>,
    /// Whether the program began to wait in this transition, although it waited for the same
    /// before. Not stored.
    #[serde(skip)]
    pub is_new: bool,
    /// Hash of the input with which a wait began that neither work, a timer nor a task identifies;
    /// 0 if the run began with it. It is the last field, because rows are read by position.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub origin: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(origin: &u32) -> bool {
    *origin == 0
}

impl Wait {
    /// Creates a wait, which lasts if the instance waited for the same before.
    #[must_use]
    pub fn new(kind: WaitKind, name: Name, until: Option<Timestamp>) -> Self {
        Self {
            kind,
            name,
            until,
            is_new: false,
            origin: 0,
        }
    }

    /// Returns whether both are waits for the same condition; one may have begun after the end of
    /// the other.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.name == other.name && self.until == other.until
    }
}

/// Kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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

impl WaitKind {
    /// Returns the displayed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Armed timer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ArmedTimer {
    /// Name, unique within the instance, except for the timers of signals.
    pub name: Name,
    /// Hash of the input that armed the timer and of its name.
    pub token: u64,
    /// Due time.
    pub due: Timestamp,
    /// Span of the transition that armed the timer, if it is traced.
    #[serde(default)]
    pub trace: Option<Box<TraceParent>>,
    /// Signal that the timer delivers. Only the end of the instance cancels such a timer.
    #[serde(default)]
    pub signal: Option<Box<ScheduledSignal>>,
}

impl ArmedTimer {
    /// Returns whether `fired` is this timer. A replay can arm the same timer for another time.
    #[must_use]
    pub fn is(&self, fired: &TimerFired) -> bool {
        self.name == fired.name && self.token == fired.token && self.due == fired.due
    }
}

/// Rows are read by position: absent fields at the end are not written.
impl Serialize for ArmedTimer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The last fields are absent if they are empty; a present field needs all fields before it.
        let fields = 3 + if self.signal.is_some() {
            2
        } else {
            usize::from(self.trace.is_some())
        };

        let mut timer = serializer.serialize_struct("ArmedTimer", fields)?;
        timer.serialize_field("name", &self.name)?;
        timer.serialize_field("token", &self.token)?;
        timer.serialize_field("due", &self.due)?;

        if fields > 3 {
            timer.serialize_field("trace", &self.trace)?;
        }
        if fields > 4 {
            timer.serialize_field("signal", &self.signal)?;
        }

        timer.end()
    }
}

/// Signal that its instance receives at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduledSignal {
    /// Event to deliver.
    pub event: Event,
    /// Wait for which the signal is meant; without it, any.
    pub wait_token: Option<WaitToken>,
}
