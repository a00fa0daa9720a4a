//! Failure of a step: handled by `on_timeout` or `on_failure`, tolerated by a join, stuck past the
//! pivot; otherwise the saga compensates.

use orlog_model::{VariableChange, work_deadline};
use serde_json::{Map, Value};

use super::compensate::{abandon, discard_branches, start_compensation};
use super::compiled::{CompiledAfterFailure, CompiledFailureHandler, CompiledStep};
use super::execution::Execution;
use super::join;
use super::request::abandon_outstanding;
use super::state::{FailureReaction, Flags, StepEntry, StepIndex};
use super::step_input::Certainty;
use super::step_state::StepState;
use crate::contract::FailureCause;
use crate::steps::kind::{EXPRESSION_ERROR, StartError};

pub(super) fn fail_to_start(run: &mut Execution<'_>, at: StepIndex, error: StartError) {
    run.add_step_note(at, &error.code);
    let StartError { code, message } = error;
    let step = run.step(at).id.to_string();
    fail_step(
        run,
        at,
        StepState::Failed,
        FailureCause {
            code,
            message,
            step,
        },
    );
}

/// Fails a step permanently. Its handler, or a join that tolerates the failure, continues; past the
/// pivot the instance is stuck; otherwise compensation starts.
pub(super) fn fail_step(
    run: &mut Execution<'_>,
    at: StepIndex,
    step_state: StepState,
    cause: FailureCause,
) {
    let saga = run.saga;
    let is_timeout = reaches_time_limit(run, at);
    let handler = saga.steps[at.step].failure_handler(is_timeout);
    let cause = match handler {
        Some(handler) if handler.then != CompiledAfterFailure::Fail => {
            match handled_values(run, at.step, handler, &cause) {
                Ok(values) => {
                    let reaction = reaction_of(&saga.steps[at.step], is_timeout);
                    end_failed(run, at, step_state);
                    undo_elements(run, at.step);
                    let own_vars = own_vars(run, at.step);
                    run.state.add_failure(at.step, &cause, reaction, own_vars);
                    return continue_after(run, at.step, handler, values);
                }
                // Without its values, the steps that follow could not decide.
                Err(error) => FailureCause {
                    code: EXPRESSION_ERROR.to_owned(),
                    message: format!("{error}, after {}: {}", cause.code, cause.message),
                    ..cause
                },
            }
        }
        _ => cause,
    };

    // A join that needs another branch lets the saga continue without this step, unless a handler
    // says that the saga fails.
    let losing = match handler {
        Some(_) => None,
        None => join::tolerated_failures(saga, &run.state, at.step),
    };
    let blocked = losing.is_none() && run.state.flags.has(Flags::PIVOTED);

    if blocked {
        block(run, at, step_state);
    } else {
        end_failed(run, at, step_state);
    }

    match losing {
        Some((join, losing)) => {
            let text = format!("{}; tolerated by {}", cause.message, saga.steps[join].id);
            run.add_step_note(StepIndex::step(at.step), &text);
            run.state
                .add_failure(at.step, &cause, FailureReaction::Join, Map::new());
            discard_branches(run, join, &losing);
        }
        None if blocked => run.failure = Some(cause),
        // The jobs of a flow that do not follow this one continue (ADR 0080).
        None if saga.isolates_failures => {
            run.state.cause.get_or_insert_with(|| cause.clone());
            run.failure = Some(cause);
        }
        None => start_compensation(run, cause),
    }
}

/// Returns whether a step fails because its time limit is reached: its timer fires, or its work has
/// ended for the timer and returns the last error.
fn reaches_time_limit(run: &Execution<'_>, at: StepIndex) -> bool {
    let entry = run.state.entry(at);
    let Some(deadline) = entry.deadline.filter(|_| entry.state == StepState::Running) else {
        return false;
    };
    // Only these kinds have work that ends for the timer.
    if !run.step(at).action.kind.traits().is_retried() {
        return run.context.now >= deadline;
    }

    let tag = run.tag_of(at, false);
    let mut pending = run.context.pending_work.iter();
    let end = pending
        .find(|work| work.tag == tag)
        .map_or(deadline, |work| {
            work_deadline(
                work.requested_at,
                deadline.duration_since(work.requested_at),
            )
        });
    run.context.now >= end
}

