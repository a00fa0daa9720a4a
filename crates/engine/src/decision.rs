//! What comes of an input: a commit, nothing, or a refusal with the reason.

use std::borrow::Cow;

use orlog_model::{Commit, Input, InstanceKey, Status, Timestamp};
use uuid::Uuid;

use crate::context::cleared;

/// What is to be done about an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Store this; the instance changed, or the input was kept or set aside.
    Commit(Box<Commit>),
    /// Nothing changes for the instance. The commit, where there is one, only clears away rows of the input.
    Ignore {
        /// Why, for the log.
        why: Cow<'static, str>,
        /// What to clear away.
        clear: Option<Box<Commit>>,
    },
    /// An instruction that the status forbids. Nothing changes.
    Refuse(Refusal),
}

/// Why an instruction is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such instance.
    #[error("there is no such saga instance")]
    NotFound,
    /// The instance has moved on since the caller looked.
    #[error("the instance stands at version {actual}, not {expected}")]
    Version {
        /// What the caller expected.
        expected: u64,
        /// Where it stands.
        actual: u64,
    },
    /// The status forbids it.
    #[error("the instance is {status}{}: {why}", if *.paused { " and paused" } else { "" })]
    Status {
        /// Where it stands.
        status: Status,
        /// Whether it is paused.
        paused: bool,
        /// Why that forbids it.
        why: Cow<'static, str>,
    },
    /// It has no such task that is open.
    #[error("the instance has no open task {id}")]
    NoTask {
        /// Which.
        id: Uuid,
    },
    /// Somebody else has the task, or it cannot be done so.
    #[error("{why}")]
    Task {
        /// Why.
        why: String,
    },
    /// It cannot go on with that definition.
    #[error("it must stay with its definition: {}", reasons.join("; "))]
    Blocked {
        /// One sentence for each obstacle.
        reasons: Vec<String>,
    },
}

pub(crate) fn ignore(why: impl Into<Cow<'static, str>>) -> Decision {
    Decision::Ignore { why: why.into(), clear: None }
}

pub(crate) fn ignore_and_clear(
    key: &InstanceKey,
    input: &Input,
    now: Timestamp,
    why: impl Into<Cow<'static, str>>,
) -> Decision {
    let commit = cleared(key, input, now);
    let clears = commit.settles.is_some() || !commit.disarm.is_empty();
    Decision::Ignore { why: why.into(), clear: clears.then(|| Box::new(commit)) }
}
