//! Forward execution: starts every step whose predecessors are finished, and ends the saga when all
//! are finished.

use super::compensate::discard_branches;
use super::compiled::CompiledStep;
use super::complete::complete_step;
use super::execution::Execution;
use super::fail::fail_to_start;
use super::foreach::{start_elements, start_next_elements};
use super::join::{self, JoinState};
use super::repeat::end_loop_round;
use super::request::request_action;
use super::restart;
use super::state::{Flags, StepEntry, StepIndex};
use super::step_state::StepState;
use crate::definition::Join;
use crate::steps::kind::StartError;
use crate::steps::{CompiledCase, select};

/// Starts all ready steps.
pub(super) fn advance(run: &mut Execution<'_>) {
    // A loop that begins another round allows its first steps, which come earlier in the order.
    while start_ready(run) {}
}

/// Starts all ready steps. Returns true if a loop began another round.
fn start_ready(run: &mut Execution<'_>) -> bool {
    let saga = run.saga;
    for index in saga.sorted.iter().copied() {
        match run.state.step_state(index) {
            StepState::Pending => match join::join_state(saga, &run.state, index) {
                JoinState::Wait => continue,
                ready => apply_join_state(run, index, ready),
            },
            StepState::Running if saga.steps[index].foreach.is_some() => {
                // An element that ended with this input leaves its place to the next one.
                start_next_elements(run, index);
            }
            _ => continue,
        }

        // A step that could not start has ended the forward run, so the rest of the order must not
        // start.
        let flags = run.state.flags;
        if flags.has(Flags::COMPENSATION_STARTED)
            || (flags.has(Flags::PIVOTED) && run.blocked().is_some())
        {
            return false;
        }

        // The step that ends a loop is pending while the loop has rounds, and each step at the
        // start of a new run.
        if run.state.step_state(index) == StepState::Pending {
            return true;
        }
    }
    false
}

fn apply_join_state(run: &mut Execution<'_>, index: usize, ready: JoinState) {
    let step = &run.saga.steps[index];
    match ready {
        JoinState::Wait => {}
        JoinState::Bypass => {
            run.state.steps[index].state = StepState::Bypassed;
            run.add_step_note(StepIndex::step(index), "bypassed");
        }
        JoinState::Unsatisfiable(required, live) => {
            let message = format!(
                "{} requires {required} of the preceding steps; only {live} can still complete",
                step.id
            );
            fail_to_start(
                run,
                StepIndex::step(index),
                StartError {
                    code: "join_failed".to_owned(),
                    message,
                },
            );
        }
        JoinState::Start => {
            // The losing branches end in the transition that starts the step, so no crash can leave
            // both in progress.
            if matches!(step.join, Join::AtLeast(_)) {
                let losing = join::losing_branches(run.saga, &run.state, index);
                discard_branches(run, index, &losing);
            }
            if let Err(error) = start_step(run, index, step) {
                fail_to_start(run, StepIndex::step(index), error);
            }
        }
    }
}

fn start_step(
    run: &mut Execution<'_>,
    index: usize,
    step: &CompiledStep,
) -> Result<(), StartError> {
    // The condition comes first: a skipped step evaluates neither its list nor its payload.
    let at = StepIndex::step(index);
    if let Some(when) = &step.when
        && !when.holds(&run.bindings(at))?
    {
        run.state.steps[index] = StepEntry::of(StepState::Skipped);
        run.add_step_note(at, "skipped");
        return Ok(());
    }

    // A restart and the end of a loop are no requests: they change the state of the run.
    if let Some(restart) = step.action.kind.restart() {
        return restart::restart(run, at, restart);
    }
    if let Some(repeat) = step.action.kind.repeat() {
        return end_loop_round(run, index, repeat);
    }

    match (&step.foreach, step.action.kind.cases()) {
        (Some(foreach), _) => start_elements(run, index, foreach),
        (None, Some(cases)) => select_case(run, at, cases),
        (None, None) => Ok(request_action(run, at, false)?),
    }
}

/// Selects the first case of a switch whose condition holds.
fn select_case(
    run: &mut Execution<'_>,
    at: StepIndex,
    cases: &[CompiledCase],
) -> Result<(), StartError> {
    let Some(selected) = select(cases, &run.bindings(at))? else {
        let message = format!("{}: no case matches", run.step(at).id);
        return Err(StartError {
            code: "no_matching_case".to_owned(),
            message,
        });
    };

    // A switch has no attempts: the field stores the selected case.
    let retries = u32::try_from(selected).expect("a definition of 1 MiB has fewer cases");
    *run.state.entry_mut(at) = StepEntry {
        retries,
        ..StepEntry::of(StepState::Completed)
    };

    let ids: Vec<_> = cases[selected]
        .then
        .iter()
        .map(|step| run.saga.steps[*step].id.as_str())
        .collect();
    run.add_step_note(at, &format!("to {}", ids.join(" and ")));
    complete_step(run, at.step);
    Ok(())
}
