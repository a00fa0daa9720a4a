//! The shards that run in this process now. They come and go while the process lives.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use orlog_model::{InstanceKey, Slots};
use orlog_store::{Reader, Writer};

use crate::instance::registry::Directory;
use crate::shard::committer::WriterSlot;

/// What a shard is built from.
pub struct ShardParts {
    /// Its number.
    pub index: u16,
    /// The slots it owns.
    pub slots: Range<u16>,
    /// Its store.
    pub writer: Writer,
    /// Its store, to read.
    pub reader: Reader,
}

/// A shard that runs.
pub(crate) struct Running {
    pub(crate) index: u16,
    pub(crate) slots: Range<u16>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) writer: WriterSlot,
}

impl Running {
    /// The instances first: what they have decided lies in the outbox once they are at rest.
    pub(crate) fn rests(&self) -> bool {
        let reader = &self.directory.context.reader;
        self.directory.is_at_rest()
            && reader.outbox_depth().is_ok_and(|depth| depth == 0)
            && reader.unpublished_letters(0, 1).is_ok_and(|letters| letters.is_empty())
    }

    /// Closes the store, whoever still holds a part of this.
    pub(crate) async fn close(&self) -> Result<(), orlog_store::Error> {
        self.directory.close();
        let mut slot = Arc::clone(&self.writer).lock_owned().await;
        // It writes to the disk.
        let closed = tokio::task::spawn_blocking(move || slot.writer.close()).await;
        closed.unwrap_or(Err(orlog_store::Error::Closed))
    }
}

/// By number. What is handed out stays usable after the shard has gone: its store answers that it is closed.
pub(crate) struct Shards {
    slots: Slots,
    running: RwLock<BTreeMap<u16, Arc<Running>>>,
}

impl Shards {
    pub(crate) fn new(slots: Slots) -> Self {
        Self { slots, running: RwLock::default() }
    }

    pub(crate) fn put(&self, shard: Arc<Running>) {
        self.running.write().unwrap_or_else(PoisonError::into_inner).insert(shard.index, shard);
    }

    pub(crate) fn remove(&self, index: u16) -> Option<Arc<Running>> {
        self.running.write().unwrap_or_else(PoisonError::into_inner).remove(&index)
    }

    pub(crate) fn get(&self, index: u16) -> Option<Arc<Running>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).get(&index).cloned()
    }

    /// The one that an instance lives in.
    pub(crate) fn of(&self, key: &InstanceKey) -> Option<Arc<Running>> {
        let slot = self.slots.of(key).0;
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        running.values().find(|shard| shard.slots.contains(&slot)).cloned()
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Running>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
