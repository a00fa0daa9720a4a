//! Backward: gives up what is under way, undoes what is done, one after another, and ends the saga.

use std::sync::LazyLock;

use orlog_model::Failure;

use super::execution::Run;
use super::state::{At, Flags, Slot};
use super::step_input::expression_error;
use super::step_state::{Mark, Phase};
use crate::contract::Cause;
use crate::contract::Fault;

/// `failure` in the undo of what was done and is not needed.
pub(super) static LOST: LazyLock<Cause> = LazyLock::new(|| Cause {
    code: "lost".to_owned(),
    message: "it is not needed any more".to_owned(),
    step: String::new(),
});

impl Run<'_> {
    /// No new steps, no timers; what is under way is given up, what is done gets undone.
    pub(super) fn turn_back(&mut self, cause: Cause) {
        self.give_up_all();
        self.cancel_saga_timer();
        if !self.state.flags.has(Flags::CANCELLED) {
            self.failure = Some(Failure { code: cause.code.clone(), message: cause.message.clone() });
        }
        self.state.cause = Some(cause);
        self.state.flags.set(Flags::TURNED);
    }

    pub(super) fn give_up_all(&mut self) {
        for step in 0..self.saga.steps.len() {
            for at in self.places(step) {
                self.give_up(at);
            }
        }
    }

    /// Waits for it no longer, if it is under way.
    pub(super) fn give_up(&mut self, at: At) {
        if !self.state.slot(at).mark.is_under_way() {
            return;
        }
        if at.element.is_none() && self.step(at).foreach.is_some() {
            self.state.steps[at.step] = Slot::of(Mark::GivenUp);
            return;
        }
        if self.state.slot(at).mark == Mark::Asking {
            return self.close(at, Mark::AskingLate);
        }
        self.release(at);
        self.close(at, Mark::GivenUp);
    }

    /// These steps are not needed: what waits is bypassed, what is under way given up, what is done undone in its turn.
    pub(super) fn lose(&mut self, steps: &[usize]) {
        for step in steps.iter().copied() {
            for at in self.places(step) {
                self.give_up(at);
            }
            let slot = &mut self.state.steps[step];
            if matches!(slot.mark, Mark::Waiting | Mark::Blocked) {
                *slot = Slot::of(Mark::Bypassed);
                self.note(At::step(step), "bypassed");
            }
        }
        for at in self.state.done.clone() {
            if steps.contains(&at.step) && self.state.slot(at).mark == Mark::Done {
                self.state.slot_mut(at).mark = Mark::Doomed;
            }
        }
    }

    /// Asks for the next undo, newest completion first, unless one is under way. Having turned back, all is undone; going
    /// forward, what was lost.
    pub(super) fn undo_next(&mut self) {
        let turned = self.state.flags.has(Flags::TURNED);
        while self.state.undo.is_none() {
            let wanted = |at: &At| turned || self.state.slot(*at).mark == Mark::Doomed;
            let Some(place) = self.state.done.iter().rposition(wanted) else { return };
            let at = self.state.done.remove(place);
            self.state.slot_mut(at).again = 0;
            if self.step(at).undo.is_none() {
                self.state.slot_mut(at).mark = Mark::Undone;
                continue;
            }
            self.state.undo = Some(at);
            self.ask_undo(at);
        }
    }

    pub(super) fn ask_undo(&mut self, at: At) {
        if let Err(error) = self.ask(at, true) {
            let Failure { code, message } = expression_error(&error);
            let step = self.step(at).id.to_string();
            self.not_undone(at, Cause { code, message, step });
        }
    }

    pub(super) fn end_compensated(&mut self) -> Result<(), Fault> {
        let cancelled = self.state.flags.has(Flags::CANCELLED);
        self.state.phase = if cancelled { Phase::Cancelled } else { Phase::Failed };
        self.say(self.state.phase.status().as_str());
        if cancelled || self.state.flags.has(Flags::TOLD) {
            return Ok(());
        }
        self.tell(self.saga.failed.as_ref())
    }
}
