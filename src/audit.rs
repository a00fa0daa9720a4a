//! The audit trail: a record of every call that changes something, done or refused, in files that are only appended to.
//!
//! A record is a line of JSON. Files are called `audit-<number>.jsonl`; a new one begins when one is full, and the oldest go. Records
//! are written by a thread of their own, so that a slow disk slows nobody down, and are on the disk a second later.

mod reader;
mod record;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context as _;

pub use reader::{Page, Wanted};
pub use record::{Outcome, Record};
pub use writer::TARGET;
use writer::{Files, Job};

/// Records that wait to be written. Beyond that they are logged.
const WAITING: usize = 16 * 1024;

/// What is kept, where, and how much of it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder; nowhere where there is none.
    pub folder: Option<PathBuf>,
    /// Bytes of one file.
    pub max_bytes: u64,
    /// Files that are kept.
    pub keep: u32,
    /// Whether records are logged too.
    pub log: bool,
}

/// The trail. Dropping it writes what is left.
pub struct Audit {
    folder: Option<PathBuf>,
    log: bool,
    jobs: Option<SyncSender<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Audit {
    /// Opens the folder, or makes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(options: &Options) -> anyhow::Result<Self> {
        let Some(folder) = &options.folder else {
            return Ok(Self { folder: None, log: options.log, jobs: None, thread: Mutex::default() });
        };
        let cannot = || format!("the audit trail in {} cannot be written", folder.display());
        let files = Files::open(folder, options.max_bytes, options.keep).with_context(cannot)?;
        let (jobs, queue) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("orlog-audit".to_owned());
        let thread = thread.spawn(move || files.run(&queue)).with_context(cannot)?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { folder: Some(folder.clone()), log: options.log, jobs: Some(jobs), thread })
    }

    /// Keeps a record. Never waits.
    pub fn keep(&self, record: &Record) {
        let line = serde_json::to_string(record).unwrap_or_default();
        if self.log || self.jobs.is_none() {
            tracing::info!(target: TARGET, record = line, "a call");
        }
        let Some(jobs) = &self.jobs else { return };
        if let Err(TrySendError::Full(Job::Write(line)) | TrySendError::Disconnected(Job::Write(line))) =
            jobs.try_send(Job::Write(line))
        {
            tracing::error!(target: TARGET, record = line, "the audit trail cannot be written fast enough; this record stands here only");
        }
    }

    /// The newest records that are wanted, newest first. Blocks.
    ///
    /// # Errors
    /// When the files cannot be read, or the cursor is none.
    pub fn read(&self, wanted: &Wanted<'_>) -> Result<Page, reader::Error> {
        let Some(folder) = &self.folder else { return Ok(Page::default()) };
        if let Some(jobs) = &self.jobs {
            let (written, wait) = sync_channel(1);
            // Who ends writes no more; what is written can be read all the same.
            if jobs.send(Job::Tell(written)).is_ok() {
                wait.recv().ok();
            }
        }
        reader::read(folder, wanted)
    }

    /// Where the files are.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.jobs = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the audit trail panicked");
        }
    }
}

pub use reader::Error;
