//! Append-only files of records: rotation, retention, size and the hash chain.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use orlog_model::Timestamp;

use super::chain::{ChainHead, LineHash, lines};
use super::record::TARGET;

/// Age of its first record at which a file is rotated, so that retention deletes records in parts.
const MAX_AGE: Duration = Duration::from_hours(24);
/// Number of bytes at the end of a file that are read for its head. A longer line increases it.
const TAIL_BYTES: u64 = 64 * 1024;

/// Set of files with one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSet {
    /// Records of calls.
    Calls,
    /// Summaries of rejected calls.
    Denials,
}

/// Limits of a set of files.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileLimits {
    /// Size at which a file is rotated, in bytes.
    pub(super) max_bytes: u64,
    /// Age of the newest record of a file at which the file is deleted.
    pub(super) retention: Duration,
    /// Limit of the size of all files.
    pub(super) total: TotalLimit,
}

/// What happens at the maximum size of all files, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum TotalLimit {
    /// The oldest files are deleted.
    DeleteOldest(u64),
    /// Further records are rejected: a caller cannot remove records by sending requests.
    Reject(u64),
}

/// Files of a trail. Records are appended to the last one.
pub(super) struct AuditFiles {
    dir: PathBuf,
    set: FileSet,
    limits: FileLimits,
    /// Last file; `None` after a failed write, until the next record.
    last: Option<AuditFile>,
    /// Size of all files; `None`: it is read for the next record.
    total_bytes: Option<u64>,
}

/// Open file of a trail.
struct AuditFile {
    number: u64,
    file: File,
    /// Lines that are not written yet; empty between two calls.
    lines: String,
    /// Size with these lines.
    bytes: u64,
    head: ChainHead,
    /// Time of the first record.
    started_at: Option<Timestamp>,
    /// Whether the last line is complete. A crash or a full disk can truncate it.
    is_terminated: bool,
    is_dirty: bool,
}

impl FileSet {
    fn prefix(self) -> &'static str {
        match self {
            FileSet::Calls => "audit-",
            FileSet::Denials => "denials-",
        }
    }

    /// Returns the path of the file with this number.
    pub(super) fn path(self, dir: &Path, number: u64) -> PathBuf {
        dir.join(format!("{}{number:010}.jsonl", self.prefix()))
    }

    /// Returns the numbers of the existing files in ascending order.
    pub(super) fn numbers(self, dir: &Path) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_prefix(self.prefix())?.strip_suffix(".jsonl"));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }

        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the size of the files in bytes.
    pub(super) fn bytes(self, dir: &Path) -> io::Result<u64> {
        self.numbers(dir)?
            .into_iter()
            .map(|number| match fs::metadata(self.path(dir, number)) {
                Ok(file) => Ok(file.len()),
                // An operator may archive files at any time.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
                Err(error) => Err(error),
            })
            .sum()
    }
}

