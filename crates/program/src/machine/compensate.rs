//! Compensation: abandons steps in progress, compensates completed steps one after another, and
//! ends the saga.

use std::time::Duration;

use orlog_model::{CancelChild, Failure, ParentEndPolicy, TimerChange, Work};

use super::execution::Execution;
use super::failure_handler::{drop_collected_lists, own_vars};
use super::request::{
    RACE_LOST, RequestOrigin, abandon_outstanding, action_bindings, request_action, request_of,
};
use super::state::{FailureReaction, Flags, StepEntry, StepIndex};
use super::step_input::expression_error;
use super::step_state::StepState;
use crate::contract::FailureCause;
use crate::expression::EvalError;
use crate::steps::kind::{EXPRESSION_ERROR, RequestLimits, UNDO_WITHOUT_VALUE};

/// Maximum delay between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_hours(1);
/// Default delay before the second attempt.
const INITIAL_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Starts compensation: no new steps, no timers; abandons steps in progress and compensates
/// completed ones.
pub(super) fn start_compensation(run: &mut Execution<'_>, cause: FailureCause) {
    // A result can take any time, so steps in progress are not awaited; a late success is
    // compensated (ADR 0005).
    abandon_all(run);
    run.cancel_saga_timer();

    // A cancellation is no failure of the instance.
    if !run.state.flags.has(Flags::CANCELLED) {
        run.failure = Some(cause.clone());
    }

    run.state.cause = Some(cause);
    run.state.flags.set(Flags::COMPENSATION_STARTED);

    if run.saga.isolates_failures {
        // The jobs of a flow have no compensations, and those that are completed stay completed.
        run.state.done.clear();
    }
}

pub(super) fn abandon_all(run: &mut Execution<'_>) {
    for step in 0..run.saga.steps.len() {
        for at in run.step_and_elements(step) {
            abandon(run, at);
        }
    }
    stop_children(run);
}

/// Cancels the open child sagas of event handlers, except those whose end is awaited.
fn stop_children(run: &mut Execution<'_>) {
    // Children with the policy `abandon` are not in this list (`open_child` omits them).
    let (awaited, stopped): (Vec<_>, Vec<_>) = std::mem::take(&mut run.state.run.events.children)
        .into_iter()
        .partition(|child| child.on_parent_end == ParentEndPolicy::Wait);
    run.state.run.events.children = awaited;

    for child in stopped {
        let reason = format!(
            "{} is no longer awaited by {}",
            child.tag, run.context.key.saga
        );
        let cancel = CancelChild {
            saga: child.saga,
            correlation: child.correlation,
            reason,
        };
        run.work.push(Work::CancelChild(cancel));
    }
}

/// Abandons a step that is in progress.
pub(super) fn abandon(run: &mut Execution<'_>, at: StepIndex) {
    if !run.state.entry(at).state.is_in_progress() {
        return;
    }

    // Only its elements have outstanding work; each is abandoned on its own.
    if at.element.is_none() && run.step(at).foreach.is_some() {
        run.state.steps[at.step] = StepEntry::of(StepState::Abandoned);
        return;
    }

    if run.state.entry(at).state == StepState::InDoubt {
        return run.finish_wait(at, StepState::InDoubtAbandoned);
    }

    let abandoned = abandon_outstanding(run, at);
    run.finish_wait(at, abandoned);
}

/// Schedules the compensation of abandoned steps whose results are dead letters: no other result
/// follows.
pub(super) fn compensate_unapplied(run: &mut Execution<'_>) {
    // Almost every transition ends here, before it computes the tags of all steps.
    if run
        .context
        .pending_work
        .iter()
        .all(|work| work.dead_letter.is_none())
    {
        return;
    }

    for step in 0..run.saga.steps.len() {
        for at in run.step_and_elements(step) {
            // The input can be the result itself, after a redrive.
            let is_settled = run.settles.as_deref() == Some(run.tag_of(at, false).as_str());

            // The result is a dead letter, so that no other result follows.
            if !is_settled && run.has_unapplied_result(at) {
                compensate_unknown(run, at);
            }
        }
    }
}

