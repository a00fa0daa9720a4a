//! What a step asks for: of aggregates, providers, people, workers, other sagas, or of time.

use std::time::Duration;

use orlog_model::{EffectName, EventType, Name, SagaName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a step asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// A command to an aggregate.
    Command {
        /// For example `inventory`.
        aggregate_type: Name,
        /// For example `ReserveStock`.
        name: Name,
        /// A template for the aggregate's id; the correlation id without one.
        #[serde(default)]
        id: Option<Value>,
        /// A template for the payload.
        #[serde(default)]
        data: Value,
    },
    /// An effect on the world.
    Effect {
        /// For example `payments.charge`.
        name: EffectName,
        /// A template for the payload.
        #[serde(default)]
        data: Value,
    },
    /// Time passes.
    Wait(Moment),
    /// An event that comes by itself, or a signal.
    Event {
        /// Any of these.
        events: Vec<EventType>,
        /// Only if this expression over `event` and `vars` holds.
        #[serde(default)]
        when: Option<String>,
    },
    /// A person decides.
    Human(Human),
    /// Another saga runs to its end.
    Saga {
        /// Which.
        saga: SagaName,
        /// A template for its correlation id; without one this instance's, `:` and the step.
        #[serde(default)]
        correlation: Option<Value>,
        /// The event that begins it; its first start event without one.
        #[serde(default)]
        event: Option<EventType>,
        /// A template for the data of that event.
        #[serde(default)]
        data: Value,
    },
    /// A script that a worker runs: the effect `job.<type>`.
    Job(Job),
    /// One of several ways.
    Switch(Vec<Case>),
}

/// A point in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Moment {
    /// So long after the step began: a template for a text such as `30m`.
    For(Value),
    /// A template for a time as RFC 3339 text or in whole milliseconds since 1970.
    Until(Value),
}

/// A task for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Human {
    /// A template for what it is called.
    pub title: Value,
    /// Templates for the roles of those who may take it; empty: everybody.
    #[serde(default)]
    pub roles: Vec<Value>,
    /// A template for who is to do it.
    #[serde(default)]
    pub assignee: Option<Value>,
    /// When it should be done. Nothing fails when it is not; see the step's `timeout`.
    #[serde(default)]
    pub due: Option<Moment>,
    /// A template for what the person sees.
    #[serde(default)]
    pub data: Value,
    /// To whom it goes when nobody has done it.
    #[serde(default)]
    pub escalate: Option<Escalation>,
}

/// To whom a task goes when nobody has done it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    /// How long after the task was opened; `None`: when it is due.
    #[serde(default)]
    pub after: Option<Duration>,
    /// Templates for the roles from then on.
    #[serde(default)]
    pub roles: Vec<Value>,
    /// A template for who is to do it from then on; nobody in particular without one.
    #[serde(default)]
    pub assignee: Option<Value>,
}

/// A script that a worker runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The type of script, which names the worker: `python`, `sal`.
    #[serde(rename = "type")]
    pub kind: Name,
    /// Its source, as it is: no template.
    pub script: String,
    /// Templates for its environment, over the saga's.
    #[serde(default)]
    pub env: Map<String, Value>,
    /// A template for its arguments.
    #[serde(default)]
    pub args: Value,
    /// Steps that must be over first.
    #[serde(default)]
    pub prerequisites: Vec<Name>,
    /// Jobs that must be over first and whose results it is given.
    #[serde(default)]
    pub dependencies: Vec<Name>,
}

/// One way of a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Taken if this expression holds and none before did; `None`: otherwise.
    #[serde(default)]
    pub when: Option<String>,
    /// The steps that may then begin; those of other ways are bypassed.
    pub then: Vec<Name>,
}
