//! Metrics of the log of a replicated store.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::error::Error;
use crate::lock::lock;
use crate::stats::ReplicationStats;

/// Metrics, shared by the writer, the snapshots and the readers of metrics.
#[derive(Debug, Default)]
pub(crate) struct LogMetrics(Mutex<ReplicationStats>);

/// Part of the log after the last snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogTail {
    /// Number of commits.
    pub(crate) commits: u64,
    /// Size of these commits, in bytes.
    pub(crate) bytes: u64,
}

impl LogMetrics {
    fn stats(&self) -> MutexGuard<'_, ReplicationStats> {
        lock(&self.0)
    }

    /// Records the start of a writer.
    pub(crate) fn set_epoch(&self, epoch: u64) {
        let mut stats = self.stats();
        stats.epoch = epoch;
        stats.unavailable = None;
    }

    /// Records an attempt to append a record: its size and duration if it was appended, or the
    /// error.
    pub(crate) fn record_attempt(&self, appended: Result<Option<(u64, Duration)>, &Error>) {
        let mut stats = self.stats();
        // Other errors end the writer, so only this one is a state of the log.
        stats.unavailable = match appended {
            Err(Error::Unavailable { reason }) => Some(reason.clone()),
            _ => None,
        };

        if let Ok(Some((bytes, duration))) = appended {
            stats.append.record(duration);
            stats.record(bytes);
        }
    }

    /// Records a record that was read from the log.
    pub(crate) fn record_followed(&self, bytes: u64) {
        self.stats().record(bytes);
    }

    /// Returns the log after the last snapshot.
    pub(crate) fn tail(&self) -> LogTail {
        let stats = self.stats();
        LogTail {
            commits: stats.commits_behind_snapshot,
            bytes: stats.bytes_behind_snapshot,
        }
    }

    /// Records the start of a snapshot: later commits count as after it. Returns the log that it
    /// covers.
    pub(crate) fn start_snapshot(&self) -> LogTail {
        let mut stats = self.stats();
        LogTail {
            // Commits during the snapshot may not be part of it, so they count for the next one.
            commits: std::mem::take(&mut stats.commits_behind_snapshot),
            bytes: std::mem::take(&mut stats.bytes_behind_snapshot),
        }
    }

    /// Records the success or failure of a snapshot. After a failure, the log that it would have
    /// covered counts again.
    pub(crate) fn end_snapshot(
        &self,
        result: Result<u64, String>,
        duration: Duration,
        covered: LogTail,
    ) {
        let mut stats = self.stats();
        match result {
            Ok(position) => {
                stats.snapshots += 1;
                stats.last_snapshot = duration;
                stats.snapshot_position = position;
                stats.snapshot_failure = None;
            }
            Err(reason) => {
                stats.commits_behind_snapshot += covered.commits;
                stats.bytes_behind_snapshot += covered.bytes;
                stats.snapshot_failure = Some(reason);
            }
        }
    }

    /// Returns the current values.
    pub(crate) fn read(&self) -> ReplicationStats {
        self.stats().clone()
    }
}

impl ReplicationStats {
    fn record(&mut self, bytes: u64) {
        self.commits_behind_snapshot += 1;
        self.bytes_behind_snapshot += bytes;
    }
}
