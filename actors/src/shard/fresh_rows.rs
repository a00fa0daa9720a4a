//! Hands the work items and timers of durable commits over to the relay and the timer, without a read of
//! the store.

use std::sync::Arc;

use orlog_model::{Change, Commit, OutboxKey, WorkItem};

use crate::shard::armed_timers::TimerChange;
use crate::shard::fresh_queue::FreshQueue;

/// Work item of a durable commit, with its outbox key.
pub(crate) type StoredWork = (OutboxKey, WorkItem);

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
    pub(crate) fn new(work: Arc<FreshQueue<StoredWork>>, timers: Arc<FreshQueue<TimerChange>>) -> Self {
        Self { work, timers, work_buffer: Vec::new(), timer_buffer: Vec::new() }
    }

    /// Hands over a durable group. `sequences` are the outbox sequences of its work items, in order.
    pub(crate) fn hand_over(
        &mut self,
        changes: impl Iterator<Item = Change>,
        mut sequences: impl Iterator<Item = u64>,
    ) {
        let mut is_replaced = false;
        for change in changes {
            match change {
                Change::Apply(commit) => self.add(*commit, &mut sequences),
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

    fn add(&mut self, commit: Commit, sequences: &mut impl Iterator<Item = u64>) {
        let Commit { key, work, arm, disarm, .. } = commit;
        self.work_buffer.extend(
            work.into_iter()
                .zip(sequences)
                .map(|(item, sequence)| (OutboxKey { destination: item.destination(), sequence }, item)),
        );
        let disarmed = disarm.into_iter().map(|timer| TimerChange::Disarm(key.clone(), timer));
        self.timer_buffer.extend(disarmed);
        let armed = arm.into_iter().map(|timer| TimerChange::Arm(key.clone(), timer));
        self.timer_buffer.extend(armed);
    }
}
