//! Opening after whatever happened: finds the end of the log, and tells an unfinished write from damage.
//!
//! Only the last segment may end in an unfinished write, because a segment is synced before the next one is begun. In it,
//! the first bytes that are not the expected record are the end of the log, unless a whole record further on states
//! that the expected one had been synced: then the disk lost something that it had promised to keep.
//!
//! First everything is judged, then the last segment is settled: what was cut off is overwritten with zeros, so that a
//! whole record behind the cut can never be joined by new ones before it; and records that nobody is known to have
//! synced are written again. After a failed fsync the page cache may show them although the disk does not have them,
//! and only pages written anew are sure to be flushed.

use std::os::unix::fs::FileExt;

use crate::disk::{Disk, ZEROS, write_zeros};
use crate::error::{Error, Result};
use crate::format::{ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, TERMINATOR_BYTES, array};
use crate::read_buffer::{Found, Window};
use crate::segment::Segment;

/// How much is searched, or written again, at once. A multiple of [`ALIGNMENT`].
const PIECE_BYTES: u64 = ZEROS.len() as u64;

/// What opening a journal found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// How many records the journal holds.
    pub records: u64,
    /// The first of them; the next to be written if there are none.
    pub first_sequence: u64,
    /// The last sequence ever written, 0 if none.
    pub last_sequence: u64,
    /// How many segments hold them.
    pub segments: usize,
    /// The bytes of an unfinished write that was cut off, as far as they could be recognised; 0 after a clean end.
    pub torn_bytes: u64,
}

/// Reads every segment and judges it; changes nothing on the disk.
pub(crate) fn judge(segments: &[Segment]) -> Result<Recovery> {
    let first_sequence = segments.first().map_or(1, |segment| segment.first);
    let mut report = Recovery {
        records: 0,
        first_sequence,
        last_sequence: first_sequence - 1,
        segments: segments.len(),
        torn_bytes: 0,
    };
    for (index, segment) in segments.iter().enumerate() {
        let end = walk(segment, segments.get(index + 1).map(|next| next.first))?;
        if index + 1 == segments.len() {
            report.torn_bytes = torn_bytes(segment, &end)?;
        }
        report.last_sequence = end.next - 1;
    }
    report.records = report.last_sequence + 1 - first_sequence;
    Ok(report)
}

/// Reads a journal that nobody has open, and judges it; changes nothing, takes no lock. An unfinished write at its end is reported
/// and is no fault: the next opening cuts it off.
///
/// # Errors
/// [`Error::Newer`], [`Error::Foreign`], [`Error::Corrupt`], [`Error::Io`].
pub fn inspect(dir: &std::path::Path) -> Result<Recovery> {
    judge(&crate::dir::look(dir)?)
}

/// Makes the last segment fit to be continued, and everything in it durable.
pub(crate) fn settle(segment: &Segment, torn: bool, disk: &dyn Disk) -> Result<()> {
    let tail = segment.tail();
    let doubtful = doubtful_from(segment)?;
    if doubtful == tail && !torn {
        return Ok(());
    }
    // With the terminator, which is as doubtful as the record before it.
    rewrite(segment, doubtful, segment.capacity.min(tail + TERMINATOR_BYTES as u64), disk)?;
    if torn {
        write_zeros(disk, &segment.file, tail, segment.capacity).map_err(Error::write(
            "write",
            &segment.path,
            segment.capacity - tail,
        ))?;
    }
    disk.sync(&segment.file).map_err(Error::poison(&segment.path))
}

/// Where the whole records of a segment end, and why.
struct End {
    /// The sequence that was expected there.
    next: u64,
    found: Found,
}

/// Passes over the records of a segment up to that before `until`, or to the end, and tells the segment where they are.
fn walk(segment: &Segment, until: Option<u64>) -> Result<End> {
    let mut window = Window::default();
    let mut next = segment.first;
    while until != Some(next) {
        let found = record_at(&mut window, segment, segment.tail())?;
        match found {
            Found::Record(header) if header.sequence == next && header.durable < next => {
                segment.extend(next, header.footprint());
                next += 1;
            }
            other => return end_of_walk(segment, until, End { next, found: other }),
        }
    }
    Ok(End { next, found: Found::End })
}

fn end_of_walk(segment: &Segment, until: Option<u64>, end: End) -> Result<End> {
    match (until, end.found) {
        (None, Found::End | Found::Bad(_)) => Ok(end),
        (_, Found::Bad(reason)) => Err(Error::corrupt(&segment.path, segment.tail(), reason)),
        (_, Found::End) => {
            Err(Error::corrupt(&segment.path, segment.tail(), "records before the next segment are missing"))
        }
        (_, Found::Record(_)) => Err(Error::corrupt(
            &segment.path,
            segment.tail(),
            "a whole record has another sequence than its place",
        )),
    }
}

