//! Intermediate form: a saga as plain data, produced by the YAML front-end and by the builder.
//!
//! A template is JSON. A text in it that starts with `=` is a CEL expression (`==` stands for a literal
//! `=`). An expression (`when`, `in`) is CEL, with or without the `=`.

mod action;

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, InDoubtPolicy, Name, RetryPolicy, SagaName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use action::{Action, Escalation, HumanTask, JobAction, SwitchCase, TimeSpec};

/// Definition of a saga. [`crate::compile()`] compiles it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Name of the saga.
    pub saga: SagaName,
    /// Version.
    pub version: u32,
    /// Start events.
    pub start: Vec<EventType>,
    /// Location of the correlation id in events.
    #[serde(default)]
    pub correlate: CorrelationSpec,
    /// Time to live of early events; `None`: [`DEFAULT_EARLY_EVENT_TTL`], zero: early events are not
    /// buffered.
    #[serde(default)]
    pub early_event_ttl: Option<Duration>,
    /// Payload versions by event type.
    #[serde(default)]
    pub events: BTreeMap<EventType, EventVersionSpec>,
    /// Environment of all jobs: templates.
    #[serde(default)]
    pub env: Map<String, Value>,
    /// Templates over the start event, whose values the instance stores.
    #[serde(default)]
    pub vars: Map<String, Value>,
    /// Template of the business reference of the instance.
    #[serde(default)]
    pub reference: Option<Value>,
    /// Maximum time that an instance may run forward.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// Event handlers, active while the saga runs forward.
    #[serde(default)]
    pub on: Vec<HandlerSpec>,
    /// Steps, in order.
    pub steps: Vec<Step>,
    /// Fact that is published when all steps are finished.
    #[serde(default)]
    pub completed: Option<FactSpec>,
    /// Fact that is published when a step has failed and all completed steps are compensated.
    #[serde(default)]
    pub failed: Option<FactSpec>,
    /// Migrations of instances of older versions to this one, applied when an operator requests it.
    #[serde(default)]
    pub migrations: Vec<MigrationSpec>,
}

/// Default time to live of early events.
pub const DEFAULT_EARLY_EVENT_TTL: Duration = Duration::from_hours(24);

impl Definition {
    pub(crate) fn early_event_ttl(&self) -> Duration {
        self.early_event_ttl.unwrap_or(DEFAULT_EARLY_EVENT_TTL)
    }
}

/// Location of the correlation id in an event. If the location is empty, the correlation id of the
/// envelope applies. A location is a path (`order.id`) or, with a leading `=`, an expression over
/// `event`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CorrelationSpec {
    /// In the envelope.
    #[default]
    Envelope,
    /// At this location of the data.
    Field(String),
    /// At a location that depends on the event type; the envelope for types that are not listed.
    ByType(BTreeMap<EventType, String>),
}

/// Accepted payload versions of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventVersionSpec {
    /// Accepted versions; expressions are written for the highest.
    pub accepts: Vec<u32>,
    /// Upcasts by older version: templates over `event` that produce the payload of the newest version.
    #[serde(default)]
    pub upcast: BTreeMap<u32, Value>,
    /// Policy for unsupported versions.
    #[serde(default)]
    pub on_unsupported: UnsupportedVersionPolicy,
}

/// Policy for an event whose version is not accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsupportedVersionPolicy {
    /// The event is dead-lettered; the instance does not change.
    #[default]
    DeadLetter,
    /// The event is ignored.
    Ignore,
    /// The instance starts compensation with the cause `schema_version`.
    Compensate,
}

/// Event handler, active while the saga runs forward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandlerSpec {
    /// Handled events.
    pub event: Vec<EventType>,
    /// Condition over `event` and `vars`.
    #[serde(default)]
    pub when: Option<String>,
    /// Templates over the event, whose values the instance stores.
    #[serde(default)]
    pub save: Map<String, Value>,
    /// Commands and effects to request; their results are not awaited.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// How the saga continues.
    #[serde(default)]
    pub then: AfterHandler,
}

