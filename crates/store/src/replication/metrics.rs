//! What a replicated store counts about its log.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::histogram::Clocked;
use crate::lock::lock;
use crate::stats::{Replication, Timed};

/// Shared by the writer, the snapshots and whoever asks.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    epoch: AtomicU64,
    appends: Clocked,
    unavailable: Mutex<Option<String>>,
    /// Since the last snapshot.
    commits_behind: AtomicU64,
    bytes_behind: AtomicU64,
    snapshots: Timed,
    snapshot_position: AtomicU64,
    snapshot_failure: Mutex<Option<String>>,
}

impl Meter {
    /// A writer has begun.
    pub(crate) fn owned(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
        *lock(&self.unavailable) = None;
    }

    /// The log was tried: it answered, or did not.
    pub(crate) fn tried(&self, error: Option<&Error>) {
        let mut unavailable = lock(&self.unavailable);
        match error {
            Some(Error::Unavailable { reason }) => *unavailable = Some(reason.clone()),
            _ => *unavailable = None,
        }
    }

    /// A record went into the log.
    pub(crate) fn appended(&self, bytes: u64, took: Duration) {
        self.appends.note(took);
        self.followed(bytes);
    }

    /// A record was found in the log or went there.
    pub(crate) fn followed(&self, bytes: u64) {
        self.commits_behind.fetch_add(1, Ordering::Relaxed);
        self.bytes_behind.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Commits and bytes since the last snapshot.
    pub(crate) fn behind(&self) -> (u64, u64) {
        (self.commits_behind.load(Ordering::Relaxed), self.bytes_behind.load(Ordering::Relaxed))
    }

    /// A snapshot was begun: what comes from now on is behind it. The answer is what was.
    pub(crate) fn begin_snapshot(&self) -> (u64, u64) {
        (self.commits_behind.swap(0, Ordering::Relaxed), self.bytes_behind.swap(0, Ordering::Relaxed))
    }

    /// It was saved, or was not.
    pub(crate) fn end_snapshot(
        &self,
        result: Result<u64, String>,
        took: Duration,
        (commits, bytes): (u64, u64),
    ) {
        match result {
            Ok(position) => {
                self.snapshots.note(took);
                self.snapshot_position.store(position, Ordering::Relaxed);
                *lock(&self.snapshot_failure) = None;
            }
            Err(why) => {
                self.commits_behind.fetch_add(commits, Ordering::Relaxed);
                self.bytes_behind.fetch_add(bytes, Ordering::Relaxed);
                *lock(&self.snapshot_failure) = Some(why);
            }
        }
    }

    /// The figures.
    pub(crate) fn read(&self) -> Replication {
        let (snapshots, last_snapshot) = self.snapshots.read();
        let (commits_behind_snapshot, bytes_behind_snapshot) = self.behind();
        Replication {
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
