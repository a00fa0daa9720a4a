//! Compiled saga as the machine executes it, with indices instead of names.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, InDoubtPolicy, Name, Timestamp};

use crate::contract::ProgramError;
use crate::definition::{AfterHandler, Join};
use crate::expression::{Bindings, Expression};
use crate::steps::kind::{ActionOptions, Completion};
use crate::steps::{CompiledActionKind, CompiledForeach, CompiledTimeLimit};
use crate::template::Template;
use crate::versions::CompiledVersions;

/// Timer name of the whole saga; no step may have this name.
pub(crate) const SAGA_TIMER: &str = "saga";
pub(super) const COMPENSATE: &str = "compensate:";
pub(super) const RETRY: &str = "retry:";
pub(super) const ESCALATE: &str = "escalate:";
pub(super) const ON: &str = "on:";
pub(super) const REMIND: &str = "remind:";

/// Returns the tag of a step's compensation; the tag of the step's own work is its id.
pub(crate) fn compensation_tag(step: &Name) -> Name {
    Name::new(format!("{COMPENSATE}{step}")).expect("step ids reserve space for the prefix")
}

/// Returns the tag of a handler action.
pub(crate) fn handler_tag(index: usize) -> Name {
    Name::new(format!("{ON}{index}")).expect("a prefix and a number are a valid name")
}

/// Returns the timer name of the reminders of a step; the tags of its reminders begin with it.
pub(crate) fn reminder_timer(tag: &Name) -> Name {
    prefixed_name(REMIND, tag)
}

/// Returns the tag of a reminder. Each has its own, so that the result of each is recorded.
pub(super) fn reminder_tag(tag: &Name, number: u32) -> Name {
    Name::new(format!("{REMIND}{tag}:{number}"))
        .expect("step ids reserve space for a prefix and a number")
}

/// Returns the tag of a child saga that a handler starts, one for each event.
pub(super) fn child_tag(index: usize, round: u64) -> Name {
    Name::new(format!("{ON}{index}[{round:016x}]"))
        .expect("a prefix and two numbers are a valid name")
}

pub(super) fn prefixed_name(prefix: &str, tag: &Name) -> Name {
    Name::new(format!("{prefix}{tag}")).expect("step ids reserve space for prefixes")
}

/// Compiled saga.
#[derive(Debug)]
pub(crate) struct CompiledSaga {
    pub(crate) start: Vec<EventType>,
    /// Event bindings by event type, in evaluation order.
    pub(crate) entries: BTreeMap<EventType, Vec<EventBinding>>,
    pub(crate) versions: BTreeMap<EventType, CompiledVersions>,
    pub(crate) handlers: Vec<CompiledHandler>,
    pub(crate) vars: Vec<(String, Template)>,
    pub(crate) env: Vec<(String, Template)>,
    pub(crate) reference: Option<Template>,
    pub(crate) timeout: Option<CompiledTimeLimit>,
    /// Time for which events are kept until their step starts.
    pub(crate) early_event_ttl: Duration,
    /// Whether an instance whose steps have finished stays active until an event handler ends it.
    pub(crate) keep_active: bool,
    /// Whether the steps that do not follow a failed step continue, as in a flow. No step has a
    /// compensation.
    pub(crate) isolates_failures: bool,
    /// Whether an expression reads `envelope`, so that it is kept with early events.
    pub(crate) reads_envelope: bool,
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
    /// Switches, and steps with failure handlers, that select the step.
    pub(crate) selected_by: Vec<usize>,
    /// For a join that does not require all predecessors: the steps whose paths all lead to it, in
    /// topological order.
    pub(crate) region: Vec<usize>,
    /// Joins whose region contains the step, in topological order.
    pub(crate) joins: Vec<usize>,
    /// Loop that contains the step: the index of the step that ends it.
    pub(crate) in_loop: Option<usize>,
    pub(crate) when: Option<Expression>,
    pub(crate) foreach: Option<CompiledForeach>,
    pub(crate) action: CompiledAction,
    pub(crate) save: Vec<(String, Template)>,
    /// What follows if the time limit of the step is reached.
    pub(crate) on_timeout: Option<CompiledFailureHandler>,
    /// What follows another failure of the step, and a timeout without `on_timeout`.
    pub(crate) on_failure: Option<CompiledFailureHandler>,
    pub(crate) remind: Option<Box<CompiledReminder>>,
    pub(crate) compensation: Option<CompiledAction>,
    pub(crate) pivot: bool,
    /// Whether a named result is published as an event.
    pub(crate) publishes_result: bool,
}

/// Compiled reminders of a step that waits.
#[derive(Debug)]
pub(crate) struct CompiledReminder {
    pub(crate) every: Duration,
    pub(crate) max: u32,
    pub(crate) action: CompiledAction,
}

/// Compiled failure handler of a step.
#[derive(Debug)]
pub(crate) struct CompiledFailureHandler {
    pub(crate) save: Vec<(String, Template)>,
    pub(crate) then: CompiledAfterFailure,
    /// By step, whether a path leads to it from the steps that the handler selects. Empty if it
    /// selects none.
    pub(crate) reached: Vec<bool>,
}

