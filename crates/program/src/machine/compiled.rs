//! Compiled saga as the machine executes it, with indices instead of names.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{
    EffectName, EventType, ExcludedUser, InDoubtPolicy, Name, RetryPolicy, SagaName, Timestamp,
};

use crate::definition::{AfterHandler, Join, UnsupportedVersionPolicy};
use crate::expression::{Bindings, EvalError, Expression, kind_of};
use crate::template::Template;
use crate::yaml::duration;

/// Timer name of the whole saga; no step may have this name.
pub(crate) const SAGA_TIMER: &str = "saga";
pub(super) const COMPENSATE: &str = "compensate:";
pub(super) const RETRY: &str = "retry:";
pub(super) const ESCALATE: &str = "escalate:";
pub(super) const ON: &str = "on:";

/// Returns the tag of a step's compensation; the tag of the step's own work is its id.
pub(crate) fn compensation_tag(step: &Name) -> Name {
    Name::new(format!("{COMPENSATE}{step}")).expect("step ids reserve space for the prefix")
}

/// Returns the tag of a handler action.
pub(crate) fn handler_tag(index: usize) -> Name {
    Name::new(format!("{ON}{index}")).expect("a prefix and a number are a valid name")
}

/// Compiled saga.
#[derive(Debug)]
pub(crate) struct CompiledSaga {
    pub(crate) start: Vec<EventType>,
    /// Event bindings by event type, in evaluation order.
    pub(crate) entries: BTreeMap<EventType, Vec<EventBinding>>,
    pub(crate) versions: BTreeMap<EventType, EventVersions>,
    pub(crate) handlers: Vec<CompiledHandler>,
    pub(crate) vars: Vec<(String, Template)>,
    pub(crate) env: Vec<(String, Template)>,
    pub(crate) reference: Option<Template>,
    pub(crate) timeout: Option<Duration>,
    /// Time for which events are kept until their step starts.
    pub(crate) early_event_ttl: Duration,
    pub(crate) steps: Vec<CompiledStep>,
    /// Step indices in topological order.
    pub(crate) sorted: Vec<usize>,
    pub(crate) completed: Option<CompiledFact>,
    pub(crate) failed: Option<CompiledFact>,
    pub(crate) migrations: Vec<CompiledMigration>,
}

/// Binding of an event to a step or its compensation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventBinding {
    pub(crate) step: usize,
    pub(crate) is_compensation: bool,
    pub(crate) is_success: bool,
    /// Index in the `ok` or `fail` of the action.
    pub(crate) index: usize,
}

/// Accepted payload versions of an event.
#[derive(Debug)]
pub(crate) struct EventVersions {
    pub(crate) accepts: Vec<u32>,
    pub(crate) upcast: BTreeMap<u32, Template>,
    pub(crate) on_unsupported: UnsupportedVersionPolicy,
}

/// Compiled event handler.
#[derive(Debug)]
pub(crate) struct CompiledHandler {
    pub(crate) event: Vec<EventType>,
    pub(crate) when: Option<Expression>,
    pub(crate) save: Vec<(String, Template)>,
    pub(crate) tasks: Vec<CompiledAction>,
    pub(crate) then: AfterHandler,
}

/// Compiled step.
#[derive(Debug)]
pub(crate) struct CompiledStep {
    pub(crate) id: Name,
    /// Indices of the steps that must be finished first.
    pub(crate) before: Vec<usize>,
    pub(crate) join: Join,
    /// Switches that select the step.
    pub(crate) selected_by: Vec<usize>,
    /// For a join that does not require all predecessors: the steps whose paths all lead to it, in
    /// topological order.
    pub(crate) region: Vec<usize>,
    /// Joins whose region contains the step, in topological order.
    pub(crate) joins: Vec<usize>,
    pub(crate) when: Option<Expression>,
    pub(crate) foreach: Option<CompiledForeach>,
    pub(crate) action: CompiledAction,
    pub(crate) save: Vec<(String, Template)>,
    pub(crate) compensation: Option<CompiledAction>,
    pub(crate) pivot: bool,
}

/// Compiled `foreach`.
#[derive(Debug)]
pub(crate) struct CompiledForeach {
    pub(crate) list: Expression,
    pub(crate) name: String,
    /// Maximum number of elements in progress.
    pub(crate) max_concurrency: usize,
}

/// Compiled action and its result matchers. The tag is also the name of its timer.
#[derive(Debug)]
pub(crate) struct CompiledAction {
    pub(crate) tag: Name,
    pub(crate) kind: CompiledActionKind,
    pub(crate) timeout: Option<Duration>,
    pub(crate) ok: Vec<CompiledMatcher>,
    pub(crate) fail: Vec<CompiledMatcher>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) in_doubt: Option<InDoubtPolicy>,
}

/// Named result and its condition.
#[derive(Debug)]
pub(crate) struct CompiledMatcher {
    pub(crate) event: EventType,
    pub(crate) when: Option<Expression>,
}

/// Kind of action and its target.
#[derive(Debug)]
pub(crate) enum CompiledActionKind {
    Command { aggregate_type: Name, name: Name, id: Option<Template>, data: Template },
    Effect { name: EffectName, data: Template },
    Wait(CompiledTime),
    Event,
    Human(Box<CompiledHumanTask>),
    Saga { saga: SagaName, correlation: Option<Template>, event: Option<EventType>, data: Template },
    Job(Box<CompiledJob>),
    Switch(Vec<CompiledCase>),
}

