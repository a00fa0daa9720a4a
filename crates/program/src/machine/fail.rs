//! Failure of a step: handled by `on_timeout` or `on_failure`, tolerated by a join, stuck past the
//! pivot; otherwise the saga compensates.

use serde_json::Map;

use super::compensate::{abandon, discard_branches, start_compensation};
use super::execution::Execution;
use super::failure_handler::{self, SelectedHandler, drop_collected_lists, own_vars};
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
    let mut cause = cause;
    let handler = failure_handler::select(run, at);
    if let Some(handler) = handler.filter(SelectedHandler::prevents_failure) {
        match handler.values(run, at.step, &cause) {
            Ok(values) => {
                end_failed(run, at, step_state);
                return handler.apply(run, at.step, &cause, values);
            }
            // Without its values, the steps that follow could not decide.
            Err(error) => {
                let note = format!("{} failed: {error}", handler.field());
                run.add_step_note(StepIndex::step(at.step), &note);
                cause.message = format!("{error}, after {}: {}", cause.code, cause.message);
                EXPRESSION_ERROR.clone_into(&mut cause.code);
            }
        }
    }

    // A join that needs another branch lets the saga continue without this step, unless a handler
    // says that the saga fails.
    let losing = match handler {
        Some(_) => None,
        None => join::tolerated_failures(run.saga, &run.state, at.step),
    };
    let blocked = losing.is_none() && run.state.flags.has(Flags::PIVOTED);

    if blocked {
        block(run, at, step_state);
    } else {
        end_failed(run, at, step_state);
    }

    match losing {
        Some((join, losing)) => {
            let join_id = &run.saga.steps[join].id;
            let text = format!("{}; tolerated by {join_id}", cause.message);
            run.add_step_note(StepIndex::step(at.step), &text);
            // The undo of its completed elements still reads the list.
            let own_vars = match run.saga.steps[at.step].foreach {
                Some(_) => own_vars(run, at.step),
                None => Map::new(),
            };
            run.state
                .add_failure(at.step, &cause, FailureReaction::Join, own_vars);
            drop_collected_lists(run, at.step);
            discard_branches(run, join, &losing);
        }
        None if blocked => run.failure = Some(cause),
        // The jobs of a flow that do not follow this one continue (ADR 0080).
        None if run.saga.isolates_failures => {
            run.state.cause.get_or_insert_with(|| cause.clone());
            run.failure = Some(cause);
        }
        None => start_compensation(run, cause),
    }
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
