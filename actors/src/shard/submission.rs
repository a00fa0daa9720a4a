//! The way to the committer: what is to be made durable, and whom to tell.

use std::sync::Arc;

use crossbeam_channel::Sender;
use orlog_model::Change;

use crate::instance::completion::Done;
use crate::instance::mailbox::Cell;
use crate::runtime::control::ControlError;
use crate::telemetry::tracer::Decided;

/// The shard is restarting or stopped.
#[derive(Debug, thiserror::Error)]
#[error("the shard is going down")]
pub(crate) struct Unavailable;

impl From<Unavailable> for ControlError {
    fn from(_: Unavailable) -> Self {
        ControlError::Unavailable
    }
}

/// Something to be made durable.
pub(crate) struct Submission {
    pub(crate) change: Change,
    /// Committed before `change`, in the same group.
    pub(crate) extra: Option<Change>,
    pub(crate) done: Done,
    /// The cell that counts this commit.
    pub(crate) cell: Option<Arc<Cell>>,
    /// What was decided, where somebody follows it.
    pub(crate) decided: Option<Box<Decided>>,
}

impl Submission {
    /// A change that belongs to no live instance.
    pub(crate) fn of(change: Change, done: Done) -> Self {
        Self { change, extra: None, done, cell: None, decided: None }
    }
}

/// What the committer's thread is told.
pub(crate) enum Order {
    /// Make this durable.
    Submit(Box<Submission>),
    /// End.
    Stop,
}

/// The way to the committer.
#[derive(Clone)]
pub(crate) struct Committer {
    orders: Sender<Order>,
}

impl Committer {
    pub(crate) fn new(orders: Sender<Order>) -> Self {
        Self { orders }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.orders.len()
    }

    /// Hands over; order is kept.
    pub(crate) fn submit(&self, submission: Submission) -> Result<(), Unavailable> {
        self.orders.send(Order::Submit(Box::new(submission))).map_err(|_| Unavailable)
    }
}