/// Compiled human task.
#[derive(Debug)]
pub(crate) struct CompiledHumanTask {
    pub(crate) title: Template,
    pub(crate) roles: Vec<Template>,
    pub(crate) not_by: Vec<ExcludedUser>,
    pub(crate) assignee: Option<Template>,
    pub(crate) due: Option<CompiledTime>,
    pub(crate) data: Template,
    pub(crate) escalate: Option<CompiledEscalation>,
}

/// Compiled escalation of a human task.
#[derive(Debug)]
pub(crate) struct CompiledEscalation {
    pub(crate) after: Option<Duration>,
    pub(crate) roles: Vec<Template>,
    pub(crate) assignee: Option<Template>,
}

/// Compiled job: a script that a worker runs.
#[derive(Debug)]
pub(crate) struct CompiledJob {
    pub(crate) effect: EffectName,
    pub(crate) kind: Name,
    pub(crate) script: String,
    pub(crate) env: Vec<(String, Template)>,
    pub(crate) args: Template,
    /// Ids of the jobs whose results it receives.
    pub(crate) dependencies: Vec<Name>,
}

/// Case of a switch.
#[derive(Debug)]
pub(crate) struct CompiledCase {
    pub(crate) when: Option<Expression>,
    pub(crate) then: Vec<usize>,
}

/// Point in time.
#[derive(Debug)]
pub(crate) enum CompiledTime {
    After(Duration),
    At(Timestamp),
    For(Template),
    Until(Template),
}

/// Fact about the whole saga.
#[derive(Debug)]
pub(crate) struct CompiledFact {
    pub(crate) kind: EventType,
    pub(crate) data: Template,
}

/// Migration of instances of older versions to this one.
#[derive(Debug)]
pub(crate) struct CompiledMigration {
    pub(crate) from: Vec<u32>,
    pub(crate) steps: BTreeMap<Name, Option<Name>>,
    pub(crate) vars: Vec<(String, Template)>,
}

impl CompiledAction {
    /// Returns true if an event completes the action.
    pub(super) fn awaits_event(&self) -> bool {
        match self.kind {
            CompiledActionKind::Command { .. } => !self.ok.is_empty(),
            CompiledActionKind::Event => true,
            CompiledActionKind::Effect { .. }
            | CompiledActionKind::Wait(_)
            | CompiledActionKind::Human(_)
            | CompiledActionKind::Saga { .. }
            | CompiledActionKind::Job(_)
            | CompiledActionKind::Switch(_) => false,
        }
    }

    /// Returns the maximum number of attempts of the machine. Providers retry by themselves.
    pub(super) fn max_attempts(&self) -> u32 {
        match (&self.kind, self.retry) {
            (CompiledActionKind::Command { .. }, Some(retry)) => retry.max_attempts.unwrap_or(u32::MAX),
            (_, _) => 1,
        }
    }

    /// Returns true if an operator decides about an unknown outcome.
    pub(super) fn asks_operator(&self) -> bool {
        self.in_doubt == Some(InDoubtPolicy::Ask)
    }

    /// Returns true if the action has a named result that no other component publishes.
    pub(super) fn reports_named_result(&self) -> bool {
        matches!(
            self.kind,
            CompiledActionKind::Effect { .. } | CompiledActionKind::Job(_) | CompiledActionKind::Human(_)
        )
    }
}

impl CompiledTime {
    /// Returns the time.
    pub(super) fn due(&self, now: Timestamp, bindings: &Bindings<'_>) -> Result<Timestamp, EvalError> {
        match self {
            CompiledTime::After(duration) => Ok(now.saturating_add(*duration)),
            CompiledTime::At(at) => Ok(*at),
            CompiledTime::For(template) => {
                let value = template.evaluate(bindings)?;
                let text = value
                    .as_str()
                    .ok_or_else(|| invalid_time("a duration must be a text such as 30m", &value))?;
                duration::parse(text).map(|duration| now.saturating_add(duration)).map_err(time_error)
            }
            CompiledTime::Until(template) => parse_time(&template.evaluate(bindings)?).map_err(time_error),
        }
    }
}

/// Parses a time as RFC 3339 text or whole milliseconds since 1970.
pub(crate) fn parse_time(value: &serde_json::Value) -> Result<Timestamp, String> {
    match (value.as_str(), value.as_i64()) {
        (Some(text), _) => Timestamp::parse(text).map_err(|error| error.to_string()),
        (None, Some(millis)) => Ok(Timestamp::from_millis(millis)),
        (None, None) => {
            Err(format!("a time must be RFC 3339 text or whole milliseconds, but is {}", kind_of(value)))
        }
    }
}

fn invalid_time(rule: &str, value: &serde_json::Value) -> EvalError {
    time_error(format!("{rule}, but is {}", kind_of(value)))
}

fn time_error(reason: String) -> EvalError {
    EvalError { expression: "wait".to_owned(), reason }
}

impl CompiledSaga {
    /// Returns the names under `vars` that results set.
    pub(super) fn saved(&self) -> impl Iterator<Item = &String> {
        let steps = self.steps.iter().flat_map(|step| &step.save);
        steps.chain(self.handlers.iter().flat_map(|handler| &handler.save)).map(|(name, _)| name)
    }

    pub(super) fn find(&self, id: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.id.as_str() == id)
    }
}
