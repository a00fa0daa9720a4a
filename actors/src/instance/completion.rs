//! What happens once the consequences of an input are durable: acknowledge, answer, or nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlog_bus::Acker;
use orlog_model::Status;
use tokio::sync::oneshot;

use crate::runtime::control::{ControlError, Controlled};

/// Who waits for an input's consequences to be durable. Dropping it does nothing: the source delivers the input again
/// after a restart, and a caller learns that the shard is not available.
pub(crate) enum Done {
    /// Nobody waits.
    Nothing,
    /// A message of the bus.
    Ack(Arc<Ack>),
    /// A caller of the API, and the answer once it is known.
    Reply(oneshot::Sender<Answer>, Option<Answer>),
}

/// What to tell a caller.
pub(crate) type Answer = Result<Controlled, ControlError>;

impl Done {
    /// Tells whoever has a change made that belongs to no input.
    pub(crate) fn for_someone() -> (Self, oneshot::Receiver<Answer>) {
        let nothing =
            Controlled { applied: true, why: None, version: 0, status: Status::Running, paused: false };
        let (reply, answer) = oneshot::channel();
        (Done::Reply(reply, Some(Ok(nothing))), answer)
    }

    /// Notes the answer for a caller; it is only made when there is one.
    pub(crate) fn answered(self, answer: impl FnOnce() -> Answer) -> Self {
        match self {
            Done::Reply(reply, _) => Done::Reply(reply, Some(answer())),
            Done::Nothing | Done::Ack(_) => self,
        }
    }

    /// The consequences are durable, or there are none: tells whoever waits.
    pub(crate) fn complete(self) {
        match self {
            Done::Nothing => {}
            Done::Ack(ack) => ack.one_done(),
            // An error means that the caller went away.
            Done::Reply(reply, answer) => drop(reply.send(answer.unwrap_or(Err(ControlError::Unavailable)))),
        }
    }
}

/// The acknowledgement of a message that went to one or more instances: sent when the last is done.
pub(crate) struct Ack {
    acker: Arc<dyn Acker>,
    sequence: u64,
    remaining: AtomicUsize,
}

impl Ack {
    /// For a message that goes to `receivers` instances.
    pub(crate) fn new(acker: Arc<dyn Acker>, sequence: u64, receivers: usize) -> Arc<Self> {
        Arc::new(Self { acker, sequence, remaining: AtomicUsize::new(receivers) })
    }

    fn one_done(&self) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.acker.ack(self.sequence);
        }
    }
}
