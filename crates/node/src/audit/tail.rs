//! Lines of a trail after a position, and the durable position of the copy elsewhere.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::chain::{LineHash, Link};
use super::files::FileSet;

/// Name of the file with the position.
const POSITION: &str = "published.position";
/// Maximum number of lines of a batch.
const MAX_LINES: usize = 256;

/// Position in a set of files: after this number of bytes of this file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TailPosition {
    file: u64,
    offset: u64,
    /// Hash of the line before the position; `None` at the start, and if an earlier release stored
    /// the position.
    last: Option<LineHash>,
}

/// Lines after a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailBatch {
    /// Lines without their line feeds, oldest first.
    pub lines: Vec<Vec<u8>>,
    /// Position after them.
    pub end: TailPosition,
    /// Whether lines between the position and the first line are missing.
    pub is_after_gap: bool,
}

/// Returns the id of a line: equal for equal lines.
#[must_use]
pub fn line_id(line: &[u8]) -> String {
    LineHash::of(line).to_hex()
}

/// Returns the lines after a position; no lines if there are no complete ones yet.
pub(super) fn read_after(dir: &Path, set: FileSet, start: TailPosition) -> io::Result<TailBatch> {
    let mut batch = TailBatch {
        lines: Vec::new(),
        end: start,
        is_after_gap: false,
    };
    let numbers: Vec<u64> = set
        .numbers(dir)?
        .into_iter()
        .filter(|number| *number >= start.file)
        .collect();

    for number in &numbers {
        if *number != batch.end.file {
            batch.end.file = *number;
            batch.end.offset = 0;
        }

        let is_last = numbers.last() == Some(number);
        batch.read_file(&set.path(dir, *number), is_last)?;

        if batch.lines.len() >= MAX_LINES {
            break;
        }
    }

    // The file of the position was deleted, and with it any lines that followed there. The first
    // line of a later file has the hash of the last one of them.
    let is_deleted = start.file > 0 && numbers.first() != Some(&start.file);
    batch.is_after_gap |= is_deleted
        && batch
            .lines
            .first()
            .is_some_and(|line| !start.is_before(line));
    Ok(batch)
}

impl TailPosition {
    /// Returns whether a line is the next one of the chain.
    fn is_before(&self, line: &[u8]) -> bool {
        let previous = Link::of(line).and_then(|link| LineHash::parse(&link.previous));
        self.last.is_some() && self.last == previous
    }
}

impl TailBatch {
    fn read_file(&mut self, path: &Path, is_last: bool) -> io::Result<()> {
        let mut file = File::open(path)?;
        // The file has lost lines that were published, so others may be missing, too: it is read
        // from its start.
        if file.metadata()?.len() < self.end.offset {
            self.end.offset = 0;
            self.is_after_gap = true;
        }

        file.seek(SeekFrom::Start(self.end.offset))?;
        let mut reader = BufReader::new(file);
        while self.lines.len() < MAX_LINES {
            let mut line = Vec::new();
            let bytes = reader.read_until(b'\n', &mut line)?;
            let is_terminated = line.pop_if(|byte| *byte == b'\n').is_some();

            // The last line of the last file may still be written.
            if bytes == 0 || is_last && !is_terminated {
                break;
            }

            self.end.offset += bytes as u64;
            self.end.last = Some(LineHash::of(&line));
            self.lines.push(line);
        }

        Ok(())
    }
}

/// Returns the stored position; the start of the trail if there is none.
pub(super) fn load_position(dir: &Path) -> io::Result<TailPosition> {
    let text = match fs::read_to_string(dir.join(POSITION)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(TailPosition::default()),
        // The rename can survive a power failure that the content did not.
        Ok(text) if text.is_empty() => return Ok(TailPosition::default()),
        text => text?,
    };

    parse_position(&text).ok_or_else(|| {
        io::Error::new(
            ErrorKind::InvalidData,
            format!("{POSITION} is invalid; delete it"),
        )
    })
}

fn parse_position(text: &str) -> Option<TailPosition> {
    let mut fields = text.split_whitespace();
    let position = TailPosition {
        file: fields.next()?.parse().ok()?,
        offset: fields.next()?.parse().ok()?,
        last: match fields.next() {
            Some(hash) => Some(LineHash::parse(hash)?),
            None => None,
        },
    };
    fields.next().is_none().then_some(position)
}

/// Stores the position. If a crash loses it, lines are published again, with the same ids.
pub(super) fn store_position(dir: &Path, position: TailPosition) -> io::Result<()> {
    let next = dir.join(format!("{POSITION}.new"));
    let mut file = File::create(&next)?;
    let TailPosition {
        file: number,
        offset,
        last,
    } = position;
    let last = last
        .map(|hash| format!(" {}", hash.to_hex()))
        .unwrap_or_default();
    file.write_all(format!("{number} {offset}{last}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(next, dir.join(POSITION))
}
