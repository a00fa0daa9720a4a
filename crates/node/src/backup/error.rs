//! Errors of backup and restore, grouped by remedy.

use std::path::PathBuf;

use crate::layout::InterruptedRestore;

/// Error of a backup or restore.
#[derive(Debug, thiserror::Error)]
pub enum BackupFailure {
    /// The stores are replicated to NATS.
    #[error(
        "shards are replicated to NATS (store.replication); back up NATS instead, see \
         docs/backup.md"
    )]
    Replicated,
    /// The node owns no shards.
    #[error("this node owns no shards; use a node that does")]
    NoShards,
    /// A shard of the node is not running.
    #[error(
        "shard {0} is not running, and a backup requires every shard; retry when the node is \
         healthy"
    )]
    Missing(u16),
    /// The stores cannot be copied.
    #[error("cannot copy the stores: {0}")]
    Store(#[from] orlog_store::Error),
    /// A copy has another number of commits than expected.
    #[error(
        "copy of shard {shard} has {} commits, expected {expected}",
        found.map_or("nothing".to_owned(), |found| found.to_string())
    )]
    NotTheSame {
        /// Shard number.
        shard: u16,
        /// Expected number of commits.
        expected: u64,
        /// Actual number of commits.
        found: Option<u64>,
    },
    /// The event stream cannot be copied.
    #[error("cannot copy the event stream: {0}")]
    Bus(#[from] orlog_bus::embedded::OpenError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file system has too little free space for a copy.
    #[error("{} has {free} bytes free, the copy needs about {needed}", path.display())]
    OutOfSpace {
        /// Target path.
        path: PathBuf,
        /// Free space in bytes.
        free: u64,
        /// Required space in bytes.
        needed: u64,
    },
    /// A directory is not a backup.
    #[error("{} is not a backup: {reason}", path.display())]
    NoBackup {
        /// Path of the directory.
        path: PathBuf,
        /// Reason of the rejection.
        reason: String,
    },
    /// Files differ from the manifest.
    #[error("backup is corrupt:\n  {}", .0.join("\n  "))]
    Damaged(Vec<String>),
    /// The target directory is not empty.
    #[error("{} is not empty; no changes made, use a new directory", .0.display())]
    NotEmpty(PathBuf),
    /// A restore was interrupted.
    #[error(transparent)]
    Interrupted(#[from] InterruptedRestore),
}