/// Schedules the compensation of an abandoned step that may have been executed. Returns false if
/// the step has none or is not abandoned.
pub(super) fn compensate_unknown(run: &mut Execution<'_>, at: StepIndex) -> bool {
    // The definition ignores the end of a child with `abandon`, so an unknown end is ignored as
    // well.
    let is_awaited =
        run.action_of(at, false).kind.kind().on_parent_end() != ParentEndPolicy::Abandon;
    let has_compensation = is_awaited && run.step(at).compensation.is_some();
    let applies = has_compensation && run.state.entry(at).state == StepState::Abandoned;

    if applies {
        *run.state.entry_mut(at) = StepEntry::of(StepState::CompensationPending);
        run.state.done.push(at);
        run.add_step_note(at, "may have been executed");
    }
    applies
}

/// Discards these steps before a join: bypasses pending steps, abandons those in progress, and
/// schedules the compensation of completed ones.
pub(super) fn discard_branches(run: &mut Execution<'_>, join: usize, steps: &[usize]) {
    for step in steps.iter().copied() {
        drop_partial_lists(run, step);
        for at in run.step_and_elements(step) {
            abandon(run, at);
        }

        let entry = &mut run.state.steps[step];
        if matches!(entry.state, StepState::Pending | StepState::Blocked) {
            *entry = StepEntry::of(StepState::Bypassed);
            run.add_step_note(StepIndex::step(step), "bypassed");
        }
    }

    // Past rounds of a loop that contains the join stay completed.
    let in_loop = run.saga.steps[join].in_loop;
    // Discarded steps keep their places in the order of completion, which is the reverse of their
    // compensation.
    for at in run.state.done.clone() {
        let is_past = in_loop.is_some() && run.step(at).in_loop == in_loop && at.element.is_some();
        if steps.contains(&at.step) && !is_past && run.state.entry(at).state == StepState::Completed
        {
            run.state.entry_mut(at).state = StepState::CompensationPending;
        }
    }
}

/// Sets the lists that a discarded step with elements has saved so far to null, as those of a failed
/// one: its completed elements are compensated. Their `undo` still reads the lists.
fn drop_partial_lists(run: &mut Execution<'_>, step: usize) {
    let compiled = &run.saga.steps[step];
    let saves_lists = compiled.foreach.is_some() && !compiled.save.is_empty();
    if !saves_lists || !run.state.step_state(step).is_in_progress() {
        return;
    }

    let own_vars = own_vars(run, step);
    run.state
        .add_failure(step, &RACE_LOST, FailureReaction::Join, own_vars);
    drop_collected_lists(run, step);
}

/// Requests the next compensation, last completed first, unless one is in progress.
pub(super) fn compensate_next(run: &mut Execution<'_>) {
    let compensation_started = run.state.flags.has(Flags::COMPENSATION_STARTED);

    // If the awaited child saga succeeds, its step is the last completed one (ADR 0065).
    if compensation_started && awaits_child(run) {
        return;
    }

    while run.state.compensating_step.is_none() {
        // In the compensating phase, all completed steps are compensated; in the running phase,
        // only discarded ones. The last completed step comes first.
        let next = run.state.done.iter().rposition(|at| {
            compensation_started || run.state.entry(*at).state == StepState::CompensationPending
        });
        let Some(index) = next else {
            return;
        };

        let at = run.state.done.remove(index);

        // Attempts of the compensation count from one; those of the action have ended.
        run.state.entry_mut(at).retries = 0;

        // Nothing is requested, so the loop continues with the step that completed before.
        if run.step(at).compensation.is_none() {
            run.state.entry_mut(at).state = StepState::Compensated;
            continue;
        }

        run.state.compensating_step = Some(at);
        request_compensation(run, at);
    }
}

/// Returns true if the end of a child saga is awaited: if the one of a step succeeds, it is the
/// last completed step.
fn awaits_child(run: &Execution<'_>) -> bool {
    let mut all = (0..run.saga.steps.len()).flat_map(|step| run.step_and_elements(step));
    !run.state.run.events.children.is_empty()
        || all.any(|at| run.state.entry(at).state == StepState::ChildAwaited)
}

