//! Recovery: finds the end of the log at opening, and distinguishes an incomplete write from
//! corruption.
//!
//! Only the last segment may end in an incomplete write, because a segment is synced before the
//! next one is created. In the last segment, the log ends at the first bytes that are not the
//! expected record. Exception: if a complete later record states that the expected one was synced,
//! the disk lost durable data.
//!
//! Recovery first verifies all segments, then repairs the last one. It overwrites the cut-off bytes
//! with zeros, so that new records never connect to a complete record after the cut. It rewrites
//! records that are not known to be synced: after a failed fsync the page cache may return them
//! although the disk does not have them. Only rewritten pages are sure to be flushed.

use std::os::unix::fs::FileExt;

use crate::disk::{Disk, ZEROS, write_zeros};
use crate::error::{Error, Result};
use crate::format::{ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, TERMINATOR_BYTES, array};
use crate::read_buffer::{ReadBuffer, ScanResult};
use crate::segment::Segment;

/// Number of bytes that are searched or rewritten at once. A multiple of [`ALIGNMENT`].
const PIECE_BYTES: u64 = ZEROS.len() as u64;

/// Report of the recovery of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Number of records in the journal.
    pub records: u64,
    /// First sequence; the next one to be written if the journal is empty.
    pub first_sequence: u64,
    /// Last sequence ever written, 0 if there is none.
    pub last_sequence: u64,
    /// Number of segments.
    pub segments: usize,
    /// Size of the incomplete write that was cut off, as far as it is recognizable; 0 after a clean
    /// end.
    pub torn_bytes: u64,
}

/// Reads and verifies every segment. Changes nothing on the disk.
pub(crate) fn scan_segments(segments: &[Segment]) -> Result<RecoveryReport> {
    let first_sequence = segments.first().map_or(1, |segment| segment.first);
    let mut report = RecoveryReport {
        records: 0,
        first_sequence,
        last_sequence: first_sequence - 1,
        segments: segments.len(),
        torn_bytes: 0,
    };

    for (index, segment) in segments.iter().enumerate() {
        let end = walk(segment, segments.get(index + 1).map(|next| next.first))?;
        if index + 1 == segments.len() {
            // All other segments were synced before their successor was created, so an incomplete
            // record in them is corruption.
            report.torn_bytes = torn_bytes(segment, &end)?;
        }
        report.last_sequence = end.next - 1;
    }

    report.records = report.last_sequence + 1 - first_sequence;
    Ok(report)
}

/// Reads and verifies a journal that is not open. Changes nothing on the disk and takes no lock. An
/// incomplete write at the end is reported and is no error: the next opening cuts it off. A missing
/// directory has no records.
///
/// # Errors
/// [`Error::NewerFormat`], [`Error::WrongIdentity`], [`Error::Corrupt`], [`Error::Io`].
pub fn verify(dir: &std::path::Path) -> Result<RecoveryReport> {
    if dir.is_dir() {
        scan_segments(&crate::dir::open_segments_read_only(dir)?)
    } else {
        Ok(RecoveryReport::default())
    }
}

/// Prepares the last segment for appends and makes its content durable.
pub(crate) fn repair_tail(segment: &Segment, torn: bool, disk: &dyn Disk) -> Result<()> {
    let tail = segment.tail();
    let doubtful = doubtful_from(segment)?;
    if doubtful == tail && !torn {
        return Ok(());
    }
    // With the terminator, which is in doubt like the record before it.
    rewrite(
        segment,
        doubtful,
        segment.capacity.min(tail + TERMINATOR_BYTES as u64),
        disk,
    )?;

    // So that no new record connects to a complete one after the cut.
    if torn {
        write_zeros(disk, &segment.file, tail, segment.capacity).map_err(Error::write(
            "write",
            &segment.path,
            segment.capacity - tail,
        ))?;
    }

    disk.sync(&segment.file)
        .map_err(Error::poison(&segment.path))
}

/// End of the complete records of a segment, with the reason.
struct SegmentEnd {
    /// Sequence that was expected at this position.
    next: u64,
    found: ScanResult,
}

/// Scans the records of a segment before `until`, or all of them, and adds their positions to the
/// segment.
fn walk(segment: &Segment, until: Option<u64>) -> Result<SegmentEnd> {
    let mut window = ReadBuffer::default();
    let mut next = segment.first;
    while until != Some(next) {
        let found = record_at(&mut window, segment, segment.tail())?;
        match found {
            // A record cannot state that itself or a later record is durable.
            ScanResult::Record(header) if header.sequence == next && header.durable < next => {
                segment.extend(next, header.footprint());
                next += 1;
            }
            other => return end_of_walk(segment, until, SegmentEnd { next, found: other }),
        }
    }
    Ok(SegmentEnd {
        next,
        found: ScanResult::End,
    })
}

fn end_of_walk(segment: &Segment, until: Option<u64>, end: SegmentEnd) -> Result<SegmentEnd> {
    match (until, end.found) {
        (None, ScanResult::End | ScanResult::Invalid(_)) => Ok(end),
        (_, ScanResult::Invalid(reason)) => {
            Err(Error::corrupt(&segment.path, segment.tail(), reason))
        }
        (_, ScanResult::End) => Err(Error::corrupt(
            &segment.path,
            segment.tail(),
            "records before the next segment are missing",
        )),
        // A complete record in the wrong place is no torn write, also not in the last segment.
        (_, ScanResult::Record(_)) => Err(Error::corrupt(
            &segment.path,
            segment.tail(),
            "a complete record has an unexpected sequence",
        )),
    }
}

