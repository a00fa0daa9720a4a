//! Shards that currently run in this process. Shards are added and removed at run time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use orlog_model::{InstanceKey, SlotAssigner};
use orlog_store::{Reader, Writer};

use crate::instance::registry::InstanceRegistry;
use crate::shard::committer::SharedWriter;

/// Dependencies of a shard.
pub struct ShardDependencies {
    /// Shard number.
    pub index: u16,
    /// Slots of the shard.
    pub slots: Range<u16>,
    /// Writer of the store.
    pub writer: Writer,
    /// Reader of the store.
    pub reader: Reader,
}

/// A running shard.
pub(crate) struct RunningShard {
    pub(crate) index: u16,
    pub(crate) slots: Range<u16>,
    pub(crate) instances: Arc<InstanceRegistry>,
    pub(crate) writer: SharedWriter,
}

impl RunningShard {
    /// Returns true if the shard is idle. Checks the instances first: when they are idle, their work is in
    /// the outbox.
    pub(crate) fn is_idle(&self) -> bool {
        let reader = &self.instances.context.reader;
        self.has_settled() && reader.outbox_depth().is_ok_and(|depth| depth == 0)
    }

    /// Returns true if nothing is in flight; the outbox may have work items.
    pub(crate) fn has_settled(&self) -> bool {
        let reader = &self.instances.context.reader;
        self.instances.is_idle()
            && self.instances.epoch().dispatched() == 0
            && reader.unpublished_dead_letters(0, 1).is_ok_and(|dead_letters| dead_letters.is_empty())
    }

    /// Closes the store, even if other code still holds references.
    pub(crate) async fn close(&self) -> Result<(), orlog_store::Error> {
        self.instances.close();
        let mut state = Arc::clone(&self.writer).lock_owned().await;
        // Closing writes to the disk.
        let closed = tokio::task::spawn_blocking(move || state.writer.close()).await;
        closed.unwrap_or(Err(orlog_store::Error::Closed))
    }
}

/// Running shards by number. Returned references stay usable after a shard has stopped: its store then
/// returns that it is closed.
pub(crate) struct RunningShards {
    slots: SlotAssigner,
    running: RwLock<BTreeMap<u16, Arc<RunningShard>>>,
}

impl RunningShards {
    pub(crate) fn new(slots: SlotAssigner) -> Self {
        Self { slots, running: RwLock::default() }
    }

    pub(crate) fn insert(&self, shard: Arc<RunningShard>) {
        self.running.write().unwrap_or_else(PoisonError::into_inner).insert(shard.index, shard);
    }

    pub(crate) fn remove(&self, index: u16) -> Option<Arc<RunningShard>> {
        self.running.write().unwrap_or_else(PoisonError::into_inner).remove(&index)
    }

    pub(crate) fn get(&self, index: u16) -> Option<Arc<RunningShard>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).get(&index).cloned()
    }

    /// Returns the shard of an instance.
    pub(crate) fn owner_of(&self, key: &InstanceKey) -> Option<Arc<RunningShard>> {
        let slot = self.slots.slot_of(key).0;
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        running.values().find(|shard| shard.slots.contains(&slot)).cloned()
    }

    /// Returns all running shards, ordered by number.
    pub(crate) fn all(&self) -> Vec<Arc<RunningShard>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