impl AuditFiles {
    /// Opens the last file. Writes nothing, and succeeds on a full disk: a node that was stopped by
    /// a full disk must start.
    pub(super) fn open(dir: &Path, set: FileSet, limits: FileLimits) -> io::Result<Self> {
        let mut files = Self {
            dir: dir.to_owned(),
            set,
            limits,
            last: None,
            total_bytes: None,
        };
        match files.last() {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded
                ) =>
            {
                tracing::error!(target: TARGET, %error, "audit trail is not writable; records are \
                    logged only");
                Ok(files)
            }
            opened => opened.map(drop).map(|()| files),
        }
    }

    fn last(&mut self) -> io::Result<&mut AuditFile> {
        if self.last.is_none() {
            fs::create_dir_all(&self.dir)?;
            let numbers = self.set.numbers(&self.dir)?;
            let head = self.read_head(&numbers)?;
            let number = numbers.last().copied().unwrap_or(1);
            self.last = Some(AuditFile::open(
                &self.dir,
                &self.set.path(&self.dir, number),
                number,
                head,
            )?);
        }

        Ok(self.last.as_mut().expect("it was opened"))
    }

    /// Returns the position after the last line of all files.
    fn read_head(&self, numbers: &[u64]) -> io::Result<ChainHead> {
        let mut hash = None;
        let mut sequence = None;

        // The last file may have no record yet, or only a torn line: the sequence continues that of
        // the file before it.
        for number in numbers.iter().rev() {
            let (last, newest) = tail(&self.set.path(&self.dir, *number))?;
            hash = hash.or(last);
            sequence = sequence.or(newest);
            if sequence.is_some() {
                break;
            }
        }

        let start = ChainHead::default();
        Ok(ChainHead {
            sequence: sequence.unwrap_or(start.sequence),
            hash: hash.unwrap_or(start.hash),
        })
    }

    /// Appends records, JSON objects, as the next lines of the chain. The records of one file are
    /// one write. After an error, some of the records may be written.
    pub(super) fn write<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a str>,
        now: Timestamp,
    ) -> io::Result<()> {
        let mut records = records.into_iter();
        let written = records.try_for_each(|record| self.append(record, now));
        // `append` writes only the lines of full files; those of the last file follow here.
        let written =
            written.and_then(|()| self.last.as_mut().map_or(Ok(()), AuditFile::write_lines));
        if written.is_err() {
            // The file is opened again for the next record: then its content is known.
            self.sync().ok();
            self.last = None;
            self.total_bytes = None;
        }

        written
    }

    fn append(&mut self, record: &str, now: Timestamp) -> io::Result<()> {
        let max_bytes = self.limits.max_bytes;
        let last = self.last()?;
        let line = last.head.next_line(record);
        if last.is_full(line.len() as u64, max_bytes) || last.is_old(now) {
            // The collected lines belong to the full file.
            last.write_lines()?;
            self.rotate()?;
            self.expire(now);
        }

        self.admit(line.len() as u64)?;
        self.last()?.append(&line, now);
        Ok(())
    }

    /// Checks that the files have space for a line within their maximum size.
    fn admit(&mut self, bytes: u64) -> io::Result<()> {
        // Denied requests delete their oldest files instead: every client can cause them, and they
        // must not fill the trail of the calls.
        let TotalLimit::Reject(limit) = self.limits.total else {
            return Ok(());
        };

        // An archived file frees space without notice; the directory is read again after each
        // error.
        let before = match self.total_bytes {
            Some(total) => total,
            None => self.set.bytes(&self.dir)?,
        };
        // One more byte for the line feed.
        let total = before + bytes + 1;
        if total > limit {
            let reason = format!(
                "the audit trail has {before} bytes, and audit.max_size is {limit}: archive and \
                 delete the oldest files, lower audit.retention, or raise it"
            );
            return Err(io::Error::new(ErrorKind::QuotaExceeded, reason));
        }

        self.total_bytes = Some(total);
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        // Before the next file exists: its first record contains the hash of the last line, which a
        // power failure must not remove alone.
        self.sync()?;
        let last = self.last()?;
        let number = last.number + 1;
        let head = last.head;
        self.last = Some(AuditFile::open(
            &self.dir,
            &self.set.path(&self.dir, number),
            number,
            head,
        )?);

        Ok(())
    }

    /// Deletes the files whose newest record is older than the retention, and the oldest files
    /// above the maximum size. The last file remains.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.total_bytes = None;
        if let Err(error) = self.delete_expired(now) {
            tracing::error!(target: TARGET, %error, "cannot delete old files of the audit trail");
        }
    }

    fn delete_expired(&mut self, now: Timestamp) -> io::Result<()> {
        let numbers = self.set.numbers(&self.dir)?;
        let oldest_millis = now.saturating_sub(self.limits.retention).as_millis();
        let oldest =
            SystemTime::UNIX_EPOCH + Duration::from_millis(oldest_millis.try_into().unwrap_or(0));
        let mut total = self.set.bytes(&self.dir)?;
        // The last file is open, and has the end of the chain.
        let older = numbers.split_last().map_or(&[][..], |(_, older)| older);

        for number in older {
            let path = self.set.path(&self.dir, *number);
            let file = match fs::metadata(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file?,
            };
            let is_excess =
                matches!(self.limits.total, TotalLimit::DeleteOldest(limit) if total > limit);
            if !is_excess && file.modified()? >= oldest {
                break;
            }

            fs::remove_file(&path)?;
            total = total.saturating_sub(file.len());
        }

        Ok(())
    }

    /// Makes the written records durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let Some(last) = self.last.as_mut().filter(|last| last.is_dirty) else {
            return Ok(());
        };
        // Also if the sync fails: the system drops pages that it cannot write, so that a second
        // sync would report success.
        last.is_dirty = false;
        last.file.sync_data().inspect_err(|error| {
            tracing::error!(target: TARGET, %error, "audit trail sync failed");
        })
    }
}

