//! Reminders: a command or an effect that a step requests repeatedly while it waits.
//!
//! A reminder changes nothing but its number: its result is recorded and not awaited, and its
//! failure does not end the wait. The reminders of a step end with its wait.

use orlog_model::TimerChange;

use super::compiled::{reminder_tag, reminder_timer};
use super::execution::{Execution, NoTransition};
use super::request::{RequestOrigin, action_bindings, begin_reminders, request_of};
use super::state::StepIndex;
use super::step_state::StepState;
use crate::contract::FailureCause;
use crate::expression::EvalError;
use crate::steps::kind::{EXPRESSION_ERROR, Request, RequestLimits};

/// Sends the reminder of a step that is due, and arms the timer of the next one.
pub(super) fn send(run: &mut Execution<'_>, tag: &str) -> Result<(), NoTransition> {
    let stale = NoTransition::Ignored("the timer is stale");
    let Some((at, false)) = run.step_of_tag(tag) else {
        return Err(stale);
    };
    let Some(remind) = &run.step(at).remind else {
        return Err(stale);
    };

    // The state lists the reminders only while the step waits.
    let tag = run.tag_of(at, false);
    let now = run.context.now;
    let Some(reminders) = run.state.run.events.reminders_of_mut(&tag) else {
        return Err(stale);
    };
    if reminders.due.is_none() {
        return Err(stale);
    }

    // From now, not from the time at which it was due: after a pause, reminders do not follow each
    // other at once.
    let number = reminders.sent.saturating_add(1);
    let next = (number < remind.max).then(|| now.saturating_add(remind.every));
    reminders.sent = number;
    reminders.due = next;

    match request(run, at, number) {
        Ok(()) => run.add_step_note(at, &format!("reminder {number}")),
        Err(error) => record_failure(run, at, number, &error),
    }

    if let Some(due) = next {
        let name = reminder_timer(&tag);
        run.timers.push(TimerChange::Arm { name, due });
        // The timer of this name is armed again, so the end of the wait must cancel it.
        run.fired = None;
    }
    Ok(())
}

/// Requests the command or the effect of a reminder.
fn request(run: &mut Execution<'_>, at: StepIndex, number: u32) -> Result<(), EvalError> {
    let step = run.step(at);
    let Some(remind) = &step.remind else {
        return Ok(());
    };

    let waiting = run.tag_of(at, false);
    let tag = reminder_tag(&waiting, number);
    let origin = RequestOrigin {
        step: &step.id,
        tag: &tag,
        round: run.state.round(&reminder_timer(&waiting)),
        retries: 0,
    };
    let bindings = action_bindings(run, at, false).reminder(number);

    let limits = RequestLimits::default();
    match request_of(run, &remind.action, &origin, limits, &bindings)? {
        Request::Work(work) => run.work.push(*work),
        // The compiler permits commands and effects, which are work.
        Request::Task(_) | Request::Until(_) | Request::Nothing => {
            unreachable!("reminders request only work")
        }
    }
    Ok(())
}

/// Records a reminder whose expression has no value. The next one can have a value.
fn record_failure(run: &mut Execution<'_>, at: StepIndex, number: u32, error: &EvalError) {
    let message = format!("reminder {number}: {error}");
    run.add_step_note(at, &message);

    let step = run.step(at).id.to_string();
    run.failure.get_or_insert_with(|| FailureCause {
        code: EXPRESSION_ERROR.to_owned(),
        message,
        step,
    });
}

/// Adapts the reminders of a migrated state: a step that still waits keeps the number of its
/// reminders. They end if the new version has none, and begin if only the new one has some.
pub(super) fn migrate_reminders(run: &mut Execution<'_>) {
    for step in 0..run.saga.steps.len() {
        for at in run.units_of(step) {
            if matches!(
                run.state.entry(at).state,
                StepState::Running | StepState::Retrying
            ) {
                migrate_unit(run, at);
            }
        }
    }
}

fn migrate_unit(run: &mut Execution<'_>, at: StepIndex) {
    let tag = run.tag_of(at, false);
    let Some(remind) = &run.step(at).remind else {
        run.state.run.events.remove_reminders(&tag);
        return;
    };

    begin_reminders(run, at);
    let next = run.context.now.saturating_add(remind.every);
    if let Some(reminders) = run.state.run.events.reminders_of_mut(&tag) {
        // The next one keeps its time, unless only the new version permits it.
        reminders.due = (reminders.sent < remind.max).then(|| reminders.due.unwrap_or(next));
    }
}
