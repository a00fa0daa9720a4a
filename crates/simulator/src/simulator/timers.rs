//! Armed timers in firing order: by due time, then by the order in which they were armed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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
#[derive(Clone, Debug)]
pub(crate) struct SimulatedTimer {
    pub(crate) key: InstanceKey,
    pub(crate) name: Name,
    pub(super) token: u64,
    pub(crate) due: Timestamp,
    /// Time at which it was armed.
    pub(crate) armed_at: Timestamp,
    /// Number of the commit that armed it.
    pub(crate) commit: u64,
}

impl SimulatedTimer {
    /// Returns the time between its commit and its due time.
    pub(crate) fn delay(&self) -> Duration {
        self.due.duration_since(self.armed_at)
    }
}

impl TimerQueue {
    pub(super) fn arm(
        &mut self,
        key: &InstanceKey,
        timer: Timer,
        armed_at: Timestamp,
        commit: u64,
    ) {
        let Timer { due, name, token } = timer;
        // The number orders timers with the same due time by the order in which they were armed.
        let id = self.next;
        self.next += 1;
        // Armed again under the same token: the old one must not fire too.
        if let Some(old) = self.by_name.insert((key.clone(), name.clone(), token), id) {
            self.remove(old);
        }

        self.order.insert((due, id));
        self.rows.insert(
            id,
            SimulatedTimer {
                key: key.clone(),
                name,
                token,
                due,
                armed_at,
                commit,
            },
        );
    }

    pub(super) fn disarm(&mut self, key: &InstanceKey, timer: Timer) {
        // By token: a timer that was armed again under its name is another one.
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
        self.take(id)
    }

    /// Removes and returns the timer of an instance with this name.
    pub(super) fn take_by_name(
        &mut self,
        key: &InstanceKey,
        name: &Name,
    ) -> Option<SimulatedTimer> {
        let id = self
            .rows
            .iter()
            .find(|(_, row)| row.key == *key && row.name == *name)
            .map(|(id, _)| *id)?;

        self.take(id)
    }

    fn take(&mut self, id: u64) -> Option<SimulatedTimer> {
        let row = self.rows.remove(&id)?;
        self.order.remove(&(row.due, id));
        self.by_name
            .remove(&(row.key.clone(), row.name.clone(), row.token));
        Some(row)
    }

    /// Returns all timers in the order in which they were armed.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SimulatedTimer> {
        self.rows.values()
    }
}
