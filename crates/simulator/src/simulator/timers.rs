//! Armed timers in the order in which they fire: by due time, then in the order in which they were armed.

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::{InstanceKey, Name, Timer, Timestamp};

/// All armed timers of a lab.
#[derive(Clone, Default)]
pub(super) struct Timers {
    order: BTreeSet<(Timestamp, u64)>,
    rows: BTreeMap<u64, Armed>,
    by_name: BTreeMap<(InstanceKey, Name, u64), u64>,
    next: u64,
}

/// An armed timer.
#[derive(Clone)]
pub(super) struct Armed {
    pub(super) key: InstanceKey,
    pub(super) name: Name,
    pub(super) token: u64,
    pub(super) due: Timestamp,
}

impl Timers {
    pub(super) fn arm(&mut self, key: &InstanceKey, timer: Timer) {
        let Timer { due, name, token } = timer;
        let id = self.next;
        self.next += 1;
        if let Some(old) = self.by_name.insert((key.clone(), name.clone(), token), id) {
            self.remove(old);
        }
        self.order.insert((due, id));
        self.rows.insert(id, Armed { key: key.clone(), name, token, due });
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

    pub(super) fn first(&self) -> Option<&Armed> {
        self.order.first().and_then(|(_, id)| self.rows.get(id))
    }

    /// Takes out the first timer that is due by then.
    pub(super) fn take_due(&mut self, time: Timestamp) -> Option<Armed> {
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
