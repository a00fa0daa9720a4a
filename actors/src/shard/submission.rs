//! Mailbox of the committer: submissions in order, each with the receiver of its completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender};
use orlog_model::{Change, DeadLetter, DeadLetterOriginal, Timestamp, TraceParent};

use crate::instance::completion::{Completion, ControlError};
use crate::instance::mailbox::Mailbox;
use crate::telemetry::metrics::Metrics;
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
        Self {
            change,
            extra: None,
            done,
            mailbox: None,
            decided: None,
        }
    }

    /// Creates the submission of a dead letter that results from no input of an instance, and
    /// counts it. Retention counts from `now`, regardless of the age of the message.
    pub(crate) fn dead_letter(
        dead_letter: DeadLetter,
        now: Timestamp,
        metrics: &Metrics,
        done: Completion,
    ) -> Self {
        let trace_id = match &dead_letter.original {
            DeadLetterOriginal::Input(input) => input.trace().map(TraceParent::trace_id),
            DeadLetterOriginal::Message { .. } => None,
        };

        let tenant = &dead_letter.tenant;
        let reason = dead_letter.reason.as_str();
        let error = &dead_letter.message;
        tracing::warn!(%tenant, trace_id, reason, error, "dead letter");

        metrics.count_dead_letter(dead_letter.reason);
        metrics
            .tenants
            .counters(&dead_letter.tenant)
            .dead_letters
            .inc();

        Self::new(
            Change::PutDeadLetter(Box::new(DeadLetter {
                at: now,
                ..dead_letter
            })),
            done,
        )
    }
}

/// Requests to the committer thread.
pub(crate) enum CommitterRequest {
    /// Make this submission durable.
    Submit(Box<Submission>),
    /// Stop the thread.
    Stop,
}

/// Sending side of the mailbox. If all handles are dropped, the committer stops.
#[derive(Clone)]
pub(crate) struct CommitterHandle {
    requests: Sender<CommitterRequest>,
    stop: Arc<AtomicBool>,
}

/// Receiving side of the mailbox.
pub(crate) struct CommitterMailbox {
    pub(crate) requests: Receiver<CommitterRequest>,
    stop: Arc<AtomicBool>,
}

impl CommitterMailbox {
    pub(crate) fn new() -> (CommitterHandle, Self) {
        let (sender, requests) = crossbeam_channel::unbounded();
        let stop = Arc::new(AtomicBool::new(false));
        (
            CommitterHandle {
                requests: sender,
                stop: Arc::clone(&stop),
            },
            Self { requests, stop },
        )
    }

    /// Returns true if the committer must not wait for a store that cannot commit.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

impl CommitterHandle {
    /// Returns the number of queued submissions.
    pub(crate) fn waiting(&self) -> usize {
        self.requests.len()
    }

    /// Submits a change; submissions keep their order.
    pub(crate) fn submit(&self, submission: Submission) -> Result<(), ShardUnavailable> {
        self.requests
            .send(CommitterRequest::Submit(Box::new(submission)))
            .map_err(|_| ShardUnavailable)
    }

    /// Stops the committer after the submissions that are queued now; a commit that waits for its
    /// store is abandoned.
    pub(crate) fn stop(&self) {
        // The flag ends a commit that waits for its store; the message ends the thread after the
        // queue.
        self.stop.store(true, Ordering::Release);
        // An error means that the thread has already ended.
        drop(self.requests.send(CommitterRequest::Stop));
    }
}
