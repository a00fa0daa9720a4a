//! Why the embedded bus cannot be opened, or is no longer open.

use std::path::PathBuf;

use crate::Error;

/// The embedded bus cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its log cannot be opened: in use, of a newer format, damaged, or the disk is full.
    #[error("the log of the embedded bus cannot be opened: {0}")]
    Journal(#[from] orlog_journal::Error),
    /// A file or folder beside the log cannot be read or written.
    #[error("{path:?}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file that names the stream holds something else.
    #[error("{path:?} does not hold the id of a stream; restore the folder whole from a backup, or empty it")]
    StreamId {
        /// Which file.
        path: PathBuf,
    },
    /// The log holds a record that this version cannot read.
    #[error("the log of the embedded bus cannot be read: {0}")]
    Unreadable(String),
}

/// What everybody is told after the end.
pub(super) fn closed() -> Error {
    Error::Unavailable("it is closed".to_owned())
}
