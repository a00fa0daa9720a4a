//! Errors of a journal, by the reaction that they require.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of a journal operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a journal operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk or the quota is full. The journal is intact; retry after space is freed.
    #[error("no space for {needed_bytes} bytes at {}; free disk space and retry", path.display())]
    Full {
        /// File that could not be written or allocated.
        path: PathBuf,
        /// Requested number of bytes.
        needed_bytes: u64,
    },
    /// No segment can be created, for example because the process has no free file descriptor. The
    /// journal is intact; retry.
    #[error("cannot create the next segment: cannot {action} {}: {source}", path.display())]
    Rotation {
        /// Attempted action, a verb.
        action: &'static str,
        /// File.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another journal, in this or another process, writes to this directory.
    #[error(
        "{} is locked by another process; stop that process (find it with `fuser`)",
        path.display()
    )]
    Locked {
        /// Lock file.
        path: PathBuf,
    },
    /// A newer release wrote the directory.
    #[error(
        "{} has journal format {found}, this release supports up to {supported}; upgrade orlog",
        path.display()
    )]
    NewerFormat {
        /// Segment file.
        path: PathBuf,
        /// Format version of the segment.
        found: u16,
        /// Newest version that this release reads.
        supported: u16,
    },
    /// The directory contains a journal with another identity.
    #[error(
        "{} belongs to journal {}, not to {}",
        path.display(), hex::encode(found), hex::encode(expected)
    )]
    WrongIdentity {
        /// Segment file.
        path: PathBuf,
        /// Identity in the segment.
        found: [u8; 16],
        /// Identity that the caller provided.
        expected: [u8; 16],
    },
    /// Durable data is corrupt or missing. Nothing was changed; restore a backup.
    #[error("{} is corrupt at byte {offset}: {reason}", path.display())]
    Corrupt {
        /// Segment file.
        path: PathBuf,
        /// Offset in the segment, in bytes.
        offset: u64,
        /// Description of the mismatch.
        reason: &'static str,
    },
    /// The journal ends before a record that was durable. Nothing was changed; restore the missing
    /// segments or a backup.
    #[error(
        "{} ends at record {last}, but record {expected} was durable: its last segments are \
         missing",
        path.display()
    )]
    LostEnd {
        /// Directory of the journal.
        path: PathBuf,
        /// Last record.
        last: u64,
        /// Record that was durable.
        expected: u64,
    },
    /// An fsync failed, or a failed append could not be reverted. Every later call returns this
    /// error; reopen the journal.
    #[error("{} is poisoned by an earlier failure; reopen the journal: {cause}", path.display())]
    Poisoned {
        /// File or directory that failed.
        path: PathBuf,
        /// Original failure.
        cause: Arc<io::Error>,
    },
    /// The record exceeds the size limit.
    #[error("a record of {bytes} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Size of the payload.
        bytes: u64,
        /// Maximum payload size, [`crate::MAX_PAYLOAD_BYTES`].
        limit: u64,
    },
    /// `truncate_before` dropped the requested record.
    #[error("record {requested} was truncated; the journal starts at {first}")]
    Truncated {
        /// Requested sequence.
        requested: u64,
        /// First sequence that the journal may still contain.
        first: u64,
    },
    /// The operating system returned an error; the journal is unchanged.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Attempted action, a verb.
        action: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// Converts a failure that a lack of space may cause.
    pub(crate) fn write(
        action: &'static str,
        path: &Path,
        needed_bytes: u64,
    ) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full {
                path: path.to_owned(),
                needed_bytes,
            },
            _ => Self::Io {
                action,
                path: path.to_owned(),
                source,
            },
        }
    }

    /// Converts a failure that leaves the content of the disk unknown.
    pub(crate) fn poison(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Poisoned {
            path: path.to_owned(),
            cause: Arc::new(cause),
        }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, reason: &'static str) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            offset,
            reason,
        }
    }
}
