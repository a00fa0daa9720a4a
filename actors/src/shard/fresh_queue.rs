//! Bounded queue from the committer to the relay or to the timer: the work items or timers of
//! durable commits, in commit order.
//!
//! Guarantees: after [`FreshQueue::take`] returned a batch without [`FreshBatch::rescan`], the
//! receiver has received every row that was committed since its last read of the store. If the
//! queue overflows, it drops its rows, and the next batch requests a rescan: the receiver then
//! reads the store.

use std::sync::Arc;

use orlog_model::count::{Operation, count};
use orlog_model::{Change, Commit, OutboxKey, WorkItem};
use parking_lot::{Mutex, MutexGuard};
use ractor::{ActorRef, Message};
use tokio::sync::Notify;

use crate::shard::armed_timers::TimerChange;

/// Queue of rows of durable commits; see the module documentation.
pub(crate) struct FreshQueue<T> {
    capacity: usize,
    state: Mutex<FreshBatch<T>>,
    filled: Notify,
}

/// Rows that were queued since the last batch.
pub(crate) struct FreshBatch<T> {
    /// Rows in commit order.
    pub(crate) rows: Vec<T>,
    /// Rows are missing: the receiver must read the store.
    pub(crate) rescan: bool,
}

impl<T> FreshBatch<T> {
    fn new(rescan: bool) -> Self {
        Self {
            rows: Vec::new(),
            rescan,
        }
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty() && !self.rescan
    }
}

impl<T> FreshQueue<T> {
    /// Creates a queue whose first batch requests a rescan: the store may have rows from before.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            state: Mutex::new(FreshBatch::new(true)),
            filled: Notify::new(),
        }
    }

    /// Queues the rows of a durable group. Empties `rows`.
    pub(crate) fn push(&self, rows: &mut Vec<T>) {
        if rows.is_empty() {
            return;
        }

        let mut state = self.lock();
        let was_empty = state.is_empty();

        // The receiver reads everything from the store anyway, so a partial batch is worthless.
        if state.rescan || state.rows.len() + rows.len() > self.capacity {
            *state = FreshBatch::new(true);
        } else {
            state.rows.append(rows);
        }

        drop(state);
        rows.clear();
        self.notify_if(was_empty);
    }

    /// Requests that the receiver reads the store.
    pub(crate) fn request_rescan(&self) {
        let mut state = self.lock();
        let was_empty = state.is_empty();
        *state = FreshBatch::new(true);
        drop(state);
        self.notify_if(was_empty);
    }

    /// Returns the queued rows and empties the queue.
    pub(crate) fn take(&self) -> FreshBatch<T> {
        std::mem::replace(&mut *self.lock(), FreshBatch::new(false))
    }

    /// Sends `wake` to the receiver at once and for each batch, until the receiver has stopped.
    pub(crate) async fn wake<M: Message>(
        &self,
        actor: ActorRef<M>,
        wake: impl Fn() -> M + Send,
    ) -> Result<(), String> {
        while actor.cast(wake()).is_ok() {
            count(Operation::ActorMessage);
            self.wait_filled().await;
        }
        Ok(())
    }

    /// Waits for the first row after [`FreshQueue::take`]. Later rows cause no further
    /// notification, so that a slow receiver gets one message, regardless of the number of commits.
    async fn wait_filled(&self) {
        self.filled.notified().await;
    }

    fn notify_if(&self, was_empty: bool) {
        if was_empty {
            self.filled.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, FreshBatch<T>> {
        count(Operation::Lock);
        // The batch is consistent after every statement.
        self.state.lock()
    }
}

/// Work item of a durable commit. It is moved often, so it is on the heap.
pub(crate) type StoredWork = Box<OutboxRow>;

/// Row of the outbox.
pub(crate) struct OutboxRow {
    pub(crate) key: OutboxKey,
    pub(crate) item: WorkItem,
}

impl OutboxRow {
    pub(crate) fn boxed(key: OutboxKey, item: WorkItem) -> StoredWork {
        Box::new(Self { key, item })
    }
}

/// Queues of one incarnation of a shard.
pub(crate) struct FreshRows {
    work: Arc<FreshQueue<StoredWork>>,
    timers: Arc<FreshQueue<TimerChange>>,
    /// Rows of the current group; empty between groups.
    work_buffer: Vec<StoredWork>,
    timer_buffer: Vec<TimerChange>,
}

impl FreshRows {
    /// Creates the sender of both queues.
    pub(crate) fn new(
        work: Arc<FreshQueue<StoredWork>>,
        timers: Arc<FreshQueue<TimerChange>>,
    ) -> Self {
        Self {
            work,
            timers,
            work_buffer: Vec::new(),
            timer_buffer: Vec::new(),
        }
    }

    /// Hands over a durable group. `sequences` are the outbox sequences of its work items, in
    /// order.
    pub(crate) fn hand_over(
        &mut self,
        changes: impl Iterator<Item = Change>,
        mut sequences: impl Iterator<Item = u64>,
    ) {
        let mut is_replaced = false;
        for change in changes {
            match change {
                Change::Apply(commit) => self.add(commit, &mut sequences),
                // A replay is rare, and it also deletes work items and timers.
                Change::Replace(_) => is_replaced = true,
                _ => {}
            }
        }

        if is_replaced {
            self.work_buffer.clear();
            self.timer_buffer.clear();
            self.work.request_rescan();
            self.timers.request_rescan();
        } else {
            self.work.push(&mut self.work_buffer);
            self.timers.push(&mut self.timer_buffer);
        }
    }

    fn add(&mut self, commit: Box<Commit>, sequences: &mut impl Iterator<Item = u64>) {
        let Commit {
            key,
            work,
            arm,
            disarm,
            ..
        } = *commit;

        for (item, sequence) in work.into_iter().zip(sequences) {
            let key = OutboxKey {
                destination: item.destination(),
                sequence,
            };
            self.work_buffer.push(OutboxRow::boxed(key, item));
        }

        for timer in disarm {
            self.timer_buffer
                .push(TimerChange::Disarm(key.clone(), timer));
        }
        for timer in arm {
            self.timer_buffer.push(TimerChange::Arm(key.clone(), timer));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn first_batch_requests_a_rescan_and_later_ones_contain_rows() {
        let queue = FreshQueue::new(3);
        queue.push(&mut vec![1]);
        let first = queue.take();
        assert_eq!((first.rows, first.rescan), (vec![], true));
        queue.push(&mut vec![2]);
        queue.push(&mut vec![3, 4]);
        let second = queue.take();
        assert_eq!((second.rows, second.rescan), (vec![2, 3, 4], false));
    }

    #[test]
    fn overflow_drops_the_rows_and_requests_a_rescan() {
        let queue = FreshQueue::new(3);
        queue.take();
        queue.push(&mut vec![1, 2]);
        let mut overflow = vec![3, 4];
        queue.push(&mut overflow);
        queue.push(&mut vec![5]);
        let batch = queue.take();
        assert_eq!((batch.rows, batch.rescan, overflow), (vec![], true, vec![]));
    }

    #[test]
    fn rows_cause_one_notification_for_each_batch() {
        let queue = FreshQueue::new(9);
        queue.take();
        queue.push(&mut vec![1]);
        queue.push(&mut vec![2]);
        assert!(queue.wait_filled().now_or_never().is_some());
        queue.push(&mut vec![3]);
        assert!(
            queue.wait_filled().now_or_never().is_none(),
            "the batch was not taken"
        );
        queue.take();
        queue.push(&mut vec![4]);
        assert!(queue.wait_filled().now_or_never().is_some());
    }
}
