//! Audit trail: a record of every authorized request that changes state, or reads an export, a
//! backup or the trail itself, in append-only files.
//!
//! A record is a line of JSON. Files are named `audit-<number>.jsonl`; a full file is followed by a
//! new one. Only their age deletes files. Each line contains the hash of the line before it, so
//! that changes are detected. Requests that fail authentication or authorization are counted, in
//! files named `denials-<number>.jsonl`, and never remove a record. See ADR 0040.
//!
//! The requests of workers of one kind in one minute are one record (`summaries.rs`), unless the
//! trail is required. At its maximum size, the trail rejects records: they are logged only, like
//! those that cannot be written.
//!
//! A dedicated thread writes the records, so a slow disk does not delay requests. Records are
//! durable within one second, or before the request starts ([`AuditTrail::begin`]).

mod chain;
mod denials;
mod files;
pub(crate) mod publisher;
mod reader;
mod record;
mod summaries;
mod tail;
mod verify;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use orlog_model::Clock as _;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use crate::clock::SystemClock;
pub use denials::Denial;
use denials::Denials;
pub use files::FileSet;
use files::{AuditFiles, FileLimits, TotalLimit};
pub use reader::{AuditFilter, AuditPage, Error};
pub use record::{AuditOutcome, AuditRecord, DataEdit, TARGET, shortened};
use summaries::Summaries;
pub use tail::{TailBatch, TailPosition, line_id};
pub use verify::{ExpectedRecord, Verification, VerifyError, verify};
use writer::{AuditWriter, WriterRequest};

/// Maximum number of queued records. Further records are only logged.
const MAX_QUEUED: usize = 16 * 1024;
/// Maximum size of the summaries of denied requests, in files.
const MAX_DENIAL_FILES: u64 = 4;

/// Options of the audit trail.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Directory of the files; `None`: no files.
    pub dir: Option<PathBuf>,
    /// Size at which a file is rotated, in bytes.
    pub max_file_bytes: u64,
    /// Size of all files at which further records are not written, in bytes.
    pub max_total_bytes: u64,
    /// Minimum age of deleted records.
    pub retention: Duration,
    /// Whether the requests of workers have one record for each kind and minute.
    pub summarizes: bool,
    /// Whether records are also logged.
    pub log: bool,
    /// Name of this node.
    pub node: String,
}

/// Audit trail. Writes the queued records on drop.
pub struct AuditTrail {
    dir: Option<PathBuf>,
    log: bool,
    jobs: Option<SyncSender<WriterRequest>>,
    denials: Arc<Denials>,
    /// `None`: each request has a record of its own.
    summaries: Option<Arc<Summaries>>,
    failures: Counter,
    publish_failures: Counter,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Error: a record cannot be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit trail cannot be written")]
pub struct NotWritten;

impl AuditTrail {
    /// Opens or creates the directory.
    ///
    /// # Errors
    /// If the directory is not writable.
    pub fn open(options: &AuditOptions) -> anyhow::Result<Self> {
        let denials = Arc::new(Denials::new(options.node.clone()));
        let mut trail = Self {
            dir: options.dir.clone(),
            log: options.log,
            jobs: None,
            denials,
            summaries: None,
            failures: Counter::default(),
            publish_failures: Counter::default(),
            thread: Mutex::default(),
        };
        let Some(dir) = &options.dir else {
            return Ok(trail);
        };

        let cannot = || format!("cannot write the audit trail in {}", dir.display());
        let max_bytes = options.max_file_bytes;
        let retention = options.retention;
        let limits = FileLimits {
            max_bytes,
            retention,
            total: TotalLimit::Reject(options.max_total_bytes),
        };
        // Before the thread starts, so that an unusable directory prevents the start of the node.
        let calls = AuditFiles::open(dir, FileSet::Calls, limits).with_context(cannot)?;
        // Anyone can cause denials, so their oldest files are deleted, and no call is rejected for
        // them.
        let limits = FileLimits {
            total: TotalLimit::DeleteOldest(max_bytes.saturating_mul(MAX_DENIAL_FILES)),
            ..limits
        };

        let denial_files = AuditFiles::open(dir, FileSet::Denials, limits).with_context(cannot)?;
        let summaries = options
            .summarizes
            .then(|| Arc::new(Summaries::new(options.node.clone())));
        trail.summaries.clone_from(&summaries);

        // The thread shares only the counters with the requests; files belong to it alone.
        let denials = Arc::clone(&trail.denials);
        let failures = trail.failures.clone();
        let writer = AuditWriter::new(
            calls,
            denial_files,
            denials,
            summaries,
            options.log,
            failures,
        );
        let (jobs, queue) = sync_channel(MAX_QUEUED);
        let thread = std::thread::Builder::new().name("orlog-audit".to_owned());

        *trail.thread.get_mut() = Some(
            thread
                .spawn(move || writer.run(&queue))
                .with_context(cannot)?,
        );

        trail.jobs = Some(jobs);
        Ok(trail)
    }

