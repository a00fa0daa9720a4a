//! Forward execution: starts every step whose predecessors are finished, and ends the saga when all are
//! finished.

use super::compiled::{CompiledActionKind, CompiledCase, CompiledStep};
use super::join::{self, JoinState};
use super::state::{Flags, StepEntry, StepIndex};
use super::step_input::expression_error;
use super::step_state::{Phase, StepState};
use super::transition::Execution;
use crate::contract::FailureCause;
use crate::contract::ProgramError;
use crate::definition::Join;
use crate::expression::EvalError;

/// Reason why a step cannot start.
pub(super) struct StartError {
    pub(super) code: String,
    pub(super) message: String,
}

impl From<EvalError> for StartError {
    fn from(error: EvalError) -> Self {
        let failure = expression_error(&error);
        Self { code: failure.code, message: failure.message }
    }
}

impl StartError {
    pub(super) fn cause(self, step: &CompiledStep) -> FailureCause {
        FailureCause { code: self.code, message: self.message, step: step.id.to_string() }
    }
}

impl Execution<'_> {
    /// Starts all ready steps. Steps that finish immediately allow their successors to start in the same
    /// transition.
    pub(super) fn advance(&mut self) {
        let saga = self.saga;
        for index in saga.sorted.iter().copied() {
            match self.state.step_state(index) {
                StepState::Pending => match join::join_state(saga, &self.state, index) {
                    JoinState::Wait => continue,
                    ready => self.consider(index, ready),
                },
                StepState::Running if saga.steps[index].foreach.is_some() => self.start_next_elements(index),
                StepState::Running
                | StepState::Skipped
                | StepState::Completed
                | StepState::Failed
                | StepState::Abandoned
                | StepState::Compensating
                | StepState::CompensationFailed
                | StepState::Compensated
                | StepState::Retrying
                | StepState::Bypassed
                | StepState::CompensationPending
                | StepState::CompensationRetrying
                | StepState::Blocked
                | StepState::InDoubt
                | StepState::InDoubtAbandoned => continue,
            }
            let flags = self.state.flags;
            if flags.has(Flags::COMPENSATION_STARTED)
                || (flags.has(Flags::PIVOTED) && self.blocked().is_some())
            {
                return;
            }
        }
    }

    fn consider(&mut self, index: usize, ready: JoinState) {
        let step = &self.saga.steps[index];
        match ready {
            JoinState::Wait => {}
            JoinState::Bypass => {
                self.state.steps[index].state = StepState::Bypassed;
                self.add_step_note(StepIndex::step(index), "bypassed");
            }
            JoinState::Unsatisfiable(required, live) => {
                let message = format!(
                    "{} requires {required} of the preceding steps; only {live} can still complete",
                    step.id
                );
                self.fail_to_start(
                    StepIndex::step(index),
                    StartError { code: "join_failed".to_owned(), message },
                );
            }
            JoinState::Start => {
                if matches!(step.join, Join::AtLeast(_)) {
                    let losing = join::losing_branches(self.saga, &self.state, index);
                    self.discard_branches(&losing);
                }
                if let Err(error) = self.start_step(index, step) {
                    self.fail_to_start(StepIndex::step(index), error);
                }
            }
        }
    }

    pub(super) fn fail_to_start(&mut self, at: StepIndex, error: StartError) {
        self.add_step_note(at, &error.code);
        self.fail_step(at, StepState::Failed, error.cause(self.step(at)));
    }

    fn start_step(&mut self, index: usize, step: &CompiledStep) -> Result<(), StartError> {
        let at = StepIndex::step(index);
        if let Some(when) = &step.when
            && !when.holds(&self.bindings(at))?
        {
            self.state.steps[index] = StepEntry::of(StepState::Skipped);
            self.add_step_note(at, "skipped");
            return Ok(());
        }
        match (&step.foreach, &step.action.kind) {
            (Some(foreach), _) => self.start_elements(index, foreach),
            (None, CompiledActionKind::Switch(cases)) => self.choose(at, cases),
            (None, _) => Ok(self.request_action(at, false)?),
        }
    }

    /// Selects the first case whose condition holds.
    fn choose(&mut self, at: StepIndex, cases: &[CompiledCase]) -> Result<(), StartError> {
        for (number, case) in cases.iter().enumerate() {
            let applies = case.when.as_ref().map_or(Ok(true), |when| when.holds(&self.bindings(at)))?;
            if applies {
                let case_index = u32::try_from(number).expect("a definition of 1 MiB has fewer cases");
                *self.state.entry_mut(at) =
                    StepEntry { retries: case_index, ..StepEntry::of(StepState::Completed) };
                let step_ids: Vec<_> =
                    case.then.iter().map(|step| self.saga.steps[*step].id.as_str()).collect();
                self.add_step_note(at, &format!("to {}", step_ids.join(" and ")));
                self.complete_step(at.step);
                return Ok(());
            }
        }
        let message = format!("{}: no case matches", self.step(at).id);
        Err(StartError { code: "no_matching_case".to_owned(), message })
    }

    pub(super) fn complete_saga(&mut self) -> Result<(), ProgramError> {
        self.state.phase = Phase::Completed;
        self.state.flags.set(Flags::COMPLETED);
        self.state.done.clear();
        self.cancel_saga_timer();
        if self.state.flags.has(Flags::FACT_EMITTED) {
            self.add_note("completed again");
            return Ok(());
        }
        self.add_note("completed");
        self.emit_fact(self.saga.completed.as_ref())
    }
}
