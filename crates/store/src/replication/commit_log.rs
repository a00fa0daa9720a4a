//! Interface of the log that a replicated store follows.
//!
//! The log and its snapshots *are* the shard; the directory of a store is a copy of a prefix of
//! them. The log alone determines who may write: it accepts an entry only directly after the last
//! entry that the writer has read. A writer that was replaced while it was suspended can read, but
//! cannot append.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Log of one shard, with its snapshots. All calls block; never call them on an async executor
/// thread.
///
/// The contract:
/// - Entry numbers increase, with gaps; 0 is before the first. An acknowledged entry remains, with
///   its number, until it is purged.
/// - An entry may be stored although its append failed, even later. The caller must read the log to
///   find out.
/// - The result of [`CommitLog::last`] was current after the call started: no lagging replica
///   returns it.
///
/// # Errors
/// Each call can fail with [`CommitLogError::Unavailable`].
#[expect(
    clippy::missing_errors_doc,
    reason = "the documentation of the trait has the common error"
)]
pub trait CommitLog: fmt::Debug + Send + Sync {
    /// Returns the identity of this log. A log that was recreated under the same name has another
    /// identity.
    fn identity(&self) -> Result<[u8; 16], CommitLogError>;

    /// Returns the maximum entry size, in bytes.
    fn max_entry_bytes(&self) -> usize;

    /// Appends an entry and returns its number. With `after`, only if that is the number of the
    /// last entry (0: the log is empty).
    ///
    /// # Errors
    /// [`CommitLogError::Conflict`]. The entry may have been stored, whatever the error.
    fn append(&self, after: Option<u64>, entry: &Bytes) -> Result<u64, CommitLogError>;

    /// Returns the last entry, if there is one.
    fn last(&self) -> Result<Option<LogEntry>, CommitLogError>;

    /// Passes the entries after `after` to `visit`, in order, until it breaks; at least up to the
    /// last entry at the time of the call.
    ///
    /// # Errors
    /// [`CommitLogError::Unavailable`], also after some entries were visited.
    fn read(
        &self,
        after: u64,
        visit: &mut dyn FnMut(LogEntry) -> ControlFlow<()>,
    ) -> Result<(), CommitLogError>;

    /// Deletes the entries before this number.
    fn purge_before(&self, number: u64) -> Result<(), CommitLogError>;

    /// Returns the existing snapshots in any order, including those of a lost log.
    fn snapshots(&self) -> Result<Vec<Snapshot>, CommitLogError>;

    /// Saves a file as a snapshot, which is complete when the call returns.
    fn save(&self, snapshot: &Snapshot, file: &Path) -> Result<(), CommitLogError>;

    /// Writes a snapshot to a file and verifies it.
    ///
    /// # Errors
    /// [`CommitLogError::Damaged`] if it differs from the saved file or no longer exists;
    /// [`CommitLogError::Unavailable`].
    fn load(&self, snapshot: &Snapshot, file: &Path) -> Result<(), CommitLogError>;

    /// Deletes a snapshot.
    fn delete_snapshot(&self, snapshot: &Snapshot) -> Result<(), CommitLogError>;

    /// Returns the claim that was recorded last, with its entry. It is stored apart from the log
    /// and outlasts it, so that an empty log of a shard that had an owner is not taken for a new
    /// one.
    fn recorded_claim(&self) -> Result<Option<LogPosition>, CommitLogError>;

    /// Records a claim, in place of the earlier one.
    fn record_claim(&self, claim: &LogPosition) -> Result<(), CommitLogError>;
}

/// Entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Number of the entry.
    pub number: u64,
    /// Appended bytes.
    pub bytes: Bytes,
}

/// Position of a store in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogPosition {
    /// Identity of the log.
    pub log: [u8; 16],
    /// Number of commits.
    pub position: u64,
    /// Last entry of the last commit; 0 before the first.
    pub number: u64,
    /// Epoch of the writer.
    pub epoch: u64,
    /// Writer, see [`crate::ReplicationOptions`].
    pub writer: u64,
}

/// Snapshot of a log, identified by its position and its base: two owners can save a delta and a
/// full snapshot of one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Position of the snapshot.
    pub position: LogPosition,
    /// Position of the snapshot whose changes this one contains; `None`: it is complete by itself.
    pub base: Option<LogPosition>,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

/// Error of a log operation.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitLogError {
    /// Another entry than the named one is, or seems to be, the last.
    #[error("unexpected last entry: {0}")]
    Conflict(String),
    /// The log did not respond in time, or has no leader.
    #[error("{0}")]
    Unavailable(String),
    /// The snapshot is unusable.
    #[error("snapshot is unusable: {0}")]
    Damaged(String),
}
