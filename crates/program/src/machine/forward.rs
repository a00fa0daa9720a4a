//! Forward: begins every step whose predecessors are over, and ends the saga when all are.

use super::compiled::{Call, Case, Step};
use super::execution::Run;
use super::join::{self, Ready};
use super::state::{At, Flags, Slot};
use super::step_input::expression_error;
use super::step_state::{Mark, Phase};
use crate::contract::Cause;
use crate::contract::Fault;
use crate::definition::Join;
use crate::expression::EvalError;

/// Why a step cannot begin.
pub(super) struct Unready {
    pub(super) code: String,
    pub(super) message: String,
}

impl From<EvalError> for Unready {
    fn from(error: EvalError) -> Self {
        let failure = expression_error(&error);
        Self { code: failure.code, message: failure.message }
    }
}

impl Unready {
    pub(super) fn cause(self, step: &Step) -> Cause {
        Cause { code: self.code, message: self.message, step: step.id.to_string() }
    }
}

impl Run<'_> {
    /// Begins what can begin. Steps that are over at once let those after them begin in the same go.
    pub(super) fn advance(&mut self) {
        let saga = self.saga;
        for index in saga.sorted.iter().copied() {
            match self.state.mark(index) {
                Mark::Waiting => match join::ready(saga, &self.state, index) {
                    Ready::Wait => continue,
                    ready => self.consider(index, ready),
                },
                Mark::Open if saga.steps[index].foreach.is_some() => self.next_elements(index),
                Mark::Open
                | Mark::Skipped
                | Mark::Done
                | Mark::Failed
                | Mark::GivenUp
                | Mark::Undoing
                | Mark::UndoFailed
                | Mark::Undone
                | Mark::Pausing
                | Mark::Bypassed
                | Mark::Doomed
                | Mark::UndoPausing
                | Mark::Blocked
                | Mark::Asking
                | Mark::AskingLate => continue,
            }
            let flags = self.state.flags;
            if flags.has(Flags::TURNED) || (flags.has(Flags::PIVOTED) && self.blocked().is_some()) {
                return;
            }
        }
    }

    fn consider(&mut self, index: usize, ready: Ready) {
        let step = &self.saga.steps[index];
        match ready {
            Ready::Wait => {}
            Ready::Bypass => {
                self.state.steps[index].mark = Mark::Bypassed;
                self.note(At::step(index), "bypassed");
            }
            Ready::Hopeless(wanted, live) => {
                let message =
                    format!("{} needs {wanted} of the steps before it, {live} can still be done", step.id);
                self.not_begun(At::step(index), Unready { code: "join_failed".to_owned(), message });
            }
            Ready::Begin => {
                if matches!(step.join, Join::AtLeast(_)) {
                    let lost = join::losers(self.saga, &self.state, index);
                    self.lose(&lost);
                }
                if let Err(unready) = self.begin_step(index, step) {
                    self.not_begun(At::step(index), unready);
                }
            }
        }
    }

    pub(super) fn not_begun(&mut self, at: At, unready: Unready) {
        self.note(at, &unready.code);
        self.fail(at, Mark::Failed, unready.cause(self.step(at)));
    }

    fn begin_step(&mut self, index: usize, step: &Step) -> Result<(), Unready> {
        let at = At::step(index);
        if let Some(when) = &step.when
            && !when.holds(&self.bindings(at))?
        {
            self.state.steps[index] = Slot::of(Mark::Skipped);
            self.note(at, "skipped");
            return Ok(());
        }
        match (&step.foreach, &step.task.call) {
            (Some(foreach), _) => self.begin_elements(index, foreach),
            (None, Call::Switch(cases)) => self.choose(at, cases),
            (None, _) => Ok(self.ask(at, false)?),
        }
    }

    /// Takes the first way whose condition holds.
    fn choose(&mut self, at: At, cases: &[Case]) -> Result<(), Unready> {
        for (number, case) in cases.iter().enumerate() {
            let taken = case.when.as_ref().map_or(Ok(true), |when| when.holds(&self.bindings(at)))?;
            if taken {
                let again = u32::try_from(number).expect("a definition of 1 MiB has fewer cases");
                *self.state.slot_mut(at) = Slot { again, ..Slot::of(Mark::Done) };
                let ways: Vec<_> = case.then.iter().map(|step| self.saga.steps[*step].id.as_str()).collect();
                self.note(at, &format!("to {}", ways.join(" and ")));
                self.step_done(at.step);
                return Ok(());
            }
        }
        let message = format!("{}: no case fits", self.step(at).id);
        Err(Unready { code: "no_case".to_owned(), message })
    }

    pub(super) fn complete_saga(&mut self) -> Result<(), Fault> {
        self.state.phase = Phase::Completed;
        self.state.flags.set(Flags::COMPLETED);
        self.state.done.clear();
        self.cancel_saga_timer();
        if self.state.flags.has(Flags::TOLD) {
            self.say("completed again");
            return Ok(());
        }
        self.say("completed");
        self.tell(self.saga.completed.as_ref())
    }
}
