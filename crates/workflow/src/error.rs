//! Errors of tasks and the failure that ends an instance.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Error of a task: retried according to the retry policy of its step, unless it is permanent.
///
/// Each error type converts into a retryable error, so `?` works in tasks. This type therefore does
/// not implement [`std::error::Error`].
///
/// ```
/// use orlog_workflow::TaskError;
///
/// fn parse(text: &str) -> Result<u32, TaskError> {
///     text.parse()
///         .map_err(|error| TaskError::permanent(format!("invalid number {text:?}: {error}")))
/// }
/// assert!(parse("x").unwrap_err().is_permanent());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    message: String,
    permanent: bool,
    /// Type and data of the failure event.
    #[serde(skip)]
    event: Option<Box<(&'static str, serde_json::Value)>>,
}

impl TaskError {
    /// Returns an error that a further attempt may not have.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            permanent: false,
            event: None,
        }
    }

    /// Returns an error that each attempt would have: the task is not retried.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            permanent: true,
            event: None,
        }
    }

    /// Returns a permanent error that is an event.
    pub(crate) fn with_event(message: String, kind: &'static str, data: serde_json::Value) -> Self {
        Self {
            message,
            permanent: true,
            event: Some(Box::new((kind, data))),
        }
    }

    /// Returns type and data of the event, if the error is one.
    #[cfg(feature = "program")]
    pub(crate) fn failure_event(&self) -> Option<(&'static str, &serde_json::Value)> {
        self.event.as_ref().map(|event| (event.0, &event.1))
    }

    /// Returns whether the task is not retried.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for TaskError {
    fn from(error: E) -> Self {
        // An unknown error can be temporary, so only an explicit error is permanent.
        Self::retryable(error.to_string())
    }
}

/// Reason why an instance failed, or why its compensation is stuck.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A task returned an error or panicked, and has no attempt left.
    #[error("task \"{step}\" failed after {attempts} attempt(s): {message}")]
    TaskFailed {
        /// Path of the step.
        step: String,
        /// Message of the last error.
        message: String,
        /// Number of attempts.
        attempts: u32,
    },
    /// A task did not end before its deadline. It is unknown whether the task had an effect.
    #[error("task \"{step}\" did not end before its deadline")]
    TaskTimedOut {
        /// Path of the step.
        step: String,
        /// Deadline, in milliseconds since the Unix epoch.
        deadline_ms: u64,
    },
    /// A signal did not arrive in time.
    #[error("signal \"{step}\" did not arrive within {timeout:?}")]
    SignalTimedOut {
        /// Path of the step.
        step: String,
        /// Timeout of the step.
        timeout: Duration,
    },
    /// A loop reached its bound while its condition still holds.
    #[error("loop \"{step}\" still has to continue after {rounds} round(s), its bound")]
    LoopBound {
        /// Path of the step.
        step: String,
        /// Bound.
        rounds: u32,
    },
    /// The workflow itself is wrong at this step: a condition panicked, or a stored value has
    /// another type.
    #[error("step \"{step}\" cannot be decided: {message}")]
    Invalid {
        /// Path of the step.
        step: String,
        /// Description.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_standard_library_are_retryable() {
        fn parse() -> Result<u32, TaskError> {
            Ok("x".parse::<u32>()?)
        }
        assert!(!parse().expect_err("not a number").is_permanent());
    }
}
