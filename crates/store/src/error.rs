//! Errors of a store, by the reaction that they require.

use std::io;
use std::path::{Path, PathBuf};

use crate::replication::commit_log::CommitLogError;
use crate::table::TABLES;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no space. Nothing was committed; the same group can be retried after space is
    /// freed.
    #[error("no space in {}: {reason}", path.display())]
    Full {
        /// File or directory that cannot grow.
        path: PathBuf,
        /// Cause and remedy.
        reason: String,
    },
    /// The journal cannot create a segment, for example because the process has no free file
    /// descriptor. Nothing was committed; retry the same group.
    #[error("{reason}; nothing was committed")]
    Rotation {
        /// Cause.
        reason: String,
    },
    /// A name is too long for a key. Nothing was committed, and this group can never be committed.
    #[error(
        "a key of table {table} would be {length} bytes long, the limit is {limit}; shorten the \
         names in it"
    )]
    KeyTooLong {
        /// Table.
        table: &'static str,
        /// Requested length, in bytes.
        length: usize,
        /// Maximum length, in bytes.
        limit: usize,
    },
    /// The group exceeds the record size limit. Nothing was committed; split the group.
    #[error("commit group of {bytes} bytes exceeds the limit of {limit}; split it")]
    TooLarge {
        /// Size of the group.
        bytes: u64,
        /// Maximum size.
        limit: u64,
    },
    /// A newer release wrote the files. Nothing was changed; use that release.
    #[error(
        "{} has store format {found}, this release supports up to {supported}; upgrade orlog",
        path.display()
    )]
    NewerFormat {
        /// File or directory.
        path: PathBuf,
        /// Format of the files.
        found: u32,
        /// Newest format that this release reads.
        supported: u32,
    },
    /// Stored data is corrupt or missing. Restore a backup.
    #[error("{location} is corrupt: {reason}")]
    Corrupt {
        /// File, or table and key.
        location: String,
        /// Description of the mismatch.
        reason: String,
    },
    /// The journal is corrupt. Nothing was changed. Restore a backup.
    #[error("{reason}")]
    DamagedJournal {
        /// Segment, offset and description of the mismatch.
        reason: String,
    },
    /// A row of the tables does not match its checksum.
    #[error(
        "{}: the row {key} of table {table} is damaged: it does not match its checksum",
        path.display()
    )]
    Damaged {
        /// Directory of the tables.
        path: PathBuf,
        /// Table.
        table: &'static str,
        /// Key of the row.
        key: String,
    },
    /// Durable commits are missing. Nothing was changed. Restore the missing files or a backup, or
    /// open the store with [`crate::Options::accept_data_loss`].
    #[error("{} lost durable data: {reason}", path.display())]
    Lost {
        /// Directory of the store.
        path: PathBuf,
        /// Missing part.
        reason: String,
    },
    /// The disk failed and its content is unknown, or the log no longer accepts the entries of a
    /// commit that it may have stored in part. Call [`crate::Writer::recover`], or reopen the store.
    #[error("store is blocked by an earlier failure; reopen it: {cause}")]
    Poisoned {
        /// Failure.
        cause: String,
    },
    /// Another process, or another writer in this one, has the store open.
    #[error("{} is locked by another process; stop that process", path.display())]
    Locked {
        /// Locked file.
        path: PathBuf,
    },
    /// The log does not respond, so it is unknown whether the group is committed. Call
    /// [`crate::Writer::retry_commit`] until it is known.
    #[error("replicated log unavailable, commits are blocked: {reason}")]
    Unavailable {
        /// Error of the log.
        reason: String,
    },
    /// Another owner writes the log now. No further commit succeeds here: stop, and leave the shard
    /// to its owner.
    #[error("shard ownership lost: {reason}")]
    Fenced {
        /// Evidence of the new owner.
        reason: String,
        /// Epoch of the new owner.
        epoch: u64,
    },
    /// The log lacks the end of this copy, or the last recorded claim.
    #[error(
        "OR0061: the log of the shard ends at entry {found}, but lacks the acknowledged entry \
         {acknowledged}: the servers have lost the end of it; restore their storage. To continue \
         with the remaining entries, move the store directory away and start once with \
         --accept-data-loss"
    )]
    LogLost {
        /// Entry that is missing: the last one in this copy, or that of the last owner.
        acknowledged: u64,
        /// Last entry in the log.
        found: u64,
    },
    /// The directory does not match the mode in which it is opened.
    #[error("{}: {reason}", path.display())]
    Mismatch {
        /// Directory.
        path: PathBuf,
        /// Reason and remedy.
        reason: String,
    },
    /// The writer was dropped or is being recovered; this reader cannot read.
    #[error("store is closed")]
    Closed,
    /// The request that reads has ended; see [`crate::Cancellation`].
    #[error("the request was cancelled or timed out")]
    Cancelled,
    /// The text is no cursor of this query.
    #[error("invalid cursor {cursor:?}; restart without a cursor")]
    InvalidCursor {
        /// Text of the cursor.
        cursor: String,
    },
    /// The feed is incomplete after this offset. Restart with a full scan.
    #[error("{reason}; restart without a cursor")]
    FeedOffsetExpired {
        /// Reason.
        reason: String,
    },
    /// The store was opened without a feed.
    #[error("change feed is disabled")]
    FeedDisabled,
    /// The table does not exist.
    #[error("unknown table {name:?}; tables: {}", TABLES.join(", "))]
    NoSuchTable {
        /// Requested name.
        name: String,
    },
    /// The operating system or the database returned an error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Attempted action, a verb.
        action: &'static str,
        /// Path of the action.
        path: PathBuf,
        /// Returned error.
        source: io::Error,
    },
}

