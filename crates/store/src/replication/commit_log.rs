//! The log that a replicated store follows: the port, for whoever brings one.
//!
//! The log and its snapshots *are* the shard; a store's folder is a copy of a beginning of them. Whoever may write is decided by
//! the log alone: an entry is taken behind the one that its writer has seen last, or not at all. So a writer that was
//! replaced while it slept can read what it likes, and add nothing.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The log of one shard and the snapshots of it. All calls block; none may be made on a thread that drives futures.
///
/// The contract:
/// - Entries have numbers that grow, with gaps; 0 is before the first. An entry that was acknowledged stays, with its number,
///   until it is purged.
/// - An entry may be stored although its append failed, also later than that: who must know looks.
/// - What [`CommitLog::last`] answers was true after it was asked, never before: no copy that lags behind answers it.
pub trait CommitLog: fmt::Debug + Send + Sync {
    /// What tells this log from any other, also from one of the same name that was made after this one was lost.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    fn identity(&self) -> Result<[u8; 16], LogError>;

    /// The largest entry.
    fn max_entry_bytes(&self) -> usize;

    /// Appends an entry; its number is the answer. With `after` only if that is the number of the last entry (0: there is none).
    ///
    /// # Errors
    /// [`LogError::Conflict`], [`LogError::Unavailable`]; in both cases the entry may have been stored.
    fn append(&self, after: Option<u64>, entry: &Bytes) -> Result<u64, LogError>;

    /// The last entry, if there is one.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    fn last(&self) -> Result<Option<Entry>, LogError>;

    /// Shows `visit` the entries behind `after`, in order, until it breaks; at least up to what was the last one when this was
    /// called.
    ///
    /// # Errors
    /// [`LogError::Unavailable`], also after some were shown.
    fn read(&self, after: u64, visit: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), LogError>;

    /// Drops the entries before this number.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    fn purge_before(&self, number: u64) -> Result<(), LogError>;

    /// The snapshots there are, in any order, also those of a log that was lost.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    fn snapshots(&self) -> Result<Vec<Place>, LogError>;

    /// Keeps a file as the snapshot of this place; when it returns, the snapshot is whole.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    fn save(&self, place: &Place, file: &Path) -> Result<(), LogError>;

    /// Makes a file of a snapshot and checks it.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if it is not what was saved or not there any more; [`LogError::Unavailable`].
    fn load(&self, place: &Place, file: &Path) -> Result<(), LogError>;

    /// Drops a snapshot.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    fn forget(&self, place: &Place) -> Result<(), LogError>;
}

/// An entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub number: u64,
    /// What was appended.
    pub bytes: Bytes,
}

/// Up to where a store follows a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The identity of the log.
    pub log: [u8; 16],
    /// Commits.
    pub position: u64,
    /// The last entry of the last commit; 0 before the first.
    pub number: u64,
    /// The epoch of whoever wrote it.
    pub epoch: u64,
    /// The writer, see [`crate::Replication`].
    pub writer: u64,
}

/// Why a log refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// Another entry than the one named is the last, or seems to be.
    #[error("another entry is the last: {0}")]
    Conflict(String),
    /// The log did not answer in time, or has no leader.
    #[error("{0}")]
    Unavailable(String),
    /// A snapshot cannot be used.
    #[error("the snapshot cannot be used: {0}")]
    Damaged(String),
}
