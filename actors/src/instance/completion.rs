//! Completion of an input after its consequences are durable: acknowledge, reply or nothing.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlog_effect::ResultReceipt;
use orlog_engine::Rejection;
use orlog_model::Status;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::shard::stream_progress::StreamProgress;

/// Receiver that waits until the consequences of an input are durable. Dropping it has no effect:
/// the source delivers the input again after a restart, and a caller receives the error that the
/// shard is unavailable.
pub(crate) enum Completion {
    /// No receiver.
    None,
    /// Acknowledgement of a bus message.
    Ack(Arc<SharedAck>),
    /// Place of a fired timer; dropping it frees the place.
    Timer(OwnedSemaphorePermit),
    /// Receipt of a work result that an external worker reported.
    Receipt(ResultReceipt),
    /// Reply to an API caller, with the result when it is known.
    Reply(oneshot::Sender<ControlReply>, Option<ControlReply>),
}

/// Reply to an API caller.
pub(crate) type ControlReply = Result<ControlResult, ControlError>;

impl Completion {
    /// Creates a completion for a change that belongs to no input.
    pub(crate) fn for_caller() -> (Self, oneshot::Receiver<ControlReply>) {
        let nothing = ControlResult {
            applied: true,
            reason: None,
            version: 0,
            status: Status::Running,
            paused: false,
            is_deferred: false,
        };

        let (reply, response) = oneshot::channel();
        (Completion::Reply(reply, Some(Ok(nothing))), response)
    }

    /// Sets the reply for a caller; `response` runs only if there is a caller.
    pub(crate) fn with_reply(self, response: impl FnOnce() -> ControlReply) -> Self {
        match self {
            Completion::Reply(reply, _) => Completion::Reply(reply, Some(response())),
            Completion::None
            | Completion::Ack(_)
            | Completion::Timer(_)
            | Completion::Receipt(_) => self,
        }
    }

    /// Moves an acknowledgement into the group commit that contains the consequences; returns any
    /// other completion unchanged.
    pub(crate) fn stage(self) -> Self {
        match self {
            Completion::Ack(ack) => {
                // Only the last instance acknowledges: the message has consequences in each of
                // them.
                if ack.count_down() {
                    ack.stream.stage(ack.sequence);
                }
                Completion::None
            }
            other => other,
        }
    }

    /// Notifies the receiver: the consequences are durable, or there are none.
    pub(crate) fn complete(self) {
        match self {
            Completion::None => {}
            Completion::Ack(ack) => {
                if ack.count_down() {
                    ack.stream.acker.ack(ack.sequence);
                }
            }
            Completion::Timer(place) => drop(place),
            Completion::Receipt(receipt) => receipt.stored(),
            // An error means that the caller is gone.
            Completion::Reply(reply, response) => {
                drop(reply.send(response.unwrap_or(Err(ControlError::Unavailable))));
            }
        }
    }
}

/// Acknowledgement of a message for one or more instances; sent with the commit of the last
/// instance.
pub(crate) struct SharedAck {
    stream: Arc<StreamProgress>,
    sequence: u64,
    remaining: AtomicUsize,
}

impl SharedAck {
    /// Creates the acknowledgement of a message for `receivers` instances.
    pub(crate) fn new(stream: Arc<StreamProgress>, sequence: u64, receivers: usize) -> Arc<Self> {
        Arc::new(Self {
            stream,
            sequence,
            remaining: AtomicUsize::new(receivers),
        })
    }

    /// Counts an instance whose commit is in the group in construction; returns whether it was the
    /// last one.
    fn count_down(&self) -> bool {
        self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Reason of a control request that the instance applied before.
pub const ALREADY_APPLIED: &str = "the input was already applied";

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
    /// The request is stored, and applied when the instance is resumed.
    pub is_deferred: bool,
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
