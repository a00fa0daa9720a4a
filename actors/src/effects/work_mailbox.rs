//! Mailbox of a provider or of the publisher: work items in order, beside the actor that takes
//! them.
//!
//! A crashed actor loses no queued item: its successor continues with the same mailbox.

use std::collections::VecDeque;

use orlog_model::count::{self, Operation};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

use crate::effects::work_dispatch::WorkDispatch;

/// Mailbox of work items; see the module documentation.
pub(crate) struct WorkMailbox {
    queue: Mutex<WorkQueue>,
    filled: Notify,
    /// Counts the queued items.
    depth: Gauge,
}

#[derive(Default)]
struct WorkQueue {
    items: VecDeque<WorkDispatch>,
    is_closed: bool,
}

impl WorkMailbox {
    /// Creates an empty mailbox whose items count in `depth`.
    pub(crate) fn new(depth: Gauge) -> Self {
        Self {
            queue: Mutex::default(),
            filled: Notify::new(),
            depth,
        }
    }

    /// Appends items; returns them if the mailbox is closed.
    pub(crate) fn push(&self, dispatches: Vec<WorkDispatch>) -> Result<(), Vec<WorkDispatch>> {
        let mut queue = self.lock();
        if queue.is_closed {
            return Err(dispatches);
        }

        self.depth.inc_by(length(&dispatches));
        let was_empty = queue.items.is_empty();
        queue.items.extend(dispatches);
        drop(queue);
        // The receiver takes all items that it finds, so one notification is enough.
        if was_empty {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits for items and takes up to `limit`; returns `None` if the mailbox is closed.
    pub(crate) async fn take(&self, limit: usize) -> Option<Vec<WorkDispatch>> {
        loop {
            let taken: Vec<_> = {
                let mut queue = self.lock();
                if queue.is_closed {
                    return None;
                }
                let count = limit.min(queue.items.len());
                queue.items.drain(..count).collect()
            };

            if !taken.is_empty() {
                self.depth.dec_by(length(&taken));
                return Some(taken);
            }
            self.filled.notified().await;
        }
    }

    /// Closes the mailbox and returns its items.
    pub(crate) fn close(&self) -> Vec<WorkDispatch> {
        let mut queue = self.lock();
        queue.is_closed = true;
        let items = Vec::from(std::mem::take(&mut queue.items));

        drop(queue);
        self.depth.dec_by(length(&items));
        // The receiver may wait for items of a mailbox that receives no more.
        self.filled.notify_one();
        items
    }

    fn lock(&self) -> MutexGuard<'_, WorkQueue> {
        count::count(Operation::Lock);
        // The queue is consistent after every statement.
        self.queue.lock()
    }
}

fn length(items: &[WorkDispatch]) -> i64 {
    i64::try_from(items.len()).unwrap_or(i64::MAX)
}
