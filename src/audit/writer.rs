//! Writer of audit records to a sequence of files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// Log target of audit records.
pub const TARGET: &str = "orlog::audit";

/// Fsync interval. Default: 1s.
const SYNC: Duration = Duration::from_secs(1);

/// Request to the writer.
#[derive(Debug)]
pub(super) enum WriterRequest {
    /// Writes a line.
    Write(String),
    /// Notifies when all earlier lines are written.
    Flush(SyncSender<()>),
}

/// Files of an audit trail. Records are appended to the last one.
pub(super) struct AuditFiles {
    dir: PathBuf,
    max_bytes: u64,
    max_files: u32,
    /// Last file; `None` after a failed write, until the next record.
    last: Option<AuditFile>,
}

/// Open file of an audit trail.
struct AuditFile {
    number: u64,
    file: File,
    bytes: u64,
    /// Whether the last line is complete. A crash or a full disk can truncate it.
    is_terminated: bool,
    is_dirty: bool,
}

impl AuditFiles {
    /// Opens the last file. Writes nothing, and succeeds on a full disk: a node that was stopped by a full
    /// disk must start.
    pub(super) fn open(dir: &Path, max_bytes: u64, max_files: u32) -> io::Result<Self> {
        let mut files = Self { dir: dir.to_owned(), max_bytes, max_files, last: None };
        match files.last() {
            Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                tracing::error!(target: TARGET, %error, "audit trail is not writable; records are logged only");
                Ok(files)
            }
            opened => opened.map(drop).map(|()| files),
        }
    }

    fn last(&mut self) -> io::Result<&mut AuditFile> {
        if self.last.is_none() {
            fs::create_dir_all(&self.dir)?;
            let number = numbers(&self.dir)?.last().copied().unwrap_or(1);
            self.last = Some(AuditFile::open(&self.dir, number)?);
        }
        Ok(self.last.as_mut().expect("it was opened"))
    }

    /// Writes until all senders are dropped.
    pub(super) fn run(mut self, queue: &Receiver<WriterRequest>) {
        loop {
            let job = match queue.recv_timeout(SYNC) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => {
                    self.sync();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match job {
                WriterRequest::Write(line) => {
                    if let Err(error) = self.write(&line) {
                        tracing::error!(target: TARGET, %error, record = line, "audit write failed; record is logged only");
                    }
                }
                // A receiver that no longer waits needs no notification.
                WriterRequest::Flush(written) => drop(written.try_send(())),
            }
        }
        self.sync();
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let written = self.append(line);
        if written.is_err() {
            // The next record opens the file again, and then the content is known.
            self.sync();
            self.last = None;
        }
        written
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let max_bytes = self.max_bytes;
        let last = self.last()?;
        if last.bytes > 0 && last.bytes + line.len() as u64 >= max_bytes {
            self.next()?;
        }
        self.last()?.append(line)
    }

    fn next(&mut self) -> io::Result<()> {
        self.sync();
        let number = self.last()?.number + 1;
        self.last = Some(AuditFile::open(&self.dir, number)?);
        for old in numbers(&self.dir)?.iter().rev().skip(self.max_files as usize) {
            fs::remove_file(path(&self.dir, *old))?;
        }
        Ok(())
    }

    fn sync(&mut self) {
        let Some(last) = self.last.as_mut().filter(|last| last.is_dirty) else { return };
        last.is_dirty = false;
        if let Err(error) = last.file.sync_data() {
            tracing::error!(%error, "audit trail sync failed");
        }
    }
}

impl AuditFile {
    fn open(dir: &Path, number: u64) -> io::Result<Self> {
        let file = append(dir, number)?;
        let (bytes, is_terminated) = (file.metadata()?.len(), ends_with_newline(dir, number)?);
        Ok(Self { number, file, bytes, is_terminated, is_dirty: false })
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let separator = if self.is_terminated { "" } else { "\n" };
        let text = format!("{separator}{line}\n");
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        (self.is_terminated, self.is_dirty) = (true, true);
        Ok(())
    }
}

fn append(dir: &Path, number: u64) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // The file contains user names and actions.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path(dir, number))
}

fn ends_with_newline(dir: &Path, number: u64) -> io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let file = File::open(path(dir, number))?;
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte == *b"\n")
}

/// Returns the path of the file with this number.
pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("audit-{number:010}.jsonl"))
}

/// Returns the numbers of the existing files in ascending order.
pub(super) fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl"));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_writes_nothing_and_the_next_record_terminates_a_truncated_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), 1);
        fs::write(&file, "{\"a\":1}\n{\"trunc").unwrap();
        let mut files = AuditFiles::open(dir.path(), 1000, 3).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"a\":1}\n{\"trunc");
        files.write("{}").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"a\":1}\n{\"trunc\n{}\n");
    }

    #[test]
    fn records_are_written_again_when_the_disk_has_space() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), 1);
        std::os::unix::fs::symlink("/dev/full", &file).unwrap();
        let mut files = AuditFiles::open(dir.path(), 1000, 3).unwrap();
        assert_eq!(files.write("{}").unwrap_err().kind(), ErrorKind::StorageFull);
        fs::remove_file(&file).unwrap();
        files.write("{}").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}\n");
    }
}
