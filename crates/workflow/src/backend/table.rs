//! Instances in memory, with the rules of claims: the core of the backends in memory and in a
//! directory.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::HashMap;
use serde::{Deserialize, Serialize};

use super::{
    After, BackendError, Claim, Fetched, Hub, InstanceId, NEVER_MS, NewInstance, Save, Signal,
    StoredInstance,
};

/// Row of an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    #[serde(with = "arc_str")]
    pub(super) id: InstanceId,
    #[serde(with = "arc_str")]
    workflow: Arc<str>,
    #[serde(with = "arc_str")]
    hash: Arc<str>,
    epoch: u64,
    holder: Option<String>,
    claimed_until_ms: u64,
    wake_ms: u64,
    ended_ms: Option<u64>,
    state: Bytes,
    /// Signals that the state does not contain.
    signals: Vec<Signal>,
    last_signal: u64,
    /// Number of the last signal that the state contains.
    consumed: u64,
}

impl Row {
    /// Returns the time at which the instance becomes available.
    fn available_ms(&self) -> u64 {
        match (self.ended_ms, &self.holder) {
            (Some(_), _) => NEVER_MS,
            (None, Some(_)) => self.claimed_until_ms,
            (None, None) if self.signals.is_empty() => self.wake_ms,
            // A signal waits for the instance.
            (None, None) => 0,
        }
    }

    /// Returns the approximate size of the row.
    #[cfg(feature = "embedded")]
    pub(super) fn bytes(&self) -> usize {
        const OVERHEAD: usize = 128;
        OVERHEAD
            + self.state.len()
            + self
                .signals
                .iter()
                .map(|signal| signal.payload.len())
                .sum::<usize>()
    }

    fn stored(&self) -> StoredInstance {
        StoredInstance {
            id: Arc::clone(&self.id),
            workflow: Arc::clone(&self.workflow),
            hash: Arc::clone(&self.hash),
            epoch: self.epoch,
            state: self.state.clone(),
            last_signal: self.last_signal,
        }
    }
}

/// Transitions of a row. Each returns whether, or with what result, it applies; a row is unchanged
/// if it does not.
impl Row {
    pub(super) fn new(new: NewInstance) -> Self {
        Self {
            id: new.id,
            workflow: new.workflow,
            hash: new.hash,
            epoch: u64::from(new.holder.is_some()),
            holder: new.holder.map(|holder| holder.to_string()),
            // A holder at the creation sends no heartbeats: only a takeover ends its claim.
            claimed_until_ms: NEVER_MS,
            wake_ms: new.wake_ms,
            ended_ms: None,
            state: new.state,
            signals: Vec::new(),
            last_signal: 0,
            consumed: 0,
        }
    }

    pub(super) fn save(&mut self, save: Save) -> bool {
        if !self.is_held(save.epoch) {
            return false;
        }

        // A release without an execution states 0, which must not reset the number.
        self.consumed = self.consumed.max(save.last_signal);
        self.signals
            .retain(|signal| signal.number > save.last_signal);
        self.state = save.state;
        self.hash = save.hash;

        match save.then {
            After::Keep => {}
            After::Release { wake_ms } => {
                self.holder = None;
                self.wake_ms = wake_ms;
            }
            After::End { at_ms } => {
                self.holder = None;
                self.ended_ms = Some(at_ms);
                // An ended instance reads no signal.
                self.signals.clear();
            }
        }
        true
    }

    pub(super) fn claim(&mut self, claim: &Claim) -> Option<StoredInstance> {
        (self.available_ms() <= claim.now_ms).then(|| self.take(&claim.holder, claim.until_ms))
    }

    pub(super) fn take_over(&mut self, holder: &str) -> Option<StoredInstance> {
        self.ended_ms.is_none().then(|| self.take(holder, NEVER_MS))
    }

    pub(super) fn extend(&mut self, epoch: u64, until_ms: u64) -> bool {
        let is_held = self.is_held(epoch);
        if is_held {
            self.claimed_until_ms = until_ms;
        }
        is_held
    }

    fn is_held(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.holder.is_some() && self.ended_ms.is_none()
    }

