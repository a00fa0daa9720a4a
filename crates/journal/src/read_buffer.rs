//! A window on a segment: reads a large piece at once and judges the records in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::format::{ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, TERMINATOR_BYTES, array, checksum};

/// How much is read at once, so that small records share a system call.
const CHUNK_BYTES: u64 = 256 << 10;

/// What stands at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A record whose checksum matches.
    Record(RecordHeader),
    /// The terminator, or the limit.
    End,
    /// Neither, and why.
    Bad(&'static str),
}

/// A piece of one file, kept in memory. It must not be asked about bytes that may still change.
#[derive(Debug, Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    start: u64,
    length: usize,
}

impl Window {
    /// Judges what stands at `offset` of a segment with `seed` that may be read up to `limit`.
    pub(crate) fn record(&mut self, file: &File, seed: u32, offset: u64, limit: u64) -> io::Result<Found> {
        let rest = limit.saturating_sub(offset);
        if rest < TERMINATOR_BYTES as u64 {
            return Ok(Found::End);
        }
        let word = self.view(file, offset, ALIGNMENT, limit)?;
        if word.iter().all(|byte| *byte == 0) {
            return Ok(Found::End);
        }
        if rest < RECORD_HEADER_BYTES as u64 {
            return Ok(Found::Bad("the segment ends inside a record"));
        }
        let header = RecordHeader::decode(&array(self.view(file, offset, RECORD_HEADER_BYTES, limit)?, 0));
        if header.length < RECORD_HEADER_BYTES || header.length as u64 > rest {
            return Ok(Found::Bad("the record's length is impossible"));
        }
        if checksum(seed, self.view(file, offset, header.length, limit)?) != header.crc {
            return Ok(Found::Bad("the record's checksum does not match"));
        }
        Ok(Found::Record(header))
    }

    /// The `count` bytes at `offset`, which must lie below `limit`.
    pub(crate) fn view(&mut self, file: &File, offset: u64, count: usize, limit: u64) -> io::Result<&[u8]> {
        let end = offset + count as u64;
        if offset < self.start || end > self.start + self.length as u64 {
            self.fill(file, offset, (limit - offset).min(CHUNK_BYTES.max(count as u64)))?;
        }
        let at = usize::try_from(offset - self.start).expect("the offset lies in the window");
        Ok(&self.bytes[at..at + count])
    }

    fn fill(&mut self, file: &File, offset: u64, count: u64) -> io::Result<()> {
        let count = usize::try_from(count).expect("a record fits into memory");
        self.length = 0;
        if self.bytes.len() < count {
            self.bytes.resize(count, 0);
        }
        file.read_exact_at(&mut self.bytes[..count], offset)?;
        (self.start, self.length) = (offset, count);
        Ok(())
    }
}
