//! Failure of a step: tolerated by a join, stuck past the pivot, otherwise the saga compensates.

use super::compensate::{abandon, discard_branches, start_compensation};
use super::execution::Execution;
use super::join;
use super::request::abandon_outstanding;
use super::state::{Flags, StepEntry, StepIndex};
use super::step_input::Certainty;
use super::step_state::StepState;
use crate::contract::FailureCause;
use crate::steps::kind::StartError;

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

/// Fails a step permanently. A join that tolerates it continues; past the pivot the instance is
/// stuck; otherwise compensation starts.
pub(super) fn fail_step(
    run: &mut Execution<'_>,
    at: StepIndex,
    step_state: StepState,
    cause: FailureCause,
) {
    // A join that needs another branch lets the saga continue without this step.
    let losing = join::tolerated_failures(run.saga, &run.state, at.step);
    let blocked = losing.is_none() && run.state.flags.has(Flags::PIVOTED);

    // A step that timed out can still have an open task or a running child saga.
    let ended = if step_state == StepState::Abandoned {
        abandon_outstanding(run, at)
    } else {
        step_state
    };
    // A blocked step is not failed: an operator retries or skips it.
    run.finish_wait(at, if blocked { StepState::Blocked } else { ended });

    // A failed element fails its step. A blocked one does not: the others continue, and a retry
    // needs only it.
    if !blocked && at.element.is_some() {
        abandon_elements(run, at.step, step_state);
    }

    match losing {
        Some((join, losing)) => discard_branches(run, join, &losing),
        None if blocked => run.failure = Some(cause),
        // The jobs of a flow that do not follow this one continue (ADR 0080).
        None if run.saga.isolates_failures => {
            run.state.cause.get_or_insert_with(|| cause.clone());
            run.failure = Some(cause);
        }
        None => start_compensation(run, cause),
    }
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
