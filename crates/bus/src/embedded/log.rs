//! The stream as its readers see it: up to the last message that was confirmed to its publisher, never further.

use super::options::OpenError;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

use orlog_journal::{Cursor, Journal, Options, Reader};
use tokio::sync::watch;

use super::record::{self, Group, Malformed};
use super::ring::Ring;
use crate::Error;
use crate::in_flight::Stored;
use crate::subject_matcher::Interest;

/// A read from the disk ends after this many bytes of records.
const READ_BYTES: usize = 1 << 20;

/// The end of what readers may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Sequence of the last message.
    pub(super) sequence: u64,
    /// The journal's record that holds it.
    pub(super) record: u64,
    /// Nothing will follow.
    pub(super) closed: bool,
}

/// What a read answers: the matching messages among those up to `read_to`.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) messages: Vec<Stored>,
    pub(super) read_to: u64,
}

/// The stream, shared by the writer, the keeper and all consumers.
#[derive(Debug)]
pub(super) struct Log {
    reader: Reader,
    ring: Mutex<Ring>,
    end: watch::Sender<End>,
    bytes: AtomicU64,
    remembered_from: AtomicU64,
    /// How many keep anything from being dropped.
    holds: AtomicUsize,
}

/// Keeps messages from being dropped until it is dropped itself.
#[derive(Debug)]
pub struct Hold(Arc<Log>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Where a stream ended once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(End);

/// What a copy of a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The number of its last message; 0 where there never was one.
    pub last_sequence: u64,
    /// Records of the log.
    pub records: u64,
}

impl Log {
    /// The stream in a journal, up to `end`.
    pub(super) fn new(reader: Reader, recent_bytes: usize, end: End) -> Self {
        Self {
            reader,
            ring: Mutex::new(Ring::new(recent_bytes)),
            end: watch::Sender::new(end),
            bytes: AtomicU64::new(0),
            remembered_from: AtomicU64::new(0),
            holds: AtomicUsize::new(0),
        }
    }

    /// From now on nothing is dropped.
    pub(super) fn hold(self: &Arc<Self>) -> Hold {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Hold(Arc::clone(self))
    }

    /// Whether nothing may be dropped.
    pub(super) fn is_held(&self) -> bool {
        self.holds.load(Ordering::SeqCst) > 0
    }

    /// Everything that is confirmed, and that anybody may have read, as it is now.
    pub(super) fn moment(&self) -> Moment {
        // Readers have it from the ring before the end is moved.
        let _nobody_reads_on = self.ring.lock().expect("no holder of this lock panics");
        Moment(self.end())
    }

    /// Copies everything up to a moment into a journal in the new folder `dir`, record by record, while others write and read.
    pub(super) fn copy(
        &self,
        dir: &Path,
        Moment(end): Moment,
        mut options: Options,
    ) -> orlog_journal::Result<Copied> {
        let first = self.reader.first_sequence();
        options.first_sequence = first;
        let (mut journal, _) = Journal::open(dir, options)?;
        let mut cursor = self.reader.read_from(first)?;
        while let Some(record) = cursor.read_up_to(end.record)? {
            journal.append(&[record.payload])?;
        }
        journal.sync()?;
        Ok(Copied { last_sequence: end.sequence, records: journal.next_sequence() - first })
    }

    /// The end of what may be seen.
    pub(super) fn end(&self) -> End {
        *self.end.borrow()
    }

    /// Tells of each change of the end.
    pub(super) fn watch(&self) -> watch::Receiver<End> {
        self.end.subscribe()
    }

    /// Shows messages that are confirmed.
    pub(super) fn extend(&self, messages: Vec<Stored>, record: u64) {
        let Some(sequence) = messages.last().map(|last| last.sequence) else { return };
        let mut ring = self.ring.lock().expect("no holder of this lock panics");
        for stored in messages {
            ring.push(stored);
        }
        // Within the lock: whoever has read a message from the ring finds the end behind it.
        self.end.send_modify(|end| (end.sequence, end.record) = (sequence, record));
    }

    /// Tells everybody that nothing will follow.
    pub(super) fn close(&self) {
        self.end.send_modify(|end| end.closed = true);
    }

    /// Notes what the keeper must know to decide what can be dropped: the size of the log, and the oldest message whose
    /// id is remembered.
    pub(super) fn note(&self, bytes: u64, remembered_from: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.remembered_from.store(remembered_from, Ordering::Relaxed);
    }

    /// The size of the log on the disk, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The oldest message whose id is remembered, or the one after the end.
    pub(super) fn remembered_from(&self) -> u64 {
        self.remembered_from.load(Ordering::Relaxed)
    }

