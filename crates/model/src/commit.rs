//! Transitions, the results of program inputs, and commits: all changes of one input, stored
//! atomically.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    DeadLetter, DedupeKey, DefinitionRef, Deployment, HistoryEntry, Input, Instance, InstanceKey,
    JobClaimUpdate, JobLogAppend, Name, OutboxKey, Reference, Status, TaskChange, TaskUpdate,
    TenantId, Timestamp, TransitionFailure, VariableChange, Wait, Work, WorkItem,
};

/// Next state of an instance, with the resulting work, timers and tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// New state of the program.
    pub state: Vec<u8>,
    /// New status of the instance.
    pub status: Status,
    /// Work, in order.
    pub work: Vec<Work>,
    /// Timers to arm and to cancel, in order.
    pub timers: Vec<TimerChange>,
    /// Human tasks to open, reassign and close, in order.
    pub tasks: Vec<TaskChange>,
    /// New waits of the instance.
    pub waits: Vec<Wait>,
    /// Business reference, if the program sets it.
    pub reference: Option<Reference>,
    /// Failure, if any.
    pub failure: Option<Box<TransitionFailure>>,
    /// Variables that the transition sets, with their values before and after it. Empty if the
    /// program has no variables.
    pub variables: Vec<VariableChange>,
    /// Short note for the history: `charge: ok`.
    pub note: String,
    /// Change of the run of the instance.
    pub run: RunChange,
}

impl Transition {
    /// Returns a transition that changes the state and the status only.
    #[must_use]
    pub fn new(state: Vec<u8>, status: Status) -> Self {
        Self {
            state,
            status,
            work: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            waits: Vec::new(),
            reference: None,
            failure: None,
            variables: Vec::new(),
            note: String::new(),
            run: RunChange::default(),
        }
    }
}

/// Change of the run of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunChange {
    /// Position in the work at which a new run begins, if the transition begins one. The instance
    /// has no pending work of the old run that must be compensated, no tasks and no timers of the
    /// old run.
    pub begins_at: Option<usize>,
    /// Version of a history entry of an old run that is deleted.
    pub forgets: Option<u64>,
}

/// Change to the timers of an instance. Arming a timer replaces the timer of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerChange {
    /// Fires at `due`.
    Arm {
        /// Name, unique within the instance.
        name: Name,
        /// Due time.
        due: Timestamp,
    },
    /// Cancels the timer; a no-op if it is not armed.
    Cancel {
        /// Name of the timer.
        name: Name,
    },
}

/// All changes of one input. The store writes it atomically.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Key of the instance.
    pub key: InstanceKey,
    /// Previous snapshot, as known to the committer; `None` if the instance did not exist.
    pub before: Option<Arc<Instance>>,
    /// New snapshot; `None` leaves the stored one unchanged. The live instance shares it.
    pub instance: Option<Arc<Instance>>,
    /// Work items for the outbox, in order.
    pub work: Vec<WorkItem>,
    /// Updates of human tasks, in order: each is a row and a task event.
    pub tasks: Vec<TaskUpdate>,
    /// Timers to arm.
    pub arm: Vec<Timer>,
    /// Timers to delete, including the fired one.
    pub disarm: Vec<Timer>,
    /// Outbox row that this commit completes.
    pub settles: Option<OutboxKey>,
    /// Dedupe key of the input, which makes a second delivery a no-op.
    pub dedupe_key: Option<DedupeKey>,
    /// Input to buffer, because the instance is paused or does not exist yet.
    pub buffer: Option<Box<Input>>,
    /// Input to store behind all buffered and spilled inputs, because the queue of the instance in
    /// memory is full. It passes the duplicate check when it is applied.
    pub spill: Option<Arc<Input>>,
    /// Buffered and spilled inputs that this commit applied or deleted.
    pub unbuffer: Vec<u64>,
    /// History entry.
    pub history: Option<HistoryEntry>,
    /// Version of a history entry to delete, because the program limits their number.
    pub forgets: Option<u64>,
    /// The input, if it could not be applied.
    pub dead_letter: Option<Box<DeadLetter>>,
    /// Time of the transition.
    pub at: Timestamp,
}

impl Commit {
    /// Returns the pending work that the instance no longer awaits since this commit.
    #[must_use]
    pub fn abandoned_work(&self) -> Vec<Uuid> {
        fn abandoned(instance: Option<&Arc<Instance>>) -> impl Iterator<Item = Uuid> {
            let work = instance
                .into_iter()
                .flat_map(|instance| &instance.pending_work);
            work.filter(|work| work.abandoned).map(|work| work.id)
        }

        // Most transitions abandon nothing, so the previous snapshot is usually not visited.
        let now: Vec<_> = abandoned(self.instance.as_ref()).collect();
        if now.is_empty() {
            return now;
        }

        let before: BTreeSet<_> = abandoned(self.before.as_ref()).collect();
        now.into_iter().filter(|id| !before.contains(id)).collect()
    }

    /// Returns a commit without changes.
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
            dedupe_key: None,
            buffer: None,
            spill: None,
            unbuffer: Vec::new(),
            history: None,
            forgets: None,
            dead_letter: None,
            at,
        }
    }
}

