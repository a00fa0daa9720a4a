//! The writer: the only thread that appends to the log.
//!
//! It combines all waiting publishes into one record, syncs it, makes it visible to readers and
//! replies to the publishers, in this order. Publishes that arrive during a sync form the next
//! group, so groups grow with the load.

use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use orlog_journal::Journal;
use orlog_model::{Clock, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::dedupe::Dedupe;
use super::log::{LogEnd, StreamLog};
use super::options::OpenError;
use super::options::{Durability, Options};
use super::record::{self, MessageGroup, RecordBuilder};
use crate::consumer::StoredMessage;
use crate::{Error, Message, PublishAck};

/// A group closes at this many bytes of messages.
pub(super) const GROUP_BYTES: usize = 4 << 20;
/// A group closes at this many messages.
pub(super) const GROUP_MESSAGES: usize = 8192;

/// Sequence numbers skipped after a possible loss of unsynced records: more than can be published
/// between two syncs.
const UNUSED_NUMBERS: u64 = 1 << 32;

/// Request to the writer.
#[derive(Debug)]
pub(super) enum WriterRequest {
    /// Publish messages.
    Publish(PublishRequest),
    /// Drop the records before this one; no consumer needs them.
    DropBefore(u64),
    /// Finish earlier requests and stop.
    Stop,
}

/// Messages that become durable together.
#[derive(Debug)]
pub(super) struct PublishRequest {
    pub(super) messages: Vec<Arc<Message>>,
    /// Size of the messages.
    pub(super) bytes: usize,
    pub(super) reply: oneshot::Sender<Result<Vec<PublishAck>, Error>>,
    /// Released with the reply: limits the waiting messages.
    pub(super) permit: OwnedSemaphorePermit,
}

/// State of the writer thread.
pub(super) struct Writer {
    journal: Journal,
    log: Arc<StreamLog>,
    jobs: Receiver<WriterRequest>,
    clock: Arc<dyn Clock>,
    durability: Durability,
    dedupe: Dedupe,
    builder: RecordBuilder,
    /// Requests and new messages of a group; empty between groups.
    group: Vec<PublishRequest>,
    fresh: Vec<StoredMessage>,
    next: u64,
    sync_due: Option<Instant>,
    failed: Option<Error>,
}

impl Writer {
    /// Reads the end of the log and loads its message ids.
    pub(super) fn open(
        journal: Journal,
        options: &Options,
        clock: Arc<dyn Clock>,
        jobs: Receiver<WriterRequest>,
    ) -> Result<Self, OpenError> {
        let reader = journal.reader();
        let last = last_group(&journal)?;
        let record = journal.next_sequence() - 1;

        let end = LogEnd {
            sequence: last.map_or(0, |group| group.end() - 1),
            record,
            closed: false,
        };

        let log = Arc::new(StreamLog::new(reader, options.cache_bytes, end));
        let mut writer = Self {
            journal,
            log,
            jobs,
            clock,
            durability: options.durability,
            dedupe: Dedupe::new(options.dedupe_window, options.dedupe_ids),
            builder: RecordBuilder::default(),
            group: Vec::new(),
            fresh: Vec::new(),
            next: end.sequence + 1,
            sync_due: None,
            failed: None,
        };

        // A publisher that lost its response to a crash retries under the same ids.
        writer.insert_ids(options.dedupe_window)?;
        writer.skip_numbers(last)?;
        writer.note();
        Ok(writer)
    }

    /// Returns the sequence of the next message.
    pub(super) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Skips a range of sequence numbers, durably, after the end of the log was lost: a checkpoint
    /// names lost messages, and its consumer skips every message up to it.
    pub(super) fn skip_lost_numbers(&mut self) -> Result<(), OpenError> {
        self.next += UNUSED_NUMBERS;
        self.append_empty_record()
    }

    /// Returns the stream as its readers see it.
    pub(super) fn log(&self) -> Arc<StreamLog> {
        Arc::clone(&self.log)
    }

    /// Handles requests until it receives a stop request.
    pub(super) fn run(mut self) {
        while let Some(job) = self.next_job() {
            match job {
                WriterRequest::Publish(first) => {
                    let then = self.gather(first);
                    // The group before the stop is already written, because its publishes were
                    // accepted.
                    if matches!(then, Some(WriterRequest::Stop)) {
                        break;
                    }
                    if let Some(WriterRequest::DropBefore(record)) = then {
                        self.drop_before(record);
                    }
                }
                WriterRequest::DropBefore(record) => self.drop_before(record),
                WriterRequest::Stop => break,
            }
        }
        // With an interval, the last groups may not be synced yet.
        self.sync_now();
    }

    /// Returns the next request and performs due syncs meanwhile. `None`: all senders are dropped.
    fn next_job(&mut self) -> Option<WriterRequest> {
        while let Some(due) = self.sync_due {
            // Under load a request always waits, and the channel returns it also after the
            // deadline.
            if due <= Instant::now() {
                self.sync_now();
                break;
            }
            match self.jobs.recv_deadline(due) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.sync_now(),
            }
        }
        self.jobs.recv().ok()
    }

    /// Publishes the first request and all waiting ones; returns the request that ended the group
    /// and is still pending.
    fn gather(&mut self, first: PublishRequest) -> Option<WriterRequest> {
        let (mut bytes, mut count) = size(&first);
        self.group.push(first);

        let mut then = None;
        // Only requests that already wait: a pause would delay a publish that is alone.
        while bytes < GROUP_BYTES && count < GROUP_MESSAGES {
            match self.jobs.try_recv() {
                Ok(WriterRequest::Publish(publish)) => {
                    let (more_bytes, more) = size(&publish);
                    (bytes, count) = (bytes + more_bytes, count + more);
                    self.group.push(publish);
                }
                Ok(other) => {
                    then = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }

        self.publish();
        then
    }

    fn publish(&mut self) {
        let now = self.clock.now();
        self.dedupe.expire(now);
        self.builder
            .start(self.next, now, self.durability != Durability::Sync);
        let mut group = take(&mut self.group);
        let mut fresh = take(&mut self.fresh);

        let mut responses = Vec::with_capacity(group.len());
        for PublishRequest {
            messages,
            reply,
            permit,
            ..
        } in group.drain(..)
        {
            let receipts: Vec<_> = messages
                .into_iter()
                .map(|m| self.number(m, now, &mut fresh))
                .collect();
            responses.push((reply, receipts, permit));
        }

        // Duplicates are not written. After a failed sync their first message may be lost, so they
        // are rejected like new ones.
        let written = if fresh.is_empty() {
            self.intact()
        } else {
            self.write()
        };

        self.log
            .set_write_failure(written.as_ref().err().map(ToString::to_string));
        if let Ok(record) = written {
            self.next += fresh.len() as u64;
            // Before the responses: a publisher that reads after its acknowledgement finds its
            // messages.
            self.log.extend(&mut fresh, record);
        } else {
            // A retry of these messages must be stored, not reported as a duplicate.
            self.dedupe.roll_back(self.next);
            fresh.clear();
        }
        self.group = group;
        self.fresh = fresh;
        self.note();

        for (reply, receipts, permit) in responses {
            let response = written.as_ref().map(|_| receipts).map_err(Clone::clone);
            // A publisher that no longer waits retries under the same id or ignores the result.
            drop(reply.send(response));
            drop(permit);
        }
    }

    /// Assigns a sequence to the message and adds it to the record, unless the message is a
    /// duplicate.
    fn number(
        &mut self,
        message: Arc<Message>,
        now: Timestamp,
        fresh: &mut Vec<StoredMessage>,
    ) -> PublishAck {
        // The number is final only if the write succeeds. After a failure the next group uses it;
        // no reader has seen it.
        let sequence = self.next + fresh.len() as u64;
        let known = message
            .id
            .as_ref()
            .and_then(|id| self.dedupe.insert(id, sequence, now));

        if let Some(sequence) = known {
            return PublishAck {
                sequence,
                duplicate: true,
            };
        }

        self.builder.push(&message);
        fresh.push(StoredMessage::new(sequence, now, message));
        PublishAck {
            sequence,
            duplicate: false,
        }
    }

    /// Writes the built record, durably if the options require it.
    fn write(&mut self) -> Result<u64, Error> {
        self.intact()?;
        let record = self
            .journal
            .append(&[self.builder.finish()])
            .map_err(append_error)?;

        match self.durability {
            Durability::Sync => self.sync()?,
            Durability::Interval(interval) => {
                self.sync_due
                    .get_or_insert_with(|| Instant::now() + interval);
            }
        }
        Ok(record)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.sync_due = None;
        self.journal.sync().map(|_| ()).map_err(|error| {
            let error = Error::Unavailable(error.to_string());
            // Kept for all later publishes: the next sync could report success for data that the
            // kernel has dropped.
            self.failed = Some(error.clone());
            error
        })
    }

    /// Syncs if a publisher waits for it. After a failure every publisher receives the error.
    fn sync_now(&mut self) {
        if self.sync_due.is_some() {
            drop(self.sync());
        }
    }

    /// Returns an error if the disk has failed; the number has no meaning.
    fn intact(&self) -> Result<u64, Error> {
        self.failed.clone().map_or(Ok(0), Err)
    }

    fn drop_before(&mut self, record: u64) {
        // A backup may have started after the maintenance thread sent the request.
        if self.log.has_retention_hold() {
            return;
        }
        // The maintenance thread requests a failed drop again; a disk failure is reported at the
        // next publish.
        if self.journal.truncate_before(record).is_ok() {
            self.log.set_dropped_before(record);
        }
        self.note();
    }

    fn note(&self) {
        self.log.update_sizes(
            self.journal.bytes_on_disk(),
            self.dedupe.oldest().unwrap_or(self.next),
        );
    }

    fn insert_ids(&mut self, window: Duration) -> Result<(), OpenError> {
        let start = self.clock.now().saturating_sub(window);
        let from = self
            .log
            .partition_point(|group| group.published_at < start)
            .map_err(unreadable)?;

        let mut cursor = self.journal.reader().read_from(from)?;
        while let Some(record) = cursor.read()? {
            let group = record::group(record.payload).map_err(unreadable)?;
            for parts in record::messages(record.payload).map_err(unreadable)? {
                let parts = parts.map_err(unreadable)?;
                if let Some(id) = parts.id {
                    self.dedupe.insert(id, parts.sequence, group.published_at);
                }
            }
            // After each record, so that a log with many ids never exceeds the limit in memory.
            self.dedupe.expire(group.published_at);
        }
        Ok(())
    }

    /// Skips a range of sequence numbers if the last record or the next one is acknowledged before
    /// its sync. A checkpoint elsewhere may name a number that a power failure removed, and numbers
    /// are never reused. A record without messages stores durably that the loss may happen again.
    fn skip_numbers(&mut self, last: Option<MessageGroup>) -> Result<(), OpenError> {
        if last.is_some_and(|group| group.unsynced) {
            self.next += UNUSED_NUMBERS;
        }
        if self.durability == Durability::Sync {
            Ok(())
        } else {
            self.append_empty_record()
        }
    }

    /// Appends a record without messages, which stores the next sequence durably.
    fn append_empty_record(&mut self) -> Result<(), OpenError> {
        self.builder.start(
            self.next,
            self.clock.now(),
            self.durability != Durability::Sync,
        );
        self.journal.append(&[self.builder.finish()])?;
        // Synced in every mode: the record states that records after it may be lost.
        self.journal.sync()?;
        Ok(())
    }
}

fn size(publish: &PublishRequest) -> (usize, usize) {
    (publish.bytes, publish.messages.len())
}

fn last_group(journal: &Journal) -> Result<Option<MessageGroup>, OpenError> {
    let last = journal.next_sequence() - 1;
    if last < journal.first_sequence() {
        return Ok(None);
    }

    let mut cursor = journal.reader().read_from(last)?;
    let record = cursor.read()?;
    record
        .map(|record| record::group(record.payload))
        .transpose()
        .map_err(unreadable)
}

/// Returns the error of a failed append or sync.
pub(super) fn append_error(error: orlog_journal::Error) -> Error {
    match error {
        orlog_journal::Error::Full { .. } => Error::Full(error.to_string()),
        other => Error::Unavailable(other.to_string()),
    }
}

fn unreadable(error: impl std::fmt::Display) -> OpenError {
    OpenError::Unreadable(error.to_string())
}
