//! Writer of a journal.

use std::path::Path;
use std::sync::Arc;

use crate::dir::JournalDir;
use crate::disk::{Disk, LocalDisk, ZEROS};
use crate::error::{Error, Result};
use crate::format::{self, MAX_PAYLOAD_BYTES, TERMINATOR_BYTES, encode_record};
use crate::inner::JournalInner;
use crate::options::Options;
use crate::reader::Reader;
use crate::recovery::{self, RecoveryReport};
use crate::segment::Segment;

/// Maximum buffer capacity that is kept; a rare large record can exceed it, then the buffer is
/// released.
const RETAINED_BUFFER_BYTES: usize = 4 << 20;

/// Single writer of a journal. Drop releases the directory; it does not sync.
#[derive(Debug)]
pub struct Journal {
    log: Arc<JournalInner>,
    dir: JournalDir,
    active: Arc<Segment>,
    next: u64,
    buffer: Vec<u8>,
}

/// Handle that syncs the journal from another thread while records are appended.
#[derive(Debug, Clone)]
pub struct Syncer {
    log: Arc<JournalInner>,
}

impl Syncer {
    /// Syncs every record appended before the call and returns the last synced sequence.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if this or an earlier sync failed.
    pub fn sync(&self) -> Result<u64> {
        self.log.sync()
    }
}