/// What follows a failure of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CompiledAfterFailure {
    Fail,
    Continue,
    /// Indices of the steps that follow instead of the others.
    Steps(Vec<usize>),
}

/// Compiled action and its result options. The tag is also the name of its timer.
#[derive(Debug)]
pub(crate) struct CompiledAction {
    pub(crate) tag: Name,
    pub(crate) kind: CompiledActionKind,
    pub(crate) options: ActionOptions,
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

impl CompiledStep {
    /// Returns true if the step is selected only after a failure of this one.
    pub(super) fn follows_failure(&self, step: usize) -> bool {
        let handlers = self.on_timeout.iter().chain(&self.on_failure);
        handlers.into_iter().any(|handler| handler.selects(step))
    }

    /// Returns the variables that the step and its failure handlers save.
    pub(super) fn all_saved(&self) -> impl Iterator<Item = &(String, Template)> {
        let handlers = self.on_timeout.iter().chain(&self.on_failure);
        self.save
            .iter()
            .chain(handlers.flat_map(|handler| &handler.save))
    }
}

impl CompiledFailureHandler {
    /// Returns the steps that the handler selects.
    pub(crate) fn selected(&self) -> &[usize] {
        match &self.then {
            CompiledAfterFailure::Steps(steps) => steps,
            CompiledAfterFailure::Fail | CompiledAfterFailure::Continue => &[],
        }
    }

    pub(super) fn selects_steps(&self) -> bool {
        !self.selected().is_empty()
    }

    /// Returns whether the handler selects the step, or steps that lead to it.
    pub(super) fn reaches(&self, step: usize) -> bool {
        self.reached.get(step).is_some_and(|reached| *reached)
    }

    pub(super) fn selects(&self, step: usize) -> bool {
        self.selected().contains(&step)
    }

    /// Returns whether a step that comes after the failed one follows it.
    pub(super) fn leads_to(&self, failed: &CompiledStep, step: usize) -> bool {
        match &self.then {
            CompiledAfterFailure::Steps(steps) => steps.contains(&step),
            CompiledAfterFailure::Continue => !failed.follows_failure(step),
            CompiledAfterFailure::Fail => false,
        }
    }
}

impl CompiledAction {
    /// Returns true if an event completes the action.
    pub(super) fn awaits_event(&self) -> bool {
        match self.kind.traits().completion {
            Completion::Acceptance => !self.options.ok.is_empty(),
            Completion::Event => true,
            Completion::Outcome | Completion::User | Completion::Timer | Completion::None => false,
        }
    }

    /// Returns the maximum number of attempts of the machine.
    pub(super) fn max_attempts(&self) -> u32 {
        match (self.kind.traits().completion, &self.options.retry) {
            // A `retry` without `max_attempts` repeats the command until it succeeds or the saga
            // ends.
            (Completion::Acceptance, Some(retry)) => retry.max_attempts.unwrap_or(u32::MAX),
            // Providers retry by themselves.
            (_, _) => 1,
        }
    }

    /// Returns true if an operator decides about an unknown outcome.
    pub(super) fn asks_operator(&self) -> bool {
        self.options.in_doubt == Some(InDoubtPolicy::Ask)
    }

    /// Returns true if the action has a named result that no other component publishes.
    pub(super) fn reports_named_result(&self) -> bool {
        self.kind.traits().reports_named_result()
    }
}

impl CompiledSaga {
    /// Returns the names under `vars` that results set.
    pub(super) fn saved(&self) -> impl Iterator<Item = &String> {
        let steps = self.steps.iter().flat_map(CompiledStep::all_saved);
        steps
            .chain(self.handlers.iter().flat_map(|handler| &handler.save))
            .map(|(name, _)| name)
    }

    /// Returns whether events of the type start instances and have no meaning for one that exists.
    pub(crate) fn only_starts(&self, kind: &EventType) -> bool {
        self.start.contains(kind)
            && !self.entries.contains_key(kind)
            && !self
                .handlers
                .iter()
                .any(|handler| handler.event.contains(kind))
    }

    /// Returns whether a step collects events of the type.
    pub(super) fn collects(&self, kind: &EventType) -> bool {
        let entries = self.entries.get(kind).map_or(&[][..], Vec::as_slice);
        entries
            .iter()
            .any(|entry| self.steps[entry.step].action.kind.collection().is_some())
    }

    /// Returns the end of a saga timeout that begins now.
    pub(super) fn deadline(
        &self,
        now: Timestamp,
        bindings: &Bindings<'_>,
    ) -> Result<Option<Timestamp>, ProgramError> {
        let timeout = self
            .timeout
            .as_ref()
            .map(|timeout| timeout.evaluate(now, bindings))
            .transpose();

        let timeout = timeout.map_err(|error| {
            ProgramError::SchemaMismatch(format!("cannot compute the saga timeout: {error}"))
        })?;
        Ok(timeout.map(|timeout| now.saturating_add(timeout)))
    }

    pub(super) fn find(&self, id: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.id.as_str() == id)
    }
}
