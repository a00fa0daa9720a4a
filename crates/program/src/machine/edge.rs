//! Edges between steps: which of them a finished step has not taken.

use super::compiled::{CompiledFailureHandler, CompiledSaga};
use super::state::{FailureReaction, State};
use super::step_state::StepState;

/// Returns the handler of the failure of a step, if it has one.
pub(super) fn handler_of<'s>(
    saga: &'s CompiledSaga,
    state: &State,
    step: usize,
) -> Option<&'s CompiledFailureHandler> {
    let step_of_failure = &saga.steps[step];
    match state.failure(step)?.handled_by {
        FailureReaction::OnTimeout => step_of_failure.on_timeout.as_ref(),
        FailureReaction::OnFailure => step_of_failure.on_failure.as_ref(),
        FailureReaction::Join => None,
    }
}

/// Returns true if every step that selects this one, a switch or one with failure handlers, has
/// selected others.
pub(super) fn selects_other_cases(saga: &CompiledSaga, state: &State, index: usize) -> bool {
    let switches = &saga.steps[index].selected_by;
    !switches.is_empty()
        && switches
            .iter()
            .all(|switch| dead_edge(saga, state, *switch, index))
}

/// Returns true if the edge from a step to its successor was not taken.
pub(super) fn dead_edge(saga: &CompiledSaga, state: &State, from: usize, to: usize) -> bool {
    let entry = state.steps[from];
    let step = &saga.steps[from];
    if let Some(handler) = handler_of(saga, state, from) {
        return !handler.leads_to(step, to);
    }

    let Some(cases) = step.action.kind.cases() else {
        let has_no_failure = matches!(entry.state, StepState::Completed | StepState::Skipped);
        return entry.state == StepState::Bypassed || (has_no_failure && step.follows_failure(to));
    };

    match entry.state {
        StepState::Bypassed => true,
        // A skipped switch selects no case.
        StepState::Completed | StepState::Skipped => {
            // The entry of a switch has no attempts; the field contains the selected case.
            let selected = usize::try_from(entry.retries)
                .ok()
                .and_then(|selected| cases.get(selected))
                .filter(|_| entry.state == StepState::Completed);
            let is_case = cases.iter().any(|case| case.then.contains(&to));
            is_case && !selected.is_some_and(|case| case.then.contains(&to))
        }
        _ => false,
    }
}
