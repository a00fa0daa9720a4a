//! Progress of an instance, for people and tools.

use std::time::Duration;

use crate::error::Failure;

/// Event in the execution of an instance. The step is its path: the name, and the indexes of
/// elements and rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// An attempt of a task starts.
    TaskStarted {
        /// Path of the step.
        step: String,
        /// Attempt, counted from 1.
        attempt: u32,
    },
    /// A task has completed.
    TaskCompleted {
        /// Path of the step.
        step: String,
    },
    /// An attempt of a task has failed.
    TaskFailed {
        /// Path of the step.
        step: String,
        /// Error.
        message: String,
        /// Delay before the next attempt, if there is one.
        retry_in: Option<Duration>,
    },
    /// A delay or a wait for a signal starts.
    Waiting {
        /// Path of the step.
        step: String,
    },
    /// A step that is not a task has ended: a delay, a wait, a fork, a condition, a list, a loop or
    /// a child workflow.
    StepCompleted {
        /// Path of the step.
        step: String,
    },
    /// Compensation starts.
    Compensating {
        /// Number of tasks to compensate.
        tasks: usize,
    },
    /// A task is compensated.
    Compensated {
        /// Path of the step.
        step: String,
    },
    /// An attempt of a compensation has failed.
    CompensationFailed {
        /// Path of the step.
        step: String,
        /// Error.
        message: String,
        /// Delay before the next attempt, if there is one.
        retry_in: Option<Duration>,
    },
    /// The workflow has completed.
    Completed,
    /// The workflow has failed, and its tasks are compensated.
    Failed(Failure),
    /// The workflow is cancelled, and its tasks are compensated.
    Cancelled,
    /// A compensation has failed for good. The instance requires an operator.
    Stuck(Failure),
}
