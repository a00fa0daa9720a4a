//! Metrics of the log of a replicated store.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::lock::lock;
use crate::stats::{AtomicDurationHistogram, ReplicationStats, TimedCounter};

/// Metrics, shared by the writer, the snapshots and the readers of metrics.
#[derive(Debug, Default)]
pub(crate) struct LogMetrics {
    epoch: AtomicU64,
    appends: AtomicDurationHistogram,
    unavailable: Mutex<Option<String>>,
    /// Commits since the last snapshot.
    commits_behind: AtomicU64,
    bytes_behind: AtomicU64,
    snapshots: TimedCounter,
    snapshot_position: AtomicU64,
    snapshot_failure: Mutex<Option<String>>,
}

impl LogMetrics {
    /// Records the start of a writer.
    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
        *lock(&self.unavailable) = None;
    }

    /// Records an attempt to reach the log, successful or not.
    pub(crate) fn record_attempt(&self, error: Option<&Error>) {
        let mut unavailable = lock(&self.unavailable);
        match error {
            Some(Error::Unavailable { reason }) => *unavailable = Some(reason.clone()),
            _ => *unavailable = None,
        }
    }

    /// Records an append to the log.
    pub(crate) fn record_append(&self, bytes: u64, duration: Duration) {
        self.appends.record(duration);
        self.record_followed(bytes);
    }

    /// Records a record that was read from the log or appended to it.
    pub(crate) fn record_followed(&self, bytes: u64) {
        self.commits_behind.fetch_add(1, Ordering::Relaxed);
        self.bytes_behind.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the commits and bytes since the last snapshot.
    pub(crate) fn behind_snapshot(&self) -> (u64, u64) {
        (self.commits_behind.load(Ordering::Relaxed), self.bytes_behind.load(Ordering::Relaxed))
    }

    /// Records the start of a snapshot: later commits count as after it. Returns the previous values.
    pub(crate) fn start_snapshot(&self) -> (u64, u64) {
        (self.commits_behind.swap(0, Ordering::Relaxed), self.bytes_behind.swap(0, Ordering::Relaxed))
    }

    /// Records the success or failure of a snapshot.
    pub(crate) fn end_snapshot(
        &self,
        result: Result<u64, String>,
        duration: Duration,
        (commits, bytes): (u64, u64),
    ) {
        match result {
            Ok(position) => {
                self.snapshots.record(duration);
                self.snapshot_position.store(position, Ordering::Relaxed);
                *lock(&self.snapshot_failure) = None;
            }
            Err(reason) => {
                self.commits_behind.fetch_add(commits, Ordering::Relaxed);
                self.bytes_behind.fetch_add(bytes, Ordering::Relaxed);
                *lock(&self.snapshot_failure) = Some(reason);
            }
        }
    }

    /// Returns the current values.
    pub(crate) fn read(&self) -> ReplicationStats {
        let (snapshots, last_snapshot) = self.snapshots.read();
        let (commits_behind_snapshot, bytes_behind_snapshot) = self.behind_snapshot();
        ReplicationStats {
            epoch: self.epoch.load(Ordering::Relaxed),
            append: self.appends.read(),
            unavailable: lock(&self.unavailable).clone(),
            commits_behind_snapshot,
            bytes_behind_snapshot,
            snapshots,
            last_snapshot,
            snapshot_position: self.snapshot_position.load(Ordering::Relaxed),
            snapshot_failure: lock(&self.snapshot_failure).clone(),
        }
    }
}
