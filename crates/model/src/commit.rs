//! Commits: all consequences of one input, to be stored together or not at all.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    DeadLetter, Deployment, EventId, Input, InputKind, Instance, InstanceKey, Name, OutboxKey, ProgramRef,
    Standing, Status, TaskEntry, TenantId, Timestamp, WorkItem,
};

/// Everything one input led to. The store writes it whole or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Which instance.
    pub key: InstanceKey,
    /// Where it stood before, as far as whoever commits knows; `None`: there was no such instance.
    pub before: Option<Standing>,
    /// Its new snapshot; `None` leaves the stored one as it is.
    pub instance: Option<Instance>,
    /// Work for the outbox, in order.
    pub work: Vec<WorkItem>,
    /// What happened to tasks for people, in order: each a row, and a line of its events.
    pub tasks: Vec<TaskEntry>,
    /// Timers to arm.
    pub arm: Vec<Timer>,
    /// Timers to forget, the one that fired among them.
    pub disarm: Vec<Timer>,
    /// Outbox rows whose fate is decided by this.
    pub settles: Option<OutboxKey>,
    /// The marker that makes a second delivery of this input harmless.
    pub applied: Option<EventId>,
    /// An input kept for later, because the instance is paused or does not exist yet.
    pub hold: Option<Input>,
    /// The kept inputs that this commit applied or dropped.
    pub release: Vec<u64>,
    /// For people.
    pub history: Option<Record>,
    /// The input, where it could not be applied.
    pub dead_letter: Option<Box<DeadLetter>>,
    /// The time of the transition.
    pub at: Timestamp,
}

impl Commit {
    /// A commit that changes nothing yet.
    #[must_use]
    pub fn empty(key: InstanceKey, at: Timestamp) -> Self {
        Self {
            key,
            before: None,
            instance: None,
            work: Vec::new(),
            tasks: Vec::new(),
            arm: Vec::new(),
            disarm: Vec::new(),
            settles: None,
            applied: None,
            hold: None,
            release: Vec::new(),
            history: None,
            dead_letter: None,
            at,
        }
    }
}

/// An instance as it stands after taking its inputs anew. What was kept for it, its history and its timers give way; markers of
/// what it applied stay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    /// Which instance.
    pub key: InstanceKey,
    /// Its new snapshot.
    pub instance: Instance,
    /// Its new history, oldest first.
    pub history: Vec<Record>,
    /// Inputs that are in it.
    pub applied: Vec<EventId>,
    /// What happened to its tasks.
    pub tasks: Vec<TaskEntry>,
    /// Work for the outbox, in order.
    pub work: Vec<WorkItem>,
    /// Outbox rows that are not its work any more.
    pub dropped: Vec<OutboxKey>,
}

/// A timer as the timer table keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// When it fires.
    pub due: Timestamp,
    /// Unique within the instance.
    pub name: Name,
    /// The state version that armed it.
    pub token: u64,
}

/// One line of an instance's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The state version after the transition.
    pub version: u64,
    /// The time of the transition.
    pub at: Timestamp,
    /// Id of the input.
    pub input: EventId,
    /// What the input is called: an event type, a timer, an action.
    pub label: String,
    /// What happened, in a few words.
    pub note: String,
    /// Where the instance stood afterwards.
    pub status: Status,
    /// The work that was asked for: label and id.
    pub work: Vec<(String, Uuid)>,
    /// Whence the input came and where it was decided.
    #[serde(default, skip_serializing_if = "Origin::is_unknown")]
    pub origin: Origin,
}

/// Whence an input came, and where and how late it was decided. Of records of older stores nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// What kind of input it was.
    pub kind: Option<InputKind>,
    /// The node that decided.
    pub node: String,
    /// How long before that it happened, in milliseconds; of a timer, how late it fired.
    pub waited: Option<u64>,
}

impl Origin {
    /// The origin of an input that is decided now, here.
    #[must_use]
    pub fn of(input: &Input, node: &str, now: Timestamp) -> Self {
        let waited = u64::try_from(now.since(input.at()).as_millis()).unwrap_or(u64::MAX);
        Self { kind: Some(input.kind()), node: node.to_owned(), waited: Some(waited) }
    }

    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// One change to the store. A group of them is committed together.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The consequences of an input.
    Apply(Box<Commit>),
    /// Put an instance as it should stand in the place of the one that is stored.
    Replace(Box<Replacement>),
    /// A work item is done and nobody needs to hear of it.
    Settle(OutboxKey),
    /// Everything of a source up to here is applied. Only ever grows.
    Checkpoint(Source, StreamPosition),
    /// Keep a definition's source for the instances pinned to it.
    PutDefinition {
        /// Its identity.
        program: ProgramRef,
        /// Its source: text, or the bytes of a WebAssembly module.
        source: Vec<u8>,
    },
    /// Forget a definition to which no instance is pinned.
    DropDefinition {
        /// Its hash.
        hash: [u8; 16],
    },
    /// These definitions are in force from now on. Their sources were put before.
    Deploy(Box<Deployment>),
    /// Keep what could not be applied to any instance.
    PutDeadLetter(Box<DeadLetter>),
    /// A dead letter was sent again or discarded.
    DropDeadLetter {
        /// Whose.
        tenant: TenantId,
        /// Which.
        id: Uuid,
    },
    /// The bus has the copy of a dead letter.
    PublishedLetter {
        /// Where the copy waited.
        sequence: u64,
    },
    /// Forget applied-markers whose window ended before this time.
    PurgeApplied {
        /// The end of the oldest window to keep.
        before: Timestamp,
    },
    /// Forget an instance that is over and still stands at this version, its history first, a bounded number of rows at a time: as
    /// long as the snapshot is there, more is to be forgotten. No commit of the instance may be in the same group.
    PurgeInstance {
        /// Which.
        key: InstanceKey,
        /// Where it stands.
        version: u64,
    },
    /// Forget tasks of an instance that was forgotten, with what happened to them.
    PurgeTasks {
        /// Whose they were.
        instance: InstanceKey,
        /// Which. Those of an instance that is there now stay.
        tasks: Vec<Uuid>,
    },
    /// Forget what the feed says of commits that are too old, a bounded number of rows at a time.
    TrimFeed {
        /// Those made before this time …
        before: Timestamp,
        /// … and those so many commits before the last one.
        keep: u64,
    },
}

/// Whence inputs come: a saga's consumer on a bus.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source {
    /// The stream, for example `events`.
    pub stream: String,
    /// The consumer, for example a saga's name or `*` for all.
    pub consumer: String,
}

/// A position in a stream that cannot be taken for one in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    /// Identity of the stream, made when the stream was made.
    pub stream_id: Uuid,
    /// Sequence number of the last message that is done with, all before it included.
    pub sequence: u64,
    /// When that message was published, where that is known: another message in its place is noticed by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl StreamPosition {
    /// The position behind a message whose time is not known.
    #[must_use]
    pub const fn behind(stream_id: Uuid, sequence: u64) -> Self {
        Self { stream_id, sequence, at: None }
    }
}
