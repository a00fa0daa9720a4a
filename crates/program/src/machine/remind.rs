//! Reminders: a command or an effect that a step requests repeatedly while it waits.
//!
//! A reminder changes nothing but its number: its result is recorded and not awaited, and its
//! failure does not end the wait. The reminders of a step begin and end with its wait
//! ([`wait`](super::wait)).
//!
//! | a reminder is due | effect |
//! |---|---|
//! | the time limit of its step or of the saga has passed, its timer has not fired yet | none follows |
//! | the previous one has no result | it is skipped; it counts for `max` |
//! | otherwise | it is sent |
//!
//! Numbers do not repeat in a run, also after a retry of an operator: tags and idempotency keys
//! contain them.

use orlog_model::{Name, TimerChange};

use super::compiled::{reminder_tag, reminder_timer};
use super::execution::{Execution, NoTransition};
use super::request::{RequestOrigin, action_bindings, request_of};
use super::state::{Flags, StepIndex};
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
    let is_over = is_time_over(run, at);
    let Some(reminders) = run.state.run.events.reminders_of_mut(&tag) else {
        return Err(stale);
    };
    if reminders.due.is_none() {
        return Err(stale);
    }

    // After an outage or a pause, both timers are due, and this one can fire first.
    if is_over {
        reminders.due = None;
        run.add_step_note(at, "no further reminder: the time limit has passed");
        return Ok(());
    }

    // From now, not from the time at which it was due: after a pause, reminders do not follow each
    // other at once.
    let sent = reminders.sent.saturating_add(1);
    let next = (sent < remind.max).then(|| now.saturating_add(remind.every));
    reminders.sent = sent;
    reminders.due = next;

    let earlier = u32::try_from(run.state.round(&reminder_timer(&tag))).unwrap_or(u32::MAX);
    let number = earlier.saturating_add(sent);
    if is_outstanding(run, &tag) {
        let note = format!("reminder {number} skipped: the previous one has no result");
        run.add_step_note(at, &note);
    } else {
        match request(run, at, number) {
            Ok(()) => run.add_step_note(at, &format!("reminder {number}")),
            Err(error) => record_failure(run, at, number, &error),
        }
    }

    if let Some(due) = next {
        let name = reminder_timer(&tag);
        run.timers.push(TimerChange::Arm { name, due });
        // The timer of this name is armed again, so the end of the wait must cancel it.
        run.fired = None;
    }
    Ok(())
}

/// Returns whether the time limit of a step or of the saga has passed, although its timer has not
/// fired yet.
fn is_time_over(run: &Execution<'_>, at: StepIndex) -> bool {
    let now = run.context.now;
    let entry = run.state.entry(at);
    // Before a retry, it is the time of the next attempt.
    let limit = entry.deadline.filter(|_| entry.state == StepState::Running);
    let saga_limit = run
        .state
        .until
        .filter(|_| !run.state.flags.has(Flags::PIVOTED));
    limit
        .into_iter()
        .chain(saga_limit)
        .any(|limit| limit <= now)
}

/// Returns whether an earlier reminder of a step has no result.
fn is_outstanding(run: &Execution<'_>, tag: &Name) -> bool {
    let prefix = format!("{}:", reminder_timer(tag));
    let mut pending = run.context.pending_work.iter();
    pending.any(|work| work.dead_letter.is_none() && work.tag.as_str().starts_with(&prefix))
}

/// Requests the command or the effect of a reminder.
fn request(run: &mut Execution<'_>, at: StepIndex, number: u32) -> Result<(), EvalError> {
    let step = run.step(at);
    let Some(remind) = &step.remind else {
        return Ok(());
    };

    let tag = reminder_tag(&run.tag_of(at, false), number);
    let origin = RequestOrigin {
        step: &step.id,
        tag: &tag,
        // The number is a part of the tag.
        round: 0,
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
        // Its number stays: a later version that reminds again must not repeat it.
        if let Some(reminders) = run.state.run.events.reminders_of_mut(&tag) {
            reminders.due = None;
        }
        return;
    };

    run.begin_reminders(at);
    let next = run.context.now.saturating_add(remind.every);
    if let Some(reminders) = run.state.run.events.reminders_of_mut(&tag) {
        // The next one keeps its time, unless only the new version permits it.
        reminders.due = (reminders.sent < remind.max).then(|| reminders.due.unwrap_or(next));
    }
}
