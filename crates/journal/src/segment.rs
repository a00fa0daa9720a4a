//! Segment: one file of the journal, shared by the writer and the readers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::format::{HeaderError, SEGMENT_HEADER_BYTES, VERSION, decode_segment_header};

/// Minimum distance of index entries in bytes. It limits the number of records that a reader skips.
const INDEX_INTERVAL_BYTES: u64 = 256 << 10;

/// Position of a record.
#[derive(Debug, Clone, Copy)]
struct IndexEntry {
    sequence: u64,
    offset: u64,
}

/// Segment: one file of the journal.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    /// Sequence of the first record.
    pub(crate) first: u64,
    /// Seed of the record checksums.
    pub(crate) seed: u32,
    /// Length of the file, in bytes.
    pub(crate) capacity: u64,
    /// End of the last complete record. Bytes before it never change while the segment is in use.
    tail: AtomicU64,
    /// Whether the segment was dropped; its file may have been reused for another segment.
    retired: AtomicBool,
    index: Mutex<Vec<IndexEntry>>,
}

impl Segment {
    /// Creates a segment without records.
    pub(crate) fn new(path: PathBuf, file: File, first: u64, seed: u32, capacity: u64) -> Self {
        let entries = vec![IndexEntry {
            sequence: first,
            offset: SEGMENT_HEADER_BYTES,
        }];
        Self {
            path,
            file,
            first,
            seed,
            capacity,
            tail: AtomicU64::new(SEGMENT_HEADER_BYTES),
            retired: AtomicBool::new(false),
            index: Mutex::new(entries),
        }
    }

    /// Opens a segment whose name states `first`. Its records are not scanned yet.
    pub(crate) fn open(path: &Path, first: u64, identity: [u8; 16]) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(Error::io("open", path))?;

        let (segment, found) = Self::read(path, file, first)?;
        if found == identity {
            Ok(segment)
        } else {
            Err(Error::WrongIdentity {
                path: path.to_owned(),
                found,
                expected: identity,
            })
        }
    }

    /// Opens a segment read-only and returns its identity.
    pub(crate) fn open_read_only(path: &Path, first: u64) -> Result<(Self, [u8; 16])> {
        Self::read(
            path,
            File::open(path).map_err(Error::io("open", path))?,
            first,
        )
    }

    fn read(path: &Path, file: File, first: u64) -> Result<(Self, [u8; 16])> {
        let capacity = file.metadata().map_err(Error::io("measure", path))?.len();
        if capacity < SEGMENT_HEADER_BYTES {
            return Err(Error::corrupt(
                path,
                0,
                "it is shorter than a segment header",
            ));
        }

        let mut bytes = [0; 64];
        file.read_exact_at(&mut bytes, 0)
            .map_err(Error::io("read", path))?;
        let header = decode_segment_header(&bytes).map_err(|fault| match fault {
            HeaderError::NewerFormat(found) => Error::NewerFormat {
                path: path.to_owned(),
                found,
                supported: VERSION,
            },
            HeaderError::Damaged(reason) => Error::corrupt(path, 0, reason),
        })?;

        // A file that was renamed or copied by hand must not be read as another part of the log.
        if header.first != first {
            return Err(Error::corrupt(
                path,
                16,
                "its name and its header state different first sequences",
            ));
        }

        Ok((
            Self::new(path.to_owned(), file, first, header.seed, capacity),
            header.identity,
        ))
    }

    /// Returns the end of the last complete record.
    pub(crate) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Publishes the record `sequence`, written at the tail, to the readers.
    pub(crate) fn extend(&self, sequence: u64, footprint: u64) {
        // Only the writer, and the recovery before it, moves the tail. It cannot change before the
        // store below.
        let offset = self.tail();
        let mut entries = self.index.lock();

        if entries
            .last()
            .is_none_or(|entry| offset - entry.offset >= INDEX_INTERVAL_BYTES)
        {
            entries.push(IndexEntry { sequence, offset });
        }

        drop(entries);
        // Last: readers that see the tail find the record.
        self.tail.store(offset + footprint, Ordering::Release);
    }

    /// Returns the sequence and the position of an indexed record at or before `sequence`.
    pub(crate) fn index_lookup(&self, sequence: u64) -> (u64, u64) {
        let entries = self.index.lock();

        // The first entry has the first sequence of the segment, so the list is never empty.
        let after = entries.partition_point(|entry| entry.sequence <= sequence);
        let entry = entries[after.saturating_sub(1)];
        (entry.sequence, entry.offset)
    }

    /// Marks the file as dropped, so that readers stop reading it.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }
}
