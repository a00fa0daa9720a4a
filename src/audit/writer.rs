//! Writing records: one file after another.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// The name under which records are logged.
pub const TARGET: &str = "orlog::audit";

/// What was written is on the disk after this.
const SYNC: Duration = Duration::from_secs(1);

/// What the writer is asked to do.
#[derive(Debug)]
pub(super) enum Job {
    /// Write a line.
    Write(String),
    /// Say when everything before is written.
    Tell(SyncSender<()>),
}

/// The files of a trail, the last of them open.
pub(super) struct Files {
    folder: PathBuf,
    max_bytes: u64,
    keep: u32,
    number: u64,
    file: File,
    bytes: u64,
    dirty: bool,
}

impl Files {
    pub(super) fn open(folder: &Path, max_bytes: u64, keep: u32) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let number = numbers(folder)?.last().copied().unwrap_or(1);
        let mut file = append(folder, number)?;
        // A line that a crash has cut is ended, so that the next one stands alone.
        if !ends_well(folder, number)? {
            file.write_all(b"\n")?;
        }
        let bytes = file.metadata()?.len();
        Ok(Self { folder: folder.to_owned(), max_bytes, keep, number, file, bytes, dirty: false })
    }

    /// Writes until nobody can ask for more.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
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
                Job::Write(line) => {
                    if let Err(error) = self.write(&line) {
                        tracing::error!(target: TARGET, %error, record = line, "a record could not be written; it stands here only");
                    }
                }
                // Who does not wait any more need not be told.
                Job::Tell(written) => drop(written.try_send(())),
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
        self.file = append(&self.folder, self.number + 1)?;
        (self.number, self.bytes) = (self.number + 1, 0);
        for old in numbers(&self.folder)?.iter().rev().skip(self.keep as usize) {
            fs::remove_file(path(&self.folder, *old))?;
        }
        Ok(())
    }

    fn sync(&mut self) {
        if std::mem::take(&mut self.dirty)
            && let Err(error) = self.file.sync_data()
        {
            tracing::error!(%error, "the audit trail could not be brought onto the disk");
        }
    }
}

fn append(folder: &Path, number: u64) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // It names people, and what they did.
    OpenOptions::new().append(true).create(true).mode(0o640).open(path(folder, number))
}

fn ends_well(folder: &Path, number: u64) -> io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let file = File::open(path(folder, number))?;
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte == *b"\n")
}

/// The file of this number.
pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("audit-{number:010}.jsonl"))
}

/// The numbers of the files there are, in order.
pub(super) fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl"));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
