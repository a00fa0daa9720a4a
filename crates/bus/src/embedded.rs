//! The embedded bus: one stream in a directory of its own, without a server.
//!
//! It implements the contract of [`Bus`] and adds:
//! - A publish returns when its messages are on disk ([`Durability::Sync`]). Concurrent publishes
//!   share one journal record and one fsync.
//! - On a full disk a publish is rejected as a whole ([`Error::Full`]). The next one succeeds when
//!   space is available. After a failed fsync every publish is rejected until the bus is reopened.
//! - A sequence number is never reused. If a power failure loses unsynced messages, a range of
//!   numbers stays unused.
//! - Messages that every durable name has acknowledged are dropped, oldest first, in whole
//!   segments. This requires a log larger than [`Options::retention_bytes`] and message ids outside
//!   the deduplication window. Without any durable name no message is dropped.
//! - Cursors are written at most every 100 ms and on close. A lost cursor causes redeliveries.

mod cursors;
mod dedupe;
mod log;
mod maintenance;
mod options;
mod presence;
mod record;
mod registry;
mod source;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use async_trait::async_trait;
use crossbeam_channel::Sender;
use orlog_journal::{Disk, DurablePosition, LocalDisk};
use orlog_model::Clock;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

use crate::consumer::{AckHandle, SourceConsumer};
use crate::subject::check_subject;
use crate::subject_matcher::SubjectMatcher;
use crate::{
    Bus, Consumer, Error, Message, PublishAck, ScanStart, StreamAnomaly, StreamScan, Subscription,
    SubscriptionStart,
};
use cursors::Cursors;
use log::StreamLog;
use maintenance::Maintenance;
use options::closed;
use source::{LogScan, LogSource};
use writer::{GROUP_BYTES, GROUP_MESSAGES, PublishRequest, Writer, WriterRequest};

pub use log::{EndPosition, LogCopy, RetentionHold};
pub use options::{ConsumerCheckpoint, Durability, OpenError, Options};
pub use registry::JournalRegistry;

/// Maximum size of all messages that wait for the writer, in KiB; further publishers wait.
const QUEUED_KIB: u32 = 64 * 1024;
/// Bytes of one file of a copy.
const COPIED_SEGMENT_BYTES: u64 = 16 << 20;

/// Open embedded bus. Dropping it closes it.
#[derive(Debug)]
pub struct Embedded {
    stream_id: Uuid,
    max_message_bytes: usize,
    log: Arc<StreamLog>,
    cursors: Arc<Cursors>,
    jobs: Sender<WriterRequest>,
    queued: Arc<Semaphore>,
    threads: Mutex<Option<(JoinHandle<()>, Maintenance)>>,
}

/// Verifies the log of a closed bus: every record against its checksum, and the log against its
/// expected position. Changes nothing and takes no lock.
///
/// # Errors
/// If the log lost messages, is damaged, has a newer version or cannot be read.
pub fn verify(
    dir: &Path,
    expected: Option<DurablePosition>,
) -> Result<orlog_journal::RecoveryReport, OpenError> {
    presence::verify(dir, expected)
}

