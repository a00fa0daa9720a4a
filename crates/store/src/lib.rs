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

mod applied;
mod attention;
mod background;
mod census;
mod disk;
mod durations;
mod error;
mod feed;
#[cfg(test)]
mod feed_tests;
mod feeding;
mod fold;
mod follower;
mod frame;
mod gauges;
mod generation;
mod inspect;
mod keys;
mod lock;
mod log;
mod look;
mod mdbx;
mod meter;
mod options;
#[cfg(test)]
mod oracle_tests;
mod pins;
mod query;
mod range;
mod reader;
mod record;
#[cfg(test)]
mod recovery_tests;
mod replica;
mod replication;
mod rest;
#[cfg(test)]
mod samples;
mod shared;
mod snapshot;
mod source;
mod stats;
mod sweep;
mod table;
mod tables;
mod tasks;
mod together;
mod translate;
mod tuple;
mod value;
mod writer;

pub use attention::Attention;
pub use census::{Census, Group, Still};
pub use durations::{BOUNDS_SECONDS, Durations};
pub use error::Error;
pub use feed::{Entity, Fed, FeedPage, FeedPlace, FeedQuery, Touched};
pub use feeding::FeedMark;
pub use inspect::Row;
pub use log::{CommitLog, Entry, LogError, Place};
pub use look::{Look, look};
pub use options::{Durability, Options};
pub use orlog_journal::Disk as Device;
pub use pins::{Pinned, Pins};
pub use query::{FoundTimer, InstanceQuery, Page, TimerQuery};
pub use reader::Reader;
pub use replication::Replication;
pub use stats::{Pages, Replication as ReplicationStats, Stats, TableStats};
pub use sweep::{Bookmark, PURGED_AT_ONCE, Stretch};
pub use table::TABLES;
pub use tasks::{TaskQuery, merge_tasks};
pub use together::{Copied, copy_together};
pub use writer::{Writer, memory, open, open_on, open_replicated};
