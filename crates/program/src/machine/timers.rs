//! Timers: deadlines, retry delays, escalations, reminders, and the timeout of the whole saga.

use orlog_model::{TaskChange, TimerChange};

use super::apply_outcome::apply_step_input;
use super::compensate::{request_compensation, start_compensation};
use super::compiled::{
    CompiledAction, ESCALATE, REMIND, RETRY, SAGA_TIMER, prefixed_name, reminder_timer,
};
use super::execution::{Execution, NoTransition, saga_timer};
use super::fail::fail_to_start;
use super::outcome_table::StepOutcome;
use super::remind;
use super::request::request_action;
use super::restart;
use super::state::{Flags, StepIndex};
use super::step_input::{Certainty, NOTHING, StepInput, timed_out};
use super::step_state::{Phase, StepState};
use crate::contract::{FailureCause, ProgramError};
use crate::expression::EventData;
use crate::steps::CompiledActionKind;
use crate::steps::kind::{Completion, StartError};

/// Handles a due timer.
pub(super) fn on_timer(run: &mut Execution<'_>, name: &str) -> Result<(), NoTransition> {
    // No step id contains `:` and none is `saga`, so these names cannot be those of steps.
    if name == SAGA_TIMER {
        return on_saga_timeout(run);
    }
    if let Some(tag) = name.strip_prefix(RETRY) {
        return retry_step(run, tag);
    }
    if let Some(tag) = name.strip_prefix(ESCALATE) {
        return escalate(run, tag);
    }
    if let Some(tag) = name.strip_prefix(REMIND) {
        return remind::send(run, tag);
    }

    let (at, is_compensation) = run
        .step_of_tag(name)
        .ok_or(NoTransition::Ignored("no step has this timer"))?;
    let awaited = if is_compensation {
        StepState::Compensating
    } else {
        StepState::Running
    };
    if run.state.entry(at).state != awaited {
        return Err(NoTransition::Ignored("the timer is stale"));
    }

    let action = run.action_of(at, is_compensation);
    // Only for a wait is its timer the success; for every other action it is the timeout.
    let (result, failure) =
        if !is_compensation && action.kind.traits().completion == Completion::Timer {
            (StepOutcome::Ok, None)
        } else {
            let outcome = if is_compensation {
                StepOutcome::NotCompensated
            } else {
                StepOutcome::Unknown
            };
            let failure = timed_out(name, action.options.timeout.as_ref());
            (outcome, Some(failure))
        };

    apply_step_input(
        run,
        &StepInput {
            at,
            result,
            event: EventData::of_result(&NOTHING),
            named: None,
            failure,
            certainty: certainty_after_timeout(action),
            event_key: 0,
        },
    )
}

fn on_saga_timeout(run: &mut Execution<'_>) -> Result<(), NoTransition> {
    if run.state.phase != Phase::Running || run.state.flags.has(Flags::PIVOTED) {
        // Past the pivot, the saga can only run forward.
        return Err(NoTransition::Ignored("the saga timeout no longer applies"));
    }

    let message = timed_out(SAGA_TIMER, run.saga.timeout.as_ref()).message;
    run.add_note("saga timeout");
    start_compensation(
        run,
        FailureCause {
            code: "saga_timeout".to_owned(),
            message,
            step: String::new(),
        },
    );
    Ok(())
}

fn retry_step(run: &mut Execution<'_>, tag: &str) -> Result<(), NoTransition> {
    let (at, is_compensation) = run
        .step_of_tag(tag)
        .ok_or(NoTransition::Ignored("no step has this timer"))?;
    let awaited = if is_compensation {
        StepState::CompensationRetrying
    } else {
        StepState::Retrying
    };
    if run.state.entry(at).state != awaited {
        return Err(NoTransition::Ignored("the timer is stale"));
    }

    // Counted here and not with the failure, so that the delay is computed from the attempts before
    // it.
    let entry = run.state.entry_mut(at);
    entry.retries = entry.retries.saturating_add(1);
    run.add_step_note(at, "again");
    if is_compensation {
        request_compensation(run, at);
    } else if let Err(error) = request_again(run, at) {
        fail_to_start(run, at, error);
    }
    Ok(())
}

fn request_again(run: &mut Execution<'_>, at: StepIndex) -> Result<(), StartError> {
    match run.step(at).action.kind.restart() {
        Some(action) => restart::restart(run, at, action),
        None => Ok(request_action(run, at, false)?),
    }
}

/// Rearms the timers of steps in progress at their previous times.
pub(super) fn rearm_timers(run: &mut Execution<'_>) {
    // The times do not move: what was due while the instance was stuck fires at once.
    let mut timers = Vec::new();
    for at in (0..run.saga.steps.len()).flat_map(|step| run.step_and_elements(step)) {
        let entry = run.state.entry(at);
        let has_timer = entry.state.is_in_progress() || entry.state.is_compensation();
        if let Some(due) = entry.deadline.filter(|_| has_timer) {
            timers.push(TimerChange::Arm {
                name: run.timer_name(at, entry.state),
                due,
            });
        }
    }

    for (tag, due) in run.state.extra.iter().flat_map(|extra| &extra.escalations) {
        timers.push(TimerChange::Arm {
            name: prefixed_name(ESCALATE, tag),
            due: *due,
        });
    }

    for reminders in &run.state.run.events.reminders {
        timers.extend(reminders.due.map(|due| TimerChange::Arm {
            name: reminder_timer(&reminders.tag),
            due,
        }));
    }

    timers.extend(run.state.until.map(|due| TimerChange::Arm {
        name: saga_timer(),
        due,
    }));

    run.timers.extend(timers);
}

/// Returns what is known about an action whose timer fired.
fn certainty_after_timeout(action: &CompiledAction) -> Certainty {
    let traits = action.kind.traits();

    // No result follows for a command that an event confirms. That of an effect or a job is final
    // at the same deadline. A task is closed, and a child saga is cancelled and reports its end.
    if traits.completion == Completion::Acceptance && action.awaits_event() {
        Certainty::Unknown
    } else if traits.is_retried() {
        Certainty::Pending
    } else {
        Certainty::Known
    }
}

/// Escalates the overdue task of this tag.
fn escalate(run: &mut Execution<'_>, tag: &str) -> Result<(), NoTransition> {
    let stale = NoTransition::Ignored("the timer is stale");

    // The state lists an escalation only while its task is open.
    let known = run
        .state
        .extra
        .as_ref()
        .is_some_and(|e| e.escalations.iter().any(|(of, _)| of.as_str() == tag));
    let Some((at, is_compensation)) = run.step_of_tag(tag).filter(|_| known) else {
        return Err(stale);
    };
    let CompiledActionKind::Human(human) = &run.action_of(at, is_compensation).kind else {
        return Err(stale);
    };
    let Some(escalation) = &human.escalate else {
        return Err(stale);
    };

    // An expression without a value makes the timer a dead letter; the task stays open for its
    // users.
    let (roles, assignee) = escalation
        .assignment(&run.bindings(at))
        .map_err(|error| ProgramError::Evaluation(format!("{tag}: {error}")))?;

    run.tasks.push(TaskChange::Assign {
        tag: run.tag_of(at, is_compensation),
        roles,
        assignee,
    });
    run.state
        .extra_mut()
        .escalations
        .retain(|(of, _)| of.as_str() != tag);
    run.add_step_note(at, "escalated");
    Ok(())
}
