//! How a store is laid out and how hard it holds on to a commit.

use std::time::Duration;

use orlog_model::Slots;

/// How a store behaves. [`Options::default`] suits a shard on a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which tenants are spread over all slots. Must stay the same for the life of a store.
    pub slots: Slots,
    /// When a commit is on the disk.
    pub durability: Durability,
    /// For how long an applied event is remembered, at least. Fixed when a store is made; later values are ignored with
    /// a warning.
    pub dedupe_window: Duration,
    /// Whether each commit notes what it touches, for [`crate::Reader::feed`].
    pub feed: bool,
    /// The largest size of the tables, in bytes. Only address space is reserved.
    pub max_bytes: u64,
    /// Fold when the overlay holds this many bytes. Twice as much is the most it ever holds, but for one group.
    pub generation_bytes: usize,
    /// Fold when the oldest row of the overlay is this old.
    pub generation_age: Duration,
    /// The size of a journal segment, in bytes.
    pub journal_segment_bytes: u64,
}

/// When a commit is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before it returns.
    Sync,
    /// At most this long after it returned. A power failure loses what is younger, never consistency.
    Interval(Duration),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: Slots::default(),
            durability: Durability::Sync,
            dedupe_window: Duration::from_hours(24),
            feed: false,
            max_bytes: 64 << 30,
            generation_bytes: 64 << 20,
            generation_age: Duration::from_secs(5),
            journal_segment_bytes: 64 << 20,
        }
    }
}
