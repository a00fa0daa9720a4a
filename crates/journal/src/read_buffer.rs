//! Read buffer of a segment: reads a large chunk at once and verifies the records in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::format::{
    ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, TERMINATOR_BYTES, array, checksum,
};

/// Size of one read in bytes, so that small records share a system call.
const CHUNK_BYTES: u64 = 256 << 10;

/// Content at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanResult {
    /// Record with a valid checksum.
    Record(RecordHeader),
    /// Terminator, or the limit.
    End,
    /// Neither, with the reason.
    Invalid(&'static str),
}

/// Chunk of one file in memory. It must not be used for bytes that may still change.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    start: u64,
    length: usize,
}

impl ReadBuffer {
    /// Returns the content at `offset` of a segment with `seed` that may be read up to `limit`.
    pub(crate) fn record(
        &mut self,
        file: &File,
        seed: u32,
        offset: u64,
        limit: u64,
    ) -> io::Result<ScanResult> {
        let rest = limit.saturating_sub(offset);
        // The limit of a reader is the tail, because the bytes after it may still change.
        if rest < TERMINATOR_BYTES as u64 {
            return Ok(ScanResult::End);
        }

        // A terminator is recognized before the header, because fewer bytes than a header may
        // follow it.
        let unit = self.view(file, offset, ALIGNMENT, limit)?;
        if unit.iter().all(|byte| *byte == 0) {
            return Ok(ScanResult::End);
        }

        if rest < RECORD_HEADER_BYTES as u64 {
            return Ok(ScanResult::Invalid("the segment ends inside a record"));
        }

        let header = RecordHeader::decode(&array(
            self.view(file, offset, RECORD_HEADER_BYTES, limit)?,
            0,
        ));

        // The length is checked before the payload is read, so that damage causes no large
        // allocation.
        if header.length < RECORD_HEADER_BYTES || header.length as u64 > rest {
            return Ok(ScanResult::Invalid("the record length is invalid"));
        }

        if checksum(seed, self.view(file, offset, header.length, limit)?) != header.crc {
            return Ok(ScanResult::Invalid("the record checksum does not match"));
        }
        Ok(ScanResult::Record(header))
    }

    /// Returns the `count` bytes at `offset`, which must be below `limit`.
    pub(crate) fn view(
        &mut self,
        file: &File,
        offset: u64,
        count: usize,
        limit: u64,
    ) -> io::Result<&[u8]> {
        let end = offset + count as u64;
        if offset < self.start || end > self.start + self.length as u64 {
            self.fill(
                file,
                offset,
                (limit - offset).min(CHUNK_BYTES.max(count as u64)),
            )?;
        }

        let at = usize::try_from(offset - self.start).expect("the offset is in the buffer");
        Ok(&self.bytes[at..at + count])
    }

    fn fill(&mut self, file: &File, offset: u64, count: u64) -> io::Result<()> {
        let count = usize::try_from(count).expect("a record fits into memory");
        // The buffer is empty if the read below fails. Otherwise a retry would find bytes of
        // another offset.
        self.length = 0;
        if self.bytes.len() < count {
            self.bytes.resize(count, 0);
        }
        file.read_exact_at(&mut self.bytes[..count], offset)?;
        self.start = offset;
        self.length = count;
        Ok(())
    }
}