impl Embedded {
    /// Opens the bus in the directory `dir`, or creates one. Blocks while it reads the end of the
    /// log.
    ///
    /// # Errors
    /// If another process uses the directory, if it is damaged or has a newer version, or if the
    /// disk fails.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub fn open(
        dir: impl AsRef<Path>,
        options: &Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        Self::open_on(dir.as_ref(), options, clock, Arc::new(LocalDisk))
    }

    fn open_on(
        dir: &Path,
        options: &Options,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, OpenError> {
        // Before anything is written: a log that lost messages stays as it is found.
        let (stream_id, journal, is_lost) = presence::open_journal(dir, options, disk)?;
        let cursors = Arc::new(Cursors::open(dir.join("cursors"), stream_id)?);
        presence::check_cursors(options, &cursors)?;

        let (jobs, queue) = crossbeam_channel::unbounded();
        let mut writer = Writer::open(journal, options, clock, queue)?;

        // The end of the log is known only after the writer has read it.
        match presence::check_checkpoints(options, stream_id, writer.next_sequence()) {
            Some(reason) if !options.accept_data_loss => {
                return Err(OpenError::Lost {
                    path: dir.to_owned(),
                    reason,
                });
            }
            None if !is_lost => {}
            // New messages need higher numbers than the lost ones, or consumers would skip them.
            _ => writer.skip_lost_numbers()?,
        }

        let log = writer.log();
        let maintenance = Maintenance::start(
            Arc::clone(&log),
            Arc::clone(&cursors),
            jobs.clone(),
            options.retention_bytes,
        );

        let writer = std::thread::Builder::new()
            .name("bus-writer".to_owned())
            .spawn(move || writer.run())
            .expect("the system can start a thread");

        Ok(Self {
            stream_id,
            max_message_bytes: options.max_message_bytes,
            log,
            cursors,
            jobs,
            queued: Arc::new(Semaphore::new(QUEUED_KIB as usize)),
            threads: Mutex::new(Some((writer, maintenance))),
        })
    }

    /// Finishes accepted publishes, syncs, writes the cursors and stops. Blocks meanwhile;
    /// idempotent. Afterwards publishes are rejected and consumers receive an error.
    pub fn close(&self) {
        let Some((writer, maintenance)) = self.threads.lock().take() else {
            return;
        };

        // A stopped writer has nothing left to finish.
        drop(self.jobs.send(WriterRequest::Stop));
        drop(writer.join());
        self.log.close();
        maintenance.stop();
    }

    /// Prevents the bus from dropping messages until the returned guard is dropped. A backup holds
    /// retention before it copies the stores: the copy of the stream then contains everything that
    /// the copies of the stores lack.
    #[must_use]
    pub fn hold_retention(&self) -> RetentionHold {
        self.log.hold()
    }

    /// Returns the current end of the stream. No later message is acknowledged to a publisher or
    /// delivered.
    #[must_use]
    pub fn end_position(&self) -> EndPosition {
        self.log.end_position()
    }

    /// Returns the last synced record of the log.
    #[must_use]
    pub fn durable_position(&self) -> DurablePosition {
        DurablePosition {
            identity: self.stream_id.into_bytes(),
            position: self.log.synced_to(),
        }
    }

    /// Returns the size of the stream on disk, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Copies every message up to a position into the new directory `dir`, which can be opened as a
    /// bus. Cursors are not copied, because stores have their own checkpoints. Blocks.
    ///
    /// # Errors
    /// If the log cannot be read, or if the directory cannot be written.
    pub fn copy_to(&self, dir: &Path, upto: EndPosition) -> Result<LogCopy, OpenError> {
        let mut options = orlog_journal::Options::new(self.stream_id.into_bytes());
        // Backups move whole segments, so preallocate little.
        options.segment_bytes = COPIED_SEGMENT_BYTES;
        options.spare_segments = 0;

        let copied = self.log.copy(&dir.join("log"), upto, options)?;

        // The identity last: an interrupted copy has none, and is rejected when it is opened.
        log::write(dir, self.stream_id).map_err(|source| OpenError::Io {
            path: dir.to_owned(),
            source,
        })?;
        Ok(copied)
    }

    /// Deletes a durable name and its cursor, so that it no longer prevents messages from being
    /// dropped.
    ///
    /// # Errors
    /// [`Error::InUse`] while it has a consumer.
    pub fn delete_consumer(&self, name: &str) -> Result<(), Error> {
        self.cursors.delete(name)
    }

    /// Publishes messages of `bytes` bytes that fit into one record.
    async fn publish_chunk(
        &self,
        messages: Vec<Arc<Message>>,
        bytes: usize,
    ) -> Result<Vec<PublishAck>, Error> {
        // One more, so that small messages are counted too. At most all permits, because a request
        // for more would never be granted.
        let kib = bytes / 1024 + 1;
        let permits = u32::try_from(kib).unwrap_or(QUEUED_KIB).min(QUEUED_KIB);
        // Waits while too many bytes are queued: publishers are slowed down, not rejected.
        let permit = Arc::clone(&self.queued)
            .acquire_many_owned(permits)
            .await
            .map_err(|_| closed())?;

        let (reply, response) = oneshot::channel();
        self.jobs
            .send(WriterRequest::Publish(PublishRequest {
                messages,
                bytes,
                reply,
                permit,
            }))
            .map_err(|_| closed())?;

        response.await.map_err(|_| closed())?
    }

    /// Checks a message and returns its size.
    fn check(&self, message: &Message) -> Result<usize, Error> {
        check_subject(&message.subject)?;
        let size = message.size();
        let limit = self.max_message_bytes;
        if size > limit {
            Err(Error::TooLarge { size, limit })
        } else {
            Ok(size)
        }
    }
}

