//! Journal: numbered records, appended to files in a directory. Synced records survive a power
//! failure.
//!
//! Guarantees:
//! - Sequence numbers are consecutive. A new journal starts with [`Options::first_sequence`]; the
//!   default is 1. A number that was durable is never assigned to another record.
//! - [`Journal::append`] passes a record to the operating system. [`Journal::sync`] (or
//!   [`Syncer::sync`]) makes it durable.
//! - Opening finds the end of the log. An incomplete write at the end is cut off and reported in
//!   [`RecoveryReport`]. Damage to a record that is known to be synced is [`Error::Corrupt`], and
//!   nothing on the disk is changed.
//! - A full disk is [`Error::Full`]: the append has no effect, and appends succeed again after
//!   space is freed.
//! - A failed fsync poisons the journal ([`Error::Poisoned`]). The kernel may have dropped the data
//!   and would report success the next time. Only reopening, which rewrites the part in doubt,
//!   determines the content.
//! - One writer at a time ([`Error::Locked`]), and any number of [`Reader`]s in the same process.
//!
//! The caller defines the content of a record. `format.rs` describes the layout on disk.

mod dir;
mod disk;
mod error;
mod format;
mod inner;
mod journal;
mod options;
mod read_buffer;
mod reader;
mod recovery;
mod segment;

pub use dir::{has_segments, move_aside};
pub use disk::{Disk, LocalDisk};
pub use error::{Error, Result};
pub use format::MAX_PAYLOAD_BYTES;
pub use journal::{Journal, Syncer};
pub use options::{DurablePosition, Options};
pub use reader::{Cursor, Reader, Record};
pub use recovery::{RecoveryReport, verify};
