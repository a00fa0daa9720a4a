//! The stream as its readers see it: up to the last message that was acknowledged to its publisher.

use super::options::OpenError;
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use uuid::Uuid;

use orlog_journal::{Cursor, Journal, Options, Reader};
use tokio::sync::watch;

use super::record::{self, InvalidRecord, MessageGroup};
use crate::Error;
use crate::checkpoint::AckPosition;
use crate::consumer::{CacheLookup, MessageCache, PREFETCH, ReadBatch, StoredMessage};
use crate::subject_matcher::SubjectMatcher;

/// Maximum number of record bytes of one disk read.
const READ_BYTES: usize = 1 << 20;

/// End of the stream that readers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogEnd {
    /// Sequence of the last message.
    pub(super) sequence: u64,
    /// Journal record that contains it.
    pub(super) record: u64,
    /// Whether the stream is closed.
    pub(super) closed: bool,
}

/// The stream, shared by the writer, the maintenance thread and all consumers.
#[derive(Debug)]
pub(super) struct StreamLog {
    reader: Reader,
    recent: Mutex<MessageCache>,
    end: watch::Sender<LogEnd>,
    bytes: AtomicU64,
    remembered_from: AtomicU64,
    /// Record before which the last drop removed records; 0 before the first drop.
    dropped_before: AtomicU64,
    /// Error of the last write.
    write_failure: Mutex<Option<String>>,
    /// Number of active retention holds.
    holds: AtomicUsize,
}

/// Prevents messages from being dropped while it exists.
#[derive(Debug)]
pub struct RetentionHold(Arc<StreamLog>);

impl Drop for RetentionHold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
    }
}

/// End of a stream at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndPosition(LogEnd);

/// Content of a copied stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCopy {
    /// Sequence of the last message; 0 if the stream never had one.
    pub last_sequence: u64,
    /// Number of log records.
    pub records: u64,
}

impl StreamLog {
    /// Creates the stream of a journal, up to `end`.
    pub(super) fn new(reader: Reader, recent_bytes: usize, end: LogEnd) -> Self {
        Self {
            reader,
            recent: Mutex::new(MessageCache::new(
                usize::MAX,
                recent_bytes,
                position(end.sequence),
            )),
            end: watch::Sender::new(end),
            bytes: AtomicU64::new(0),
            remembered_from: AtomicU64::new(0),
            dropped_before: AtomicU64::new(0),
            write_failure: Mutex::default(),
            holds: AtomicUsize::new(0),
        }
    }

    /// Prevents messages from being dropped from now on.
    pub(super) fn hold(self: &Arc<Self>) -> RetentionHold {
        self.holds.fetch_add(1, Ordering::SeqCst);
        RetentionHold(Arc::clone(self))
    }

    /// Returns whether a retention hold is active.
    pub(super) fn has_retention_hold(&self) -> bool {
        self.holds.load(Ordering::SeqCst) > 0
    }

    /// Returns the current end: everything that is acknowledged and may have been read.
    pub(super) fn end_position(&self) -> EndPosition {
        // Readers see cached messages before the end moves.
        let _recent_lock = self.recent.lock();
        EndPosition(self.end())
    }

    /// Copies everything up to a position into a journal in the new directory `dir`, record by
    /// record. Concurrent reads and writes continue.
    pub(super) fn copy(
        &self,
        dir: &Path,
        EndPosition(end): EndPosition,
        mut options: Options,
    ) -> orlog_journal::Result<LogCopy> {
        let first = self.reader.first_sequence();
        options.first_sequence = first;

        let (mut journal, _) = Journal::open(dir, options)?;
        let mut cursor = self.reader.read_from(first)?;
        // Later records may contain messages that were not acknowledged at the position.
        while let Some(record) = cursor.read_up_to(end.record)? {
            journal.append(&[record.payload])?;
        }

        journal.sync()?;
        Ok(LogCopy {
            last_sequence: end.sequence,
            records: journal.next_sequence() - first,
        })
    }

    /// Returns the end of the stream that readers see.
    pub(super) fn end(&self) -> LogEnd {
        *self.end.borrow()
    }

    /// Returns a receiver of changes of the end.
    pub(super) fn watch(&self) -> watch::Receiver<LogEnd> {
        self.end.subscribe()
    }

    /// Makes confirmed messages visible to readers, and removes them from the list.
    pub(super) fn extend(&self, messages: &mut Vec<StoredMessage>, record: u64) {
        // A group of duplicates stores nothing, and the end stays.
        let Some(sequence) = messages.last().map(|last| last.sequence) else {
            return;
        };

        let mut recent = self.recent.lock();
        for stored in messages.drain(..) {
            recent.push(stored);
        }

        // Under the lock: a reader that gets a cached message also sees the end after it.
        self.end.send_modify(|end| {
            end.sequence = sequence;
            end.record = record;
        });
    }

    /// Returns the error of the last write; `None` if it succeeded.
    pub(super) fn write_failure(&self) -> Option<String> {
        self.write_failure.lock().clone()
    }

    /// Records the result of a write.
    pub(super) fn set_write_failure(&self, failure: Option<String>) {
        *self.write_failure.lock() = failure;
    }

    /// Closes the stream for all readers.
    pub(super) fn close(&self) {
        self.end.send_modify(|end| end.closed = true);
    }

    /// Updates the inputs of retention: the size of the log, and the oldest message with a stored
    /// id.
    pub(super) fn update_sizes(&self, bytes: u64, remembered_from: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.remembered_from
            .store(remembered_from, Ordering::Relaxed);
    }