    /// The last record that the disk has.
    #[cfg(test)]
    pub(super) fn synced_to(&self) -> u64 {
        self.reader.last_synced()
    }

    /// Reads on from memory; `None` where the memory does not reach back so far.
    pub(super) fn read_recent(&self, after: u64, max: usize, interest: &Interest) -> Option<Batch> {
        if after >= self.end().sequence {
            return Some(Batch { messages: Vec::new(), read_to: after });
        }
        let mut messages = self.ring.lock().expect("no holder of this lock panics").after(after, max)?;
        let read_to = messages.last().map_or(after, |last| last.sequence);
        messages.retain(|stored| interest.matches(&stored.message.subject));
        Some(Batch { messages, read_to })
    }

    /// Reads on from the disk; blocks. The cursor is kept for the next read.
    pub(super) fn read_old(
        &self,
        cursor: &mut Option<Cursor>,
        after: u64,
        interest: &Interest,
    ) -> Result<Batch, Error> {
        let end = self.end();
        let cursor = match cursor {
            Some(cursor) => cursor,
            None => cursor.insert(self.cursor_at(after + 1)?),
        };
        let mut batch = Batch { messages: Vec::new(), read_to: after };
        let mut bytes = 0;
        while bytes < READ_BYTES {
            let Some(record) = cursor.read_up_to(end.record).map_err(unavailable)? else { break };
            bytes += record.payload.len();
            collect(record.payload, after, interest, &mut batch).map_err(unavailable)?;
        }
        if bytes < READ_BYTES {
            // All that is confirmed has been read, also where numbers stay unused before it.
            batch.read_to = batch.read_to.max(end.sequence);
        }
        Ok(batch)
    }

    /// The journal's record that holds a message, or the first where it was dropped.
    pub(super) fn record_of(&self, sequence: u64) -> Result<u64, Error> {
        self.partition(|group| group.end() <= sequence)
    }

    /// The first record that does not satisfy `before`, where all that do precede all that do not.
    pub(super) fn partition(&self, before: impl Fn(Group) -> bool) -> Result<u64, Error> {
        let (mut low, mut high) = (self.reader.first_sequence(), self.reader.last_written() + 1);
        while low < high {
            let middle = low.midpoint(high);
            let mut cursor = match self.reader.read_from(middle) {
                Err(orlog_journal::Error::Truncated { first, .. }) => {
                    low = first;
                    continue;
                }
                cursor => cursor.map_err(unavailable)?,
            };
            let Some(record) = cursor.read().map_err(unavailable)? else { return Ok(middle) };
            let group = record::group(record.payload).map_err(unavailable)?;
            if before(group) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn cursor_at(&self, sequence: u64) -> Result<Cursor, Error> {
        loop {
            match self.reader.read_from(self.record_of(sequence)?) {
                // It was dropped meanwhile: nobody else wants it any more, so whoever comes now begins behind it.
                Err(orlog_journal::Error::Truncated { .. }) => {}
                cursor => return cursor.map_err(unavailable),
            }
        }
    }
}

fn collect(record: &[u8], after: u64, interest: &Interest, batch: &mut Batch) -> Result<(), Malformed> {
    let group = record::group(record)?;
    for parts in record::messages(record)? {
        let parts = parts?;
        if parts.sequence > after && interest.matches(parts.subject) {
            let message = Arc::new(parts.to_message()?);
            batch.messages.push(Stored {
                sequence: parts.sequence,
                published_at: group.published_at,
                message,
            });
        }
    }
    if group.count > 0 {
        batch.read_to = batch.read_to.max(group.end() - 1);
    }
    Ok(())
}

fn unavailable(error: impl std::fmt::Display) -> Error {
    Error::Unavailable(error.to_string())
}

const FILE: &str = "stream-id";

/// The id in the folder `dir`; a new one, durably, where there is none.
pub(super) fn read_or_make(dir: &Path) -> Result<Uuid, OpenError> {
    let path = dir.join(FILE);
    let failed = |source| OpenError::Io { path: path.clone(), source };
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| OpenError::StreamId { path: path.clone() }),
        Err(error) if error.kind() == ErrorKind::NotFound => make(dir).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

fn make(dir: &Path) -> std::io::Result<Uuid> {
    let id = Uuid::new_v4();
    write(dir, id)?;
    Ok(id)
}

/// Gives the folder this id, durably.
pub(super) fn write(dir: &Path, id: Uuid) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    let fresh = dir.join("stream-id.new");
    let mut file = File::create(&fresh)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fs::rename(&fresh, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}
