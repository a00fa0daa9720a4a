//! Armed timers in firing order: by due time, then by the order in which they were armed.

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::{InstanceKey, Name, Timer, Timestamp};

/// All armed timers of a simulator.
#[derive(Clone, Default)]
pub(super) struct TimerQueue {
    order: BTreeSet<(Timestamp, u64)>,
    rows: BTreeMap<u64, SimulatedTimer>,
    by_name: BTreeMap<(InstanceKey, Name, u64), u64>,
    next: u64,
}

/// Armed timer.
#[derive(Clone)]
pub(super) struct SimulatedTimer {
    pub(super) key: InstanceKey,
    pub(super) name: Name,
    pub(super) token: u64,
    pub(super) due: Timestamp,
}

impl TimerQueue {
    pub(super) fn arm(&mut self, key: &InstanceKey, timer: Timer) {
        let Timer { due, name, token } = timer;
        let id = self.next;
        self.next += 1;
        if let Some(old) = self.by_name.insert((key.clone(), name.clone(), token), id) {
            self.remove(old);
        }
        self.order.insert((due, id));
        self.rows.insert(id, SimulatedTimer { key: key.clone(), name, token, due });
    }

    pub(super) fn disarm(&mut self, key: &InstanceKey, timer: Timer) {
        if let Some(id) = self.by_name.remove(&(key.clone(), timer.name, timer.token)) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(row) = self.rows.remove(&id) {
            self.order.remove(&(row.due, id));
        }
    }

    pub(super) fn first(&self) -> Option<&SimulatedTimer> {
        self.order.first().and_then(|(_, id)| self.rows.get(id))
    }

    /// Removes and returns the first timer that is due at this time.
    pub(super) fn take_due(&mut self, time: Timestamp) -> Option<SimulatedTimer> {
        let (due, id) = *self.order.first()?;
        if due > time {
            return None;
        }
        self.order.remove(&(due, id));
        let row = self.rows.remove(&id)?;
        self.by_name.remove(&(row.key.clone(), row.name.clone(), row.token));
        Some(row)
    }
}