impl Journal {
    /// Opens the journal in the directory `dir`, or creates it.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::NewerFormat`], [`Error::WrongIdentity`], [`Error::Corrupt`] and
    /// [`Error::LostEnd`], which change nothing; [`Error::Full`] if there is no space for a first
    /// segment; [`Error::Poisoned`] and [`Error::Io`] if the disk fails.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<(Self, RecoveryReport)> {
        Self::open_on(dir, options, Arc::new(LocalDisk))
    }

    /// Opens the journal like [`Journal::open`], on a disk that may fail.
    ///
    /// # Errors
    /// The errors of [`Journal::open`].
    pub fn open_on(
        dir: impl AsRef<Path>,
        options: Options,
        disk: Arc<dyn Disk>,
    ) -> Result<(Self, RecoveryReport)> {
        let first = options.first_sequence.max(1);
        let expected = options.expected_last;
        let lost_end = |last| Error::LostEnd {
            path: dir.as_ref().to_owned(),
            last,
            expected,
        };

        // The directory is not created for a journal that is missing. An error must leave the disk
        // as it was.
        if expected > 0 && !dir.as_ref().is_dir() {
            return Err(lost_end(0));
        }

        let mut journal_dir = JournalDir::open(dir.as_ref(), options, Arc::clone(&disk))?;
        let mut segments = journal_dir.segments()?;
        let mut report = recovery::scan_segments(&segments)?;
        if report.last_sequence < expected {
            return Err(lost_end(report.last_sequence));
        }

        // Only now: an error before changes nothing on the disk.
        journal_dir.remove_stale_files()?;
        if let Some(last) = segments.last() {
            recovery::repair_tail(last, report.torn_bytes > 0, disk.as_ref())?;
            // An earlier process may have ended between the rename of a segment and the sync of its
            // name.
            journal_dir.sync()?;
        } else {
            segments.push(journal_dir.create(first, 0)?);
            report.first_sequence = first;
            // The sequence 0 is never assigned, so it means that nothing was written.
            report.last_sequence = first - 1;
        }

        report.segments = segments.len();
        let log = Arc::new(JournalInner::new(
            disk,
            segments.into_iter().map(Arc::new).collect(),
            report.last_sequence,
        ));
        let active = log.active();
        let next = report.last_sequence + 1;

        Ok((
            Self {
                log,
                dir: journal_dir,
                active,
                next,
                buffer: Vec::new(),
            },
            report,
        ))
    }

    /// Appends one record, the concatenated `parts`, and returns its sequence. Readers see the
    /// record immediately; it is durable after the next sync. On an error nothing was appended.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Full`], [`Error::Rotation`] and [`Error::Io`], after which a
    /// later append may succeed; [`Error::Poisoned`].
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<u64> {
        // After a failed fsync an append could be lost silently, although a later sync returns
        // success.
        self.log.check_not_poisoned()?;

        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(Error::TooLarge {
                bytes,
                limit: MAX_PAYLOAD_BYTES,
            });
        }

        let needed_bytes = format::encoded_len(bytes);
        // The terminator of the record must also fit. The size above contains it.
        if self.active.tail() + needed_bytes > self.active.capacity {
            self.roll(needed_bytes)?;
        }

        encode_record(
            &mut self.buffer,
            self.active.seed,
            self.next,
            // The synced position in each record lets recovery separate a torn write from the loss
            // of durable data.
            self.log.synced(),
            parts,
        );
        self.write()?;

        // Readers see the record only when it is complete.
        self.active
            .extend(self.next, needed_bytes - TERMINATOR_BYTES as u64);
        self.log.publish(self.next);
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Syncs all appended records and returns the last sequence.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if this or an earlier sync failed; reopen the journal.
    pub fn sync(&mut self) -> Result<u64> {
        self.log.sync()
    }

    /// Drops the segments whose records are all before `sequence`. Earlier records remain if they
    /// share a segment with later records or with the end of the log. Readers of dropped records
    /// receive [`Error::Truncated`].
    ///
    /// # Errors
    /// [`Error::Poisoned`], and [`Error::Io`] if a file cannot be removed.
    pub fn truncate_before(&mut self, sequence: u64) -> Result<()> {
        self.log.check_not_poisoned()?;
        while let Some(oldest) = self.log.oldest_before(sequence) {
            // Readers check this mark after they read other bytes than expected, so it is set
            // before the file can be reused.
            oldest.retire();
            // Dropped one by one, each durably: a gap in the middle would look like corruption.
            let dropped = self.dir.drop_segment(&oldest);
            self.log.poison(dropped)?;
            // The segment leaves the list after its file, so a failed removal is repeated by the
            // next truncation.
            self.log.pop_oldest();
        }
        Ok(())
    }

    /// Returns the sequence of the next record.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Returns the first sequence in the journal; the next one if it is empty.
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.log.first()
    }

    /// Returns the disk usage of the journal in bytes, with allocated space and spare segments.
    #[must_use]
    pub fn bytes_on_disk(&self) -> u64 {
        self.log.bytes() + self.dir.spare_bytes()
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a reader of this journal, for any thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.log))
    }

    /// Returns a handle that syncs from another thread.
    #[must_use]
    pub fn syncer(&self) -> Syncer {
        Syncer {
            log: Arc::clone(&self.log),
        }
    }

    /// Starts a new segment with space for `needed_bytes` bytes.
    fn roll(&mut self, needed_bytes: u64) -> Result<()> {
        // Recovery requires this: all records in older segments are durable.
        self.log.sync()?;

        // The journal is intact after these errors, so callers retry the append. `Full` and
        // `Poisoned` keep their meaning.
        let created = self
            .dir
            .create(self.next, needed_bytes)
            .map_err(|error| match error {
                Error::Io {
                    action,
                    path,
                    source,
                } => Error::Rotation {
                    action,
                    path,
                    source,
                },
                other => other,
            });

        // The sync of the directory may have failed after the rename. Then it is unknown which
        // segment a recovery finds.
        self.active = Arc::new(self.log.poison(created)?);
        self.log.push(Arc::clone(&self.active));
        Ok(())
    }

    /// Writes the encoded record at the tail, or reverts the write completely.
    fn write(&mut self) -> Result<()> {
        let segment = &self.active;
        let disk = self.log.disk();
        let written = disk.write_at(&segment.file, &self.buffer, segment.tail());
        let size = self.buffer.len() as u64;

        // One large commit must not hold its memory for the rest of the process.
        if self.buffer.capacity() > RETAINED_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        let Err(error) = written else { return Ok(()) };

        // The record may be complete on disk and would reappear at the next opening.
        let erased = disk.write_at(&segment.file, &ZEROS[..TERMINATOR_BYTES], segment.tail());
        self.log
            .poison(erased.map_err(Error::poison(&segment.path)))?;
        Err(Error::write("write", &segment.path, size)(error))
    }
}