    /// Returns the size of the log on disk, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the oldest message with a stored id, or the sequence after the end.
    pub(super) fn dedupe_horizon(&self) -> u64 {
        self.remembered_from.load(Ordering::Relaxed)
    }

    /// Returns the record before which records were dropped.
    pub(super) fn dropped_before(&self) -> u64 {
        self.dropped_before.load(Ordering::Relaxed)
    }

    /// Records a completed drop.
    pub(super) fn set_dropped_before(&self, record: u64) {
        self.dropped_before.store(record, Ordering::Relaxed);
    }

    /// Returns the last synced record.
    pub(super) fn synced_to(&self) -> u64 {
        self.reader.last_synced()
    }

    /// Reads further messages from memory; `None` if the cache does not reach back far enough.
    pub(super) fn read_cached(&self, after: u64, interest: &SubjectMatcher) -> Option<ReadBatch> {
        // A checkpoint of lost messages can be after the end. Neither the cache nor the disk has
        // anything to read there.
        if after >= self.end().sequence {
            return Some(ReadBatch {
                messages: Vec::new(),
                read_to: position(after),
            });
        }

        let recent = self.recent.lock();
        match recent.read_after(after, PREFETCH, interest) {
            CacheLookup::Hit(batch) => Some(batch),
            CacheLookup::Evicted | CacheLookup::NotRead => None,
        }
    }

    /// Reads further messages from disk; blocks. The cursor is kept for the next read, except after
    /// an error: it may have passed messages that are not returned.
    pub(super) fn read_from_disk(
        &self,
        cursor: &mut Option<Cursor>,
        after: u64,
        interest: &SubjectMatcher,
    ) -> Result<ReadBatch, Error> {
        // Read before the records: the journal returns records that are not confirmed yet, and none
        // of them may be delivered.
        let end = self.end();
        let cursor = match cursor {
            Some(cursor) => cursor,
            None => cursor.insert(self.cursor_at(after + 1)?),
        };

        let mut batch = ReadBatch {
            messages: Vec::new(),
            read_to: position(after),
        };
        let mut bytes = 0;
        while bytes < READ_BYTES {
            let Some(record) = cursor.read_up_to(end.record).map_err(unavailable)? else {
                break;
            };
            bytes += record.payload.len();
            collect(record.payload, after, interest, &mut batch).map_err(unavailable)?;
        }

        if bytes < READ_BYTES {
            // All confirmed messages are read, even if unused numbers precede the end.
            advance(&mut batch, end.sequence);
        }
        Ok(batch)
    }

    /// Returns the journal record that contains a message, or the first record if it was dropped.
    pub(super) fn record_of(&self, sequence: u64) -> Result<u64, Error> {
        self.partition_point(|group| group.end() <= sequence)
    }

    /// Returns the first record that does not satisfy `before`; all that satisfy it precede all
    /// that do not.
    pub(super) fn partition_point(
        &self,
        before: impl Fn(MessageGroup) -> bool,
    ) -> Result<u64, Error> {
        let mut low = self.reader.first_sequence();
        let mut high = self.reader.last_written() + 1;
        while low < high {
            let middle = low.midpoint(high);
            let mut cursor = match self.reader.read_from(middle) {
                // Dropped concurrently.
                Err(orlog_journal::Error::Truncated { first, .. }) => {
                    low = first;
                    continue;
                }
                cursor => cursor.map_err(unavailable)?,
            };

            let Some(record) = cursor.read().map_err(unavailable)? else {
                return Ok(middle);
            };

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
                // Dropped concurrently: no other consumer needs it, so a new consumer starts after
                // it.
                Err(orlog_journal::Error::Truncated { .. }) => {}
                cursor => return cursor.map_err(unavailable),
            }
        }
    }
}

fn collect(
    record: &[u8],
    after: u64,
    interest: &SubjectMatcher,
    batch: &mut ReadBatch,
) -> Result<(), InvalidRecord> {
    let group = record::group(record)?;
    for parts in record::messages(record)? {
        let parts = parts?;
        if parts.sequence > after && interest.matches(parts.subject) {
            let message = Arc::new(parts.to_message()?);
            batch.messages.push(StoredMessage::new(
                parts.sequence,
                group.published_at,
                message,
            ));
        }
    }

    // A record without messages has the number of the next message, which does not exist yet.
    if group.count > 0 {
        advance(batch, group.end() - 1);
    }
    Ok(())
}

fn advance(batch: &mut ReadBatch, sequence: u64) {
    if sequence > batch.read_to.sequence {
        batch.read_to = position(sequence);
    }
}

fn position(sequence: u64) -> AckPosition {
    AckPosition { sequence, at: None }
}

fn unavailable(error: impl std::fmt::Display) -> Error {
    Error::Unavailable(error.to_string())
}

const FILE: &str = "stream-id";

/// Returns the id in the directory `dir`; `None` if there is none.
pub(super) fn read_id(dir: &Path) -> Result<Option<Uuid>, OpenError> {
    let path = dir.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => text
            .trim()
            .parse()
            .map(Some)
            .map_err(|_| OpenError::StreamId { path: path.clone() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Io { path, source }),
    }
}

/// Creates a new id in the directory `dir`, durably.
pub(super) fn make_id(dir: &Path) -> Result<Uuid, OpenError> {
    let id = Uuid::new_v4();
    write(dir, id).map_err(|source| OpenError::Io {
        path: dir.to_owned(),
        source,
    })?;
    Ok(id)
}

/// Writes the id to the directory durably.
// Renamed when it is complete: a crash leaves no partial id.
pub(super) fn write(dir: &Path, id: Uuid) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    let fresh = dir.join("stream-id.new");
    let mut file = File::create(&fresh)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fs::rename(&fresh, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}