/// Returns the size of the incomplete writes after the end of the last segment.
fn torn_bytes(segment: &Segment, end: &SegmentEnd) -> Result<u64> {
    let tail = segment.tail();
    let reason = match end.found {
        ScanResult::Invalid(reason) => reason,
        _ => "a synced record is missing",
    };
    let mut torn_to = match end.found {
        ScanResult::Invalid(_) => tail + remnant(segment, end.next)?,
        _ => tail,
    };

    // The search also runs after a terminator: a lost page of zeros in the middle of the log looks
    // like one.
    let mut buffer = ReadBuffer::default();
    search(segment, end.next, |offset| {
        let ScanResult::Record(header) = record_at(&mut buffer, segment, offset)? else {
            return Ok(());
        };
        // Its writer had seen the sync of the missing record. Cutting here would lose durable data
        // silently.
        if header.durable >= end.next {
            return Err(Error::corrupt(&segment.path, tail, reason));
        }
        torn_to = torn_to.max(offset + header.footprint());
        Ok(())
    })?;

    Ok(torn_to - tail)
}

/// Visits each offset after the tail where a record after `expected` may start.
fn search(
    segment: &Segment,
    expected: u64,
    mut visit: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut window = ReadBuffer::default();
    let tail = segment.tail();
    let header_bytes = RECORD_HEADER_BYTES as u64;

    // At least one header is missing before the next record.
    let mut offset = tail + header_bytes;
    while offset + header_bytes <= segment.capacity {
        let count = PIECE_BYTES.min(segment.capacity - offset);
        let piece = bytes_at(&mut window, segment, offset, count)?;
        if piece != &ZEROS[..piece.len()] {
            for at in (0..=piece.len() - RECORD_HEADER_BYTES).step_by(ALIGNMENT) {
                let header = RecordHeader::decode(&array(piece, at));
                let position = offset + at as u64;
                // Each record in between occupies at least a header.
                if header.sequence > expected
                    && header.sequence - expected <= (position - tail) / header_bytes
                {
                    visit(position)?;
                }
            }
        }

        if count < PIECE_BYTES {
            break;
        }
        // A header may cross the boundary of two pieces.
        offset += count - (header_bytes - ALIGNMENT as u64);
    }
    Ok(())
}

/// Returns the intended length of the invalid record at the tail, if its header is plausible.
fn remnant(segment: &Segment, expected: u64) -> Result<u64> {
    let rest = segment.capacity - segment.tail();
    if rest < RECORD_HEADER_BYTES as u64 {
        return Ok(rest);
    }

    let mut window = ReadBuffer::default();
    let header = bytes_at(
        &mut window,
        segment,
        segment.tail(),
        RECORD_HEADER_BYTES as u64,
    )?;
    let header = RecordHeader::decode(&array(header, 0));

    let claimed = if header.sequence == expected {
        header.footprint()
    } else {
        0
    };

    Ok(claimed.clamp(ALIGNMENT as u64, rest))
}

/// Returns the position of the records that are not known to be synced. It may be slightly before
/// the first of them.
fn doubtful_from(segment: &Segment) -> Result<u64> {
    let mut window = ReadBuffer::default();
    // The last records state the most recent sync. The scan starts at the last index entry, not at
    // the start of the segment.
    let (mut sequence, mut offset) = segment.index_lookup(u64::MAX);
    let mut durable = segment.first - 1;

    while offset < segment.tail() {
        let ScanResult::Record(header) = record_at(&mut window, segment, offset)? else {
            break;
        };
        sequence = header.sequence;
        durable = header.durable;
        offset += header.footprint();
    }

    if durable >= sequence {
        Ok(segment.tail())
    } else {
        Ok(segment.index_lookup(durable + 1).1)
    }
}

fn rewrite(segment: &Segment, from: u64, to: u64, disk: &dyn Disk) -> Result<()> {
    let mut piece = vec![0; ZEROS.len()];
    let mut offset = from;
    while offset < to {
        let count = (to - offset).min(PIECE_BYTES);

        let bytes = &mut piece[..usize::try_from(count).expect("a piece length fits in usize")];
        segment
            .file
            .read_exact_at(bytes, offset)
            .map_err(Error::io("read", &segment.path))?;
        disk.write_at(&segment.file, bytes, offset)
            .map_err(Error::write("write", &segment.path, count))?;
        offset += count;
    }
    Ok(())
}

fn record_at(window: &mut ReadBuffer, segment: &Segment, offset: u64) -> Result<ScanResult> {
    window
        .record(&segment.file, segment.seed, offset, segment.capacity)
        .map_err(Error::io("read", &segment.path))
}

fn bytes_at<'a>(
    window: &'a mut ReadBuffer,
    segment: &Segment,
    offset: u64,
    count: u64,
) -> Result<&'a [u8]> {
    let count = usize::try_from(count).expect("a piece length fits in usize");
    window
        .view(&segment.file, offset, count, segment.capacity)
        .map_err(Error::io("read", &segment.path))
}
