//! Control requests of an operator: cancel; for a stuck instance, retry, skip and force-complete.
//!
//! | request | running | past the pivot | stuck | otherwise |
//! |---|---|---|---|---|
//! | cancel | compensates, towards cancelled | rejected | rejected | rejected |
//! | retry | rejected | rejected | retries all failed actions, attempts restart at one | rejected |
//! | skip | rejected | rejected | first compensation: compensated; first step: skipped | rejected |
//! | force-complete | rejected | rejected | ends without further steps or compensations | rejected |

use orlog_model::Failure;

use super::compiled::CompiledActionKind;
use super::state::{Flags, StepEntry, StepIndex};
use super::step_state::{Phase, StepState};
use super::transition::{Execution, NoTransition};
use crate::contract::FailureCause;
use crate::contract::ProgramError;

impl Execution<'_> {
    pub(super) fn cancel(&mut self, reason: &str) -> Result<(), NoTransition> {
        match self.state.phase {
            Phase::Running if self.state.flags.has(Flags::PIVOTED) => {
                return Err(NoTransition::Rejected("the instance is past the pivot"));
            }
            Phase::Running => {}
            Phase::Compensating => {
                return Err(NoTransition::Rejected("the instance is already compensating"));
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
        self.add_note("cancelled by request");
        self.start_cancellation(reason);
        Ok(())
    }

    pub(super) fn start_cancellation(&mut self, reason: &str) {
        self.state.flags.set(Flags::CANCELLED);
        let cause =
            FailureCause { code: "cancelled".to_owned(), message: reason.to_owned(), step: String::new() };
        self.start_compensation(cause);
    }

    /// Returns the first stuck step or element, in decision order, and whether its compensation is stuck.
    pub(super) fn stuck_step(&self) -> Option<(StepIndex, bool)> {
        if self.state.phase != Phase::Stuck {
            return None;
        }
        let compensation = self
            .state
            .compensating_step
            .filter(|at| self.state.entry(*at).state == StepState::CompensationFailed);
        compensation.map(|at| (at, true)).or_else(|| Some((self.blocked()?, false)))
    }

    pub(super) fn retry(&mut self) -> Result<(), NoTransition> {
        let Some(first) = self.stuck_step() else {
            return Err(NoTransition::Rejected("only a stuck instance can be retried"));
        };
        self.add_note("retry");
        while let Some(at) = self.blocked() {
            self.reset_to_pending(at);
        }
        if let (at, true) = first {
            self.restart(at, true);
            self.request_compensation(at);
        }
        Ok(())
    }

    /// Resets a step to pending; the next advance starts it.
    fn reset_to_pending(&mut self, at: StepIndex) {
        self.restart(at, false);
        self.state.entry_mut(at).state = StepState::Pending;
    }

    /// Restarts with a new attempt count. A restarted child saga must be distinguishable from the first.
    fn restart(&mut self, at: StepIndex, compensation: bool) {
        let child = matches!(self.action_of(at, compensation).kind, CompiledActionKind::Saga { .. });
        let entry = self.state.entry_mut(at);
        let retry_count = if child { entry.retries.saturating_add(1) } else { 0 };
        *entry = StepEntry { retries: retry_count, ..StepEntry::of(entry.state) };
    }

    pub(super) fn skip(&mut self) -> Result<(), NoTransition> {
        let Some((at, compensation)) = self.stuck_step() else {
            return Err(NoTransition::Rejected("only a stuck instance can skip"));
        };
        self.cancel_outstanding(at);
        if compensation {
            self.finish_wait(at, StepState::Compensated);
            self.state.compensating_step = None;
            self.add_step_note(at, "compensation skipped");
        } else {
            self.finish_wait(at, StepState::Skipped);
            self.add_step_note(at, "skipped by request");
        }
        Ok(())
    }

    pub(super) fn force_complete(&mut self) -> Result<(), NoTransition> {
        let Some((at, _)) = self.stuck_step() else {
            return Err(NoTransition::Rejected("only a stuck instance can be force-completed"));
        };
        self.cancel_outstanding(at);
        self.abandon_all();
        self.close_in_doubt_tasks();
        self.state.done.clear();
        self.state.flags.set(Flags::FORCED);
        self.add_note("force-completed");
        self.end_forced()?;
        Ok(())
    }

    fn end_forced(&mut self) -> Result<(), ProgramError> {
        let flags = self.state.flags;
        let over = |entry: &StepEntry| {
            entry.state.is_finished()
                || entry.state.is_compensation()
                || entry.state == StepState::CompensationPending
        };
        let completes = flags.has(Flags::PIVOTED) || self.state.steps.iter().all(over);
        if !flags.has(Flags::COMPENSATION_STARTED) && completes {
            return self.complete_saga();
        }
        if self.state.cause.is_none() {
            let message = "an operator force-completed the instance".to_owned();
            self.failure = Some(Failure { code: "forced".to_owned(), message: message.clone() });
            self.state.cause = Some(FailureCause { code: "forced".to_owned(), message, step: String::new() });
        }
        self.cancel_saga_timer();
        self.finish_compensated()
    }
}
