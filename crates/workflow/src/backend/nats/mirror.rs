//! Mirror of the stream in memory: rows with the sequences of their messages, and signals.
//!
//! Only the reader adds signals, in the order of the stream: an instance receives them in this
//! order.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::super::table::{Row, Table};
use super::super::{Fetched, Hub, InstanceId, Signal, StoredInstance};

/// Mirror of the stream. A process also applies its own rows, when the server has stored them.
#[derive(Debug, Clone)]
pub(super) struct Mirror {
    prefix: String,
    state: Arc<Mutex<State>>,
    /// Sequence up to which the reader has read the stream.
    read: watch::Sender<u64>,
    hub: Hub,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    /// Sequence of the last message of each row, also of purged ones.
    sequences: HashMap<InstanceId, u64>,
    /// Signals whose row is not read yet.
    early: HashMap<InstanceId, Vec<Signal>>,
}

/// Row and the sequence of its message.
pub(super) struct Mirrored {
    pub(super) row: Row,
    pub(super) sequence: u64,
}

impl Mirror {
    pub(super) fn new(stream: &str, hub: Hub) -> Self {
        Self {
            prefix: format!("{stream}."),
            state: Arc::default(),
            read: watch::Sender::new(0),
            hub,
        }
    }

    /// States up to which sequence the reader has read the stream.
    pub(super) fn set_read(&self, sequence: u64) {
        // Only forward: after a new subscription, the reader receives old messages again.
        self.read.send_if_modified(|read| {
            let is_later = *read < sequence;
            *read = (*read).max(sequence);
            is_later
        });
    }

    /// Waits until the reader has read the stream up to a sequence.
    pub(super) async fn read_until(&self, sequence: u64) {
        // The sender lives as long as the mirror.
        drop(
            self.read
                .subscribe()
                .wait_for(|read| *read >= sequence)
                .await,
        );
    }

    pub(super) fn row_subject(&self, id: &str) -> String {
        // Encoded, because an id may contain characters that have a meaning in subjects.
        format!("{}row.{}", self.prefix, hex::encode(id))
    }

    /// Returns a new subject of a signal.
    pub(super) fn signal_subject(&self, id: &str) -> String {
        format!(
            "{}signal.{}.{}",
            self.prefix,
            hex::encode(id),
            uuid::Uuid::now_v7().simple()
        )
    }

    /// Returns the filter of the signals of an instance.
    pub(super) fn signal_subjects(&self, id: &str) -> String {
        format!("{}signal.{}.*", self.prefix, hex::encode(id))
    }

    /// Applies a message of the stream, unless it is older than the mirror.
    pub(super) fn apply(&self, subject: &str, payload: &[u8], sequence: u64) {
        let Some(key) = subject.strip_prefix(&self.prefix) else {
            return;
        };

        let mut tokens = key.split('.');
        let kind = tokens.next();
        let id = tokens.next().and_then(decode_id);

        match (kind, id) {
            (Some("row"), Some(id)) if payload.is_empty() => self.remove(&id, sequence),
            // A process reads its own changes again.
            (Some("row"), Some(id)) if self.sequence(&id) >= sequence => {}
            (Some("row"), Some(id)) => match rmp_serde::from_slice::<Row>(payload) {
                Ok(row) => self.put(row, sequence),
                Err(error) => {
                    tracing::error!(instance = %id, %error, "stored instance not readable");
                }
            },
            (Some("signal"), Some(id)) => match rmp_serde::from_slice::<Signal>(payload) {
                Ok(signal) => self.signal(
                    &id,
                    Signal {
                        number: sequence,
                        ..signal
                    },
                ),
                Err(error) => tracing::error!(instance = %id, %error, "stored signal not readable"),
            },
            _ => {}
        }
    }

    /// Applies a row.
    pub(super) fn put(&self, row: Row, sequence: u64) {
        let mut state = self.state.lock();
        let id = InstanceId::clone(&row.id);
        // The reader and the changes of this process are not ordered: the later message of the
        // stream counts.
        if state
            .sequences
            .get(&id)
            .is_some_and(|known| *known >= sequence)
        {
            return;
        }

        state.sequences.insert(InstanceId::clone(&id), sequence);
        // Signals can precede the row, because they are other subjects.
        let early = state.early.remove(&id).unwrap_or_default();
        let is_claimed = row.is_claimed();
        let has_ended = row.has_ended();
        state.table.mirror(row, early);
        drop(state);

        // Consumers that are notified read the state, so it is unlocked before.
        if !is_claimed && !has_ended {
            self.hub.notify_available();
        }
        if !is_claimed {
            self.hub.notify(&id);
        }
    }

    fn remove(&self, id: &InstanceId, sequence: u64) {
        let mut state = self.state.lock();

        // An instance that was created again under the id stays.
        if state
            .sequences
            .get(id)
            .is_none_or(|known| *known < sequence)
        {
            // Kept without a row: an older message must not restore it.
            state.sequences.insert(InstanceId::clone(id), sequence);
            state.table.remove(id);
        }
    }

    fn signal(&self, id: &InstanceId, signal: Signal) {
        let mut state = self.state.lock();
        if let Some(early) = state.table.mirror_signal(id, signal) {
            state
                .early
                .entry(InstanceId::clone(id))
                .or_default()
                .push(early);
        }
        drop(state);
        self.hub.notify(id);
        self.hub.notify_available();
    }

    pub(super) fn row(&self, id: &str) -> Option<Mirrored> {
        let state = self.state.lock();
        let row = state.table.row(id)?.clone();
        let sequence = state.sequences.get(id).copied().unwrap_or_default();
        Some(Mirrored { row, sequence })
    }

    /// Returns the sequence of the last message of a row, 0 if there is none.
    pub(super) fn sequence(&self, id: &str) -> u64 {
        self.state
            .lock()
            .sequences
            .get(id)
            .copied()
            .unwrap_or_default()
    }

    pub(super) fn load(&self, id: &str) -> Option<StoredInstance> {
        self.state.lock().table.load(id)
    }

    pub(super) fn fetch(&self, limit: usize, now_ms: u64) -> Fetched {
        self.state.lock().table.fetch(limit, now_ms)
    }

    pub(super) fn signals(&self, id: &str, after: u64) -> Vec<Signal> {
        self.state.lock().table.signals(id, after)
    }

    /// Returns the numbers of the signals up to a number.
    pub(super) fn consumed(&self, id: &str, last: u64) -> Vec<u64> {
        let signals = self.signals(id, 0).into_iter();
        signals
            .map(|signal| signal.number)
            .filter(|number| *number <= last)
            .collect()
    }

    pub(super) fn unended(&self, after: Option<&str>, limit: usize) -> Vec<InstanceId> {
        self.state.lock().table.unended(after, limit)
    }

    pub(super) fn ended_before(&self, time_ms: u64) -> Vec<InstanceId> {
        self.state.lock().table.ended_before(time_ms)
    }
}

fn decode_id(token: &str) -> Option<InstanceId> {
    let bytes = hex::decode(token).ok()?;
    String::from_utf8(bytes).ok().map(Into::into)
}
