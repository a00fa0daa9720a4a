//! Statistics of a store, for metrics and operators.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Statistics of a store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stats {
    /// Total number of commits.
    pub position: u64,
    /// Number of commits flushed to the tables.
    pub flushed_position: u64,
    /// Rows in the memtables.
    pub memtable_rows: u64,
    /// Approximate memory size of the memtables, in bytes.
    pub memtable_bytes: u64,
    /// Size of the journal on disk in bytes, with allocated space; 0 in memory.
    pub journal_bytes: u64,
    /// Size of the tables on disk, in bytes; 0 in memory.
    pub tables_bytes: u64,
    /// Maximum size of the tables, in bytes; 0 in memory.
    pub tables_max_bytes: u64,
    /// Fsyncs of the journal since the store was opened.
    pub fsync: DurationHistogram,
    /// Flushes since the store was opened.
    pub flushes: u64,
    /// Duration of the last flush.
    pub last_flush: Duration,
    /// Failure of the last flush, if any.
    pub flush_failure: Option<String>,
    /// Minimum time for which dedupe keys are stored.
    pub dedupe_window: Duration,
    /// Range scans of each table since the store was opened.
    pub scans: Vec<(&'static str, u64)>,
    /// Number of expired dedupe keys that are not purged yet.
    pub dedupe_backlog: u64,
    /// Reads of rows that do not match their checksum, since the store was opened.
    pub damaged_reads: u64,
    /// Tables on disk; empty in memory.
    pub tables: Vec<TableStats>,
    /// Statistics of the log; `None` for a store without a log.
    pub replication: Option<ReplicationStats>,
}

/// Statistics of the log of a replicated store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplicationStats {
    /// Epoch in which the writer claimed the log.
    pub epoch: u64,
    /// Durations of the commits appended since the store was opened.
    pub append: DurationHistogram,
    /// Failure of the last attempt to reach the log, if any; commits are blocked.
    pub unavailable: Option<String>,
    /// Approximate number of commits after the last snapshot.
    pub commits_behind_snapshot: u64,
    /// Size of these commits, in bytes.
    pub bytes_behind_snapshot: u64,
    /// Snapshots saved since the store was opened.
    pub snapshots: u64,
    /// Duration of the last snapshot.
    pub last_snapshot: Duration,
    /// Position of the last snapshot; 0 if none was saved since the store was opened.
    pub snapshot_position: u64,
    /// Failure of the last snapshot, if any.
    pub snapshot_failure: Option<String>,
}

/// Size of a table on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStats {
    /// Name of the table.
    pub name: &'static str,
    /// Number of rows, without rows in the memtables.
    pub rows: u64,
    /// Number of pages.
    pub pages: u64,
    /// Size of these pages, in bytes.
    pub bytes: u64,
}

/// Page statistics of the tables on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Number of pages in the file.
    pub total: u64,
    /// Number of free pages.
    pub free: u64,
    /// Number of active read transactions.
    pub readers: u64,
}

/// Counter that also stores the last duration.
#[derive(Debug, Default)]
pub(crate) struct TimedCounter {
    count: AtomicU64,
    last_micros: AtomicU64,
}

impl TimedCounter {
    /// Counts one operation and records its duration.
    pub(crate) fn record(&self, duration: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.last_micros.store(
            u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Returns the count and the last duration.
    pub(crate) fn read(&self) -> (u64, Duration) {
        let last = Duration::from_micros(self.last_micros.load(Ordering::Relaxed));
        (self.count.load(Ordering::Relaxed), last)
    }
}

/// Upper bounds of the buckets, in seconds. One more bucket has no bound.
pub const BOUNDS_SECONDS: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// Histogram of durations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DurationHistogram {
    /// Number of durations up to each of [`BOUNDS_SECONDS`] and above the previous one; the last
    /// bucket has no bound.
    pub counts: [u64; BOUNDS_SECONDS.len() + 1],
    /// Sum of all durations.
    pub sum: Duration,
}

impl DurationHistogram {
    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn record(&mut self, duration: Duration) {
        self.counts[bucket(duration)] += 1;
        self.sum += duration;
    }
}

fn bucket(duration: Duration) -> usize {
    let seconds = duration.as_secs_f64();
    // The bounds are inclusive.
    BOUNDS_SECONDS.partition_point(|bound| *bound < seconds)
}

/// Histogram that any thread can update.
#[derive(Debug, Default)]
pub(crate) struct AtomicDurationHistogram {
    counts: [AtomicU64; BOUNDS_SECONDS.len() + 1],
    sum_nanos: AtomicU64,
}

impl AtomicDurationHistogram {
    /// Records one duration.
    pub(crate) fn record(&self, duration: Duration) {
        // The counters are independent. A reader may see a duration in only one of them.
        self.counts[bucket(duration)].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(
            u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Returns the current values.
    pub(crate) fn read(&self) -> DurationHistogram {
        DurationHistogram {
            counts: std::array::from_fn(|class| self.counts[class].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_bounds_are_inclusive() {
        let clocked = AtomicDurationHistogram::default();
        for micros in [0, 100, 101, 10_000_000, 10_000_001] {
            clocked.record(Duration::from_micros(micros));
        }
        let durations = clocked.read();
        assert_eq!((durations.counts[0], durations.counts[1]), (2, 1));
        assert_eq!((durations.counts[15], durations.counts[16]), (1, 1));
        assert_eq!(
            (durations.count(), durations.sum),
            (5, Duration::from_micros(20_000_202))
        );
    }
}
