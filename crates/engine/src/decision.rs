//! Decision about an input: a commit, no change, or a rejection with its reason.

use std::borrow::Cow;

use orlog_model::{Commit, Input, InstanceKey, Status, Timestamp, WaitToken};
use uuid::Uuid;

use crate::context::cleanup_commit;

/// Decision about an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Store this commit: the instance changed, or the input was buffered or dead-lettered.
    Commit(Box<Commit>),
    /// The instance does not change. The commit, if any, only deletes rows of the input.
    Ignore {
        /// Reason, for the log.
        reason: Cow<'static, str>,
        /// Commit that deletes the rows of the input.
        cleanup: Option<Box<Commit>>,
    },
    /// The status forbids the control request. Nothing changes.
    Reject(Rejection),
}

/// Reason why a control request is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The instance does not exist.
    #[error("saga instance not found")]
    NotFound,
    /// The instance has another version than the caller expected.
    #[error("instance version is {actual}, expected {expected}")]
    VersionMismatch {
        /// Version that the caller expected.
        expected: u64,
        /// Version of the instance.
        actual: u64,
    },
    /// The wait that the caller names has ended.
    #[error("the wait {token} has ended; read the waits of the instance and decide again")]
    WaitEnded {
        /// Token of the wait.
        token: WaitToken,
    },
    /// The status forbids the request.
    #[error("the instance is {status}{}: {reason}", if *.paused { " and paused" } else { "" })]
    InvalidStatus {
        /// Status of the instance.
        status: Status,
        /// Whether the instance is paused.
        paused: bool,
        /// Reason why the status forbids the request.
        reason: Cow<'static, str>,
    },
    /// The instance exists, and the start request does not accept that.
    #[error("the instance exists and is {status}")]
    Exists {
        /// Status of the instance.
        status: Status,
    },
    /// The program did not start an instance.
    #[error("the instance was not started: {reason}")]
    StartRejected {
        /// Reason of the program, or what the request lacks.
        reason: String,
    },
    /// Another request has the idempotency key.
    #[error(
        "the idempotency key was used for another request; use another key, or repeat the first \
         request as it was"
    )]
    KeyReused,
    /// The stored data of the instance cannot be read.
    #[error(
        "the instance is quarantined, because its data cannot be read: {reason}; replay or drop it"
    )]
    Quarantined {
        /// Location and reason of the read error.
        reason: String,
    },
    /// The instance has no open task with this id.
    #[error("task {id} is not open")]
    TaskNotFound {
        /// Id of the task.
        id: Uuid,
    },
    /// Another user has claimed the task, or the task does not allow the request.
    #[error("{reason}")]
    TaskConflict {
        /// Reason of the conflict.
        reason: String,
    },
    /// The instance cannot migrate to the definition.
    #[error("instance cannot be migrated: {}", reasons.join("; "))]
    MigrationBlocked {
        /// Obstacles, one sentence each.
        reasons: Vec<String>,
    },
}

pub(crate) fn ignore(reason: impl Into<Cow<'static, str>>) -> Decision {
    Decision::Ignore {
        reason: reason.into(),
        cleanup: None,
    }
}

pub(crate) fn ignore_with_cleanup(
    key: &InstanceKey,
    input: &Input,
    now: Timestamp,
    reason: impl Into<Cow<'static, str>>,
) -> Decision {
    let commit = cleanup_commit(key, input, now);
    // Without a row to delete, the decision needs no commit.
    let clears = commit.settles.is_some() || !commit.disarm.is_empty();
    Decision::Ignore {
        reason: reason.into(),
        cleanup: clears.then(|| Box::new(commit)),
    }
}