    /// Queues a record, or adds it to the summary of its kind. Never blocks.
    pub fn record(&self, record: &AuditRecord) {
        let is_summarized = self
            .summaries
            .as_ref()
            .is_some_and(|summaries| summaries.add(record));
        if is_summarized {
            return;
        }

        let record = self.encode(record);
        // Without files, `encode` has logged the record.
        let Some(jobs) = &self.jobs else { return };

        if let Err(
            TrySendError::Full(WriterRequest::Write { record, .. })
            | TrySendError::Disconnected(WriterRequest::Write { record, .. }),
        ) = jobs.try_send(WriterRequest::Write {
            record,
            durable: None,
        }) {
            self.failures.inc();
            tracing::error!(target: TARGET, record, "audit queue is full; record is logged only");
        }
    }

    /// Writes a record and returns when it is durable.
    ///
    /// # Errors
    /// If the record is not durable, or if there are no files.
    pub async fn begin(&self, record: &AuditRecord) -> Result<(), NotWritten> {
        let record = self.encode(record);
        let (durable, written) = oneshot::channel();
        let request = WriterRequest::Write {
            record,
            durable: Some(durable),
        };
        // Without waiting for space in the queue: a disk that is too slow must reject requests, not
        // collect them.
        let queued = self
            .jobs
            .as_ref()
            .is_some_and(|jobs| jobs.try_send(request).is_ok());

        if queued && written.await == Ok(true) {
            Ok(())
        } else {
            Err(NotWritten)
        }
    }

    fn encode(&self, record: &AuditRecord) -> String {
        let record = serde_json::to_string(record).expect("a record serializes to JSON");
        if self.log || self.jobs.is_none() {
            tracing::info!(target: TARGET, record, "a call");
        }
        record
    }

    /// Counts a request that failed authentication or authorization. Never blocks.
    pub fn deny(&self, denial: Denial) {
        // Without files, no thread would take the counters.
        if self.jobs.is_some() {
            self.denials.add(denial, SystemClock.now());
        }
    }

    /// Returns the newest matching records, newest first. Blocks.
    ///
    /// # Errors
    /// If the files cannot be read, or the cursor is invalid.
    pub fn read(&self, set: FileSet, query: &AuditFilter<'_>) -> Result<AuditPage, Error> {
        let Some(dir) = &self.dir else {
            return Ok(AuditPage::default());
        };

        if let Some(jobs) = &self.jobs {
            let (written, wait) = sync_channel(1);
            // After shutdown nothing more is written, but written records remain readable.
            if jobs.send(WriterRequest::Flush(written)).is_ok() {
                wait.recv().ok();
            }
        }

        reader::read(dir, set, query)
    }

    /// Returns the next lines to publish. Blocks.
    ///
    /// # Errors
    /// If the files or the position cannot be read.
    pub fn unpublished(&self) -> io::Result<TailBatch> {
        let dir = self.dir.as_deref().ok_or(io::ErrorKind::NotFound)?;
        tail::read_after(dir, FileSet::Calls, tail::load_position(dir)?)
    }

    /// Stores the position after the published lines. Blocks.
    ///
    /// # Errors
    /// If the position cannot be written.
    pub fn set_published(&self, end: TailPosition) -> io::Result<()> {
        let dir = self.dir.as_deref().ok_or(io::ErrorKind::NotFound)?;
        tail::store_position(dir, end)
    }

    /// Returns the directory of the files.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Returns the size of the records of calls in bytes; 0 if it cannot be read. Blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.dir
            .as_ref()
            // The files of denials have a limit of their own.
            .and_then(|dir| FileSet::Calls.bytes(dir).ok())
            .unwrap_or(0)
    }

    /// Returns the counter of failed writes and fsyncs.
    #[must_use]
    pub fn failures(&self) -> Counter {
        self.failures.clone()
    }

    /// Returns the counter of failed attempts to publish records.
    #[must_use]
    pub fn publish_failures(&self) -> Counter {
        self.publish_failures.clone()
    }
}

impl Drop for AuditTrail {
    fn drop(&mut self) {
        // Before the join: the thread ends when the last sender is dropped.
        self.jobs = None;
        let thread = self.thread.lock().take();

        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("audit writer thread panicked");
        }
    }
}

#[cfg(test)]
mod tests;
