//! Results of control requests to one instance.

use std::borrow::Cow;

use orlog_engine::Rejection;
use orlog_model::Status;

/// Result of an accepted control request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlResult {
    /// The request changed the instance; `false` for a repetition or a request without effect.
    pub applied: bool,
    /// Reason why nothing changed.
    pub reason: Option<Cow<'static, str>>,
    /// Current state version of the instance.
    pub version: u64,
    /// Current status of the instance.
    pub status: Status,
    /// The instance is paused.
    pub paused: bool,
}

/// Error of a control request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The instance or its status does not permit the request.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The request could not be applied and was dead-lettered; contains the reason.
    #[error("input was dead-lettered: {0}")]
    DeadLettered(String),
    /// The shard is restarting or draining; retry.
    #[error("shard is unavailable; retry")]
    Unavailable,
}
