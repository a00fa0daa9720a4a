//! The intermediate form: a saga as plain data, which the YAML front-end and the builder both produce.
//!
//! A template is JSON in which a text that begins with `=` is a CEL expression (`==` stands for a plain `=`). An expression
//! (`when`, `in`) is CEL, with or without the `=`.

mod action;

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, InDoubt, Name, Retry, SagaName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use action::{Action, Case, Escalation, Human, Job, Moment};

/// A saga. Compiled by [`crate::compile`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Its name.
    pub saga: SagaName,
    /// The author's number for it.
    pub version: u32,
    /// The events that begin an instance.
    pub start: Vec<EventType>,
    /// Where an event says to which instance it belongs.
    #[serde(default)]
    pub correlate: Correlate,
    /// How long events that come before the instance are kept for it; `None`: [`DEFAULT_EARLY`], zero: not at all.
    #[serde(default)]
    pub early: Option<Duration>,
    /// What is known about the versions of events' payloads.
    #[serde(default)]
    pub events: BTreeMap<EventType, EventForm>,
    /// Environment of all jobs: templates.
    #[serde(default)]
    pub env: Map<String, Value>,
    /// Templates over the start event, whose values the instance remembers.
    #[serde(default)]
    pub vars: Map<String, Value>,
    /// A template for what the business calls the instance.
    #[serde(default)]
    pub reference: Option<Value>,
    /// The whole time an instance may go forward.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// What happens on events at any time while it goes forward.
    #[serde(default)]
    pub on: Vec<Handler>,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// The fact that every step is done.
    #[serde(default)]
    pub completed: Option<FactForm>,
    /// The fact that a step failed and everything done was undone.
    #[serde(default)]
    pub failed: Option<FactForm>,
    /// How instances of older versions become instances of this one, when an operator asks for it.
    #[serde(default)]
    pub migrates: Vec<MigrationForm>,
}

/// How long early events are kept where the definition says nothing.
pub const DEFAULT_EARLY: Duration = Duration::from_hours(24);

/// Where an event says to which instance it belongs. Where the place is empty, the envelope's correlation id counts. A place
/// is a path (`order.id`) or, with a leading `=`, an expression over `event`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Correlate {
    /// In its envelope.
    #[default]
    Envelope,
    /// In this place of its data.
    Field(String),
    /// In a place that depends on its type; the envelope for types that are not named.
    ByType(BTreeMap<EventType, String>),
}

/// Which versions of an event's payload are taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventForm {
    /// The versions taken; the highest is the one that expressions are written for.
    pub accepts: Vec<u32>,
    /// By older version, a template over `event` that gives the payload of the newest.
    #[serde(default)]
    pub upcast: BTreeMap<u32, Value>,
    /// What becomes of other versions.
    #[serde(default)]
    pub otherwise: Otherwise,
}

/// What becomes of an event whose version is not accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// It is set aside as a dead letter; the instance does not change.
    #[default]
    DeadLetter,
    /// Nothing.
    Ignore,
    /// The instance turns back, with the cause `schema_version`.
    Compensate,
}

/// What happens on an event at any time while the saga goes forward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handler {
    /// Which events.
    pub event: Vec<EventType>,
    /// Only if this expression over `event` and `vars` holds.
    #[serde(default)]
    pub when: Option<String>,
    /// Templates over the event, whose values the instance remembers.
    #[serde(default)]
    pub save: Map<String, Value>,
    /// Commands and effects to ask for; nobody waits for their answers.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// How the saga goes on.
    #[serde(default)]
    pub then: Then,
}

/// How a saga goes on after an event that a [`Handler`] took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// As it was.
    #[default]
    Continue,
    /// Everything done is undone; it ends `cancelled`.
    Cancel,
    /// Everything done is undone; it ends `failed`, the event's type is the code.
    Fail,
    /// It ends `completed`; what was not begun is skipped, what is under way is given up.
    Complete,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Unique within the saga; holds no `:` and no `[`.
    pub id: Name,
    /// What must be over first; `None`: the step before, or the switch that names this step.
    #[serde(default)]
    pub after: Option<After>,
    /// An expression; the step is skipped when it is false.
    #[serde(default)]
    pub when: Option<String>,
    /// Done once for each element of a list.
    #[serde(default)]
    pub foreach: Option<Foreach>,
    /// What is asked for.
    pub action: Action,
    /// What means success. For a command: the events that answer it; without one, its acceptance does. For effects and jobs:
    /// what their success is called. For a person's task: the outcomes to choose from.
    #[serde(default)]
    pub ok: Vec<Answer>,
    /// What means failure.
    #[serde(default)]
    pub fail: Vec<Answer>,
    /// What undoes it.
    #[serde(default)]
    pub undo: Option<Undo>,
    /// The point of no return: once it is done, nothing done so far is undone any more.
    #[serde(default)]
    pub pivot: bool,
    /// The time allowed for its answer, each attempt of a command.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// Templates over the answer, whose values the instance remembers.
    #[serde(default)]
    pub save: Map<String, Value>,
    /// For effects and jobs hints for attempts; for commands how often the machine asks.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// For effects and jobs: what happens when nobody knows whether it was done. Left out of the canonical JSON where
    /// nothing is said, so that definitions keep their hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubt>,
}

/// What must be over before a step begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// The steps before it; none: it begins at once.
    pub steps: Vec<Name>,
    /// How many of them.
    #[serde(default)]
    pub join: Join,
}

/// How many of the steps before must be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// All of them, those that are skipped aside.
    #[default]
    All,
    /// So many, at least 1; the others have lost, and what they did is undone.
    AtLeast(u32),
}

/// A step for each element of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreach {
    /// An expression whose value is a list of at most [`crate::MAX_ELEMENTS`] elements.
    #[serde(rename = "in")]
    pub list: String,
    /// What an element is called in the step's expressions; `index` is its place, from 0.
    #[serde(rename = "as")]
    pub name: String,
    /// How many are under way at once; `None`: [`crate::DEFAULT_CONCURRENT`].
    #[serde(default)]
    pub limit: Option<u32>,
}

/// An event or a named outcome, and what it must say to count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Its type.
    pub event: EventType,
    /// Only if this expression over `event` and `vars` holds.
    #[serde(default)]
    pub when: Option<String>,
}

impl From<EventType> for Answer {
    fn from(event: EventType) -> Self {
        Self { event, when: None }
    }
}

/// What undoes a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// What is asked for: a command, an effect, a job, a person's task or a saga.
    pub action: Action,
    /// For a command: the events that confirm it; without one, its acceptance does.
    #[serde(default)]
    pub ok: Vec<Answer>,
    /// What means that it failed.
    #[serde(default)]
    pub fail: Vec<Answer>,
    /// The time allowed for the confirmation; then it is asked for again, or the instance is stuck.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// For effects and jobs hints for attempts; for commands how often the machine asks.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// For effects and jobs: what happens when nobody knows whether it was done. To ask means to be stuck at once, where
    /// a person decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubt>,
}

/// A fact about the whole saga.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactForm {
    /// Its type.
    pub fact: EventType,
    /// A template for its data.
    #[serde(default)]
    pub data: Value,
}

/// How instances of older versions become instances of the newest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationForm {
    /// The versions this is for.
    pub from: Vec<u32>,
    /// By old step, the new one, or `None` where there is none any more. Steps that are not named keep their id.
    #[serde(default)]
    pub steps: BTreeMap<Name, Option<Name>>,
    /// Templates over the old `vars`, whose values are remembered beside them.
    #[serde(default)]
    pub vars: Map<String, Value>,
}
