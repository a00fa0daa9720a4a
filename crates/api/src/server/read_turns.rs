//! Turns of the admitted reads.
//!
//! Fewer reads run at the same time than the node has processors: more threads would take the
//! processors from those that commit and serve requests, also with their lower priority. A scan
//! gives up its turn before each group of rows, and the read that waits longest continues. A caller
//! waits with at most as many reads as run, so that its number of reads does not delay others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::executor::block_on;
use orlog_store::{Error as StoreError, ScanControl};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::quotas::CallerBudgets;

/// Turns of all reads, in the order in which they wait.
#[derive(Clone, Debug)]
pub(super) struct ReadTurns(Arc<Semaphore>);

/// Right of a read to run; ends on drop.
#[derive(Debug)]
pub(super) struct Turn {
    _of_caller: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl ReadTurns {
    pub(super) fn new(running: usize) -> Self {
        Self(Arc::new(Semaphore::new(running)))
    }

    /// Waits for a turn. No result: the process ends.
    pub(super) async fn begin(&self, caller: Option<&CallerBudgets>) -> Option<Turn> {
        let of_caller = match caller {
            Some(caller) => Some(Arc::clone(&caller.turns).acquire_owned().await.ok()?),
            None => None,
        };
        Some(Turn {
            _of_caller: of_caller,
            _of_all: Arc::clone(&self.0).acquire_owned().await.ok()?,
        })
    }
}

/// Control of the scans of one read.
#[derive(Debug)]
pub(crate) struct ReadControl {
    is_cancelled: AtomicBool,
    turns: ReadTurns,
    caller: Option<CallerBudgets>,
    /// `None` after the end of the read.
    turn: Mutex<Option<Turn>>,
}

impl ReadControl {
    pub(super) fn new(turns: ReadTurns, caller: Option<CallerBudgets>, turn: Turn) -> Arc<Self> {
        Arc::new(Self {
            is_cancelled: AtomicBool::new(false),
            turns,
            caller,
            turn: Mutex::new(Some(turn)),
        })
    }

    /// Returns whether the request has ended.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Returns a guard that cancels the scans when the request ends.
    pub(super) fn cancel_on_drop(self: &Arc<Self>) -> CancelOnDrop {
        CancelOnDrop(Arc::clone(self))
    }

    /// Returns a guard that ends the turn at the end of the read. A reader with this control can
    /// exist longer.
    pub(super) fn end_turn_on_drop(self: &Arc<Self>) -> EndTurnOnDrop {
        EndTurnOnDrop(Arc::clone(self))
    }

    /// Lets the reads that wait run first.
    fn give_way(&self) {
        let mut turn = self.turn.lock();
        // The next read in the queue has this turn before this one is in the queue again.
        if turn.take().is_some() {
            *turn = block_on(self.turns.begin(self.caller.as_ref()));
        }
    }
}

impl ScanControl for ReadControl {
    fn before_group(&self) -> Result<(), StoreError> {
        self.give_way();
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

/// Guard of the turn of a read.
pub(super) struct EndTurnOnDrop(Arc<ReadControl>);

impl Drop for EndTurnOnDrop {
    fn drop(&mut self) {
        drop(self.0.turn.lock().take());
    }
}
