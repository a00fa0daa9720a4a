//! Receipt of a reported result: tells the worker that reported it when the result is stored.
//!
//! The receipt travels with the result: job board → executor → saga → commit. Dropping it on the
//! path means that the result is not stored; the effect is then executed again under the same key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;
use uuid::Uuid;

const PENDING: u8 = 0;
const STORED: u8 = 1;
const LOST: u8 = 2;

/// State of a reported result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptState {
    /// The commit of the result is not durable yet.
    Pending,
    /// The commit of the result is durable, or the result requires none: the effect is executed
    /// again.
    Stored,
    /// The shard stopped before it stored the result.
    Lost,
}

/// Receipt of one result; see the module documentation.
#[derive(Debug)]
pub struct ResultReceipt {
    cell: Arc<ReceiptCell>,
    /// Claim under which a worker reported the result.
    claim: Option<Uuid>,
}

/// Observer of a receipt.
#[derive(Clone, Debug)]
pub struct ReceiptWatch(Arc<ReceiptCell>);

#[derive(Debug)]
struct ReceiptCell {
    state: AtomicU8,
    changed: Notify,
}

impl ResultReceipt {
    /// Creates a pending receipt and its observer.
    #[must_use]
    pub fn new() -> (Self, ReceiptWatch) {
        let cell = Arc::new(ReceiptCell {
            state: AtomicU8::new(PENDING),
            changed: Notify::new(),
        });

        let receipt = Self {
            cell: Arc::clone(&cell),
            claim: None,
        };
        (receipt, ReceiptWatch(cell))
    }

    /// Creates the receipt of a result that a worker reported under a claim.
    #[must_use]
    pub fn of_claim(claim: Uuid) -> (Self, ReceiptWatch) {
        let (mut receipt, watch) = Self::new();
        receipt.claim = Some(claim);
        (receipt, watch)
    }

    /// Returns the claim under which a worker reported the result.
    #[must_use]
    pub fn claim(&self) -> Option<Uuid> {
        self.claim
    }

    /// Reports that the result is stored.
    pub fn stored(self) {
        self.cell.settle(STORED);
    }
}

impl Drop for ResultReceipt {
    fn drop(&mut self) {
        self.cell.settle(LOST);
    }
}

/// Receipts are equal if they are about the same result.
impl PartialEq for ResultReceipt {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }
}

impl ReceiptCell {
    /// Sets the final state, unless there is one.
    fn settle(&self, state: u8) {
        if self
            .state
            // The drop after `stored` must not change the state to lost.
            .compare_exchange(PENDING, state, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            self.changed.notify_waiters();
        }
    }
}

impl ReceiptWatch {
    /// Returns the observer of a result that is stored already.
    #[must_use]
    pub fn of_stored() -> Self {
        let (receipt, watch) = ResultReceipt::new();
        receipt.stored();
        watch
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> ReceiptState {
        match self.0.state.load(Ordering::Acquire) {
            PENDING => ReceiptState::Pending,
            STORED => ReceiptState::Stored,
            _ => ReceiptState::Lost,
        }
    }

    /// Waits until the result is stored or lost; returns whether it is stored.
    pub async fn is_stored(&self) -> bool {
        loop {
            // Registered before the state is read, so that a change in between is not missed.
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();

            match self.state() {
                ReceiptState::Pending => changed.await,
                state => return state == ReceiptState::Stored,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn receipt_is_stored_once_or_lost_when_dropped() {
        let (receipt, watch) = ResultReceipt::new();
        let mut waiting = Box::pin(watch.is_stored());
        assert_eq!(
            (watch.state(), waiting.as_mut().now_or_never()),
            (ReceiptState::Pending, None)
        );
        receipt.stored();
        assert_eq!(
            (watch.state(), waiting.now_or_never()),
            (ReceiptState::Stored, Some(true))
        );
        let (receipt, watch) = ResultReceipt::new();
        drop(receipt);
        assert_eq!(watch.is_stored().now_or_never(), Some(false));
    }
}
