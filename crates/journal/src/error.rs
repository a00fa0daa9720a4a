//! What can go wrong with a journal, sorted by what the caller can do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of a journal's operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a journal refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk or the quota is full. The journal is intact; try again once there is room.
    #[error("no room for {needed_bytes} bytes at {}: free disk space, then try again", path.display())]
    Full {
        /// The file that could not be written or allocated.
        path: PathBuf,
        /// How many bytes were asked for.
        needed_bytes: u64,
    },
    /// Another journal, in this process or another one, writes this folder.
    #[error("{} is held by another writer: stop the process that has it open (`fuser` on the file names it)", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The folder was written by a newer release.
    #[error("{} has journal format {found}, this release reads up to {supported}: use the newer release", path.display())]
    Newer {
        /// The segment.
        path: PathBuf,
        /// The format version found in it.
        found: u16,
        /// The newest version that this release reads.
        supported: u16,
    },
    /// The folder holds the journal of somebody else.
    #[error("{} belongs to journal {found:02x?}, not to {expected:02x?}", path.display())]
    Foreign {
        /// The segment.
        path: PathBuf,
        /// The identity found in it.
        found: [u8; 16],
        /// The identity the caller gave.
        expected: [u8; 16],
    },
    /// Something that had been durable is damaged or missing. Nothing was changed; restore a copy.
    #[error("{} is damaged at byte {offset}: {reason}", path.display())]
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// Where in it, in bytes from its start.
        offset: u64,
        /// What does not fit.
        reason: &'static str,
    },
    /// An fsync failed, or a failed append could not be taken back. Every later call answers this; open the journal anew.
    #[error("{} is in doubt since this failure, open the journal anew: {cause}", path.display())]
    Poisoned {
        /// The file or folder that failed.
        path: PathBuf,
        /// The original failure.
        cause: Arc<io::Error>,
    },
    /// The record is larger than a record can be.
    #[error("a record of {bytes} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// The size of the payload asked for.
        bytes: u64,
        /// The largest payload possible, [`crate::MAX_PAYLOAD_BYTES`].
        limit: u64,
    },
    /// The record asked for has been dropped by `truncate_before`.
    #[error("record {wanted} is gone, the journal begins at {first}")]
    Truncated {
        /// The sequence asked for.
        wanted: u64,
        /// The first sequence that the journal may still hold.
        first: u64,
    },
    /// The operating system refused; the journal is as it was.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, a verb.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The answer of the operating system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// For failures that may come from a lack of room.
    pub(crate) fn write(
        action: &'static str,
        path: &Path,
        needed_bytes: u64,
    ) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { path: path.to_owned(), needed_bytes }
            }
            _ => Self::Io { action, path: path.to_owned(), source },
        }
    }

    /// For failures after which nobody can say what the disk has.
    pub(crate) fn poison(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Poisoned { path: path.to_owned(), cause: Arc::new(cause) }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, reason: &'static str) -> Self {
        Self::Corrupt { path: path.to_owned(), offset, reason }
    }
}
