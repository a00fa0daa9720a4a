//! Rerun: resets steps of a flow, so that they are executed again under new idempotency keys.

use super::execution::Execution;
use super::restart;
use super::state::{Flags, StepEntry};
use super::step_state::{Phase, StepState};
use crate::contract::ProgramError;

/// Steps that are executed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rerun<'a> {
    /// The failed steps.
    Failed,
    /// The step with this id, and all steps that follow it.
    From(&'a str),
}

/// Reason why nothing is executed again.
pub(super) enum NoRerun {
    /// The state forbids it.
    Rejected(String),
    /// The flow timeout has no value.
    Error(ProgramError),
}

/// Resets the steps to pending; the next advance starts those that are ready. An ended flow runs
/// again.
pub(super) fn reset(run: &mut Execution<'_>, selection: Rerun<'_>) -> Result<(), NoRerun> {
    let rejected = |reason: String| Err(NoRerun::Rejected(reason));
    if run.state.phase == Phase::Compensating {
        return rejected(
            "the flow is being cancelled; repeat the request when it has ended".to_owned(),
        );
    }

    let steps = match selection {
        Rerun::Failed => failed_steps(run),
        Rerun::From(id) => match run.saga.find(id) {
            Some(first) => followers(run, first),
            None => return rejected(format!("the flow has no job \"{id}\"")),
        },
    };
    if steps.is_empty() {
        return rejected("no job has failed".to_owned());
    }

    // A second request would be executed beside the first one, whose result would then be ignored.
    let active = steps.iter().find(|step| {
        let state = run.state.step_state(**step);
        state.is_in_progress() || state.is_awaited_late()
    });
    if let Some(active) = active {
        let id = &run.saga.steps[*active].id;
        return rejected(format!(
            "job \"{id}\" has not ended; wait for its end, or cancel the flow"
        ));
    }

    run.add_note(&match selection {
        Rerun::Failed => "retry".to_owned(),
        Rerun::From(id) => format!("rerun from {id}"),
    });
    for step in steps {
        reset_step(run, step);
    }

    // Nothing of the former end may remain: its flags would forbid steps, and its timeout has
    // ended.
    if run.state.phase != Phase::Running {
        run.state.phase = Phase::Running;
        run.state.flags = Flags::default();
        restart::arm_timeout(run).map_err(NoRerun::Error)?;
    }

    run.state.cause = None;
    Ok(())
}

fn failed_steps(run: &Execution<'_>) -> Vec<usize> {
    (0..run.saga.steps.len())
        .filter(|step| run.state.step_state(*step).has_failed())
        .collect()
}

/// Returns a step and all steps that follow it.
fn followers(run: &Execution<'_>, first: usize) -> Vec<usize> {
    let mut found = vec![first];
    for step in run.saga.sorted.iter().copied() {
        if run.saga.steps[step]
            .before
            .iter()
            .any(|before| found.contains(before))
        {
            found.push(step);
        }
    }
    found
}

fn reset_step(run: &mut Execution<'_>, step: usize) {
    // It has neither a request nor a result, so its current key is not used yet.
    if run.state.step_state(step) == StepState::Pending {
        return;
    }

    // A step that is executed on purpose needs a new idempotency key (ADR 0080).
    let tags: Vec<_> = run.units_of(step).map(|at| run.tag_of(at, false)).collect();
    for tag in tags {
        run.state.begin_round(tag);
    }

    run.state
        .forget_step(step, run.saga.steps[step].id.as_str());
    run.state.steps[step] = StepEntry::default();
}
