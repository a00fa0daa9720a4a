//! What an operator can tell an instance: cancel, and for one that is stuck retry, skip, force-complete.
//!
//! | told | running | past the pivot | stuck | otherwise |
//! |---|---|---|---|---|
//! | cancel | turns back, towards cancelled | refused | refused | refused |
//! | retry | refused | refused | all that failed is asked for again, attempts counted anew | refused |
//! | skip | refused | refused | what is shown first: an undo counts as undone, a step as skipped | refused |
//! | force-complete | refused | refused | nothing more is done or undone | refused |

use orlog_model::Failure;

use super::compiled::Call;
use super::execution::{Run, Unchanged};
use super::state::{At, Flags, Slot};
use super::step_state::{Mark, Phase};
use crate::contract::Cause;
use crate::contract::Fault;

impl Run<'_> {
    pub(super) fn cancel(&mut self, reason: &str) -> Result<(), Unchanged> {
        match self.state.phase {
            Phase::Running if self.state.flags.has(Flags::PIVOTED) => {
                return Err(Unchanged::Refused("it is past the point of no return"));
            }
            Phase::Running => {}
            Phase::Compensating => return Err(Unchanged::Refused("it is being compensated already")),
            Phase::Completed | Phase::Failed | Phase::Cancelled => {
                return Err(Unchanged::Refused("it has ended"));
            }
            Phase::Stuck => {
                return Err(Unchanged::Refused("it is stuck; retry, skip or force-complete it"));
            }
        }
        self.say("cancelled by request");
        self.turn_towards_cancelled(reason);
        Ok(())
    }

    pub(super) fn turn_towards_cancelled(&mut self, reason: &str) {
        self.state.flags.set(Flags::CANCELLED);
        let cause = Cause { code: "cancelled".to_owned(), message: reason.to_owned(), step: String::new() };
        self.turn_back(cause);
    }

    /// What a person must decide, in the order in which it is to be decided: the place, and whether it is about an undo.
    pub(super) fn stuck_at(&self) -> Option<(At, bool)> {
        if self.state.phase != Phase::Stuck {
            return None;
        }
        let undo = self.state.undo.filter(|at| self.state.slot(*at).mark == Mark::UndoFailed);
        undo.map(|at| (at, true)).or_else(|| Some((self.blocked()?, false)))
    }

    pub(super) fn retry(&mut self) -> Result<(), Unchanged> {
        let Some(first) = self.stuck_at() else {
            return Err(Unchanged::Refused("only a stuck instance can be retried"));
        };
        self.say("retry");
        while let Some(at) = self.blocked() {
            self.let_wait(at);
        }
        if let (at, true) = first {
            self.begin_anew(at, true);
            self.ask_undo(at);
        }
        Ok(())
    }

    /// As if it had not begun; going on begins it.
    fn let_wait(&mut self, at: At) {
        self.begin_anew(at, false);
        self.state.slot_mut(at).mark = Mark::Waiting;
    }

    /// Counts attempts anew. A child that is begun again must be told from the first.
    fn begin_anew(&mut self, at: At, undo: bool) {
        let child = matches!(self.task(at, undo).call, Call::Saga { .. });
        let slot = self.state.slot_mut(at);
        let again = if child { slot.again.saturating_add(1) } else { 0 };
        *slot = Slot { again, ..Slot::of(slot.mark) };
    }

    pub(super) fn skip(&mut self) -> Result<(), Unchanged> {
        let Some((at, undo)) = self.stuck_at() else {
            return Err(Unchanged::Refused("only what is stuck can be skipped"));
        };
        self.release(at);
        if undo {
            self.close(at, Mark::Undone);
            self.state.undo = None;
            self.note(at, "undo skipped");
        } else {
            self.close(at, Mark::Skipped);
            self.note(at, "skipped by request");
        }
        Ok(())
    }

    pub(super) fn force_complete(&mut self) -> Result<(), Unchanged> {
        let Some((at, _)) = self.stuck_at() else {
            return Err(Unchanged::Refused("only a stuck instance can be ended by force"));
        };
        self.release(at);
        self.give_up_all();
        self.close_questions();
        self.state.done.clear();
        self.state.flags.set(Flags::FORCED);
        self.say("ended by force");
        self.end_as_it_is()?;
        Ok(())
    }

    fn end_as_it_is(&mut self) -> Result<(), Fault> {
        let flags = self.state.flags;
        let over = |slot: &Slot| slot.mark.is_over() || slot.mark.is_undo() || slot.mark == Mark::Doomed;
        let completes = flags.has(Flags::PIVOTED) || self.state.steps.iter().all(over);
        if !flags.has(Flags::TURNED) && completes {
            return self.complete_saga();
        }
        if self.state.cause.is_none() {
            let message = "a person ended it as it was".to_owned();
            self.failure = Some(Failure { code: "forced".to_owned(), message: message.clone() });
            self.state.cause = Some(Cause { code: "forced".to_owned(), message, step: String::new() });
        }
        self.cancel_saga_timer();
        self.end_compensated()
    }
}
