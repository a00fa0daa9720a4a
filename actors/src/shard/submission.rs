//! Submissions to the committer: the change to make durable and the receiver of its completion.

use std::sync::Arc;

use crossbeam_channel::Sender;
use orlog_model::Change;

use crate::instance::completion::Completion;
use crate::instance::mailbox::Mailbox;
use crate::runtime::control_result::ControlError;
use crate::telemetry::tracer::TransitionSpan;

/// The shard is restarting or stopped.
#[derive(Debug, thiserror::Error)]
#[error("shard is shutting down")]
pub(crate) struct ShardUnavailable;

impl From<ShardUnavailable> for ControlError {
    fn from(_: ShardUnavailable) -> Self {
        ControlError::Unavailable
    }
}

/// Change to be made durable.
pub(crate) struct Submission {
    pub(crate) change: Change,
    /// Extra change that is committed before `change`, in the same group.
    pub(crate) extra: Option<Change>,
    pub(crate) done: Completion,
    /// Mailbox that counts this commit.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    /// Transition span, if the commit is traced.
    pub(crate) decided: Option<Box<TransitionSpan>>,
}

impl Submission {
    /// Creates the submission of a change that belongs to no live instance.
    pub(crate) fn new(change: Change, done: Completion) -> Self {
        Self { change, extra: None, done, mailbox: None, decided: None }
    }
}

/// Requests to the committer thread.
pub(crate) enum CommitterRequest {
    /// Make this submission durable.
    Submit(Box<Submission>),
    /// Stop the thread.
    Stop,
}

/// Handle of the committer.
#[derive(Clone)]
pub(crate) struct CommitterHandle {
    requests: Sender<CommitterRequest>,
}

impl CommitterHandle {
    pub(crate) fn new(requests: Sender<CommitterRequest>) -> Self {
        Self { requests }
    }

    /// Returns the number of queued submissions.
    pub(crate) fn waiting(&self) -> usize {
        self.requests.len()
    }

    /// Submits a change; submissions keep their order.
    pub(crate) fn submit(&self, submission: Submission) -> Result<(), ShardUnavailable> {
        self.requests.send(CommitterRequest::Submit(Box::new(submission))).map_err(|_| ShardUnavailable)
    }
}
