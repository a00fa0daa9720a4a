//! Actions of a step: requests to aggregates, providers, users, workers or child sagas, and waits.

use std::time::Duration;

use orlog_model::{EffectName, EventType, ExcludedUser, Name, SagaName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Action of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Command to an aggregate.
    Command {
        /// Aggregate type, for example `inventory`.
        aggregate_type: Name,
        /// Command name, for example `ReserveStock`.
        name: Name,
        /// Template of the aggregate id. Default: the correlation id.
        #[serde(default)]
        id: Option<Value>,
        /// Template of the payload.
        #[serde(default)]
        data: Value,
    },
    /// Effect: a call to an external system.
    Effect {
        /// Effect name, for example `payments.charge`.
        name: EffectName,
        /// Template of the payload.
        #[serde(default)]
        data: Value,
    },
    /// Wait for a time.
    Wait(TimeSpec),
    /// Wait for an unsolicited event or a signal.
    Event {
        /// Any of these events.
        events: Vec<EventType>,
        /// Condition over `event` and `vars`.
        #[serde(default)]
        when: Option<String>,
    },
    /// Human task.
    Human(HumanTask),
    /// Child saga that runs to its end.
    Saga {
        /// Name of the child saga.
        saga: SagaName,
        /// Template of its correlation id. Default: that of this instance, `:` and the step.
        #[serde(default)]
        correlation: Option<Value>,
        /// Start event of the child saga. Default: its first start event.
        #[serde(default)]
        event: Option<EventType>,
        /// Template of the data of that event.
        #[serde(default)]
        data: Value,
    },
    /// Script that a worker runs: the effect `job.<type>`.
    Job(JobAction),
    /// Selection of one of several cases.
    Switch(Vec<SwitchCase>),
}

/// Point in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TimeSpec {
    /// Duration since the start of the step: a template of a text such as `30m`.
    For(Value),
    /// Template of a time as RFC 3339 text or in whole milliseconds since 1970.
    Until(Value),
}

/// Human task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HumanTask {
    /// Template of the title.
    pub title: Value,
    /// Templates of the roles that may claim the task; empty: all users.
    #[serde(default)]
    pub roles: Vec<Value>,
    /// Users who can neither claim, be assigned, nor complete the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_by: Vec<ExcludedUser>,
    /// Template of the assignee.
    #[serde(default)]
    pub assignee: Option<Value>,
    /// Due time. A missed due time does not fail the step; see the step's `timeout`.
    #[serde(default)]
    pub due: Option<TimeSpec>,
    /// Template of the displayed data.
    #[serde(default)]
    pub data: Value,
    /// Escalation of an overdue task.
    #[serde(default)]
    pub escalate: Option<Escalation>,
}

/// Escalation of an overdue task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    /// Time since the opening of the task; `None`: the due time.
    #[serde(default)]
    pub after: Option<Duration>,
    /// Templates of the roles after the escalation.
    #[serde(default)]
    pub roles: Vec<Value>,
    /// Template of the assignee after the escalation; unassigned if omitted.
    #[serde(default)]
    pub assignee: Option<Value>,
}

/// Script that a worker runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobAction {
    /// Type of script, which selects the worker: `python`, `sal`.
    #[serde(rename = "type")]
    pub kind: Name,
    /// Source of the script, passed verbatim: not a template.
    pub script: String,
    /// Templates of its environment, which override those of the saga.
    #[serde(default)]
    pub env: Map<String, Value>,
    /// Template of its arguments.
    #[serde(default)]
    pub args: Value,
    /// Steps that must be finished first.
    #[serde(default)]
    pub prerequisites: Vec<Name>,
    /// Jobs that must be finished first and whose results it receives.
    #[serde(default)]
    pub dependencies: Vec<Name>,
}

/// Case of a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchCase {
    /// Condition; the case is selected if it holds and no earlier case matched. `None`: the default case.
    #[serde(default)]
    pub when: Option<String>,
    /// Steps that may start then; the steps of other cases are bypassed.
    pub then: Vec<Name>,
}
