//! Metrics of the log of a replicated store.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::error::Error;
use crate::lock::lock;
use crate::stats::ReplicationStats;

/// Metrics, shared by the writer, the snapshots and the readers of metrics.
#[derive(Debug, Default)]
pub(crate) struct LogMetrics(Mutex<ReplicationStats>);

impl LogMetrics {
    fn stats(&self) -> MutexGuard<'_, ReplicationStats> {
        lock(&self.0)
    }

    /// Records the start of a writer.
    pub(crate) fn set_epoch(&self, epoch: u64) {
        let mut stats = self.stats();
        (stats.epoch, stats.unavailable) = (epoch, None);
    }

    /// Records an attempt to append a record: its size and duration if it was appended, or the
    /// error.
    pub(crate) fn record_attempt(&self, appended: Result<Option<(u64, Duration)>, &Error>) {
        let mut stats = self.stats();
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

    /// Returns the commits and bytes since the last snapshot.
    pub(crate) fn behind_snapshot(&self) -> (u64, u64) {
        let stats = self.stats();
        (stats.commits_behind_snapshot, stats.bytes_behind_snapshot)
    }

    /// Records the start of a snapshot: later commits count as after it. Returns the previous
    /// values.
    pub(crate) fn start_snapshot(&self) -> (u64, u64) {
        let mut stats = self.stats();
        let commits = std::mem::take(&mut stats.commits_behind_snapshot);
        (commits, std::mem::take(&mut stats.bytes_behind_snapshot))
    }

    /// Records the success or failure of a snapshot.
    pub(crate) fn end_snapshot(
        &self,
        result: Result<u64, String>,
        duration: Duration,
        (commits, bytes): (u64, u64),
    ) {
        let mut stats = self.stats();
        match result {
            Ok(position) => {
                stats.snapshots += 1;
                (stats.last_snapshot, stats.snapshot_position) = (duration, position);
                stats.snapshot_failure = None;
            }
            Err(reason) => {
                stats.commits_behind_snapshot += commits;
                stats.bytes_behind_snapshot += bytes;
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
