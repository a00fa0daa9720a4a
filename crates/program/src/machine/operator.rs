//! Control requests of an operator: cancel; for a stuck instance, retry, skip and force-complete.
//!
//! | request | running | past the pivot | stuck | otherwise |
//! |---|---|---|---|---|
//! | cancel | compensates, towards cancelled | rejected | rejected | rejected |
//! | retry | rejected | rejected | retries all failed actions, attempts restart at one | rejected |
//! | skip | rejected | rejected | first compensation: compensated; first step: skipped | rejected |
//! | force-complete | rejected | rejected | ends; nothing else is executed | rejected |

use super::compensate::{abandon_all, request_compensation, start_cancellation};
use super::complete::{complete_saga, finish_compensated};
use super::execution::{Execution, NoTransition};
use super::in_doubt::stop_late_waits;
use super::request::cancel_outstanding;
use super::state::{Flags, StepEntry, StepIndex};
use super::step_state::{Phase, StepState};
use crate::contract::{FailureCause, ProgramError};
use crate::steps::CompiledActionKind;

pub(super) fn cancel(run: &mut Execution<'_>, reason: &str) -> Result<(), NoTransition> {
    match run.state.phase {
        Phase::Running if run.state.flags.has(Flags::PIVOTED) => {
            return Err(NoTransition::Rejected("the instance is past the pivot"));
        }
        Phase::Running => {}
        Phase::Compensating => {
            return Err(NoTransition::Rejected(
                "the instance is already compensating",
            ));
        }
        Phase::Completed | Phase::Failed | Phase::Cancelled => {
            return Err(NoTransition::Rejected("the instance has ended"));
        }
        Phase::Stuck => {
            return Err(NoTransition::Rejected(
                "the instance is stuck; retry, skip or force-complete it",
            ));
        }
    }

    run.add_note("cancelled by request");
    start_cancellation(run, reason);
    Ok(())
}

/// Returns the first stuck step or element, in decision order, and whether its compensation is
/// stuck.
pub(super) fn stuck_step(run: &Execution<'_>) -> Option<(StepIndex, bool)> {
    if run.state.phase != Phase::Stuck {
        return None;
    }
    let compensation = run
        .state
        .compensating_step
        .filter(|at| run.state.entry(*at).state == StepState::CompensationFailed);

    compensation
        .map(|at| (at, true))
        .or_else(|| Some((run.blocked()?, false)))
}

pub(super) fn retry(run: &mut Execution<'_>) -> Result<(), NoTransition> {
    let Some(first) = stuck_step(run) else {
        return Err(NoTransition::Rejected(
            "only a stuck instance can be retried",
        ));
    };

    run.add_note("retry");
    // All of them: one that stays blocked would make the instance stuck again at once.
    while let Some(at) = run.blocked() {
        reset_to_pending(run, at);
    }

    if let (at, true) = first {
        restart(run, at, true);
        request_compensation(run, at);
    }
    Ok(())
}

/// Resets a step to pending; the next advance starts it.
fn reset_to_pending(run: &mut Execution<'_>, at: StepIndex) {
    restart(run, at, false);
    run.state.entry_mut(at).state = StepState::Pending;
}

/// Restarts with a new attempt count.
fn restart(run: &mut Execution<'_>, at: StepIndex, compensation: bool) {
    let child = matches!(
        run.action_of(at, compensation).kind,
        CompiledActionKind::Saga(_)
    );

    // The number is part of the id of a child saga: the next child must not be the first one, which
    // has ended.
    let entry = run.state.entry_mut(at);
    let retry_count = if child {
        entry.retries.saturating_add(1)
    } else {
        0
    };
    *entry = StepEntry {
        retries: retry_count,
        null_allowed: entry.null_allowed,
        ..StepEntry::of(entry.state)
    };
}

pub(super) fn skip(run: &mut Execution<'_>) -> Result<(), NoTransition> {
    let Some((at, compensation)) = stuck_step(run) else {
        return Err(NoTransition::Rejected("only a stuck instance can skip"));
    };

    cancel_outstanding(run, at);
    // The skipped compensation counts as confirmed, so that the next one can start.
    if compensation {
        run.finish_wait(at, StepState::Compensated);
        run.state.compensating_step = None;
        run.add_step_note(at, "compensation skipped");
    } else {
        run.finish_wait(at, StepState::Skipped);
        run.add_step_note(at, "skipped by request");
    }
    Ok(())
}

pub(super) fn force_complete(run: &mut Execution<'_>) -> Result<(), NoTransition> {
    let Some((at, _)) = stuck_step(run) else {
        return Err(NoTransition::Rejected(
            "only a stuck instance can be force-completed",
        ));
    };

    cancel_outstanding(run, at);

    // Nothing of the instance may be in progress after its end.
    abandon_all(run);
    stop_late_waits(run);
    run.state.done.clear();
    run.state.flags.set(Flags::FORCED);
    run.add_note("force-completed");

    end_forced(run)?;
    Ok(())
}

fn end_forced(run: &mut Execution<'_>) -> Result<(), ProgramError> {
    let flags = run.state.flags;
    // If only the compensation of a discarded branch is stuck, the saga itself has completed.
    let is_over = run.state.steps.iter().all(|entry| {
        entry.state.is_finished()
            || entry.state.is_compensation()
            || entry.state == StepState::CompensationPending
    });
    let completes = flags.has(Flags::PIVOTED) || is_over;
    if !flags.has(Flags::COMPENSATION_STARTED) && completes {
        return complete_saga(run);
    }

    // The `failed` fact and its expressions need a cause, although no step has failed for good.
    if run.state.cause.is_none() {
        let message = "an operator force-completed the instance".to_owned();
        let cause = FailureCause {
            code: "forced".to_owned(),
            message,
            step: String::new(),
        };
        run.failure = Some(cause.clone());
        run.state.cause = Some(cause);
    }

    run.cancel_saga_timer();
    finish_compensated(run)
}
