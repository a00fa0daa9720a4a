//! Metrics of the log of a replicated store.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::error::Error;
use crate::lock::lock;
use crate::replication::commit_log::LogPosition;
use crate::stats::ReplicationStats;

/// Metrics, shared by the writer, the snapshots and the readers of metrics.
#[derive(Debug, Default)]
pub(crate) struct LogMetrics {
    stats: Mutex<ReplicationStats>,
    /// End of the copy with which the takeover started, until the log from the last snapshot to it
    /// is counted.
    uncounted: Mutex<Option<LogPosition>>,
}

/// Part of the log after the last snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogTail {
    /// Number of commits.
    pub(crate) commits: u64,
    /// Size of these commits, in bytes.
    pub(crate) bytes: u64,
}

impl LogMetrics {
    fn stats(&self) -> MutexGuard<'_, ReplicationStats> {
        lock(&self.stats)
    }

    /// Records the start of a takeover with a copy that ends at `start`. The log after it is
    /// counted while it is followed.
    pub(crate) fn start_takeover(&self, start: LogPosition) {
        // Together: a thread of the earlier takeover may still count.
        let mut uncounted = lock(&self.uncounted);
        self.stats().take_tail();
        *uncounted = Some(start);
    }

    /// Returns the position up to which the log after the last snapshot is not counted yet.
    pub(crate) fn uncounted(&self) -> Option<LogPosition> {
        *lock(&self.uncounted)
    }

    /// Adds the log between the last snapshot and the uncounted position `start`. A count for an
    /// earlier takeover is dropped.
    pub(crate) fn count_until_start(&self, start: LogPosition, tail: LogTail) {
        let mut uncounted = lock(&self.uncounted);
        if uncounted.take_if(|uncounted| *uncounted == start).is_none() {
            return;
        }

        let mut stats = self.stats();
        stats.add_tail(tail);
        // The failure to count has ended. A snapshot that failed is still due, and its retry
        // records the next failure.
        stats.snapshot_failure = None;
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
        // Commits during the snapshot may not be part of it, so they count for the next one.
        self.stats().take_tail()
    }

    /// Records that a snapshot was not saved because the store was closed: the log that it would
    /// have covered counts again.
    pub(crate) fn cancel_snapshot(&self, covered: LogTail) {
        self.stats().add_tail(covered);
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
                stats.add_tail(covered);
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
    fn take_tail(&mut self) -> LogTail {
        LogTail {
            commits: std::mem::take(&mut self.commits_behind_snapshot),
            bytes: std::mem::take(&mut self.bytes_behind_snapshot),
        }
    }

    fn add_tail(&mut self, tail: LogTail) {
        self.commits_behind_snapshot += tail.commits;
        self.bytes_behind_snapshot += tail.bytes;
    }

    fn record(&mut self, bytes: u64) {
        self.commits_behind_snapshot += 1;
        self.bytes_behind_snapshot += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_for_an_earlier_takeover_is_dropped() {
        let meter = LogMetrics::default();
        let tail = LogTail {
            commits: 2,
            bytes: 30,
        };
        let earlier = LogPosition {
            log: [7; 16],
            position: 1,
            number: 2,
            epoch: 1,
            writer: 1,
        };
        let later = LogPosition {
            position: 2,
            ..earlier
        };
        meter.start_takeover(earlier);
        meter.start_takeover(later);

        meter.count_until_start(earlier, tail);
        assert_eq!(meter.tail(), LogTail::default());
        assert_eq!(meter.uncounted(), Some(later));

        meter.count_until_start(later, tail);
        assert_eq!(meter.tail(), tail);
        assert_eq!(meter.uncounted(), None);
    }

    #[test]
    fn log_of_a_cancelled_or_failed_snapshot_counts_again() {
        let meter = LogMetrics::default();
        let tail = LogTail {
            commits: 2,
            bytes: 30,
        };
        meter.record_followed(10);
        meter.record_followed(20);

        let covered = meter.start_snapshot();
        meter.cancel_snapshot(covered);
        assert_eq!(meter.tail(), tail);
        assert_eq!(meter.read().snapshot_failure, None);

        let covered = meter.start_snapshot();
        assert_eq!(meter.tail(), LogTail::default());
        meter.end_snapshot(Err("full".to_owned()), Duration::ZERO, covered);
        assert_eq!(meter.tail(), tail);
        assert_eq!(meter.read().snapshot_failure.as_deref(), Some("full"));
    }
}
