//! Audit trail: a record of every request that changes state, succeeded or rejected, in append-only
//! files.
//!
//! A record is a line of JSON. Files are named `audit-<number>.jsonl`; a full file is followed by a new
//! one, and the oldest files are deleted. A dedicated thread writes the records, so a slow disk does
//! not delay requests. Records are durable within one second.

mod reader;
mod record;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context as _;

pub use reader::{AuditFilter, AuditPage};
pub use record::{AuditOutcome, AuditRecord};
pub use writer::TARGET;
use writer::{AuditFiles, WriterRequest};

/// Maximum number of queued records. Further records are only logged.
const MAX_QUEUED: usize = 16 * 1024;

/// Options of the audit trail.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Directory of the files; `None`: no files.
    pub dir: Option<PathBuf>,
    /// Maximum size of one file in bytes.
    pub max_bytes: u64,
    /// Maximum number of files.
    pub max_files: u32,
    /// Whether records are also logged.
    pub log: bool,
}

/// Audit trail. Writes the queued records on drop.
pub struct AuditTrail {
    dir: Option<PathBuf>,
    log: bool,
    jobs: Option<SyncSender<WriterRequest>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AuditTrail {
    /// Opens or creates the directory.
    ///
    /// # Errors
    /// If the directory is not writable.
    pub fn open(options: &AuditOptions) -> anyhow::Result<Self> {
        let Some(dir) = &options.dir else {
            return Ok(Self { dir: None, log: options.log, jobs: None, thread: Mutex::default() });
        };
        let cannot = || format!("cannot write the audit trail in {}", dir.display());
        let files = AuditFiles::open(dir, options.max_bytes, options.max_files).with_context(cannot)?;
        let (jobs, queue) = sync_channel(MAX_QUEUED);
        let thread = std::thread::Builder::new().name("orlog-audit".to_owned());
        let thread = thread.spawn(move || files.run(&queue)).with_context(cannot)?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { dir: Some(dir.clone()), log: options.log, jobs: Some(jobs), thread })
    }

    /// Queues a record. Never blocks.
    pub fn record(&self, record: &AuditRecord) {
        let line = serde_json::to_string(record).unwrap_or_default();
        if self.log || self.jobs.is_none() {
            tracing::info!(target: TARGET, record = line, "a call");
        }
        let Some(jobs) = &self.jobs else { return };
        if let Err(
            TrySendError::Full(WriterRequest::Write(line))
            | TrySendError::Disconnected(WriterRequest::Write(line)),
        ) = jobs.try_send(WriterRequest::Write(line))
        {
            tracing::error!(target: TARGET, record = line, "audit queue is full; record is logged only");
        }
    }

    /// Returns the newest matching records, newest first. Blocks.
    ///
    /// # Errors
    /// If the files cannot be read, or the cursor is invalid.
    pub fn read(&self, query: &AuditFilter<'_>) -> Result<AuditPage, reader::Error> {
        let Some(dir) = &self.dir else { return Ok(AuditPage::default()) };
        if let Some(jobs) = &self.jobs {
            let (written, wait) = sync_channel(1);
            // After shutdown nothing more is written, but written records remain readable.
            if jobs.send(WriterRequest::Flush(written)).is_ok() {
                wait.recv().ok();
            }
        }
        reader::read(dir, query)
    }

    /// Returns the directory of the files.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }
}

impl Drop for AuditTrail {
    fn drop(&mut self) {
        self.jobs = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("audit writer thread panicked");
        }
    }
}

pub use reader::Error;
