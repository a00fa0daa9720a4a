//! Failure handlers: `on_timeout` and `on_failure` of a step. A handler sets variables, and the
//! recorded failure decides which steps follow (`join`).

use orlog_model::{VariableChange, work_deadline};
use serde_json::{Map, Value};

use super::compiled::{CompiledAfterFailure, CompiledFailureHandler};
use super::execution::Execution;
use super::state::{FailureReaction, StepIndex};
use super::step_state::StepState;
use crate::contract::FailureCause;

/// Handler that applies to a failure.
#[derive(Clone, Copy)]
pub(super) struct SelectedHandler<'s> {
    reaction: FailureReaction,
    handler: &'s CompiledFailureHandler,
}

/// Returns the handler that applies to the failure of a step or an element.
pub(super) fn select<'s>(run: &Execution<'s>, at: StepIndex) -> Option<SelectedHandler<'s>> {
    let step = &run.saga.steps[at.step];
    if let Some(handler) = &step.on_timeout
        && reaches_time_limit(run, at)
    {
        return Some(SelectedHandler {
            reaction: FailureReaction::OnTimeout,
            handler,
        });
    }

    let handler = step.on_failure.as_ref()?;
    Some(SelectedHandler {
        reaction: FailureReaction::OnFailure,
        handler,
    })
}

/// Returns whether a step fails because its time limit is reached: its timer fires, or its work has
/// ended for the timer and returns the last error. Which of the two comes first is chance, and must
/// not select the steps that follow.
fn reaches_time_limit(run: &Execution<'_>, at: StepIndex) -> bool {
    let entry = run.state.entry(at);
    let Some(deadline) = entry.deadline.filter(|_| entry.state == StepState::Running) else {
        return false;
    };

    // The result of other actions does not end for the timer. An event that confirms a command is
    // no result of its work.
    let action = run.action_of(at, false);
    if !action.kind.traits().is_retried() || action.awaits_event() {
        return run.context.now >= deadline;
    }

    let tag = run.tag_of(at, false);
    let mut pending = run.context.pending_work.iter();
    let Some(work) = pending.find(|work| work.tag == tag) else {
        return run.context.now >= deadline;
    };
    let timeout = deadline.duration_since(work.requested_at);
    run.context.now >= work_deadline(work.requested_at, timeout)
}

impl SelectedHandler<'_> {
    /// Returns whether the saga runs on.
    pub(super) fn prevents_failure(&self) -> bool {
        self.handler.then != CompiledAfterFailure::Fail
    }

    /// Returns the values of the variables that the handler saves.
    pub(super) fn values(
        &self,
        run: &Execution<'_>,
        step: usize,
        cause: &FailureCause,
    ) -> Result<Map<String, Value>, String> {
        let bindings = run.bindings(StepIndex::step(step)).cause(Some(cause));
        let mut values = Map::new();
        for (name, template) in &self.handler.save {
            let value = template
                .evaluate(&bindings)
                .map_err(|error| format!("cannot set vars.{name}: {error}"))?;
            values.insert(name.clone(), value);
        }
        Ok(values)
    }

    /// Records the failure of an ended step, and sets the variables.
    pub(super) fn apply(
        self,
        run: &mut Execution<'_>,
        step: usize,
        cause: &FailureCause,
        values: Map<String, Value>,
    ) {
        undo_elements(run, step);
        // Before the handler sets them: its `undo` needs what the step itself has saved.
        let own_vars = own_vars(run, step);
        run.state.add_failure(step, cause, self.reaction, own_vars);

        drop_collected_lists(run, step);
        for (name, after) in values {
            set_variable(run, name, after);
        }

        let note = self.note(run, cause);
        run.add_step_note(StepIndex::step(step), &note);
    }

    /// Returns the name of the handler in the definition.
    pub(super) fn field(&self) -> &'static str {
        match self.reaction {
            FailureReaction::OnTimeout => "on_timeout",
            FailureReaction::OnFailure | FailureReaction::Join => "on_failure",
        }
    }

    fn note(&self, run: &Execution<'_>, cause: &FailureCause) -> String {
        let mut note = format!("{}; {} continues", cause.message, self.field());

        if let CompiledAfterFailure::Steps(steps) = &self.handler.then {
            let ids = steps.iter().map(|step| run.saga.steps[*step].id.as_str());
            let ids: Vec<_> = ids.collect();
            note.push_str(" with ");
            note.push_str(&ids.join(" and "));
        }
        note
    }
}

/// Schedules the compensation of the completed elements of a failed step.
fn undo_elements(run: &mut Execution<'_>, step: usize) {
    if run.saga.steps[step].foreach.is_none() {
        return;
    }
    for at in run.state.done.clone() {
        if at.step == step && run.state.entry(at).state == StepState::Completed {
            run.state.entry_mut(at).state = StepState::CompensationPending;
        }
    }
}

/// Sets the variables of a failed step with elements to null: the steps that follow must not take
/// the values of some elements, which are compensated, for the list of all.
pub(super) fn drop_collected_lists(run: &mut Execution<'_>, step: usize) {
    let saga = run.saga;
    let step = &saga.steps[step];
    if step.foreach.is_none() {
        return;
    }
    for (name, _) in &step.save {
        if run
            .state
            .vars
            .get(name)
            .is_some_and(|value| !value.is_null())
        {
            set_variable(run, name.clone(), Value::Null);
        }
    }
}

fn set_variable(run: &mut Execution<'_>, name: String, after: Value) {
    let before = run.state.vars.insert(name.clone(), after.clone());
    run.variables.push(VariableChange {
        name: name.into(),
        before: before.unwrap_or_default(),
        after,
    });
}

/// Returns the variables that a step saves.
pub(super) fn own_vars(run: &Execution<'_>, step: usize) -> Map<String, Value> {
    let mut own = Map::new();
    for (name, _) in &run.saga.steps[step].save {
        let value = run.state.vars.get(name).cloned().unwrap_or_default();
        own.insert(name.clone(), value);
    }
    own
}
