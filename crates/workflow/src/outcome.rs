//! End of a run, as its caller receives it.

use crate::backend::BackendError;
use crate::error::{Failure, TaskError};
use crate::state::{Phase, State};
use crate::value::{Data, Value};

/// Reason why a run has no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The workflow failed. Its completed tasks are compensated.
    #[error("{0}")]
    Failed(Failure),
    /// The workflow was cancelled. Its completed tasks are compensated.
    #[error("the workflow was cancelled")]
    Cancelled,
    /// A compensation failed for good. Retry or skip it (`Client::retry_compensation`,
    /// `Client::skip_compensation`).
    #[error("the compensation is stuck: {0}")]
    Stuck(Failure),
    /// The runner stopped before the end. The instance continues when a runner resumes it.
    #[error("the runner stopped before the workflow ended; resume the instance")]
    Suspended,
    /// An instance with this id exists.
    #[error("instance \"{id}\" exists; resume it, or use another id")]
    Exists {
        /// Id of the instance.
        id: String,
    },
    /// No instance has this id.
    #[error("no instance \"{id}\" exists, or it has ended")]
    NotFound {
        /// Id of the instance.
        id: String,
    },
    /// The stored instance needs functions that this process does not have, or it started with
    /// another version.
    #[error("instance \"{id}\" cannot continue: {reason}")]
    Incompatible {
        /// Id of the instance.
        id: String,
        /// Mismatch, with its remedy.
        reason: String,
    },
    /// A value cannot be encoded or decoded.
    #[error("a value cannot be stored or read: {reason}")]
    Value {
        /// Description.
        reason: String,
    },
    /// The backend failed, or another holder has claimed the instance.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl From<TaskError> for RunError {
    fn from(error: TaskError) -> Self {
        Self::Value {
            reason: error.message().to_owned(),
        }
    }
}

/// Returns the output of an instance that has ended; [`RunError::Suspended`] if it has not.
pub(crate) fn output(state: &State) -> Result<Value, RunError> {
    let failure = || state.failure.clone();
    match state.phase {
        Phase::Completed => state.output.clone().ok_or_else(|| RunError::Value {
            reason: "the output is not stored".to_owned(),
        }),
        Phase::Failed => Err(failure().map_or(RunError::Suspended, RunError::Failed)),
        Phase::Cancelled => Err(RunError::Cancelled),
        // The operator needs the error of the compensation, not the failure before it.
        Phase::Stuck => Err(state
            .undo
            .error
            .clone()
            .or_else(failure)
            .map_or(RunError::Suspended, RunError::Stuck)),
        Phase::Running | Phase::Draining | Phase::Compensating => Err(RunError::Suspended),
    }
}

/// Returns the output with its type.
pub(crate) fn typed_output<Out: Data>(value: Result<Value, RunError>) -> Result<Out, RunError> {
    Ok(value?.take::<Out>()?)
}
