//! Lines of a trail after a position, and the durable position of the copy elsewhere.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::chain::LineHash;
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

    // The file of the position was deleted, and with it any lines that followed there.
    batch.is_after_gap = start.file > 0 && numbers.first() != Some(&start.file);
    for number in &numbers {
        if *number != batch.end.file {
            batch.end = TailPosition {
                file: *number,
                offset: 0,
            };
        }

        let is_last = numbers.last() == Some(number);
        batch.read_file(&set.path(dir, *number), is_last)?;

        if batch.lines.len() >= MAX_LINES {
            break;
        }
    }

    Ok(batch)
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

    let parsed = text.trim().split_once(' ').and_then(|(file, offset)| {
        Some(TailPosition {
            file: file.parse().ok()?,
            offset: offset.parse().ok()?,
        })
    });
    parsed.ok_or_else(|| {
        io::Error::new(
            ErrorKind::InvalidData,
            format!("{POSITION} is invalid; delete it"),
        )
    })
}

/// Stores the position. If a crash loses it, lines are published again, with the same ids.
pub(super) fn store_position(dir: &Path, position: TailPosition) -> io::Result<()> {
    let next = dir.join(format!("{POSITION}.new"));
    let mut file = File::create(&next)?;
    file.write_all(format!("{} {}\n", position.file, position.offset).as_bytes())?;
    file.sync_all()?;
    fs::rename(next, dir.join(POSITION))
}
