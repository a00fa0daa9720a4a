//! The snapshot of one saga instance: everything that must be known to decide its next event.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{EventId, Failure, Name, Parent, SagaName, Task, Timestamp, TraceParent, WorkKind};

/// One saga instance as it stands. Its size does not grow with its age.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// The definition it is pinned to.
    pub program: ProgramRef,
    /// Grows by one with every transition; optimistic concurrency and the token of timers.
    pub version: u64,
    /// Where it stands.
    pub status: Status,
    /// Inputs are kept, not applied.
    pub paused: bool,
    /// The program's own state, opaque to everybody else.
    #[serde(with = "bytes")]
    pub state: Vec<u8>,
    /// What it waits for; for people and queries.
    pub waits: Vec<Wait>,
    /// Timers that are armed.
    pub timers: Vec<ArmedTimer>,
    /// Work whose outcome is still to come.
    pub open: Vec<OpenWork>,
    /// What the business calls it, where the definition says so.
    pub reference: Option<String>,
    /// The input of the last transition.
    pub last_input: EventId,
    /// What went wrong last.
    pub last_error: Option<Failure>,
    /// The node that made the last transition.
    pub node: String,
    /// Trace of the event that started it.
    pub trace: Option<TraceParent>,
    /// Time of the first transition.
    pub created_at: Timestamp,
    /// Time of the last transition.
    pub updated_at: Timestamp,
    /// Tasks for people that are open.
    #[serde(default)]
    pub tasks: Vec<Task>,
    /// The saga that began it, where one did.
    #[serde(default)]
    pub parent: Option<Box<Parent>>,
}

impl Instance {
    /// Whether it has ended and nobody has to do with it any more: it awaits no outcome and no other saga, and no person keeps it
    /// paused.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.status.is_final()
            && !self.paused
            && self.open.is_empty()
            && self.timers.is_empty()
            && self.tasks.is_empty()
    }
}

/// Which definition, exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRef {
    /// The definition's name.
    pub saga: SagaName,
    /// The number its author gave it.
    pub version: u32,
    /// The first 16 bytes of the SHA-256 of its source: its identity.
    pub hash: [u8; 16],
}

/// Where an instance stands. `paused` is a flag beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Going forward.
    Running,
    /// Undoing completed steps.
    Compensating,
    /// Final: every step done.
    Completed,
    /// Final: a step failed, and everything done was undone.
    Failed,
    /// Final: cancelled, and everything done was undone.
    Cancelled,
    /// A compensation failed for good: a person must decide.
    Stuck,
}

impl Status {
    /// All of them, in the order people expect.
    pub const ALL: [Status; 6] = [
        Status::Running,
        Status::Compensating,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
        Status::Stuck,
    ];

    /// Nothing more happens by itself, and nothing needs a person.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }

    /// The word people see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Compensating => "compensating",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
            Status::Stuck => "stuck",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where an instance stands, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Its status.
    pub status: Status,
    /// Inputs are kept, not applied.
    pub paused: bool,
}

impl Standing {
    /// That of a snapshot.
    #[must_use]
    pub fn of(instance: &Instance) -> Self {
        Self { status: instance.status, paused: instance.paused }
    }

    /// It does not go on by itself: a person must decide, or let it.
    #[must_use]
    pub fn needs_person(self) -> bool {
        self.status == Status::Stuck || self.paused && !self.status.is_final()
    }
}

/// Something that must happen before the instance goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// What kind of thing.
    pub kind: WaitKind,
    /// Its name: an event type, a step, a timer.
    pub name: Name,
    /// Until when, where there is a limit.
    pub until: Option<Timestamp>,
}

/// The kinds of things an instance waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// An event.
    Event,
    /// The outcome of an effect or of a command.
    Outcome,
    /// A timer alone.
    Timer,
    /// A person's decision.
    Operator,
    /// A task of a person.
    Task,
    /// The end of another saga.
    Saga,
}

/// A timer that is armed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmedTimer {
    /// Unique within the instance.
    pub name: Name,
    /// The state version that armed it.
    pub token: u64,
    /// When it fires.
    pub due: Timestamp,
    /// The span of the transition that armed it, where somebody follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

/// Work that was asked for and whose outcome is still to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWork {
    /// The idempotency key.
    pub id: Uuid,
    /// Which kind.
    pub kind: WorkKind,
    /// The program's label for it.
    pub tag: Name,
}

/// Bytes as bytes, not as a sequence of numbers.
mod bytes {
    use std::fmt;

    use serde::de::{SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_byte_buf(Bytes)
    }

    struct Bytes;

    impl<'de> Visitor<'de> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
            let mut bytes = Vec::with_capacity(seq.size_hint().unwrap_or(0));
            while let Some(byte) = seq.next_element()? {
                bytes.push(byte);
            }
            Ok(bytes)
        }
    }
}
