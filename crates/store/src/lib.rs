//! Store: durable state of one shard of sagas, on disk and immediately readable.
//!
//! Guarantees:
//! - A group of [changes](orlog_model::Change) is committed atomically. When [`Writer::commit`]
//!   returns, every [`Reader`] sees it, and it is durable according to [`Durability`].
//! - One [`Writer`] that cannot be cloned, any number of [`Reader`]s, from any thread.
//! - A full disk rejects commits ([`Error::Full`]) and loses none. Commits succeed again after
//!   space is freed.
//! - A store of a newer release is rejected ([`Error::NewerFormat`]). A store of the earlier format
//!   that this release supports is upgraded when it is opened; one of an older format is rejected.
//! - A store that follows a [`CommitLog`] ([`open_replicated`]) has no state of its own: a commit
//!   counts after it is in the log. Any machine can take over the shard from the log, and a
//!   previous owner cannot commit ([`Error::Fenced`]).
//!
//! Implementation: a commit appends one record to a journal and applies it to a memtable. A
//! background thread flushes the memtable to the tables in key order; readers merge both. Opening
//! replays the unflushed records. The table engine is behind a trait (`tables.rs`): MDBX, or memory
//! in tests (feature `memory`). See also: `translate.rs` (changes to rows), `merged.rs` (the
//! merge), `flush.rs`.

mod background;
mod cancellation;
mod consistent_copy;
mod counts;
#[cfg(test)]
mod damage_tests;
mod encoding;
mod error;
mod feed;
mod flush;
mod index;
mod info;
mod lock;
mod mdbx;
#[cfg(any(test, feature = "memory"))]
mod memory;
mod memtable;
mod merged;
mod options;
#[cfg(test)]
mod oracle_tests;
mod presence;
mod read;
mod rebuild;
#[cfg(test)]
mod rebuild_tests;
#[cfg(test)]
mod recovery_tests;
mod replication;
#[cfg(test)]
mod samples;
mod shared;
mod stats;
mod store_dir;
mod table;
mod tables;
mod translate;
#[cfg(test)]
mod upgrade_tests;
mod usage;
mod writer;

pub use cancellation::{CancelOnDrop, Cancellation};
pub use consistent_copy::{StoreCopy, copy_consistently};
pub use counts::CountKey;
pub use encoding::index_keys::IndexedValue;
pub use error::Error;
pub use feed::items::{FeedEntity, FeedItem};
pub use feed::read::{FeedEntityKind, FeedPage, FeedQuery, FeedScanCursor};
pub use feed::write::FeedOffset;
pub use index::VariableReader;
pub use info::{StoreInfo, read_info};
pub use mdbx::inspect::{TableProblem, check_tables};
pub use options::{Durability, Options};
pub use orlog_journal::{Disk as Device, DurablePosition};
pub use read::attention::Attention;
pub use read::counts::{InstanceCounts, PinCount, PinCounts, UnchangedInstance};
pub use read::dead_letters::DeadLetterPage;
pub use read::indexed::{ChangeQuery, VariableCondition};
pub use read::inspect::{InspectPage, InspectQuery, InspectRow};
pub use read::job_log::NumberedLine;
pub use read::query::{FoundInstance, FoundTimer, InstanceQuery, Page, TimerQuery};
pub use read::reader::Reader;
pub use read::request_key::RequestKeyUse;
pub use read::sweep::{PURGE_BATCH, SweepCursor, SweepPage};
pub use read::tasks::{TaskQuery, merge_tasks};
pub use rebuild::{RebuildBase, RebuiltTables, rebuild_tables};
pub use replication::commit_log::{CommitLog, CommitLogError, LogEntry, LogPosition, Snapshot};
pub use replication::open::ReplicationOptions;
pub use stats::{
    BOUNDS_SECONDS, DurationHistogram, PageStats, ReplicationStats, Stats, TableStats,
};
pub use table::TABLES;
pub use usage::TenantUsage;
#[cfg(any(test, feature = "memory"))]
pub use writer::open_in_memory;
pub use writer::{Writer, open, open_replicated, open_with_disk};
