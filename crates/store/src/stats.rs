//! Figures about a store, for metrics and for people.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::histogram::Durations;

/// How a store is doing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stats {
    /// Commits ever made.
    pub position: u64,
    /// Commits that are folded into the tables.
    pub folded_position: u64,
    /// Rows in the overlay.
    pub overlay_rows: u64,
    /// Bytes of memory that the overlay takes, about.
    pub overlay_bytes: u64,
    /// Bytes of the journal on disk, allocated room included; 0 in memory.
    pub journal_bytes: u64,
    /// Bytes of the tables on disk; 0 in memory.
    pub tables_bytes: u64,
    /// The largest size that the tables may grow to; 0 in memory.
    pub tables_max_bytes: u64,
    /// Fsyncs of the journal since the store was opened.
    pub fsync: Durations,
    /// Folds since the store was opened.
    pub folds: u64,
    /// How long the last one took.
    pub last_fold: Duration,
    /// Why the last fold failed, if it did.
    pub fold_failure: Option<String>,
    /// For how long an applied event is remembered, at least.
    pub dedupe_window: Duration,
    /// The tables on disk; none in memory.
    pub tables: Vec<TableStats>,
    /// How its log is doing; nothing in a store without one.
    pub replication: Option<Replication>,
}

/// How the log of a replicated store is doing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replication {
    /// The epoch in which the writer claimed the log.
    pub epoch: u64,
    /// Commits appended since the store was opened, and how long that took.
    pub append: Durations,
    /// Why the last try to reach the log failed, if it did: commits wait.
    pub unavailable: Option<String>,
    /// Commits that the last snapshot does not hold, about.
    pub commits_behind_snapshot: u64,
    /// Bytes of them.
    pub bytes_behind_snapshot: u64,
    /// Snapshots saved since the store was opened.
    pub snapshots: u64,
    /// How long the last one took.
    pub last_snapshot: Duration,
    /// The commit that the last one reaches; 0 if there was none since the store was opened.
    pub snapshot_position: u64,
    /// Why the last one failed, if it did.
    pub snapshot_failure: Option<String>,
}

/// How big a table on disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStats {
    /// Its name.
    pub name: &'static str,
    /// Rows in it; what the overlay holds is not counted.
    pub rows: u64,
    /// Pages it takes.
    pub pages: u64,
    /// Bytes of these pages.
    pub bytes: u64,
}

/// The pages of the tables on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pages {
    /// Pages of the file.
    pub all: u64,
    /// Those of them that hold nothing.
    pub free: u64,
    /// Transactions that read at this moment.
    pub readers: u64,
}

/// Counts something and remembers how long it took the last time.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    count: AtomicU64,
    last_micros: AtomicU64,
}

impl Timed {
    /// Once more.
    pub(crate) fn note(&self, took: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.last_micros.store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How often, and how long the last time.
    pub(crate) fn read(&self) -> (u64, Duration) {
        let last = Duration::from_micros(self.last_micros.load(Ordering::Relaxed));
        (self.count.load(Ordering::Relaxed), last)
    }
}
