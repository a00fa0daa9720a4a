//! Compensation: abandons steps in progress, compensates completed steps one after another, and ends
//! the saga.

use std::sync::LazyLock;

use orlog_model::Failure;

use super::state::{Flags, StepEntry, StepIndex};
use super::step_input::expression_error;
use super::step_state::{Phase, StepState};
use super::transition::Execution;
use crate::contract::FailureCause;
use crate::contract::ProgramError;

/// `failure` in the compensation of completed steps that are not needed.
pub(super) static RACE_LOST: LazyLock<FailureCause> = LazyLock::new(|| FailureCause {
    code: "race_lost".to_owned(),
    message: "the step is no longer needed".to_owned(),
    step: String::new(),
});

impl Execution<'_> {
    /// Starts compensation: no new steps, no timers; abandons steps in progress and compensates completed
    /// ones.
    pub(super) fn start_compensation(&mut self, cause: FailureCause) {
        self.abandon_all();
        self.cancel_saga_timer();
        if !self.state.flags.has(Flags::CANCELLED) {
            self.failure = Some(Failure { code: cause.code.clone(), message: cause.message.clone() });
        }
        self.state.cause = Some(cause);
        self.state.flags.set(Flags::COMPENSATION_STARTED);
    }

    pub(super) fn abandon_all(&mut self) {
        for step in 0..self.saga.steps.len() {
            for at in self.step_and_elements(step) {
                self.abandon(at);
            }
        }
    }

    /// Abandons a step that is in progress.
    pub(super) fn abandon(&mut self, at: StepIndex) {
        if !self.state.entry(at).state.is_in_progress() {
            return;
        }
        if at.element.is_none() && self.step(at).foreach.is_some() {
            self.state.steps[at.step] = StepEntry::of(StepState::Abandoned);
            return;
        }
        if self.state.entry(at).state == StepState::InDoubt {
            return self.finish_wait(at, StepState::InDoubtAbandoned);
        }
        self.cancel_outstanding(at);
        self.finish_wait(at, StepState::Abandoned);
    }

    /// Discards these steps: bypasses pending steps, abandons those in progress, and schedules the
    /// compensation of completed ones.
    pub(super) fn discard_branches(&mut self, steps: &[usize]) {
        for step in steps.iter().copied() {
            for at in self.step_and_elements(step) {
                self.abandon(at);
            }
            let entry = &mut self.state.steps[step];
            if matches!(entry.state, StepState::Pending | StepState::Blocked) {
                *entry = StepEntry::of(StepState::Bypassed);
                self.add_step_note(StepIndex::step(step), "bypassed");
            }
        }
        for at in self.state.done.clone() {
            if steps.contains(&at.step) && self.state.entry(at).state == StepState::Completed {
                self.state.entry_mut(at).state = StepState::CompensationPending;
            }
        }
    }

    /// Requests the next compensation, last completed first, unless one is in progress. In the compensating
    /// phase, all completed steps are compensated; in the running phase, only discarded ones.
    pub(super) fn compensate_next(&mut self) {
        let compensation_started = self.state.flags.has(Flags::COMPENSATION_STARTED);
        while self.state.compensating_step.is_none() {
            let must_compensate = |at: &StepIndex| {
                compensation_started || self.state.entry(*at).state == StepState::CompensationPending
            };
            let Some(index) = self.state.done.iter().rposition(must_compensate) else { return };
            let at = self.state.done.remove(index);
            self.state.entry_mut(at).retries = 0;
            if self.step(at).compensation.is_none() {
                self.state.entry_mut(at).state = StepState::Compensated;
                continue;
            }
            self.state.compensating_step = Some(at);
            self.request_compensation(at);
        }
    }

    pub(super) fn request_compensation(&mut self, at: StepIndex) {
        if let Err(error) = self.request_action(at, true) {
            let Failure { code, message } = expression_error(&error);
            let step = self.step(at).id.to_string();
            self.fail_compensation(at, FailureCause { code, message, step });
        }
    }

    pub(super) fn finish_compensated(&mut self) -> Result<(), ProgramError> {
        let cancelled = self.state.flags.has(Flags::CANCELLED);
        self.state.phase = if cancelled { Phase::Cancelled } else { Phase::Failed };
        self.add_note(self.state.phase.status().as_str());
        if cancelled || self.state.flags.has(Flags::FACT_EMITTED) {
            return Ok(());
        }
        self.emit_fact(self.saga.failed.as_ref())
    }
}
