//! The writer of a journal.

use std::path::Path;
use std::sync::Arc;

use crate::dir::Folder;
use crate::disk::{Disk, LocalDisk, ZEROS};
use crate::error::{Error, Result};
use crate::format::{self, MAX_PAYLOAD_BYTES, TERMINATOR_BYTES, encode_record};
use crate::inner::Log;
use crate::options::Options;
use crate::reader::Reader;
use crate::recovery::{self, Recovery};
use crate::segment::Segment;

/// A buffer that a rare large record has grown beyond this is given back.
const KEPT_BUFFER_BYTES: usize = 4 << 20;

/// The one writer of a journal. Dropping it releases the folder; it does not sync.
#[derive(Debug)]
pub struct Journal {
    log: Arc<Log>,
    folder: Folder,
    active: Arc<Segment>,
    next: u64,
    buffer: Vec<u8>,
}

/// Syncs the journal from another thread, while records are appended.
#[derive(Debug, Clone)]
pub struct Syncer {
    log: Arc<Log>,
}

impl Syncer {
    /// Returns once the disk has every record appended before the call; the answer is the last record it has.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the sync failed, now or earlier.
    pub fn sync(&self) -> Result<u64> {
        self.log.sync()
    }
}

impl Journal {
    /// Opens the journal in the folder `dir`, or begins one there.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Newer`], [`Error::Foreign`], [`Error::Corrupt`], none of which changes anything;
    /// [`Error::Full`] if a first segment finds no room; [`Error::Poisoned`] and [`Error::Io`] if the disk fails.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<(Self, Recovery)> {
        Self::open_on(dir, options, Arc::new(LocalDisk))
    }

    /// As [`Journal::open`], on a disk that may fail.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn open_on(dir: impl AsRef<Path>, options: Options, disk: Arc<dyn Disk>) -> Result<(Self, Recovery)> {
        let first = options.first_sequence.max(1);
        let mut folder = Folder::open(dir.as_ref(), options, Arc::clone(&disk))?;
        let mut segments = folder.segments()?;
        let mut report = recovery::judge(&segments)?;
        folder.tidy()?;
        if let Some(last) = segments.last() {
            recovery::settle(last, report.torn_bytes > 0, disk.as_ref())?;
        } else {
            segments.push(folder.create(first, 0)?);
            (report.first_sequence, report.last_sequence) = (first, first - 1);
        }
        report.segments = segments.len();
        let log =
            Arc::new(Log::new(disk, segments.into_iter().map(Arc::new).collect(), report.last_sequence));
        let active = log.active();
        let next = report.last_sequence + 1;
        Ok((Self { log, folder, active, next, buffer: Vec::new() }, report))
    }

    /// Appends one record, the joined `parts`, and answers its sequence. Readers see it at once; the disk has it after
    /// the next sync. On an error nothing was appended.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Full`] and [`Error::Io`], after which a later append may succeed;
    /// [`Error::Poisoned`].
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<u64> {
        self.log.intact()?;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(Error::TooLarge { bytes, limit: MAX_PAYLOAD_BYTES });
        }
        let room = format::room(bytes);
        if self.active.tail() + room > self.active.capacity {
            self.roll(room)?;
        }
        encode_record(&mut self.buffer, self.active.seed, self.next, self.log.synced(), parts);
        self.write()?;
        self.active.extend(self.next, room - TERMINATOR_BYTES as u64);
        self.log.publish(self.next);
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Returns once the disk has every record appended; the answer is the last one.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the sync failed, now or earlier: open the journal anew.
    pub fn sync(&mut self) -> Result<u64> {
        self.log.sync()
    }

    /// Drops the segments all of whose records lie before `sequence`. Records before it that share a segment with later
    /// ones, or with the end of the log, stay. Readers of dropped records get [`Error::Truncated`].
    ///
    /// # Errors
    /// [`Error::Poisoned`], and [`Error::Io`] if a file cannot be removed.
    pub fn truncate_before(&mut self, sequence: u64) -> Result<()> {
        self.log.intact()?;
        while let Some(oldest) = self.log.oldest_before(sequence) {
            oldest.retire();
            // One by one, each made durable: a gap in the middle could not be told from damage.
            let dropped = self.folder.drop_segment(&oldest);
            self.log.remember(dropped)?;
            self.log.pop_oldest();
        }
        Ok(())
    }

    /// The sequence that the next record will get.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// The first sequence that the journal holds; the next one if it holds none.
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.log.first()
    }

    /// The bytes that the journal takes up on the disk, allocated room and spare segments included.
    #[must_use]
    pub fn bytes_on_disk(&self) -> u64 {
        self.log.bytes() + self.folder.spare_bytes()
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A reader of this journal, for any thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.log))
    }

    /// A handle to sync with from another thread.
    #[must_use]
    pub fn syncer(&self) -> Syncer {
        Syncer { log: Arc::clone(&self.log) }
    }

    /// Goes on in a new segment with room for `room` bytes.
    fn roll(&mut self, room: u64) -> Result<()> {
        // Recovery relies on it: whatever lies in an older segment is durable.
        self.log.sync()?;
        let created = self.folder.create(self.next, room);
        self.active = Arc::new(self.log.remember(created)?);
        self.log.push(Arc::clone(&self.active));
        Ok(())
    }

    /// Writes the encoded record at the tail, or leaves no trace of it.
    fn write(&mut self) -> Result<()> {
        let (segment, disk) = (&self.active, self.log.disk());
        let written = disk.write_at(&segment.file, &self.buffer, segment.tail());
        let size = self.buffer.len() as u64;
        if self.buffer.capacity() > KEPT_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        let Err(error) = written else { return Ok(()) };
        // The record may be there whole, and would come to life at the next opening.
        let erased = disk.write_at(&segment.file, &ZEROS[..TERMINATOR_BYTES], segment.tail());
        self.log.remember(erased.map_err(Error::poison(&segment.path)))?;
        Err(Error::write("write", &segment.path, size)(error))
    }
}
