//! The intermediate form: a saga as plain data, which the YAML front-end and the builder both produce.
//!
//! A template is JSON in which a text that begins with `=` is a CEL expression (`==` stands for a plain `=`).

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EffectName, EventType, Name, Retry, SagaName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
    /// Templates over the start event, whose values the instance remembers.
    #[serde(default)]
    pub vars: Map<String, Value>,
    /// A template for what the business calls the instance.
    #[serde(default)]
    pub reference: Option<Value>,
    /// The whole time an instance may go forward.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// The fact that every step is done.
    #[serde(default)]
    pub completed: Option<FactForm>,
    /// The fact that a step failed and everything done was undone.
    #[serde(default)]
    pub failed: Option<FactForm>,
}

/// Where an event says to which instance it belongs. Where the place is empty, the envelope's correlation id counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Correlate {
    /// In its envelope.
    #[default]
    Envelope,
    /// In this field of its data, for example `order.id`.
    Field(String),
    /// In a field that depends on its type; the envelope for types that are not named.
    ByType(BTreeMap<EventType, String>),
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Unique within the saga; holds no `:`.
    pub id: Name,
    /// The steps that must be done or skipped first; `None`: the one before.
    #[serde(default)]
    pub after: Option<Vec<Name>>,
    /// An expression; the step is skipped when it is false.
    #[serde(default)]
    pub when: Option<String>,
    /// What is asked for.
    pub action: Action,
    /// For a command: the event that answers it; without one, its acceptance does. For an effect: what its success is
    /// called.
    #[serde(default)]
    pub ok: Option<EventType>,
    /// The events, or the names of outcomes, that mean it failed.
    #[serde(default)]
    pub fail: Vec<EventType>,
    /// What undoes it.
    #[serde(default)]
    pub undo: Option<Undo>,
    /// The time allowed for its answer.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// Templates over the answer, whose values the instance remembers.
    #[serde(default)]
    pub save: Map<String, Value>,
    /// Hints for attempts.
    #[serde(default)]
    pub retry: Option<Retry>,
}

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
}

/// What undoes a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// What is asked for.
    pub action: Action,
    /// For a command: the event that confirms it; without one, its acceptance does.
    #[serde(default)]
    pub ok: Option<EventType>,
    /// For a command: the events that mean it failed.
    #[serde(default)]
    pub fail: Vec<EventType>,
    /// The time allowed for the confirmation; then the instance is stuck.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// Hints for attempts.
    #[serde(default)]
    pub retry: Option<Retry>,
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
