//! Turns of the reads that scan.
//!
//! Fewer of them run at the same time than the node has processors: more threads would take the
//! processors from those that commit and serve requests, also with their lower priority. A scan
//! gives up its turn before each group of rows, and the read that waits longest continues. The
//! first group needs no turn, so that lookups and short pages never wait.
//!
//! Not all work of a read can be divided, for example the encoding of a page. So a read waits for
//! its turns for [`MAX_WAIT`] in all, and runs beside the others after that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use orlog_store::{Error as StoreError, ScanControl};
use parking_lot::Mutex;

/// Time for which a read of a node waits for its turns, in all.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Turns of all reads, in the order in which they wait.
#[derive(Debug)]
pub(crate) struct ReadTurns {
    queue: Mutex<TurnQueue>,
    /// Time for which a read waits for its turns, in all.
    max_wait: Duration,
}

#[derive(Debug)]
struct TurnQueue {
    free: usize,
    waiting: VecDeque<Arc<Waiter>>,
}

/// Read that waits for a turn.
#[derive(Debug)]
struct Waiter {
    thread: Thread,
    /// Whether another read has passed its turn on to this one.
    has_turn: AtomicBool,
}

impl ReadTurns {
    /// Creates one turn less than this machine has processors, but at least one.
    pub(crate) fn of_machine() -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(processors.saturating_sub(1).max(1), MAX_WAIT)
    }

    pub(super) fn new(count: usize, max_wait: Duration) -> Arc<Self> {
        let queue = TurnQueue {
            free: count,
            waiting: VecDeque::new(),
        };
        Arc::new(Self {
            queue: Mutex::new(queue),
            max_wait,
        })
    }

    /// Waits for a turn on this thread; returns whether it has one at the deadline.
    fn begin(&self, deadline: Instant) -> bool {
        let waiter = {
            let mut queue = self.queue.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return true;
            }
            let waiter = Arc::new(Waiter {
                thread: std::thread::current(),
                has_turn: AtomicBool::new(false),
            });
            queue.waiting.push_back(Arc::clone(&waiter));
            waiter
        };

        while !waiter.has_turn.load(Ordering::Acquire) {
            let left = deadline.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                std::thread::park_timeout(left);
                continue;
            }

            // A turn that is passed on at this moment must not be lost.
            let mut queue = self.queue.lock();
            queue.waiting.retain(|other| !Arc::ptr_eq(other, &waiter));
            return waiter.has_turn.load(Ordering::Acquire);
        }
        true
    }

    /// Ends a turn: the read that waits longest has it.
    fn end(&self) {
        let mut queue = self.queue.lock();
        let Some(next) = queue.waiting.pop_front() else {
            queue.free += 1;
            return;
        };
        next.has_turn.store(true, Ordering::Release);
        next.thread.unpark();
    }
}

/// Control of the scans of one read.
#[derive(Debug)]
pub(crate) struct ReadControl {
    is_cancelled: AtomicBool,
    turns: Arc<ReadTurns>,
    state: Mutex<TurnState>,
}

/// Part of a read in the turns.
#[derive(Debug)]
struct TurnState {
    /// Whether the first group of rows was read.
    has_scanned: bool,
    has_turn: bool,
    /// Time for which the read can still wait.
    wait_left: Duration,
}

impl ReadControl {
    pub(super) fn new(turns: Arc<ReadTurns>) -> Arc<Self> {
        let state = TurnState {
            has_scanned: false,
            has_turn: false,
            wait_left: turns.max_wait,
        };
        Arc::new(Self {
            is_cancelled: AtomicBool::new(false),
            turns,
            state: Mutex::new(state),
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

    /// Lets the scans that wait run first, unless this read has waited for too long.
    pub(crate) fn give_way(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.has_turn) {
            self.turns.end();
        }
        let is_first = !std::mem::replace(&mut state.has_scanned, true);
        if is_first || state.wait_left.is_zero() {
            return;
        }

        let started = Instant::now();
        state.has_turn = self.turns.begin(started + state.wait_left);
        state.wait_left = state.wait_left.saturating_sub(started.elapsed());
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

/// Guard of a read on its thread.
pub(super) struct EndTurnOnDrop(Arc<ReadControl>);

impl Drop for EndTurnOnDrop {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if std::mem::take(&mut state.has_turn) {
            self.0.turns.end();
        }

        // A scan after the end of the read needs no turn.
        state.wait_left = Duration::ZERO;
    }
}