/// Returns whether the compensation of a step cannot be requested, because no result has set a value
/// that it reads.
pub(super) fn lacks_value(run: &Execution<'_>, at: StepIndex) -> bool {
    if run.step(at).compensation.is_none() {
        return false;
    }
    let tag = run.tag_of(at, true);
    let origin = RequestOrigin {
        step: &run.step(at).id,
        tag: &tag,
        round: run.state.round(&tag),
        retries: 0,
    };
    let bindings = action_bindings(run, at, true);
    let limits = RequestLimits::default();
    request_of(run, run.action_of(at, true), &origin, limits, &bindings)
        .is_err_and(|error| error.lacks_value)
}

pub(super) fn request_compensation(run: &mut Execution<'_>, at: StepIndex) {
    if let Err(error) = request_action(run, at, true) {
        let Failure { code, message } = expression_error(&error);
        let step = run.step(at).id.to_string();
        fail_compensation(
            run,
            at,
            FailureCause {
                code,
                message,
                step,
            },
        );
    }
}

/// Schedules the next attempt; each delay is twice the previous one. Fails if the delay is computed
/// and has no value.
pub(super) fn schedule_retry(
    run: &mut Execution<'_>,
    at: StepIndex,
    code: &str,
    step_state: StepState,
) -> Result<(), EvalError> {
    let is_compensation = step_state == StepState::CompensationRetrying;
    let action = run.action_of(at, is_compensation);
    let retry_count = run.state.entry(at).retries;

    let first = match action
        .options
        .retry
        .as_ref()
        .and_then(|retry| retry.initial_backoff.as_ref())
    {
        Some(backoff) => {
            backoff.evaluate(run.context.now, &action_bindings(run, at, is_compensation))?
        }
        None => INITIAL_RETRY_DELAY,
    };
    // A shift by 32 or more has no value; the maximum factor applies instead.
    let delay = first
        .saturating_mul(1_u32.checked_shl(retry_count).unwrap_or(u32::MAX))
        .min(MAX_RETRY_DELAY);

    // First cancels the timer of the request: its name depends on the state that is replaced here.
    run.finish_wait(at, step_state);
    let until = run.context.now.saturating_add(delay);
    *run.state.entry_mut(at) = StepEntry {
        deadline: Some(until),
        retries: retry_count,
        null_allowed: run.state.entry(at).null_allowed,
        ..StepEntry::of(step_state)
    };

    let name = run.timer_name(at, step_state);
    run.timers.push(TimerChange::Arm { name, due: until });
    run.add_step_note(at, &format!("{code}, retry in {delay:?}"));
    Ok(())
}

/// Handles a failed compensation: retries while attempts are left, otherwise the instance is stuck.
pub(super) fn fail_compensation(run: &mut Execution<'_>, at: StepIndex, mut cause: FailureCause) {
    let action = run.action_of(at, true);
    let attempts = run.state.entry(at).retries.saturating_add(1);

    // A compensation whose expression has no value needs an operator, not another attempt.
    let has_values = !matches!(cause.code.as_str(), EXPRESSION_ERROR | UNDO_WITHOUT_VALUE);
    if attempts < action.max_attempts() && has_values {
        match schedule_retry(run, at, &cause.code, StepState::CompensationRetrying) {
            Ok(()) => return,
            Err(error) => {
                let Failure { code, message } = expression_error(&error);
                cause = FailureCause {
                    code,
                    message,
                    ..cause
                };
            }
        }
    }

    run.finish_wait(at, StepState::CompensationFailed);
    run.add_step_note(at, "compensation failed");
    run.failure = Some(cause);
}

pub(super) fn start_cancellation(run: &mut Execution<'_>, reason: &str) {
    run.state.flags.set(Flags::CANCELLED);
    let cause = FailureCause {
        code: "cancelled".to_owned(),
        message: reason.to_owned(),
        step: String::new(),
    };
    start_compensation(run, cause);
}