impl AuditFile {
    fn open(dir: &Path, path: &Path, number: u64, head: ChainHead) -> io::Result<Self> {
        // The file contains user names and actions.
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let bytes = file.metadata()?.len();
        if bytes == 0 {
            // The name of a new file is as durable as its records.
            File::open(dir)?.sync_all()?;
        }

        let (started_at, is_terminated) = read_ends(path)?;
        Ok(Self {
            number,
            file,
            lines: String::new(),
            bytes,
            head,
            started_at,
            is_terminated,
            is_dirty: false,
        })
    }

    fn is_full(&self, more: u64, max_bytes: u64) -> bool {
        // An empty file takes a record of any size: a rotation would only leave it empty.
        self.bytes > 0 && self.bytes + more >= max_bytes
    }

    fn is_old(&self, now: Timestamp) -> bool {
        self.started_at
            .is_some_and(|started_at| now.duration_since(started_at) >= MAX_AGE)
    }

    fn append(&mut self, line: &str, now: Timestamp) {
        let start = self.lines.len();

        // The truncated line of a crash stays in the file, as a line that is no record.
        if !self.is_terminated {
            self.lines.push('\n');
        }

        self.lines.extend([line, "\n"]);
        self.bytes += (self.lines.len() - start) as u64;
        self.head.advance(line);
        self.started_at.get_or_insert(now);
        self.is_terminated = true;
    }

    fn write_lines(&mut self) -> io::Result<()> {
        if !self.lines.is_empty() {
            // Before the write, which can fail after a part of the lines.
            self.is_dirty = true;
            self.file.write_all(self.lines.as_bytes())?;
            self.lines.clear();
        }
        Ok(())
    }
}

/// Returns the time of the first record, if any, and whether the last line is complete.
fn read_ends(path: &Path) -> io::Result<(Option<Timestamp>, bool)> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let Some(last) = length.checked_sub(1) else {
        return Ok((None, true));
    };

    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;

    let first = read_range(&file, 0, length.min(TAIL_BYTES))?;
    let started_at = lines(&first).find_map(|line| {
        let record: serde_json::Value = serde_json::from_slice(line).ok()?;
        Timestamp::parse(record["at"].as_str()?).ok()
    });

    Ok((started_at, byte == *b"\n"))
}

/// Returns the hash of the last line and the last sequence number in a file.
fn tail(path: &Path) -> io::Result<(Option<LineHash>, Option<u64>)> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut window = TAIL_BYTES;

    loop {
        let start = length.saturating_sub(window);
        let bytes = read_range(&file, start, length)?;

        // The first line may have started before the window.
        let first = if start == 0 {
            Some(0)
        } else {
            bytes.iter().position(|byte| *byte == b'\n')
        };
        let found =
            ChainHead::of(first.map_or(&[], |first| &bytes[first + usize::from(start > 0)..]));
        if start == 0 || found.1.is_some() {
            return Ok(found);
        }

        window *= 8;
    }
}

fn read_range(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}
