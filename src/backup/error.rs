//! What can go wrong with a backup, sorted by what can be done about it.

use std::path::PathBuf;

/// What a backup or a restoration met.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stores follow logs on NATS.
    #[error("the shards are kept on NATS ([store] replication), and so is their backup: see docs/backup.md")]
    Replicated,
    /// There is nothing to copy.
    #[error("this node runs no shards; ask one that does")]
    NoShards,
    /// A shard of the node does not run.
    #[error(
        "shard {0} does not run now, and a backup without it would be none; try again when the node is healthy"
    )]
    Missing(u16),
    /// The stores cannot be copied.
    #[error("the stores cannot be copied: {0}")]
    Store(#[from] orlog_store::Error),
    /// A copy does not hold what was copied.
    #[error("the copy of shard {shard} does not hold {expected} commits, but {}", found.map_or("nothing".to_owned(), |found| found.to_string()))]
    NotTheSame {
        /// Which.
        shard: u16,
        /// How many commits it should hold.
        expected: u64,
        /// How many it holds.
        found: Option<u64>,
    },
    /// The stream of events cannot be copied.
    #[error("the stream of events cannot be copied: {0}")]
    Bus(#[from] orlog_bus::embedded::OpenError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is not enough room for a copy.
    #[error("{} has room for {free} bytes, and a copy takes about {needed}", path.display())]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes of what is stored.
        needed: u64,
    },
    /// A folder is no backup.
    #[error("{} is no backup: {reason}", path.display())]
    NoBackup {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Files are not what they were.
    #[error("the backup is damaged:\n  {}", .0.join("\n  "))]
    Damaged(Vec<String>),
    /// Something is where the copy is to go.
    #[error("{} is not empty; nothing was changed, choose a folder that is new", .0.display())]
    NotEmpty(PathBuf),
    /// The process ended while it restored.
    #[error("{} holds a part of a restoration that was cut off; remove everything in it and restore again", .0.display())]
    CutOff(PathBuf),
}
