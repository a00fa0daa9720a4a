//! What can go wrong with a store, sorted by what the caller can do about it.

use std::io;
use std::path::PathBuf;

use crate::replication::commit_log::LogError;
use crate::table::TABLES;

/// Why a store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no room. Nothing was committed; the same group can be tried again once there is.
    #[error("no room in {}: {reason}", path.display())]
    Full {
        /// The file or folder that cannot grow.
        path: PathBuf,
        /// What is full and what to do.
        reason: String,
    },
    /// A name is too long to be a key. Nothing was committed, and this group never can be.
    #[error(
        "a key of table {table} would be {length} bytes long, the limit is {limit}; shorten the names in it"
    )]
    KeyTooLong {
        /// The table.
        table: &'static str,
        /// Bytes asked for.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The group is larger than one record can be. Nothing was committed; commit it in parts.
    #[error("a group of {bytes} bytes exceeds the limit of {limit}; commit it in parts")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The largest size.
        limit: u64,
    },
    /// The files were written by a newer release. Nothing was changed; use that release.
    #[error("{} has store format {found}, this release supports up to {supported}: use the newer release", path.display())]
    NewerFormat {
        /// The file or folder.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format that this release reads.
        supported: u32,
    },
    /// What was stored is damaged or missing. Restore a copy.
    #[error("{place} is damaged: {reason}")]
    Corrupt {
        /// The file, or the table and key.
        place: String,
        /// What does not fit.
        reason: String,
    },
    /// The disk failed, and nobody knows what it has. Call [`crate::Writer::recover`], or open the store anew.
    #[error("the store is in doubt since a failure, it must be recovered: {cause}")]
    Poisoned {
        /// The failure.
        cause: String,
    },
    /// Another process, or another writer in this one, has the store open.
    #[error("{} is held by another writer: stop the process that has it open", path.display())]
    Locked {
        /// What is locked.
        path: PathBuf,
    },
    /// The log does not answer, so whether the group is committed is not known yet. Call [`crate::Writer::resume`] until it is.
    #[error("the log of the shard does not answer, commits wait for it: {reason}")]
    Unavailable {
        /// What it said.
        reason: String,
    },
    /// Somebody else writes the log now. Nothing more is committed here: stop, and leave the shard to its owner.
    #[error("this writer has lost its shard: {reason}")]
    Fenced {
        /// How that shows.
        reason: String,
    },
    /// The log ends before what this copy of it holds.
    #[error(
        "the log of the shard ends at entry {found}, but entry {held} was acknowledged: the servers have lost the end of it; \
         restore their storage, or move the store's folder away to go on with what is left"
    )]
    LogLost {
        /// The last entry known here.
        held: u64,
        /// The last entry there is.
        found: u64,
    },
    /// The folder and the way it is opened do not fit.
    #[error("{}: {reason}", path.display())]
    Mismatch {
        /// The folder.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The writer was dropped, or is being recovered; this reader sees nothing.
    #[error("the store is closed")]
    Closed,
    /// The text is no cursor of this query.
    #[error("{cursor:?} is no cursor of this query; begin without one")]
    BadCursor {
        /// The text.
        cursor: String,
    },
    /// The feed is not whole behind this mark. Begin with everything that is there.
    #[error("{reason}; begin again without a cursor")]
    MarkGone {
        /// Why.
        reason: String,
    },
    /// The store was opened without a feed.
    #[error("the store keeps no feed of what changes")]
    NoFeed,
    /// There is no such table.
    #[error("there is no table {name:?}; there are {}", TABLES.join(", "))]
    NoSuchTable {
        /// The name asked for.
        name: String,
    },
    /// The operating system or the database refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
}

impl Error {
    /// Whether the store can go on as it is; if not, it must be recovered.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(
            self,
            Error::Poisoned { .. }
                | Error::Fenced { .. }
                | Error::LogLost { .. }
                | Error::Corrupt { .. }
                | Error::Io { .. }
                | Error::Closed
        )
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        Error::Unavailable { reason: error.to_string() }
    }
}

impl From<orlog_journal::Error> for Error {
    fn from(error: orlog_journal::Error) -> Self {
        use orlog_journal::Error as Journal;
        let text = error.to_string();
        match error {
            Journal::Full { path, needed_bytes } => {
                Error::Full { path, reason: format!("{needed_bytes} bytes are needed; free disk space") }
            }
            Journal::Locked { path } => Error::Locked { path },
            Journal::Newer { path, found, supported } => {
                Error::NewerFormat { path, found: u32::from(found), supported: u32::from(supported) }
            }
            Journal::Foreign { path, .. } | Journal::Corrupt { path, .. } => {
                Error::Corrupt { place: path.display().to_string(), reason: text }
            }
            Journal::Truncated { .. } => Error::Corrupt { place: "the journal".to_owned(), reason: text },
            Journal::Poisoned { .. } => Error::Poisoned { cause: text },
            Journal::TooLarge { bytes, limit } => Error::TooLarge { bytes, limit },
            Journal::Io { action, path, source } => Error::Io { action, path, source },
        }
    }
}
