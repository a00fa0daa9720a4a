//! Writer of audit records to a sequence of files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
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

/// Files of an audit trail; the last one is open for writing.
pub(super) struct AuditFiles {
    dir: PathBuf,
    max_bytes: u64,
    max_files: u32,
    number: u64,
    file: File,
    bytes: u64,
    dirty: bool,
}

impl AuditFiles {
    pub(super) fn open(dir: &Path, max_bytes: u64, max_files: u32) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let number = numbers(dir)?.last().copied().unwrap_or(1);
        let mut file = append(dir, number)?;
        // A line truncated by a crash is terminated, so that the next one is separate.
        if !ends_with_newline(dir, number)? {
            file.write_all(b"\n")?;
        }
        let bytes = file.metadata()?.len();
        Ok(Self { dir: dir.to_owned(), max_bytes, max_files, number, file, bytes, dirty: false })
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
        if self.bytes > 0 && self.bytes + line.len() as u64 >= self.max_bytes {
            self.next()?;
        }
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.bytes += line.len() as u64 + 1;
        self.dirty = true;
        Ok(())
    }

    fn next(&mut self) -> io::Result<()> {
        self.sync();
        self.file = append(&self.dir, self.number + 1)?;
        (self.number, self.bytes) = (self.number + 1, 0);
        for old in numbers(&self.dir)?.iter().rev().skip(self.max_files as usize) {
            fs::remove_file(path(&self.dir, *old))?;
        }
        Ok(())
    }

    fn sync(&mut self) {
        if std::mem::take(&mut self.dirty)
            && let Err(error) = self.file.sync_data()
        {
            tracing::error!(%error, "audit trail sync failed");
        }
    }
}

fn append(dir: &Path, number: u64) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // The file contains user names and actions.
    OpenOptions::new().append(true).create(true).mode(0o640).open(path(dir, number))
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
