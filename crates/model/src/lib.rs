//! Data model of Orlog: ids, events, inputs, work, commits.
//!
//! No I/O, no clock, no randomness, no hash map iteration. The types of one event in order:
//! [`Event`] → [`Input`] → (a program) → [`Transition`] → (the engine) → [`Commit`] → rows.

mod address;
mod attempt;
mod clock;
mod commit;
pub mod count;
mod dead_letter;
mod dedupe_key;
mod deployment;
mod duration;
mod event_attributes;
mod failure;
mod foreign_json;
mod history;
mod http_date;
mod ids;
mod input;
mod instance;
mod job_claim;
mod job_log;
mod json_length;
mod outcome;
mod payload;
mod pending_work;
mod priority;
mod reference;
mod result_event;
mod sample_rate;
mod slot;
mod start;
mod task;
pub mod trace;
mod wait_token;
mod work;
mod work_result;
mod workflow;

pub use address::{AddressError, ContextAddress, NodeName};
pub use attempt::{AttemptLog, AttemptOutcome, AttemptRecord, beginning};
pub use clock::{Clock, SteadyTime, Timestamp, TimestampError};
pub use commit::{
    Change, CheckpointKey, Commit, InstanceReplacement, RunChange, StreamPosition, Timer,
    TimerChange, Transition,
};
pub use dead_letter::{DeadLetter, DeadLetterOriginal, DeadLetterReason};
pub use dedupe_key::DedupeKey;
pub use deployment::{DeployedDefinition, DeployedSchedule, Deployment};
pub use duration::{format_duration, parse_duration, whole_seconds};
pub use event_attributes::EventAttributes;
pub use failure::{Failure, InstanceFailure, TransitionFailure};
pub use foreign_json::{ForeignJson, parse_foreign_json};
pub use history::{HistoryEntry, InputOrigin, RecordedFailure};
pub use http_date::parse_http_date;
pub use ids::{
    ActorId, CorrelationId, EffectName, EventId, EventType, IdError, InstanceKey, Name, SagaName,
    TenantId, derive_child_id, derive_id, is_direction_control,
};
pub use input::{ControlAction, ControlRequest, EarlyInput, Event, Input, InputKind, TimerFired};
pub use instance::{
    ArmedTimer, DefinitionRef, Instance, SagaResult, ScheduledSignal, Status, StatusSnapshot, Wait,
    WaitKind,
};
pub use job_claim::{JobClaim, JobClaimUpdate};
pub use job_log::{JobLogAppend, JobLogChunk, LogLine};
pub use json_length::json_length;
pub use outcome::{CURRENT_SCHEMA, WorkOutcome};
pub use payload::{RecordedPayload, RecordedPayloads, VariableChange};
pub use pending_work::PendingWork;
pub use priority::{Priority, PriorityError, PriorityQueue, PriorityTurns};
pub use reference::Reference;
pub use result_event::ResultEvent;
pub use sample_rate::{InvalidSampleRate, SampleRate};
pub use slot::{SLOTS, Slot, SlotAssigner, fnv1a};
pub use start::{OnExisting, StartRequest, StartSignal};
pub use task::{
    ExcludedUser, Exclusion, InstanceUsers, Task, TaskAction, TaskChange, TaskEvent, TaskEventKind,
    TaskRow, TaskSpec, TaskStatus, TaskUpdate,
};
pub use trace::{SpanId, TraceParent};
pub use wait_token::{WaitToken, WaitTokenError};
pub use work::{
    CancelChild, Command, Confirmation, DISCARDED_WITH_NULL, Destination, Effect, Fact, IN_DOUBT,
    InDoubtPolicy, NotifyParent, OutboxKey, RESULT_DISCARDED, RetryPolicy, StartChild, Work,
    WorkItem, WorkKind, work_deadline,
};
pub use work_result::WorkResult;
pub use workflow::{
    ChildResult, MAX_CHILD_DEPTH, ParentEndPolicy, ParentRef, WorkflowAction, WorkflowCommand,
};