/// Searches what lies behind the end of the last segment: how much of it is unfinished writes?
fn torn_bytes(segment: &Segment, end: &End) -> Result<u64> {
    let tail = segment.tail();
    let reason = match end.found {
        Found::Bad(reason) => reason,
        _ => "a record that had been synced is missing",
    };
    let mut torn_to = match end.found {
        Found::Bad(_) => tail + remnant(segment, end.next)?,
        _ => tail,
    };
    let mut judge = Window::default();
    search(segment, end.next, |offset| {
        let Found::Record(header) = record_at(&mut judge, segment, offset)? else { return Ok(()) };
        if header.durable >= end.next {
            return Err(Error::corrupt(&segment.path, tail, reason));
        }
        torn_to = torn_to.max(offset + header.footprint());
        Ok(())
    })?;
    Ok(torn_to - tail)
}

/// Visits each offset behind the tail where a record after `expected` might begin.
fn search(segment: &Segment, expected: u64, mut visit: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let mut window = Window::default();
    let (tail, header_bytes) = (segment.tail(), RECORD_HEADER_BYTES as u64);
    let mut offset = tail + header_bytes;
    while offset + header_bytes <= segment.capacity {
        let count = PIECE_BYTES.min(segment.capacity - offset);
        let piece = bytes_at(&mut window, segment, offset, count)?;
        if piece != &ZEROS[..piece.len()] {
            for at in (0..=piece.len() - RECORD_HEADER_BYTES).step_by(ALIGNMENT) {
                let header = RecordHeader::decode(&array(piece, at));
                let place = offset + at as u64;
                // Each record between takes up a header at least.
                if header.sequence > expected && header.sequence - expected <= (place - tail) / header_bytes {
                    visit(place)?;
                }
            }
        }
        if count < PIECE_BYTES {
            break;
        }
        // A header may lie across the border of two pieces.
        offset += count - (header_bytes - ALIGNMENT as u64);
    }
    Ok(())
}

/// How long the bad record at the tail meant to be, if its header can be believed.
fn remnant(segment: &Segment, expected: u64) -> Result<u64> {
    let rest = segment.capacity - segment.tail();
    if rest < RECORD_HEADER_BYTES as u64 {
        return Ok(rest);
    }
    let mut window = Window::default();
    let header = bytes_at(&mut window, segment, segment.tail(), RECORD_HEADER_BYTES as u64)?;
    let header = RecordHeader::decode(&array(header, 0));
    let claimed = if header.sequence == expected { header.footprint() } else { 0 };
    Ok(claimed.clamp(ALIGNMENT as u64, rest))
}

/// Where the records begin that are not known to be on the disk. May lie a little before the first of them.
fn doubtful_from(segment: &Segment) -> Result<u64> {
    let mut window = Window::default();
    let (mut sequence, mut offset) = segment.nearest(u64::MAX);
    let mut durable = segment.first - 1;
    while offset < segment.tail() {
        let Found::Record(header) = record_at(&mut window, segment, offset)? else { break };
        (sequence, durable) = (header.sequence, header.durable);
        offset += header.footprint();
    }
    if durable >= sequence { Ok(segment.tail()) } else { Ok(segment.nearest(durable + 1).1) }
}

fn rewrite(segment: &Segment, from: u64, to: u64, disk: &dyn Disk) -> Result<()> {
    let mut piece = vec![0; ZEROS.len()];
    let mut offset = from;
    while offset < to {
        let count = (to - offset).min(PIECE_BYTES);
        let bytes = &mut piece[..usize::try_from(count).expect("a piece is small")];
        segment.file.read_exact_at(bytes, offset).map_err(Error::io("read", &segment.path))?;
        disk.write_at(&segment.file, bytes, offset).map_err(Error::write("write", &segment.path, count))?;
        offset += count;
    }
    Ok(())
}

fn record_at(window: &mut Window, segment: &Segment, offset: u64) -> Result<Found> {
    window
        .record(&segment.file, segment.seed, offset, segment.capacity)
        .map_err(Error::io("read", &segment.path))
}

fn bytes_at<'a>(window: &'a mut Window, segment: &Segment, offset: u64, count: u64) -> Result<&'a [u8]> {
    let count = usize::try_from(count).expect("a piece is small");
    window.view(&segment.file, offset, count, segment.capacity).map_err(Error::io("read", &segment.path))
}
