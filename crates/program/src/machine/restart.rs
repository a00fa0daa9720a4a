//! Restart: replaces the state by that of a new run of the instance.
//!
//! The transition contains the end of the old run and the begin of the new one. The completed steps
//! of the old run are final. Events that are kept for their step pass to the new run. While work, a
//! task, a compensation or a child saga of the old run is open, the restart waits and is tried
//! again, because its result would be lost.

use orlog_model::TimerChange;
use serde_json::Value;

use super::compensate::schedule_retry;
use super::compiled::{ON, REMIND};
use super::execution::{Execution, saga_timer};
use super::in_doubt::has_late_wait;
use super::state::{State, StepIndex};
use super::step_state::StepState;
use crate::contract::ProgramError;
use crate::expression::EventData;
use crate::steps::CompiledRestart;
use crate::steps::kind::{EXPRESSION_ERROR, StartError};

/// Code of a restart that waits for open work.
const BLOCKED: &str = "restart_blocked";

/// Begins a new run, or schedules the next attempt.
pub(super) fn restart(
    run: &mut Execution<'_>,
    at: StepIndex,
    restart: &CompiledRestart,
) -> Result<(), StartError> {
    // A saga without waits would restart without end in one transition, so the next restart waits
    // for a timer. A result of open work would be lost, because the new run does not know its step.
    if run.begins_run || !is_settled(run, at) {
        return Ok(schedule_retry(run, at, BLOCKED, StepState::Retrying)?);
    }

    let data = restart.data(&run.step(at).id, &run.bindings(at))?;

    // The templates of the new run must not see the variables of the old one, so its state is
    // replaced first.
    let new = State::new(run.saga.steps.len());
    let mut old = std::mem::replace(&mut run.state, new);
    if let Err(error) = init_run(run, EventData::of_result(&data)) {
        // An invalid start event fails the step, not the input (ADR 0066).
        run.state = old;
        let message = format!("cannot begin a new run: {error}");
        return Err(StartError {
            code: EXPRESSION_ERROR.to_owned(),
            message,
        });
    }

    run.begins_run = true;
    // Work before this position belongs to the old run; run ids are part of the idempotency keys.
    run.new_run = Some(run.work.len());
    run.state.run.begin_run(&old.run, run.context.version);

    // An event that waits for its step is one of the new run as well.
    if let Some(extra) = old.extra.as_mut().filter(|extra| !extra.early.is_empty()) {
        run.state.extra_mut().early = std::mem::take(&mut extra.early);
    }

    // A new timeout has replaced the timer of the old one, which has the same name.
    if old.until.is_some() && run.state.until.is_none() {
        run.cancel_timer(saga_timer());
    }

    let id = &run.saga.steps[at.step].id;
    run.add_note(&format!("{id}: run {}", run.state.run.run_number()));
    Ok(())
}

/// Sets the variables and the timeout of a run from the data of its start event.
pub(super) fn init_run(run: &mut Execution<'_>, event: EventData<'_>) -> Result<(), ProgramError> {
    run.state
        .vars
        .extend(run.saga.saved().map(|name| (name.clone(), Value::Null)));
    run.save_vars(&run.saga.vars, event)?;
    arm_timeout(run)
}

/// Begins the timeout of a run.
pub(super) fn arm_timeout(run: &mut Execution<'_>) -> Result<(), ProgramError> {
    run.state.until = run.saga.deadline(run.context.now, &run.saga_bindings())?;
    if let Some(due) = run.state.until {
        run.timers.push(TimerChange::Arm {
            name: saga_timer(),
            due,
        });
    }
    Ok(())
}

/// Returns whether nothing of the run is open.
fn is_settled(run: &Execution<'_>, restart: StepIndex) -> bool {
    // Results of handler actions and reminders are not awaited, and the input settles its own work.
    let has_pending_work = run.context.pending_work.iter().any(|work| {
        let tag = work.tag.as_str();
        let is_awaited = !tag.starts_with(ON) && !tag.starts_with(REMIND);
        work.survives_end && is_awaited && run.settles.as_deref() != Some(tag)
    });

    // A pending step is on a branch that was not selected, because no step follows a restart or
    // runs beside it.
    let mut units = (0..run.saga.steps.len()).flat_map(|step| run.step_and_elements(step));
    // Also past rounds, whose late results can still require a compensation.
    let has_active_step = units.any(|at| {
        let state = run.state.entry(at).state;
        at != restart && state != StepState::Pending && !state.is_finished()
    });

    let has_children = !run.state.run.events.children.is_empty();
    !has_pending_work
        && !has_active_step
        && !has_children
        && run.state.compensating_step.is_none()
        && !has_late_wait(run)
}
