//! A segment: one file of the journal, shared by the writer and the readers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::format::{HeaderFault, SEGMENT_HEADER_BYTES, VERSION, decode_segment_header};

/// Marks lie at least this far apart, so that a reader passes over little before the record it wants.
const MARK_SPACING_BYTES: u64 = 256 << 10;

/// Where a record begins.
#[derive(Debug, Clone, Copy)]
struct Mark {
    sequence: u64,
    offset: u64,
}

/// One file of the journal.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    /// The sequence of its first record.
    pub(crate) first: u64,
    /// Where the checksums of its records begin from.
    pub(crate) seed: u32,
    /// The file's length.
    pub(crate) capacity: u64,
    /// Where the last whole record ends. Bytes before it never change while the segment is in use.
    tail: AtomicU64,
    /// Dropped: the file may have become another segment meanwhile.
    retired: AtomicBool,
    marks: Mutex<Vec<Mark>>,
}

impl Segment {
    /// A segment without records.
    pub(crate) fn new(path: PathBuf, file: File, first: u64, seed: u32, capacity: u64) -> Self {
        let marks = vec![Mark { sequence: first, offset: SEGMENT_HEADER_BYTES }];
        Self {
            path,
            file,
            first,
            seed,
            capacity,
            tail: AtomicU64::new(SEGMENT_HEADER_BYTES),
            retired: AtomicBool::new(false),
            marks: Mutex::new(marks),
        }
    }

    /// Opens a segment whose name promises `first`; its records are yet to be counted.
    pub(crate) fn open(path: &Path, first: u64, identity: [u8; 16]) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path).map_err(Error::io("open", path))?;
        let (segment, found) = Self::read(path, file, first)?;
        if found == identity {
            Ok(segment)
        } else {
            Err(Error::Foreign { path: path.to_owned(), found, expected: identity })
        }
    }

    /// Opens a segment to look at it, and says whose it is.
    pub(crate) fn look(path: &Path, first: u64) -> Result<(Self, [u8; 16])> {
        Self::read(path, File::open(path).map_err(Error::io("open", path))?, first)
    }

    fn read(path: &Path, file: File, first: u64) -> Result<(Self, [u8; 16])> {
        let capacity = file.metadata().map_err(Error::io("measure", path))?.len();
        if capacity < SEGMENT_HEADER_BYTES {
            return Err(Error::corrupt(path, 0, "it is shorter than a segment's header"));
        }
        let mut bytes = [0; 64];
        file.read_exact_at(&mut bytes, 0).map_err(Error::io("read", path))?;
        let header = decode_segment_header(&bytes).map_err(|fault| match fault {
            HeaderFault::Newer(found) => Error::Newer { path: path.to_owned(), found, supported: VERSION },
            HeaderFault::Damaged(reason) => Error::corrupt(path, 0, reason),
        })?;
        if header.first != first {
            return Err(Error::corrupt(path, 16, "its name and its header state different first sequences"));
        }
        Ok((Self::new(path.to_owned(), file, first, header.seed, capacity), header.identity))
    }

    /// Where the last whole record ends.
    pub(crate) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Shows the record `sequence`, written at the tail, to the readers.
    pub(crate) fn extend(&self, sequence: u64, footprint: u64) {
        let offset = self.tail();
        let mut marks = self.marks.lock().expect("no holder of this lock panics");
        if marks.last().is_none_or(|mark| offset - mark.offset >= MARK_SPACING_BYTES) {
            marks.push(Mark { sequence, offset });
        }
        drop(marks);
        self.tail.store(offset + footprint, Ordering::Release);
    }

    /// A record at or before `sequence`, and where it begins.
    pub(crate) fn nearest(&self, sequence: u64) -> (u64, u64) {
        let marks = self.marks.lock().expect("no holder of this lock panics");
        let after = marks.partition_point(|mark| mark.sequence <= sequence);
        let mark = marks[after.saturating_sub(1)];
        (mark.sequence, mark.offset)
    }

    /// Tells the readers that the file is no longer theirs to read.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }
}
