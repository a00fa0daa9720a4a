//! How an embedded bus behaves; all of it may change from one opening to the next.

use crate::Error;
use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use crate::codec::MAX_MESSAGE_BYTES;

/// When a publish returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once the disk has the messages.
    Sync,
    /// Once the operating system has them; the disk has them this much later at most. A power failure may take what was
    /// published last, a killed process does not.
    Interval(Duration),
}

/// How an embedded bus behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a publish returns.
    pub durability: Durability,
    /// Bytes of one file of the log.
    pub segment_bytes: u64,
    /// The log may grow to this many bytes before messages that everybody has done with are dropped: what remains can
    /// be consumed again.
    pub retention_bytes: u64,
    /// The largest message, in bytes: subject, id, headers and body together.
    pub max_message_bytes: usize,
    /// Recent messages kept in memory for all consumers together, in bytes; what lies further back is read from the disk.
    pub recent_bytes: usize,
    /// How long a message id is remembered.
    pub dedupe_window: Duration,
    /// How many message ids are remembered at most (about 100 bytes of memory each); beyond, the oldest is forgotten
    /// before its window ends.
    pub dedupe_ids: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Sync,
            segment_bytes: 64 << 20,
            retention_bytes: 256 << 20,
            max_message_bytes: MAX_MESSAGE_BYTES,
            recent_bytes: 64 << 20,
            dedupe_window: Duration::from_mins(2),
            dedupe_ids: 1_000_000,
        }
    }
}

impl Options {
    pub(super) fn journal(&self, stream_id: Uuid) -> orlog_journal::Options {
        let defaults = orlog_journal::Options::new(stream_id.into_bytes());
        orlog_journal::Options { segment_bytes: self.segment_bytes, ..defaults }
    }
}

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