/// Returns which handler of the step handles a failure.
fn reaction_of(step: &CompiledStep, is_timeout: bool) -> FailureReaction {
    if is_timeout && step.on_timeout.is_some() {
        FailureReaction::OnTimeout
    } else {
        FailureReaction::OnFailure
    }
}

/// Returns the values of the variables that a handler saves.
fn handled_values(
    run: &Execution<'_>,
    step: usize,
    handler: &CompiledFailureHandler,
    cause: &FailureCause,
) -> Result<Vec<(String, Value)>, String> {
    let mut values = Vec::with_capacity(handler.save.len());
    for (name, template) in &handler.save {
        let bindings = run.bindings(StepIndex::step(step)).cause(Some(cause));
        let value = template
            .evaluate(&bindings)
            .map_err(|error| format!("cannot set vars.{name}: {error}"))?;
        values.push((name.clone(), value));
    }
    Ok(values)
}

/// Returns the variables that a step saves, before its handler sets them.
fn own_vars(run: &Execution<'_>, step: usize) -> Map<String, Value> {
    let mut own = Map::new();
    for (name, _) in &run.saga.steps[step].save {
        let value = run.state.vars.get(name).cloned().unwrap_or_default();
        own.insert(name.clone(), value);
    }
    own
}

/// Ends a step, or an element and thus its step, in this state.
fn end_failed(run: &mut Execution<'_>, at: StepIndex, step_state: StepState) {
    // A step that timed out can still have an open task or a running child saga.
    let ended = if step_state == StepState::Abandoned {
        abandon_outstanding(run, at)
    } else {
        step_state
    };
    run.finish_wait(at, ended);

    // A failed element fails its step.
    if at.element.is_some() {
        abandon_elements(run, at.step, step_state);
    }
}

/// Ends the wait of a step that an operator retries or skips. The other elements of its step
/// continue: a retry needs only this one.
fn block(run: &mut Execution<'_>, at: StepIndex, step_state: StepState) {
    if step_state == StepState::Abandoned {
        abandon_outstanding(run, at);
    }
    run.finish_wait(at, StepState::Blocked);
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

/// Sets the variables of a handler. The steps after it follow from the recorded failure.
fn continue_after(
    run: &mut Execution<'_>,
    step: usize,
    handler: &CompiledFailureHandler,
    values: Vec<(String, Value)>,
) {
    for (name, after) in values {
        let before = run.state.vars.insert(name.clone(), after.clone());
        run.variables.push(VariableChange {
            name: name.into(),
            before: before.unwrap_or_default(),
            after,
        });
    }

    let message = run
        .state
        .failure(step)
        .map(|failure| failure.message.clone());
    let message = message.unwrap_or_default();
    let note = match &handler.then {
        CompiledAfterFailure::Steps(steps) => {
            let ids: Vec<_> = steps
                .iter()
                .map(|step| run.saga.steps[*step].id.as_str())
                .collect();
            format!("{message}; continues with {}", ids.join(" and "))
        }
        CompiledAfterFailure::Continue | CompiledAfterFailure::Fail => {
            format!("{message}; continues")
        }
    };
    run.add_step_note(StepIndex::step(step), &note);
}

/// Begins the next round of an action that can be requested again.
pub(super) fn end_round(
    run: &mut Execution<'_>,
    at: StepIndex,
    is_compensation: bool,
    certainty: Certainty,
) {
    // An action that may have been executed stays in its round: the next request repeats the
    // idempotency key, so that it is executed once.
    if certainty == Certainty::Known {
        run.state.begin_round(run.tag_of(at, is_compensation));
    }
}

/// Fails the step because an element failed permanently; abandons the elements in progress.
pub(super) fn abandon_elements(run: &mut Execution<'_>, index: usize, step_state: StepState) {
    for at in run.units_of(index) {
        abandon(run, at);
    }
    run.state.steps[index] = StepEntry::of(step_state);
}