impl Error {
    /// Returns the constructor of the error of an action on a path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Error::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// Returns whether stored data is damaged: a later read has the same result.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Error::Corrupt { .. } | Error::DamagedJournal { .. } | Error::Damaged { .. }
        )
    }

    /// Returns whether the store can continue; if not, it must be recovered. A closed store is not
    /// damaged: a background thread may find it closed while the writer recovers it.
    pub(crate) fn is_recoverable(&self) -> bool {
        // After these errors, the content of memory and disk may differ, or another owner may
        // write.
        !matches!(
            self,
            Error::Poisoned { .. }
                | Error::Fenced { .. }
                | Error::LogLost { .. }
                | Error::Lost { .. }
                | Error::Corrupt { .. }
                | Error::DamagedJournal { .. }
                | Error::Damaged { .. }
                | Error::Io { .. }
        )
    }
}

impl From<CommitLogError> for Error {
    fn from(error: CommitLogError) -> Self {
        Error::Unavailable {
            reason: error.to_string(),
        }
    }
}

impl From<orlog_journal::Error> for Error {
    fn from(error: orlog_journal::Error) -> Self {
        use orlog_journal::Error as Journal;

        let text = error.to_string();
        match error {
            Journal::Full { path, needed_bytes } => Error::Full {
                path,
                reason: format!("{needed_bytes} bytes are required; free disk space"),
            },
            Journal::Rotation { .. } => Error::Rotation { reason: text },
            Journal::Locked { path } => Error::Locked { path },
            Journal::NewerFormat {
                path,
                found,
                supported,
            } => Error::NewerFormat {
                path,
                found: u32::from(found),
                supported: u32::from(supported),
            },
            Journal::LostEnd {
                path,
                last,
                expected,
            } => {
                let reason = format!(
                    "the journal ends at commit {last}, but commit {expected} was durable; its \
                     last segments are missing"
                );
                Error::Lost { path, reason }
            }
            // `Truncated`: the tables need a record that the journal no longer contains.
            Journal::WrongIdentity { .. } | Journal::Corrupt { .. } | Journal::Truncated { .. } => {
                Error::DamagedJournal { reason: text }
            }
            Journal::Poisoned { .. } => Error::Poisoned { cause: text },
            Journal::TooLarge { bytes, limit } => Error::TooLarge { bytes, limit },
            Journal::Io {
                action,
                path,
                source,
            } => Error::Io {
                action,
                path,
                source,
            },
        }
    }
}