    /// Adds a signal, unless the row contains it.
    #[cfg(feature = "nats")]
    fn add_signal(&mut self, signal: Signal) {
        let is_known = self
            .signals
            .iter()
            .any(|known| known.number == signal.number);
        // Signals arrive in another order than their numbers, and the same signal twice: by the
        // change of this process, and by the stream.
        if self.ended_ms.is_none() && signal.number > self.consumed && !is_known {
            self.last_signal = self.last_signal.max(signal.number);
            self.signals.push(signal);
            self.signals.sort_by_key(|signal| signal.number);
        }
    }

    /// Returns the row without its signals, which are stored separately.
    #[cfg(feature = "nats")]
    pub(super) fn without_signals(&self) -> Self {
        Self {
            signals: Vec::new(),
            last_signal: self.consumed,
            ..self.clone()
        }
    }

    /// Returns whether the instance has ended.
    #[cfg(feature = "nats")]
    pub(super) fn has_ended(&self) -> bool {
        self.ended_ms.is_some()
    }

    /// Returns whether the instance is claimed.
    #[cfg(feature = "nats")]
    pub(super) fn is_claimed(&self) -> bool {
        self.holder.is_some()
    }

    /// Changes the holder; the epoch grows.
    fn take(&mut self, holder: &str, until_ms: u64) -> StoredInstance {
        self.epoch += 1;
        (self.holder, self.claimed_until_ms) = (Some(holder.to_owned()), until_ms);
        self.stored()
    }
}

/// All instances and graphs.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Boxed, so that growth moves little memory.
    rows: HashMap<InstanceId, Box<Row>>,
    /// Instances that become available, by time.
    due: BTreeSet<(u64, InstanceId)>,
    unended: BTreeSet<InstanceId>,
    pub(super) graphs: BTreeMap<String, Bytes>,
}

impl Table {
    pub(super) fn create(&mut self, new: NewInstance, hub: &Hub) -> bool {
        let Entry::Vacant(entry) = self.rows.entry(Arc::clone(&new.id)) else {
            return false;
        };

        let row = entry.insert(Box::new(Row::new(new)));
        let is_available = row.holder.is_none();
        index(&mut self.due, &mut self.unended, row);

        if is_available {
            hub.notify_available();
        }
        true
    }

    pub(super) fn load(&self, id: &str) -> Option<StoredInstance> {
        self.rows.get(id).map(|row| row.stored())
    }

    #[cfg(any(feature = "embedded", feature = "nats"))]
    pub(super) fn row(&self, id: &str) -> Option<&Row> {
        self.rows.get(id).map(Box::as_ref)
    }

