//! Options of an embedded bus; all of them may change on reopen.

use crate::Error;
use std::path::PathBuf;
use std::time::Duration;

use orlog_journal::DurablePosition;
use orlog_model::StreamPosition;
use uuid::Uuid;

use crate::codec::MAX_MESSAGE_BYTES;

/// Durability of a publish when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The messages are on disk.
    Sync,
    /// The operating system has the messages; they are on disk after this interval at most. A power
    /// failure may lose the latest publishes; a killed process does not.
    Interval(Duration),
}

/// Options of an embedded bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Durability of a publish when it returns.
    pub durability: Durability,
    /// Bytes of one log file.
    pub segment_bytes: u64,
    /// Log size in bytes up to which messages are kept, even if all subscriptions have acknowledged
    /// them. Kept messages can be consumed again.
    pub retention_bytes: u64,
    /// Maximum size of a message in bytes: subject, id, headers and body together.
    pub max_message_bytes: usize,
    /// Size of the cache of recent messages that all consumers share, in bytes; older messages are
    /// read from disk.
    pub cache_bytes: usize,
    /// Retention of a message id for deduplication.
    pub dedupe_window: Duration,
    /// Maximum number of stored message ids (about 100 bytes of memory each). Above it, the oldest
    /// id is deleted before its window ends.
    pub dedupe_ids: usize,
    /// Record that an existing log must contain; `None` if the log may be new.
    pub expected: Option<DurablePosition>,
    /// Checkpoints of the consumers. A log that ends before one of them lost messages; a consumer
    /// whose cursor is ahead of its checkpoint lost its state.
    pub checkpoints: Vec<ConsumerCheckpoint>,
    /// Whether a log that lost messages is opened without them.
    pub accept_data_loss: bool,
}

/// Durable checkpoint of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerCheckpoint {
    /// Durable name of the subscription.
    pub name: String,
    /// Checkpoint; `None` if the consumer has none.
    pub position: Option<StreamPosition>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Sync,
            segment_bytes: 64 << 20,
            retention_bytes: 256 << 20,
            max_message_bytes: MAX_MESSAGE_BYTES,
            cache_bytes: 64 << 20,
            dedupe_window: Duration::from_mins(2),
            dedupe_ids: 1_000_000,
            expected: None,
            checkpoints: Vec::new(),
            accept_data_loss: false,
        }
    }
}

impl Options {
    pub(super) fn journal(&self, stream_id: Uuid) -> orlog_journal::Options {
        let defaults = orlog_journal::Options::new(stream_id.into_bytes());
        orlog_journal::Options {
            segment_bytes: self.segment_bytes,
            ..defaults
        }
    }
}

/// Error that prevents the embedded bus from being opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log cannot be opened: in use, of a newer format, damaged, or the disk is full.
    #[error("cannot open the embedded bus log: {0}")]
    Journal(#[from] orlog_journal::Error),
    /// A file or directory beside the log cannot be read or written.
    #[error("{path:?}: {source}")]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The stream id file has invalid content.
    #[error("{} has no stream id", path.display())]
    StreamId {
        /// Path of the file.
        path: PathBuf,
    },
    /// Messages that were durable are missing. Nothing was changed. Restore the missing files or a
    /// backup, or open the log with [`Options::accept_data_loss`].
    #[error("{} lost durable data: {reason}", path.display())]
    Lost {
        /// Directory of the bus.
        path: PathBuf,
        /// Missing part.
        reason: String,
    },
    /// A consumer has no state up to its cursor. Nothing was changed.
    #[error(
        "the store of {name} lost durable data: it contains the events up to message {checkpoint}, \
         but message {cursor} was durable"
    )]
    ConsumerBehind {
        /// Durable name.
        name: String,
        /// Sequence of its checkpoint.
        checkpoint: u64,
        /// Its cursor.
        cursor: u64,
    },
    /// The log has a record that this version cannot read.
    #[error("cannot read the embedded bus log: {0}")]
    Unreadable(String),
}

impl OpenError {
    /// Returns whether the stored log is damaged: a later attempt has the same result.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use orlog_journal::Error as Journal;
        match self {
            Self::Journal(error) => matches!(
                error,
                Journal::Corrupt { .. } | Journal::WrongIdentity { .. }
            ),
            Self::StreamId { .. } | Self::Unreadable(_) => true,
            Self::Io { .. } | Self::Lost { .. } | Self::ConsumerBehind { .. } => false,
        }
    }
}

/// Returns the error of every call after the bus is closed.
pub(super) fn closed() -> Error {
    Error::Unavailable("the embedded bus is closed".to_owned())
}
