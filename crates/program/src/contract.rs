//! Contract between programs and the runner: inputs, outputs, errors, manifest.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

use orlog_model::{
    EffectName, Event, EventType, InstanceKey, Name, PendingWork, SagaName, Timestamp, Transition,
    WorkOutcome,
};

/// State that was migrated to another program.
#[derive(Clone, Debug, PartialEq)]
pub struct Migration {
    /// The new state, its waits and all of its timers. Timers that are not armed here are canceled.
    /// Contains no work.
    pub transition: Transition,
    /// Pairs of old and new tags of pending work and tasks; tags that are not listed do not change.
    pub tags: Vec<(Name, Name)>,
    /// Whether something was renamed or removed.
    pub is_mapped: bool,
}

/// Events that a program consumes and work that it may request.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Manifest {
    /// Event subscriptions, sorted by type, each type once.
    pub subscriptions: Vec<EventSubscription>,
    /// Effects that the program may request; checked against the providers at startup.
    pub effects: Vec<EffectName>,
    /// Commands that the program may request, as `aggregate.Command`.
    pub commands: Vec<String>,
    /// Child sagas that the program may start.
    pub sagas: Vec<SagaName>,
    /// How long early events are stored; zero disables early events.
    pub early_event_ttl: Duration,
    /// Variables of the instances that are indexed.
    pub indexed: Vec<Name>,
    /// Signal of an operator that starts an instance, although no event does.
    pub started_by_signal: Option<EventType>,
    /// Number of history entries that an instance keeps; `None`: all of them.
    pub history_limit: Option<u64>,
}

/// Subscription of a program to one event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSubscription {
    /// Event type.
    pub kind: EventType,
    /// Whether the event starts an instance if none exists.
    pub starts: bool,
}

/// Input of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProgramInput<'a> {
    /// Event from the bus, or a signal to this instance.
    Event(&'a Event),
    /// Result of the work that was requested under `tag`.
    WorkResult {
        /// Tag that the program assigned to the work.
        tag: &'a str,
        /// Outcome of the work.
        outcome: &'a WorkOutcome,
    },
    /// A timer of the instance is due.
    Timer {
        /// Name of the timer.
        name: &'a str,
    },
    /// Stops forward execution and starts compensation.
    Cancel {
        /// Reason, for the history.
        reason: &'a str,
    },
    /// Retries the work that made the instance `stuck`.
    Retry,
    /// Skips the failed compensation that made the instance `stuck`, because an operator resolved
    /// it, and continues.
    Skip,
    /// Ends the instance without further steps or compensations.
    ForceComplete,
}

impl ProgramInput<'_> {
    /// Returns the default note of a transition whose program provides none.
    pub(crate) fn label(&self) -> String {
        match self {
            ProgramInput::Event(event) => event.kind.to_string(),
            ProgramInput::WorkResult { tag, outcome } => format!("{tag}: {}", outcome.label()),
            ProgramInput::Timer { name } => format!("{name}: due"),
            ProgramInput::Cancel { .. } => "cancel".to_owned(),
            ProgramInput::Retry => "retry".to_owned(),
            ProgramInput::Skip => "skip".to_owned(),
            ProgramInput::ForceComplete => "force-complete".to_owned(),
        }
    }
}

/// Data that a program may read in addition to its state.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Key of the instance.
    pub key: &'a InstanceKey,
    /// State version after this transition.
    pub version: u64,
    /// Time of the transition: the current time when the program computes it.
    pub now: Timestamp,
    /// Pending work before the input; a work result completes that of its tag.
    pub pending_work: &'a [PendingWork],
    /// Number of attempts of the work item whose result is the input; 0 for other inputs.
    pub attempts: u32,
}

/// Output of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramOutput {
    /// The input caused a transition.
    Applied(Box<Transition>),
    /// The input is valid and causes no change: a duplicate, an unknown or a late event. The text
    /// is the reason, for the log.
    Ignored(Cow<'static, str>),
    /// The status forbids the input, for example an operator's `retry` of an instance that is not
    /// stuck. The text is the reason.
    Rejected(Cow<'static, str>),
}

/// Error of a program that cannot apply an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The payload does not match the schema that the program expects.
    #[error("{0}")]
    SchemaMismatch(String),
    /// The program failed: an expression or a contract.
    #[error("{0}")]
    Evaluation(String),
    /// The program crashed: a trap, an exceeded limit or invalid output. The intended transition is
    /// unknown. The instance is paused, so that no later input is applied to a state that lacks
    /// this one.
    #[error("{0}")]
    Crashed(String),
    /// The stored state cannot be decoded.
    #[error("cannot decode the stored state: {0}")]
    InvalidState(String),
}

/// Reason why the saga does not run forward; `failure` in expressions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FailureCause {
    pub(crate) code: String,
    pub(crate) message: String,
    /// Step id; empty for the saga as a whole.
    pub(crate) step: String,
}