    #[cfg(feature = "embedded")]
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().map(Box::as_ref)
    }

    /// Returns the approximate size of all rows.
    #[cfg(feature = "embedded")]
    pub(super) fn bytes(&self) -> u64 {
        self.rows.values().map(|row| row.bytes() as u64).sum()
    }

    pub(super) fn save(&mut self, save: Save, hub: &Hub) -> Result<(), BackendError> {
        let id = Arc::clone(&save.id);
        let then = save.then;

        let changed = self.change(&id, |row| row.save(save));

        match (changed, then) {
            (Some(true), After::Keep) => {}
            (Some(true), After::Release { .. }) => {
                hub.notify(&id);
                hub.notify_available();
            }
            (Some(true), After::End { .. }) => hub.notify(&id),
            // Also for a purged instance, whose former holder has no claim.
            _ => return Err(BackendError::Fenced { id }),
        }
        Ok(())
    }

    pub(super) fn fetch(&self, limit: usize, now_ms: u64) -> Fetched {
        let due = self.due.iter().take_while(|(time, _)| *time <= now_ms);
        let ids: Vec<_> = due.take(limit).map(|(_, id)| Arc::clone(id)).collect();

        // The instance behind the returned ones is the next to become available.
        let next = self
            .due
            .iter()
            .nth(ids.len())
            .map_or(NEVER_MS, |(time, _)| *time);

        Fetched { ids, next_ms: next }
    }

    pub(super) fn claim(&mut self, ids: &[InstanceId], claim: &Claim) -> Vec<StoredInstance> {
        let mut claimed = Vec::with_capacity(ids.len());
        for id in ids {
            let stored = self.change(id, |row| row.claim(claim));
            claimed.extend(stored.flatten());
        }
        claimed
    }

    pub(super) fn take_over(&mut self, id: &str, holder: &str) -> Option<StoredInstance> {
        self.change(id, |row| row.take_over(holder)).flatten()
    }

    pub(super) fn extend(
        &mut self,
        claims: &[(InstanceId, u64)],
        until_ms: u64,
    ) -> Vec<InstanceId> {
        let mut lost = Vec::new();
        for (id, epoch) in claims {
            let extended = self.change(id, |row| row.extend(*epoch, until_ms));
            if extended != Some(true) {
                lost.push(Arc::clone(id));
            }
        }
        lost
    }

    pub(super) fn send_signal(&mut self, id: &str, name: &str, payload: Bytes, hub: &Hub) -> bool {
        let sent = self.change(id, |row| {
            if row.ended_ms.is_some() {
                return false;
            }
            row.last_signal += 1;
            row.signals.push(Signal {
                number: row.last_signal,
                name: name.to_owned(),
                payload,
            });
            true
        });

        if sent == Some(true) {
            hub.notify(id);
            hub.notify_available();
        }
        sent == Some(true)
    }

    pub(super) fn signals(&self, id: &str, after: u64) -> Vec<Signal> {
        let signals = self.rows.get(id).map(|row| row.signals.iter());
        signals
            .into_iter()
            .flatten()
            .filter(|signal| signal.number > after)
            .cloned()
            .collect()
    }

    pub(super) fn unended(&self, after: Option<&str>, limit: usize) -> Vec<InstanceId> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.unended
            .range::<str, _>((from, Unbounded))
            .take(limit)
            .cloned()
            .collect()
    }

    /// Returns the ids of instances that ended before a time.
    pub(super) fn ended_before(&self, time_ms: u64) -> Vec<InstanceId> {
        let ended = self
            .rows
            .values()
            .filter(|row| row.ended_ms.is_some_and(|ended| ended < time_ms));
        ended.map(|row| Arc::clone(&row.id)).collect()
    }

    /// Writes a row that another process may have written; the signals that it does not contain
    /// remain.
    #[cfg(feature = "nats")]
    pub(super) fn mirror(&mut self, mut row: Row, signals: Vec<Signal>) {
        let known = self
            .rows
            .get(&row.id)
            .map(|known| known.signals.clone())
            .unwrap_or_default();
        for signal in known.into_iter().chain(signals) {
            row.add_signal(signal);
        }
        self.put(row);
    }

    /// Adds a signal that another process may have sent; returns it if there is no such instance.
    #[cfg(feature = "nats")]
    pub(super) fn mirror_signal(&mut self, id: &str, signal: Signal) -> Option<Signal> {
        // The closure takes the signal only if the row exists. Otherwise it is returned.
        let mut signal = Some(signal);
        self.change(id, |row| signal.take().map(|signal| row.add_signal(signal)));
        signal
    }

    /// Deletes a row.
    pub(super) fn remove(&mut self, id: &str) {
        if let Some(row) = self.rows.remove(id) {
            self.due.remove(&(row.available_ms(), Arc::clone(&row.id)));
            self.unended.remove(id);
        }
    }

    /// Writes a row.
    #[cfg(any(feature = "embedded", feature = "nats"))]
    pub(super) fn put(&mut self, row: Row) {
        // The old row has other places in the indexes.
        self.remove(&row.id);
        index(&mut self.due, &mut self.unended, &row);
        self.rows.insert(Arc::clone(&row.id), Box::new(row));
    }

    /// Changes a row and the indexes.
    fn change<R>(&mut self, id: &str, change: impl FnOnce(&mut Row) -> R) -> Option<R> {
        let row = self.rows.get_mut(id)?;
        let before = row.available_ms();

        let result = change(row);
        let after = row.available_ms();

        // Most changes keep the place of the instance in the index.
        if before != after {
            self.due.remove(&(before, Arc::clone(&row.id)));
            if after != NEVER_MS {
                self.due.insert((after, Arc::clone(&row.id)));
            }
        }

        if row.ended_ms.is_some() {
            let id = Arc::clone(&row.id);
            self.unended.remove(&id);
        }
        Some(result)
    }
}

/// Adds a new row to the indexes.
fn index(due: &mut BTreeSet<(u64, InstanceId)>, unended: &mut BTreeSet<InstanceId>, row: &Row) {
    let available = row.available_ms();

    if row.ended_ms.is_none() {
        unended.insert(Arc::clone(&row.id));
        if available != NEVER_MS {
            due.insert((available, Arc::clone(&row.id)));
        }
    }
}

mod arc_str {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        text: &Arc<str>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Into::into)
    }
}
