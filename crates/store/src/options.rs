//! Options of a store: layout and durability.

use std::time::Duration;

use orlog_journal::DurablePosition;
use orlog_model::SlotAssigner;

use crate::index::VariableReader;

/// Options of a store. [`Options::default`] is suitable for a shard on a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Slot assignment, with the key-sharded tenants. It must not change while the store exists.
    pub slots: SlotAssigner,
    /// Durability of a commit.
    pub durability: Durability,
    /// Minimum time for which dedupe keys are stored. Fixed when a store is created; later values
    /// are ignored with a warning.
    pub dedupe_window: Duration,
    /// Whether each commit writes the change feed, for [`crate::Reader::feed`].
    pub feed: bool,
    /// Maximum size of the tables, in bytes. Only address space is reserved.
    pub max_bytes: u64,
    /// Size of the file pages in memory of the process, in bytes, above which a flush releases the
    /// pages of the tables.
    pub resident_bytes: u64,
    /// Size in bytes at which the memtable is flushed. Memory use is at most twice this value, plus
    /// one group.
    pub memtable_bytes: usize,
    /// Age of the oldest row at which the memtable is flushed.
    pub memtable_max_age: Duration,
    /// Size of a journal segment, in bytes.
    pub journal_segment_bytes: u64,
    /// Commit that an existing store must contain; `None` if the store may be new. Not used by a
    /// store that follows a log.
    pub expected: Option<DurablePosition>,
    /// Reader of the variables that [`crate::Reader::declare_indexes`] names. By default it finds
    /// none.
    pub variables: VariableReader,
    /// Whether a store that lost durable commits is opened without them.
    pub accept_data_loss: bool,
}

/// Time at which a commit is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Durable before the commit returns.
    Sync,
    /// Durable at most this long after the commit returned. A power failure loses later commits,
    /// but never consistency.
    Interval(Duration),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: SlotAssigner::default(),
            durability: Durability::Sync,
            dedupe_window: Duration::from_hours(24),
            feed: false,
            max_bytes: 64 << 30,
            resident_bytes: 1 << 30,
            memtable_bytes: 64 << 20,
            memtable_max_age: Duration::from_secs(5),
            journal_segment_bytes: 64 << 20,
            expected: None,
            variables: |_, names| vec![None; names.len()],
            accept_data_loss: false,
        }
    }
}
