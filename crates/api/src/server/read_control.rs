//! Control of the scans of one read: they end with its request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlog_store::{Error as StoreError, ScanControl};

/// Control of the scans of one read.
#[derive(Debug, Default)]
pub(crate) struct ReadControl {
    is_cancelled: AtomicBool,
}

impl ReadControl {
    /// Returns whether the request has ended.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Returns a guard that cancels the scans when the request ends.
    pub(super) fn cancel_on_drop(self: &Arc<Self>) -> CancelOnDrop {
        CancelOnDrop(Arc::clone(self))
    }
}

impl ScanControl for ReadControl {
    fn before_group(&self) -> Result<(), StoreError> {
        if self.is_cancelled() {
            return Err(StoreError::Cancelled);
        }
        Ok(())
    }
}

/// Guard of a request that reads.
pub(super) struct CancelOnDrop(Arc<ReadControl>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }
}
