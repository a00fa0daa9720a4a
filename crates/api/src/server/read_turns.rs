//! Turns of the admitted reads.
//!
//! Fewer reads run at the same time than the node has processors: more threads would take the
//! processors from those that commit and serve requests, also with their lower priority. A scan
//! gives up its turn before each group of rows, and the read that waits longest continues.
//!
//! Not all work of a read can be divided: the encoding of a page, or a scrape of the metrics. So a
//! read waits for its turns for [`MAX_WAIT`] in all, and runs beside the others after that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use orlog_store::{Error as StoreError, ScanControl};
use parking_lot::Mutex;

/// Time for which a read waits for its turns, in all.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Turns of all reads, in the order in which they wait.
#[derive(Debug)]
pub(crate) struct ReadTurns(Mutex<TurnQueue>);

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
        Self::new(processors.saturating_sub(1).max(1))
    }

    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(TurnQueue {
            free: count,
            waiting: VecDeque::new(),
        })))
    }

    /// Waits for a turn on this thread; returns whether it has one at the deadline.
    fn begin(&self, deadline: Instant) -> bool {
        let waiter = {
            let mut queue = self.0.lock();
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
            let mut queue = self.0.lock();
            queue.waiting.retain(|other| !Arc::ptr_eq(other, &waiter));
            return waiter.has_turn.load(Ordering::Acquire);
        }
        true
    }

    /// Ends a turn: the read that waits longest has it.
    fn end(&self) {
        let mut queue = self.0.lock();
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
    has_turn: bool,
    /// Time for which the read can still wait.
    wait_left: Duration,
}

impl ReadControl {
    pub(super) fn new(turns: Arc<ReadTurns>) -> Arc<Self> {
        Arc::new(Self {
            is_cancelled: AtomicBool::new(false),
            turns,
            state: Mutex::new(TurnState {
                has_turn: false,
                wait_left: MAX_WAIT,
            }),
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

    /// Waits for the first turn. The guard ends the last one at the end of the read; a reader with
    /// this control can exist longer.
    pub(super) fn begin(self: &Arc<Self>) -> RunningRead {
        self.wait_for_turn(&mut self.state.lock());
        RunningRead(Arc::clone(self))
    }

    /// Lets the reads that wait run first. Without a turn, the read already runs beside them.
    pub(crate) fn give_way(&self) {
        let mut state = self.state.lock();
        if state.has_turn {
            self.turns.end();
            self.wait_for_turn(&mut state);
        }
    }

    fn wait_for_turn(&self, state: &mut TurnState) {
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
pub(super) struct RunningRead(Arc<ReadControl>);

impl Drop for RunningRead {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if std::mem::take(&mut state.has_turn) {
            self.0.turns.end();
        }

        // A scan after the end of the read needs no turn.
        state.wait_left = Duration::ZERO;
    }
}
