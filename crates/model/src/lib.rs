//! The words of Orlog: what every other crate says, and nothing that does anything.
//!
//! No I/O, no clock, no chance, no hash map iteration. An event's way in types:
//! [`Event`] → [`Input`] → (a program) → [`Transition`] → (the engine) → [`Commit`] → rows.

mod clock;
mod commit;
mod dead_letter;
mod deployment;
mod event;
mod failure;
mod ids;
mod input;
mod instance;
mod slot;
mod task;
pub mod trace;
mod transition;
mod work;
mod workflow;

pub use clock::{Clock, Timestamp, TimestampError};
pub use commit::{Change, Commit, Origin, Record, Replacement, Source, StreamPosition, Timer};
pub use dead_letter::{DeadLetter, DeadLetterReason, Original};
pub use deployment::{Deployed, Deployment};
pub use event::Event;
pub use failure::Failure;
pub use ids::{
    CorrelationId, EffectName, EventId, EventType, IdError, InstanceKey, Name, SagaName, TenantId, derived_id,
};
pub use input::{Action, Control, Early, Input, InputKind, TimerFired};
pub use instance::{ArmedTimer, Instance, OpenWork, ProgramRef, Standing, Status, Wait, WaitKind};
pub use slot::{SLOTS, Slot, Slots, fnv1a};
pub use task::{Task, TaskChange, TaskEntry, TaskEvent, TaskForm, TaskOrder, TaskRow, TaskStatus, TaskStep};
pub use trace::{SpanKey, TraceParent};
pub use transition::{TimerChange, Transition};
pub use work::{
    Command, Confirmation, Effect, End, Fact, IN_DOUBT, InDoubt, Lane, OutboxKey, Outcome, Retry, Start,
    Stop, Verdict, Work, WorkItem, WorkKind,
};
pub use workflow::{Ended, MAX_DEPTH, Parent, WorkflowCommand, WorkflowOrder};
