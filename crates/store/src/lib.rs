//! The store: what a shard of sagas must not forget, on disk and readable at once.
//!
//! It promises:
//! - A group of [changes](orlog_model::Change) is committed whole or not at all. When [`Writer::commit`] returns, every
//!   [`Reader`] sees it, and the disk has it as [`Durability`] says.
//! - One [`Writer`] that cannot be cloned, any number of [`Reader`]s, from any thread.
//! - A full disk refuses work ([`Error::Full`]), loses none, and is over as soon as there is room.
//! - A store of a newer release is refused ([`Error::NewerFormat`]), an older one is brought up to date.
//!
//! - A store that follows a [`CommitLog`] ([`open_replicated`]) holds nothing of its own: a commit is in the log before it counts, any
//!   machine can take the shard over from there, and whoever was its owner before commits nothing more ([`Error::Fenced`]).
//!
//! How: a commit appends one record to a journal and applies it to an overlay in memory. In the background the overlay is
//! folded into MDBX tables in key order; readers merge both. Opening replays what was not folded. [`memory`] is the same
//! store without disk. Reading on: `translate.rs` (changes to rows), `tables.rs` (the merge), `fold.rs`.

mod background;
mod consistent_copy;
mod encoding;
mod error;
mod feed;
mod flush;
mod histogram;
mod info;
mod lock;
mod mdbx;
mod memtable;
mod merged;
mod options;
#[cfg(test)]
mod oracle_tests;
mod read;
#[cfg(test)]
mod recovery_tests;
mod replication;
#[cfg(test)]
mod samples;
mod shared;
mod stats;
mod store_dir;
mod table;
mod translate;
mod writer;

pub use consistent_copy::{Copied, copy_together};
pub use error::Error;
pub use feed::read::{Entity, Fed, FeedPage, FeedPlace, FeedQuery, Touched};
pub use feed::write::FeedMark;
pub use histogram::{BOUNDS_SECONDS, Durations};
pub use info::{Look, look};
pub use options::{Durability, Options};
pub use orlog_journal::Disk as Device;
pub use read::attention::Attention;
pub use read::counts::{Census, Group, Still};
pub use read::inspect::Row;
pub use read::pins::{Pinned, Pins};
pub use read::query::{FoundTimer, InstanceQuery, Page, TimerQuery};
pub use read::reader::Reader;
pub use read::sweep::{Bookmark, PURGED_AT_ONCE, Stretch};
pub use read::tasks::{TaskQuery, merge_tasks};
pub use replication::commit_log::{CommitLog, Entry, LogError, Place};
pub use replication::open::Replication;
pub use stats::{Pages, Replication as ReplicationStats, Stats, TableStats};
pub use table::TABLES;
pub use writer::{Writer, memory, open, open_on, open_replicated};
