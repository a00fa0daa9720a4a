//! Epoch of a shard in this process: from its start until it is released, fenced or restarted.
//!
//! Guarantees: after [`ShardEpoch::end`], and after the end of the lease of the process, no attempt
//! starts for a work item that was dispatched in the epoch. After [`ShardEpoch::cancel`], no
//! attempt runs.

use std::sync::atomic::{AtomicUsize, Ordering};

use orlog_effect::{LeaseEnd, StopToken};

/// Epoch of a shard; see the module documentation.
#[derive(Default)]
pub(crate) struct ShardEpoch {
    ended: StopToken,
    cancelled: StopToken,
    /// Work items that are dispatched and not completed.
    dispatched: AtomicUsize,
}

impl ShardEpoch {
    pub(crate) fn new(lease: LeaseEnd) -> Self {
        Self {
            ended: StopToken::until(lease),
            ..Self::default()
        }
    }

    /// Ends the epoch: items without a running attempt are dropped.
    pub(crate) fn end(&self) {
        self.ended.stop();
    }

    /// Ends the epoch and cancels running attempts. Their items are in doubt.
    pub(crate) fn cancel(&self) {
        self.end();
        self.cancelled.stop();
    }

    /// Returns the signal of the end.
    pub(crate) fn ended(&self) -> &StopToken {
        &self.ended
    }

    /// Waits until running attempts are cancelled.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.stopped().await;
    }

    /// Returns the number of work items that are dispatched and not completed.
    pub(crate) fn dispatched(&self) -> usize {
        self.dispatched.load(Ordering::SeqCst)
    }

    /// Counts a dispatched item.
    pub(crate) fn item_dispatched(&self) {
        self.dispatched.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts an item whose dispatch has ended.
    pub(crate) fn item_ended(&self) {
        self.dispatched.fetch_sub(1, Ordering::SeqCst);
    }
}