/// How a saga continues after an event of a [`HandlerSpec`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterHandler {
    /// The saga continues unchanged.
    #[default]
    Continue,
    /// All completed steps are compensated; the saga ends `cancelled`.
    Cancel,
    /// All completed steps are compensated; the saga ends `failed` with the event type as code.
    Fail,
    /// The saga ends `completed`; pending steps are skipped, steps in progress are abandoned.
    Complete,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Id, unique within the saga; contains no `:` and no `[`.
    pub id: Name,
    /// Steps that must be finished first; `None`: the previous step, or the switch that selects this step.
    #[serde(default)]
    pub after: Option<StepDependencies>,
    /// Condition; the step is skipped if it is false.
    #[serde(default)]
    pub when: Option<String>,
    /// List whose elements the step is executed for.
    #[serde(default)]
    pub foreach: Option<Foreach>,
    /// Action of the step.
    pub action: Action,
    /// Results that mean success. Commands: result events; without one, acceptance is success. Effects and
    /// jobs: names of successful results. Human tasks: outcomes to choose from.
    #[serde(default)]
    pub ok: Vec<ResultMatcher>,
    /// Results that mean failure.
    #[serde(default)]
    pub fail: Vec<ResultMatcher>,
    /// Compensation of the step.
    #[serde(default)]
    pub compensate: Option<CompensationSpec>,
    /// Pivot: after the step completes, earlier steps are not compensated.
    #[serde(default)]
    pub pivot: bool,
    /// Timeout for the result, per attempt of a command.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// Templates over the result, whose values the instance stores.
    #[serde(default)]
    pub save: Map<String, Value>,
    /// Retry policy of commands; for effects and jobs, hints for attempts.
    #[serde(default)]
    pub retry: Option<RetryPolicy>,
    /// Policy for an unknown outcome of effects and jobs. Omitted from the canonical JSON if not set, so
    /// that existing definitions keep their hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubtPolicy>,
}

/// Dependencies of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepDependencies {
    /// Preceding steps; empty: the step starts immediately.
    pub steps: Vec<Name>,
    /// Number of preceding steps that are required.
    #[serde(default)]
    pub join: Join,
}

/// Number of preceding steps that must complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// All of them, except skipped steps.
    #[default]
    All,
    /// This number, at least 1; the other branches are discarded and compensated.
    AtLeast(u32),
}

/// Execution of a step for each element of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreach {
    /// Expression that returns a list of at most [`crate::MAX_ELEMENTS`] elements.
    #[serde(rename = "in")]
    pub list: String,
    /// Name of the element in the step's expressions; `index` is its position, from 0.
    #[serde(rename = "as")]
    pub name: String,
    /// Maximum number of elements in progress; `None`: [`crate::DEFAULT_FOREACH_CONCURRENCY`].
    #[serde(default)]
    pub max_concurrency: Option<u32>,
}

/// An event or a named outcome, and its condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultMatcher {
    /// Event type.
    pub event: EventType,
    /// Condition over `event` and `vars`.
    #[serde(default)]
    pub when: Option<String>,
}

impl From<EventType> for ResultMatcher {
    fn from(event: EventType) -> Self {
        Self { event, when: None }
    }
}

/// Compensation of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompensationSpec {
    /// Action: a command, an effect, a job, a human task or a saga.
    pub action: Action,
    /// For a command, the events that confirm it; without one, acceptance confirms it.
    #[serde(default)]
    pub ok: Vec<ResultMatcher>,
    /// Results that mean failure.
    #[serde(default)]
    pub fail: Vec<ResultMatcher>,
    /// Timeout for the confirmation; afterwards the compensation is retried, or the instance is stuck.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// Retry policy of commands; for effects and jobs, hints for attempts.
    #[serde(default)]
    pub retry: Option<RetryPolicy>,
    /// Policy for an unknown outcome of effects and jobs. With `ask`, the instance is stuck immediately and
    /// an operator decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubtPolicy>,
}

/// Fact about the whole saga.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactSpec {
    /// Type of the fact.
    pub fact: EventType,
    /// Template of its data.
    #[serde(default)]
    pub data: Value,
}

/// Migration of instances of older versions to the newest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationSpec {
    /// Versions of this migration.
    pub from: Vec<u32>,
    /// New step by old step; `None` if the step is dropped. Steps that are not listed keep their id.
    #[serde(default)]
    pub steps: BTreeMap<Name, Option<Name>>,
    /// Templates over the old `vars`, whose values are stored in addition.
    #[serde(default)]
    pub vars: Map<String, Value>,
}
