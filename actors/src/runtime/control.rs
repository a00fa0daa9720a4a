//! Answers to those who instruct one instance.

use std::borrow::Cow;

use orlog_engine::Refusal;
use orlog_model::Status;

/// An instruction was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controlled {
    /// Something changed; `false` for a repetition or something that means nothing now.
    pub applied: bool,
    /// Why nothing changed, where nothing did.
    pub why: Option<Cow<'static, str>>,
    /// The state version the instance stands at.
    pub version: u64,
    /// Where it stands.
    pub status: Status,
    /// Whether it is paused.
    pub paused: bool,
}

/// An instruction was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The instance or its status forbids it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be applied and was set aside; the text says why.
    #[error("it was set aside as a dead letter: {0}")]
    SetAside(String),
    /// The shard is restarting or draining; try again.
    #[error("the shard is not available; try again")]
    Unavailable,
}
