//! A journal: numbered records, appended to files in a folder, that survive a power failure once they are synced.
//!
//! It promises:
//! - Sequence numbers are consecutive, begin at 1, and a number that was ever durable is never given to another record.
//! - [`Journal::append`] hands a record to the operating system; after [`Journal::sync`] (or [`Syncer::sync`]) the disk has it.
//! - Opening finds the end of the log. An unfinished write at the end is cut off and reported in [`Recovery`]; damage to
//!   a record that is known to have been synced is [`Error::Corrupt`], and nothing on the disk is changed.
//! - A full disk is [`Error::Full`]: the append left no trace, and appends succeed again once there is room.
//! - A failed fsync poisons the journal ([`Error::Poisoned`]): the kernel may have dropped the data and would report
//!   success the next time, so only opening anew, which writes the doubtful part again, tells what is there.
//! - One writer at a time ([`Error::Locked`]); any number of [`Reader`]s in the same process beside it.
//!
//! What a record holds is the caller's affair. The layout on disk is described in `format.rs`.

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

pub use disk::{Disk, LocalDisk};
pub use error::{Error, Result};
pub use format::MAX_PAYLOAD_BYTES;
pub use journal::{Journal, Syncer};
pub use options::Options;
pub use reader::{Cursor, Reader, Record};
pub use recovery::{Recovery, inspect};
