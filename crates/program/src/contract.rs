//! What a program is shown and what it answers: the words of the one boundary.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

use orlog_model::{
    EffectName, Event, EventType, InstanceKey, Name, SagaName, Timestamp, Transition, Verdict,
};

/// A state that was moved to another program.
#[derive(Clone, Debug, PartialEq)]
pub struct Migration {
    /// The new state, its waits and all of its timers: those that were armed and are not armed here are off. It asks for no
    /// work.
    pub transition: Transition,
    /// New tags of work and tasks that are open, by old one; those not named keep theirs.
    pub tags: Vec<(Name, Name)>,
    /// Something goes by another name, or is no more.
    pub mapped: bool,
}

/// What a program consumes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Manifest {
    /// The events it takes, sorted by type, each type once.
    pub triggers: Vec<Trigger>,
    /// The names of the effects it may ask for; checked against the providers at start-up.
    pub effects: Vec<EffectName>,
    /// The commands it may ask for, as `aggregate.Command`.
    pub commands: Vec<String>,
    /// The sagas it may begin.
    pub sagas: Vec<SagaName>,
    /// How long events that come before the instance are kept for it; zero: not at all.
    pub early: Duration,
}

/// One type of event that a program takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The type.
    pub kind: EventType,
    /// Begins an instance where there is none.
    pub starts: bool,
}

/// What a program is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stimulus<'a> {
    /// An event, from the bus or as a signal to this instance.
    Event(&'a Event),
    /// What became of work it asked for under `tag`.
    Outcome {
        /// The tag the program gave the work.
        tag: &'a str,
        /// What happened.
        verdict: &'a Verdict,
    },
    /// A timer it armed fell due.
    Timer {
        /// The name it was armed under.
        name: &'a str,
    },
    /// Stop going forward and undo what was done.
    Cancel {
        /// For the record.
        reason: &'a str,
    },
    /// Try again what ended in `stuck`.
    Retry,
    /// Leave undone what ended in `stuck`, a person has seen to it; go on.
    Skip,
    /// Nothing more is done or undone; it ends.
    ForceComplete,
}

impl Stimulus<'_> {
    /// What happened, in a few words: the note of a transition whose program has none of its own.
    pub(crate) fn label(&self) -> String {
        match self {
            Stimulus::Event(event) => event.kind.to_string(),
            Stimulus::Outcome { tag, verdict } => format!("{tag}: {}", verdict.label()),
            Stimulus::Timer { name } => format!("{name}: due"),
            Stimulus::Cancel { .. } => "cancel".to_owned(),
            Stimulus::Retry => "retry".to_owned(),
            Stimulus::Skip => "skip".to_owned(),
            Stimulus::ForceComplete => "force-complete".to_owned(),
        }
    }
}

/// What a program may know beside its state.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Which instance.
    pub key: &'a InstanceKey,
    /// The state version this transition will have.
    pub version: u64,
    /// The time of the transition: the present when it is decided.
    pub now: Timestamp,
}

/// A program's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Reaction {
    /// Something changed.
    Applied(Box<Transition>),
    /// Nothing changed, and that is right: a duplicate, an unknown or a late event. The text says why, for the log.
    Ignored(Cow<'static, str>),
    /// Refused: the status forbids it (an operator's `retry` of an instance that is not stuck). The text says why.
    Refused(Cow<'static, str>),
}

/// A program cannot apply a stimulus.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The payload is not what the program expects.
    #[error("{0}")]
    Schema(String),
    /// The program itself failed: an expression, a contract.
    #[error("{0}")]
    Program(String),
    /// The program broke down: a trap, a limit, an answer that is none. What it would have decided is not known, so the
    /// instance is paused: nothing that comes later is applied to a state that missed this.
    #[error("{0}")]
    Broken(String),
    /// The stored state cannot be read.
    #[error("the stored state cannot be read: {0}")]
    State(String),
}

/// Why the saga does not go forward; `failure` in expressions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cause {
    pub(crate) code: String,
    pub(crate) message: String,
    /// The step's id; empty where the saga as a whole is meant.
    pub(crate) step: String,
}
