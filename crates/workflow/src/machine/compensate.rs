//! Compensation: completed tasks in reverse order, one after another.

use super::base::{Fault, Machine};
use crate::error::{Failure, TaskError};
use crate::graph::StepKind;
use crate::progress::Progress;
use crate::retry::{Retry, millis};
use crate::state::{Completed, Phase, UndoAttempt};

impl Machine<'_> {
    /// Starts compensation after the last started task has ended.
    pub(super) fn start_compensation(&mut self) {
        self.state.phase = Phase::Compensating;
        // No step waits for a signal any more.
        self.state.buffered.clear();

        let tasks = self.state.compensations.len();
        if tasks > 0 {
            self.emit(Progress::Compensating { tasks });
        }
        self.end_compensation();
    }

    /// Applies the end of an attempt of the last compensation.
    pub(crate) fn compensated(&mut self, result: Result<(), Fault>) {
        self.state.undo.is_running = false;
        if self.state.phase != Phase::Compensating {
            return;
        }
        let Some(last) = self.state.compensations.last() else {
            return;
        };

        let step = self.path_of(last).display();
        match result {
            Ok(()) => {
                self.emit(Progress::Compensated { step });
                self.pop_compensation();
            }
            Err(Fault::TimedOut) => {
                let reason = "the compensation did not end within the timeout of its task";
                self.compensation_failed(step, &TaskError::retryable(reason));
            }
            Err(Fault::Error(error)) => self.compensation_failed(step, &error),
        }
    }

    /// Plans the next attempt of the last compensation, or leaves it to an operator, who retries,
    /// skips or completes by force.
    fn compensation_failed(&mut self, step: String, error: &TaskError) {
        let attempts = self.state.undo.failed + 1;
        let delay = match self.state.compensations.last() {
            Some(last) if !error.is_permanent() => self.undo_retry(last).delay_after(attempts),
            _ => None,
        };
        let message = error.message().to_owned();
        self.emit(Progress::CompensationFailed {
            step: step.clone(),
            message: message.clone(),
            retry_in: delay,
        });

        let failure = Failure::TaskFailed {
            step,
            message,
            attempts,
        };
        self.state.undo = UndoAttempt {
            failed: attempts,
            not_before_ms: delay.map(|delay| self.now_ms.saturating_add(millis(delay))),
            error: Some(failure.clone()),
            is_running: false,
        };
        if delay.is_none() {
            self.state.phase = Phase::Stuck;
            self.emit(Progress::Stuck(failure));
        }
    }

    /// Applies the decision of an operator to retry the compensation that made the instance stuck.
    pub(crate) fn retry_compensation(&mut self) {
        if self.state.phase == Phase::Stuck {
            self.state.phase = Phase::Compensating;
            // The attempts count from the start again: the operator may have removed the cause.
            self.state.undo = UndoAttempt::default();
        }
    }

    /// Applies the decision of an operator to skip the compensation that made the instance stuck.
    pub(crate) fn skip_compensation(&mut self) {
        if self.state.phase == Phase::Stuck {
            self.state.phase = Phase::Compensating;
            self.pop_compensation();
        }
    }

    /// Ends a stuck instance without further compensations.
    #[cfg(feature = "program")]
    pub(crate) fn drop_compensations(&mut self) {
        if self.state.phase == Phase::Stuck {
            self.state.compensations.clear();
            self.end_compensation();
        }
    }

    fn pop_compensation(&mut self) {
        self.state.compensations.pop();
        self.state.undo = UndoAttempt::default();
        self.end_compensation();
    }

    /// Ends the instance if no compensation is left.
    fn end_compensation(&mut self) {
        if !self.state.compensations.is_empty() {
            return;
        }

        // A task that fails after the cancellation does not make the instance a failed one.
        let (phase, event) = match self.state.failure.clone().filter(|_| !self.state.cancelled) {
            Some(failure) => (Phase::Failed, Progress::Failed(failure)),
            None => (Phase::Cancelled, Progress::Cancelled),
        };
        self.state.phase = phase;
        self.emit(event);
    }

    fn undo_retry(&self, completed: &Completed) -> Retry {
        let policy = match self.kind(completed.step) {
            Some(StepKind::Task(policy)) => policy.clone(),
            _ => return Retry::default(),
        };

        // Without an output, the outcome of the task is unknown.
        let retry = if completed.output.is_some() {
            policy.undo
        } else {
            policy.undo_unknown
        };

        retry.unwrap_or_default()
    }
}