/// Instance as rebuilt by a replay. It replaces the buffered inputs, history and timers; dedupe
/// keys of applied inputs remain.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceReplacement {
    /// Key of the instance.
    pub key: InstanceKey,
    /// New snapshot.
    pub instance: Instance,
    /// New history, oldest first.
    pub history: Vec<HistoryEntry>,
    /// Inputs that the new snapshot contains.
    pub dedupe_keys: Vec<DedupeKey>,
    /// Updates of its tasks.
    pub tasks: Vec<TaskUpdate>,
    /// Work items for the outbox, in order.
    pub work: Vec<WorkItem>,
    /// Outbox rows that are no longer its work.
    pub removed_work: Vec<OutboxKey>,
}

/// Timer, as stored in the timer table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// Due time.
    pub due: Timestamp,
    /// Name, unique within the instance.
    pub name: Name,
    /// Hash of the input that armed the timer and of its name.
    pub token: u64,
}

/// Change to the store. A group of changes is committed together.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Applies the commit of an input.
    Apply(Box<Commit>),
    /// Replaces the stored instance with a rebuilt one.
    Replace(Box<InstanceReplacement>),
    /// Removes a completed work item whose result no instance requires.
    Settle(OutboxKey),
    /// Sets the position of a source up to which all messages are applied.
    Checkpoint(CheckpointKey, StreamPosition),
    /// Stores the source of a definition for the instances pinned to it.
    PutDefinition {
        /// Definition ref.
        program: DefinitionRef,
        /// Source: text, or the bytes of a WebAssembly module.
        source: Vec<u8>,
    },
    /// Deletes a definition to which no instance is pinned.
    DropDefinition {
        /// Hash of the definition.
        hash: [u8; 16],
    },
    /// Activates these definitions. Their sources were stored before.
    Deploy(Box<Deployment>),
    /// Stores a dead letter that belongs to no instance.
    PutDeadLetter(Box<DeadLetter>),
    /// Deletes a dead letter that was redriven or discarded.
    DropDeadLetter {
        /// Tenant of the dead letter.
        tenant: TenantId,
        /// Id of the dead letter.
        id: Uuid,
    },
    /// Records that the bus has stored the copy of a dead letter.
    DeadLetterPublished {
        /// Sequence of the copy in its outbox.
        sequence: u64,
    },
    /// Starts to delete dedupe keys whose window ended before this time. This group and later ones
    /// each delete some of them, oldest first, until none remains.
    PurgeDedupe {
        /// End of the oldest window to keep.
        before: Timestamp,
    },
    /// Deletes an ended instance that still has this version, history first, a limited number of
    /// rows at a time. While the snapshot exists, more rows remain. The group must not contain a
    /// commit of the instance.
    PurgeInstance {
        /// Key of the instance.
        key: InstanceKey,
        /// Expected version.
        version: u64,
    },
    /// Deletes an instance whose stored data cannot be read, with its history and its buffered
    /// inputs. The group must not contain a commit of the instance.
    DropInstance {
        /// Key of the instance.
        key: InstanceKey,
    },
    /// Deletes tasks of a deleted instance, with their events.
    PurgeTasks {
        /// Key of the deleted instance.
        instance: InstanceKey,
        /// Ids of the tasks. Tasks of a new instance with the same key remain.
        tasks: Vec<Uuid>,
    },
    /// Appends lines to the job log of an instance; no change if the instance does not exist. The
    /// group must not contain another append to the instance.
    AppendJobLog(Box<JobLogAppend>),
    /// Stores or deletes claims of jobs; no change for jobs of instances that do not exist.
    UpdateJobClaims(Vec<JobClaimUpdate>),
    /// Records that the result of a claim is stored with the next change, for as long as dedupe
    /// keys are.
    JobResult {
        /// Tenant of the job.
        tenant: TenantId,
        /// Id of the work item.
        job: Uuid,
        /// Claim under which a worker reported the result.
        claim: Uuid,
    },
    /// Records that a request with this idempotency key is stored with the next change, for as long
    /// as dedupe keys are.
    RequestKey {
        /// Tenant of the request.
        tenant: TenantId,
        /// Hash of the key, and of what it belongs to: a saga or an instance.
        key: Uuid,
        /// Hash of the request.
        fingerprint: Uuid,
    },
    /// Deletes change feed rows of old commits, a limited number at a time.
    TrimFeed {
        /// Deletes rows written before this time …
        before: Timestamp,
        /// … and rows more than this number of commits before the last one.
        retained_commits: u64,
    },
}

/// Source of inputs: the consumer of a saga on a bus.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CheckpointKey {
    /// Stream, for example `events`.
    pub stream: String,
    /// Consumer, for example the name of a saga, or `*` for all.
    pub consumer: String,
}

/// Position in a stream, with the identity of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    /// Identity of the stream, generated when the stream was created.
    pub stream_id: Uuid,
    /// Sequence of the last message that is processed, together with all earlier messages.
    pub sequence: u64,
    /// Publication time of that message, if known. It reveals another message at the same position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl StreamPosition {
    /// Returns the position after a message whose time is unknown.
    #[must_use]
    pub const fn after(stream_id: Uuid, sequence: u64) -> Self {
        Self {
            stream_id,
            sequence,
            at: None,
        }
    }
}
