//! Flow view of a saga of jobs: the statuses and results of its jobs, and the overall status.
//!
//! A job that can no longer start has ended: its status is `error` if it follows a failed job or
//! its saga does not run forward any more, and `finished`, like that of a skipped job, if its saga
//! has completed without it. A retry or a rerun makes it wait again.

use serde_json::{Map, Value, json};

use crate::machine::compiled::CompiledSaga;
use crate::machine::state::{Flags, State};
use crate::machine::step_state::{Phase, StepState};
use crate::steps::CompiledActionKind;

/// Returns the flow view; `None` if no step is a job. `effective_state` returns the state of a
/// step.
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
    let by_step = job_statuses(saga, state, effective_state);
    let statuses: Map<_, _> = jobs()
        .map(|(index, step)| (step.id.to_string(), json!(by_step[index])))
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

    Some(json!({
        "status": status_of_saga,
        "jobs": statuses,
        "results": state.results().cloned().unwrap_or_default(),
    }))
}

/// Returns the status of each step, as that of a job.
fn job_statuses(
    saga: &CompiledSaga,
    state: &State,
    effective_state: impl Fn(usize) -> StepState,
) -> Vec<&'static str> {
    let pending = pending_job(state);
    let mut statuses = vec![pending; saga.steps.len()];

    // The steps that a step follows come before it.
    for index in saga.sorted.iter().copied() {
        let step_state = effective_state(index);
        let follows_error = saga.isolates_failures
            && saga.steps[index]
                .before
                .iter()
                .any(|before| statuses[*before] == "error");

        statuses[index] = match step_state {
            StepState::Pending if follows_error => "error",
            StepState::Pending => pending,
            _ => started_job(step_state),
        };
    }
    statuses
}

/// Returns the status of a job that was never requested.
fn pending_job(state: &State) -> &'static str {
    let flags = state.flags;
    match state.phase {
        Phase::Failed | Phase::Cancelled => "error",
        Phase::Completed => "finished",
        // In the phases that remain, the flags tell whether the saga had reached an end before.
        _ if flags.has(Flags::COMPENSATION_STARTED) => "error",
        _ if flags.has(Flags::COMPLETED) => "finished",
        Phase::Running | Phase::Compensating | Phase::Stuck => "waiting_for_prerequisites",
    }
}

fn started_job(step_state: StepState) -> &'static str {
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
