//! A saga of jobs as a flow: the statuses of its jobs, what they gave, and the status of the whole.

use serde_json::{Map, Value, json};

use crate::machine::compiled::{Call, Saga};
use crate::machine::state::State;
use crate::machine::step_state::{Mark, Phase};

/// Nothing where no step is a job. `standing` says where a step stands.
pub(super) fn of(saga: &Saga, state: &State, standing: impl Fn(usize) -> Mark) -> Option<Value> {
    let jobs = || saga.steps.iter().enumerate().filter(|(_, step)| matches!(step.task.call, Call::Job(_)));
    jobs().next()?;
    let status = |index| job(standing(index));
    let statuses: Map<_, _> =
        jobs().map(|(index, step)| (step.id.to_string(), json!(status(index)))).collect();
    let begun =
        jobs().any(|(index, _)| !matches!(state.mark(index), Mark::Waiting | Mark::Bypassed | Mark::Skipped));
    let whole = match state.phase {
        Phase::Completed => "finished",
        Phase::Compensating | Phase::Failed | Phase::Cancelled | Phase::Stuck => "error",
        Phase::Running if begun => "started",
        Phase::Running => "dispatched",
    };
    Some(
        json!({ "status": whole, "jobs": statuses, "results": state.results().cloned().unwrap_or_default() }),
    )
}

fn job(mark: Mark) -> &'static str {
    match mark {
        Mark::Waiting => "waiting_for_prerequisites",
        Mark::Pausing => "dispatched",
        Mark::Open | Mark::Asking => "started",
        Mark::Done | Mark::Skipped | Mark::Bypassed => "finished",
        Mark::Failed
        | Mark::GivenUp
        | Mark::Undoing
        | Mark::UndoFailed
        | Mark::Undone
        | Mark::Doomed
        | Mark::UndoPausing
        | Mark::Blocked
        | Mark::AskingLate => "error",
    }
}
