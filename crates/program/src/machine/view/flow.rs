//! Flow view of a saga of jobs: the statuses and results of its jobs, and the overall status.

use serde_json::{Map, Value, json};

use crate::machine::compiled::CompiledSaga;
use crate::machine::state::State;
use crate::machine::step_state::{Phase, StepState};
use crate::steps::CompiledActionKind;

/// Returns the flow view; `None` if no step is a job. `standing` returns the state of a step.
pub(super) fn of(
    saga: &CompiledSaga,
    state: &State,
    effective_state: impl Fn(usize) -> StepState,
) -> Option<Value> {
    let jobs = || {
        saga.steps
            .iter()
            .enumerate()
            .filter(|(_, step)| matches!(step.action.kind, CompiledActionKind::Job(_)))
    };
    jobs().next()?;
    let status = |index| job(effective_state(index));
    let statuses: Map<_, _> = jobs()
        .map(|(index, step)| (step.id.to_string(), json!(status(index))))
        .collect();
    let started = jobs().any(|(index, _)| {
        !matches!(
            state.step_state(index),
            StepState::Pending | StepState::Bypassed | StepState::Skipped
        )
    });
    let status_of_saga = match state.phase {
        Phase::Completed => "finished",
        Phase::Compensating | Phase::Failed | Phase::Cancelled | Phase::Stuck => "error",
        Phase::Running if started => "started",
        Phase::Running => "dispatched",
    };
    Some(
        json!({ "status": status_of_saga, "jobs": statuses, "results": state.results().cloned().unwrap_or_default() }),
    )
}

fn job(step_state: StepState) -> &'static str {
    match step_state {
        StepState::Pending => "waiting_for_prerequisites",
        StepState::Retrying => "dispatched",
        StepState::Running | StepState::InDoubt => "started",
        StepState::Completed | StepState::Skipped | StepState::Bypassed => "finished",
        StepState::Failed
        | StepState::Abandoned
        | StepState::Compensating
        | StepState::CompensationFailed
        | StepState::Compensated
        | StepState::CompensationPending
        | StepState::CompensationRetrying
        | StepState::Blocked
        | StepState::InDoubtAbandoned
        | StepState::ChildAwaited => "error",
    }
}