#[async_trait]
impl Bus for Embedded {
    fn stream_id(&self) -> Uuid {
        self.stream_id
    }

    async fn publish(&self, messages: Vec<Arc<Message>>) -> Result<Vec<PublishAck>, Error> {
        let bytes = messages
            .iter()
            .map(|message| self.check(message))
            .sum::<Result<usize, Error>>()?;

        if messages.len() <= GROUP_MESSAGES && bytes <= GROUP_BYTES {
            // One record: all messages are stored, or none.
            return self.publish_chunk(messages, bytes).await;
        }

        // Sequential: if a chunk were rejected and the next accepted, the durable part would not be
        // a prefix.
        let mut receipts = Vec::with_capacity(messages.len());
        for (chunk, bytes) in chunks(messages) {
            receipts.extend(self.publish_chunk(chunk, bytes).await?);
        }
        Ok(receipts)
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        let interest = SubjectMatcher::for_subscription(&subscription)?;
        let Subscription {
            name,
            start_after,
            max_in_flight,
            ..
        } = subscription;

        let mut start = SubscriptionStart::at(self.stream_id, 0);
        let after = start_after.map(|position| {
            if position.stream_id == self.stream_id {
                return position.sequence;
            }
            // Numbers of another stream mean nothing here. The consumer reads everything, and its
            // caller decides about the anomaly.
            start.anomaly = Some(StreamAnomaly::StreamRecreated {
                expected: position.stream_id,
                found: self.stream_id,
            });
            0
        });

        // The first use of a name is written durably.
        let cursors = Arc::clone(&self.cursors);
        let claim = tokio::task::spawn_blocking(move || cursors.acquire(&name, after)).await;
        let claim = claim.map_err(|e| Error::Unavailable(e.to_string()))??;
        start.after = claim.cursor.load(Ordering::Relaxed);

        let cursor = Arc::clone(&claim.cursor);
        let moved = self.cursors.notifier();
        let ack_handle = AckHandle::new(cursor, max_in_flight, after.is_some(), move || {
            moved.notify();
        });
        let source = LogSource::new(Arc::clone(&self.log), interest);
        Ok(Box::new(SourceConsumer::new(
            source, ack_handle, claim, start,
        )))
    }

    async fn scan(
        &self,
        filters: Vec<String>,
        since: ScanStart,
    ) -> Result<Box<dyn StreamScan>, Error> {
        let interest = SubjectMatcher::for_filters(&filters)?;
        Ok(Box::new(LogScan::new(
            Arc::clone(&self.log),
            interest,
            since,
        )))
    }

    async fn last_sequence(&self) -> Result<u64, Error> {
        Ok(self.log.end().sequence)
    }

    fn max_message_size(&self) -> usize {
        self.max_message_bytes
    }

    fn publish_failure(&self) -> Option<String> {
        self.log.write_failure()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

/// Splits a publish into chunks that fit into one record each, with their sizes.
fn chunks(messages: Vec<Arc<Message>>) -> Vec<(Vec<Arc<Message>>, usize)> {
    let mut chunks: Vec<(Vec<Arc<Message>>, usize)> = Vec::new();
    for message in messages {
        let size = message.size();
        match chunks.last_mut() {
            Some((chunk, bytes))
                if *bytes + size <= GROUP_BYTES && chunk.len() < GROUP_MESSAGES =>
            {
                *bytes += size;
                chunk.push(message);
            }
            _ => chunks.push((vec![message], size)),
        }
    }
    chunks
}

#[cfg(test)]
mod tests;
