//! Writer of audit records: one thread that appends them to the files.
//!
//! Records of one batch share a write, and an fsync if a request waits for it. Other records are
//! durable within one second.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use orlog_model::Clock as _;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use super::denials::Denials;
use super::files::AuditFiles;
use super::record::TARGET;
use super::summaries::Summaries;
use crate::clock::SystemClock;

/// Fsync interval.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Period of the summaries of requests of workers and of denied requests.
const DENIAL_PERIOD: Duration = Duration::from_mins(1);
/// Interval between deletions of old files.
const EXPIRY_INTERVAL: Duration = Duration::from_hours(1);
/// Maximum number of requests to the writer that share a write and an fsync.
const MAX_BATCH: usize = 1024;
/// Time between two batches while no request waits for its record, so that not every request wakes
/// the writer.
const BATCH_INTERVAL: Duration = Duration::from_millis(5);

/// Request to the writer.
#[derive(Debug)]
pub(super) enum WriterRequest {
    /// Writes a record.
    Write {
        /// Record, a JSON object.
        record: String,
        /// Receives whether the record is durable.
        durable: Option<oneshot::Sender<bool>>,
    },
    /// Notifies when all earlier records are written, and the summary of denied requests too.
    Flush(SyncSender<()>),
}

/// Writer of a trail.
pub(super) struct AuditWriter {
    calls: AuditFiles,
    denial_files: AuditFiles,
    denials: Arc<Denials>,
    summaries: Option<Arc<Summaries>>,
    /// Whether records are also logged.
    log: bool,
    failures: Counter,
    /// Whether a request has waited for its record: then each batch starts at once.
    has_waiters: bool,
    synced: Instant,
    summarized: Instant,
    expired: Instant,
}

impl AuditWriter {
    pub(super) fn new(
        mut calls: AuditFiles,
        mut denial_files: AuditFiles,
        denials: Arc<Denials>,
        summaries: Option<Arc<Summaries>>,
        log: bool,
        failures: Counter,
    ) -> Self {
        // Retention must also apply on a node that restarts more often than the interval.
        calls.expire(SystemClock.now());
        denial_files.expire(SystemClock.now());

        let started = Instant::now();
        let synced = started;
        let summarized = started;
        let expired = started;

        Self {
            calls,
            denial_files,
            denials,
            summaries,
            log,
            failures,
            has_waiters: false,
            synced,
            summarized,
            expired,
        }
    }

    /// Writes until all senders are dropped.
    pub(super) fn run(mut self, queue: &Receiver<WriterRequest>) {
        loop {
            match queue.recv_timeout(SYNC_INTERVAL) {
                Ok(first) => self.write_batch(
                    std::iter::once(first)
                        .chain(queue.try_iter())
                        .take(MAX_BATCH),
                ),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }

            self.run_periodic_tasks();

            // Without waiting requests a pause collects more records per write. A request that
            // waits for its record must not wait for the pause, too.
            if !self.has_waiters {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a wait for the channel is a wake-up for each request"
                )]
                std::thread::sleep(BATCH_INTERVAL);
            }
        }

        self.summarize();
        self.sync();
    }

    fn write_batch(&mut self, requests: impl Iterator<Item = WriterRequest>) {
        let mut records = Vec::new();
        let mut waiting = Vec::new();
        for request in requests {
            match request {
                WriterRequest::Write { record, durable } => {
                    records.push(record);
                    waiting.extend(durable);
                }
                // In the order of the queue: a reader must find all records that were queued before
                // its request.
                WriterRequest::Flush(written) => {
                    self.write(&mut records, &mut waiting);
                    self.summarize();
                    written.try_send(()).ok();
                }
            }
        }

        self.write(&mut records, &mut waiting);
    }

    fn run_periodic_tasks(&mut self) {
        if self.synced.elapsed() >= SYNC_INTERVAL {
            self.sync();
        }

        if self.summarized.elapsed() >= DENIAL_PERIOD {
            self.summarize();
        }

        // Also without new records: a retention must not depend on the traffic.
        if self.expired.elapsed() >= EXPIRY_INTERVAL {
            self.expired = Instant::now();
            self.calls.expire(SystemClock.now());
            self.denial_files.expire(SystemClock.now());
        }
    }

    /// Writes records, and notifies the requests that wait for them.
    fn write(&mut self, records: &mut Vec<String>, waiting: &mut Vec<oneshot::Sender<bool>>) {
        let written = self
            .calls
            .write(records.iter().map(String::as_str), SystemClock.now());
        let is_written = self.report(records, &written);

        records.clear();
        if !waiting.is_empty() {
            self.has_waiters = true;

            // One sync for all requests of the batch.
            let is_durable = is_written && self.sync();
            for durable in waiting.drain(..) {
                // A receiver that no longer waits needs no result.
                durable.send(is_durable).ok();
            }
        }
    }

    /// Writes the summaries of the requests of workers and of the denied requests since the
    /// previous ones.
    fn summarize(&mut self) {
        self.summarized = Instant::now();
        self.summarize_calls();

        for record in self.denials.take() {
            if self.log {
                tracing::info!(target: TARGET, record, "denied requests");
            }
            let written = self
                .denial_files
                .write([record.as_str()], SystemClock.now());
            self.report(&[record], &written);
        }
    }

    fn summarize_calls(&mut self) {
        let records = self
            .summaries
            .as_ref()
            .map(|summaries| summaries.take())
            .unwrap_or_default();
        if records.is_empty() {
            return;
        }

        if self.log {
            for record in &records {
                tracing::info!(target: TARGET, record, "calls");
            }
        }

        let written = self
            .calls
            .write(records.iter().map(String::as_str), SystemClock.now());
        self.report(&records, &written);
    }

    /// Returns whether records were written; otherwise they are logged.
    fn report(&self, records: &[String], written: &io::Result<()>) -> bool {
        if let Err(error) = written {
            for record in records {
                self.failures.inc();
                tracing::error!(target: TARGET, %error, record, "audit write failed; record is \
                    logged only");
            }
        }
        written.is_ok()
    }

    fn sync(&mut self) -> bool {
        self.synced = Instant::now();
        let synced = [self.calls.sync(), self.denial_files.sync()];
        let failed = synced.iter().filter(|synced| synced.is_err()).count();
        self.failures.inc_by(failed as u64);
        // Requests wait for records of calls only.
        synced[0].is_ok()
    }
}
