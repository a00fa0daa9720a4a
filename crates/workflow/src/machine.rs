//! State machine of an instance: `(state, event) → state`, without I/O and without a clock.
//!
//! The machine calls conditions and list functions of the workflow once and stores their result in
//! the state; nothing is replayed. A runner stores the state after each event, starts the tasks
//! that are ready, and reports how they ended.

mod base;
mod compensate;
mod flow;
mod start;

use std::time::Duration;

pub(crate) use self::base::{Fault, Machine, panic_message};
pub(crate) use self::start::Attempt;
use crate::error::{Failure, TaskError};
use crate::graph::StepKind;
use crate::progress::Progress;
use crate::retry::millis;
use crate::state::{Branch, Phase, Work};
use crate::value::Value;

impl Machine<'_> {
    /// Applies the end of an attempt.
    pub(crate) fn finished(&mut self, branch: u32, result: Result<Value, Fault>) {
        let Some(found) = self.state.branch_mut(branch) else {
            return;
        };

        found.is_running = false;
        let Work::Task {
            attempt,
            deadline_ms,
            ..
        } = found.work
        else {
            return;
        };

        match result {
            Ok(output) => self.completed(branch, output),
            Err(Fault::TimedOut) => self.timed_out(branch, deadline_ms.unwrap_or(self.now_ms)),
            Err(Fault::Error(error)) => self.task_failed(branch, attempt, &error),
        }

        self.settle();
    }

    /// Applies the passage of time: delays end, waits for signals time out. Returns whether
    /// anything was due.
    pub(crate) fn tick(&mut self) -> bool {
        let now = self.now_ms;
        let is_due = |work: &Work| match work {
            Work::Delay { until_ms } => *until_ms <= now,
            Work::Signal { until_ms } => until_ms.is_some_and(|until| until <= now),
            Work::Task { .. } | Work::Children { .. } => false,
        };

        // Collected first: the steps that follow change the list of branches.
        let due: Vec<u32> = self
            .state
            .branches
            .iter()
            .filter(|branch| is_due(&branch.work))
            .map(|branch| branch.id)
            .collect();

        let is_changed = !due.is_empty();

        for branch in due {
            // A failure in between removes the waits of other branches.
            let Some(found) = self.state.branch(branch) else {
                continue;
            };

            if let (Work::Signal { .. }, Some(StepKind::Signal { timeout_ms })) =
                (&found.work, self.kind(found.at))
            {
                let timeout = Duration::from_millis(timeout_ms.unwrap_or_default());
                let step = self.path(branch).display();
                self.fail(Failure::SignalTimedOut { step, timeout });
            } else {
                self.next(branch);
            }
        }

        self.settle();
        is_changed
    }

    /// Applies a signal; it is buffered until a step waits for it.
    pub(crate) fn signal(&mut self, name: String, payload: Value) {
        if self.state.phase != Phase::Running {
            return;
        }

        let waits = |branch: &&Branch| {
            matches!(branch.work, Work::Signal { .. })
                && *self.definition.step_name(branch.at) == *name
        };
        // Of several branches that wait for the signal, the oldest receives it.
        let waiting = self
            .state
            .branches
            .iter()
            .find(waits)
            .map(|branch| branch.id);
        match waiting {
            Some(branch) => self.receive(branch, payload),
            // The step that waits for it may start later.
            None => self.state.buffered.push((name, payload)),
        }

        self.settle();
    }

    /// Applies a cancellation: tasks stop, completed ones are compensated. Has no effect once
    /// compensation has started.
    pub(crate) fn cancel(&mut self) {
        if !matches!(self.state.phase, Phase::Running | Phase::Draining) {
            return;
        }

        // An instance that has failed before ends as failed.
        self.state.cancelled = self.state.failure.is_none();

        let started = |work: &Work| {
            matches!(
                work,
                Work::Task {
                    is_started: true,
                    ..
                }
            )
        };

        let unknown: Vec<u32> = self
            .state
            .branches
            .iter()
            .filter(|branch| started(&branch.work))
            .map(|branch| branch.id)
            .collect();

        for branch in unknown {
            self.record_unknown(branch);
        }

        // The runner drops the futures of the tasks, so their branches are removed without waiting
        // for them.
        self.state.branches.clear();
        self.state.phase = Phase::Draining;
        self.settle();
    }

    /// Applies a cancellation where started tasks cannot be withdrawn: they end before the
    /// compensation starts.
    #[cfg(feature = "program")]
    pub(crate) fn cancel_after_started(&mut self) {
        if self.state.phase == Phase::Running {
            self.state.cancelled = true;
            self.drain();
            self.settle();
        }
    }

    /// Prepares a stored state: deadlines that expired fail the instance before a task is executed
    /// again. A task whose attempt may have started before is considered started. Returns whether
    /// anything has expired or was due.
    pub(crate) fn recover(&mut self) -> bool {
        let mut expired = Vec::new();
        for branch in &mut self.state.branches {
            if let Work::Task {
                is_started,
                deadline_ms,
                not_before_ms: None,
                ..
            } = &mut branch.work
            {
                *is_started = true;
                expired.extend(
                    deadline_ms
                        .filter(|deadline| *deadline <= self.now_ms)
                        .map(|deadline| (branch.id, deadline)),
                );
            }
        }

        let has_expired = !expired.is_empty();
        for (branch, deadline_ms) in expired {
            self.timed_out(branch, deadline_ms);
        }
        self.tick() || has_expired
    }

    fn completed(&mut self, branch: u32, output: Value) {
        if self.progress.is_some() {
            let step = self.path(branch).display();
            self.emit(Progress::TaskCompleted { step });
        }

        // Before the value is replaced: it is the input of the compensation.
        self.record(branch, Some(output.clone()));

        if self.state.phase == Phase::Running {
            if let Some(found) = self.state.branch_mut(branch) {
                found.value = output;
            }
            self.next(branch);
        } else {
            // The instance ends: the output is recorded for the compensation only.
            self.state.remove_branch(branch);
        }
    }

    fn task_failed(&mut self, branch: u32, attempt: u32, error: &TaskError) {
        let step = self.path(branch).display();
        let message = error.message().to_owned();

        // A task that failed while the instance ends is not repeated: its result would only be
        // compensated.
        let retry = self.policy(branch).retry;
        let delay = retry
            .delay_after(attempt)
            .filter(|_| !error.is_permanent() && self.state.phase == Phase::Running);

        self.emit(Progress::TaskFailed {
            step: step.clone(),
            message: message.clone(),
            retry_in: delay,
        });

        let not_before = delay.map(|delay| self.now_ms.saturating_add(millis(delay)));
        if not_before.is_some()
            && let Some(found) = self.state.branch_mut(branch)
        {
            let attempt = attempt + 1;
            found.work = Work::Task {
                attempt,
                is_started: false,
                deadline_ms: None,
                not_before_ms: not_before,
            };
        } else {
            self.state.remove_branch(branch);
            self.fail(Failure::TaskFailed {
                step,
                message,
                attempts: attempt,
            });
        }
    }

    fn timed_out(&mut self, branch: u32, deadline_ms: u64) {
        let step = self.path(branch).display();
        let message = "the task did not end before its deadline".to_owned();
        self.emit(Progress::TaskFailed {
            step: step.clone(),
            message,
            retry_in: None,
        });

        // The task may have had its effect, so it is compensated as one with an unknown outcome.
        self.record_unknown(branch);
        self.state.remove_branch(branch);
        self.fail(Failure::TaskTimedOut { step, deadline_ms });
    }
}
