//! The embedded bus: one stream in a folder of its own, no server needed.
//!
//! It keeps the contract of [`Bus`] and adds:
//! - A publish returns once its messages are on the disk ([`Durability::Sync`]); publishes that arrive together share
//!   one journal record and one fsync.
//! - On a full disk a publish is refused whole ([`Error::Full`]); the next one succeeds once there is room. After a failed
//!   fsync everything is refused until the bus is opened anew.
//! - A sequence number is never given twice, also where a power failure took messages that were not synced yet: then
//!   a range of numbers stays unused.
//! - Messages that every durable name has done with are dropped, oldest first, whole segments at a time, once the log
//!   is larger than [`Options::retention_bytes`] and their ids have left the deduplication window. Without any durable name
//!   nothing is dropped.
//! - Cursors are written at most every 100 ms and on closing. A cursor that is lost means messages delivered again.

mod consumer;
mod cursors;
mod dedupe;
mod log;
mod maintenance;
mod options;
mod record;
mod ring;
mod scan;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use async_trait::async_trait;
use crossbeam_channel::Sender;
use orlog_journal::{Disk, Journal, LocalDisk};
use orlog_model::Clock;
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

use crate::subject::check_subject;
use crate::subject_matcher::Interest;
use crate::{Bus, Consumer, Error, Finding, Message, Past, Receipt, Since, Start, Subscription};
use consumer::EmbeddedConsumer;
use cursors::Cursors;
use log::Log;
use maintenance::Keeper;
use options::closed;
use scan::EmbeddedPast;
use writer::{GROUP_BYTES, GROUP_MESSAGES, Job, Publish, Writer};

pub use log::{Copied, Hold, Moment};
pub use options::OpenError;
pub use options::{Durability, Options};

/// Messages that wait for the writer, in KiB together; publishers beyond wait.
const QUEUED_KIB: u32 = 64 * 1024;
/// Bytes of one file of a copy.
const COPIED_SEGMENT_BYTES: u64 = 16 << 20;

/// The embedded bus, opened. Dropping it closes it.
#[derive(Debug)]
pub struct Embedded {
    stream_id: Uuid,
    max_message_bytes: usize,
    log: Arc<Log>,
    cursors: Arc<Cursors>,
    jobs: Sender<Job>,
    queued: Arc<Semaphore>,
    threads: Mutex<Option<(JoinHandle<()>, Keeper)>>,
}

/// Looks at the log of a bus that nobody has open: every record against its checksum. Changes nothing, takes no lock.
///
/// # Errors
/// When it is damaged, of a newer version, or cannot be read.
pub fn inspect(dir: &Path) -> Result<orlog_journal::Recovery, OpenError> {
    Ok(orlog_journal::inspect(&dir.join("log"))?)
}

impl Embedded {
    /// Opens the bus in the folder `dir`, or makes one there. Blocks while it reads the end of the log.
    ///
    /// # Errors
    /// When the folder is in use by another process, damaged, of a newer version, or the disk fails.
    ///
    /// # Panics
    /// When the system cannot start a thread.
    pub fn open(dir: impl AsRef<Path>, options: &Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        Self::open_on(dir.as_ref(), options, clock, Arc::new(LocalDisk))
    }

    fn open_on(
        dir: &Path,
        options: &Options,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, OpenError> {
        let stream_id = log::read_or_make(dir)?;
        let (journal, _) = Journal::open_on(dir.join("log"), options.journal(stream_id), disk)?;
        let cursors = Arc::new(Cursors::open(dir.join("cursors"), stream_id)?);
        let (jobs, queue) = crossbeam_channel::unbounded();
        let writer = Writer::open(journal, options, clock, queue)?;
        let log = writer.log();
        let keeper =
            Keeper::start(Arc::clone(&log), Arc::clone(&cursors), jobs.clone(), options.retention_bytes);
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
            threads: Mutex::new(Some((writer, keeper))),
        })
    }

    /// Finishes what was accepted, syncs, writes the cursors and stops. Blocks meanwhile; harmless when repeated.
    /// Afterwards publishing is refused and consumers learn that the bus is gone.
    pub fn close(&self) {
        let threads = self.threads.lock().map_or(None, |mut threads| threads.take());
        let Some((writer, keeper)) = threads else { return };
        // A writer that is gone already has nothing left to finish.
        drop(self.jobs.send(Job::Stop));
        drop(writer.join());
        self.log.close();
        keeper.stop();
    }

    /// From now on nothing is dropped, until the answer is dropped. Who copies stores and the stream that they read holds the stream
    /// before: what the copies of the stores lack is then in the copy of the stream.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.log.hold()
    }

    /// Where the stream ends now. Nothing behind it has been answered to a publisher or delivered to anybody.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.log.moment()
    }

    /// The size of the stream on the disk, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Copies every message up to a moment into the new folder `dir`, which can be opened like this one. Cursors are not copied:
    /// stores know how far they have read. Blocks.
    ///
    /// # Errors
    /// When the log cannot be read, or the folder not be written.
    pub fn copy_to(&self, dir: &Path, upto: Moment) -> Result<Copied, OpenError> {
        let mut options = orlog_journal::Options::new(self.stream_id.into_bytes());
        // What is allocated is copied and moved about: little of it.
        (options.segment_bytes, options.spare_segments) = (COPIED_SEGMENT_BYTES, 0);
        let copied = self.log.copy(&dir.join("log"), upto, options)?;
        log::write(dir, self.stream_id).map_err(|source| OpenError::Io { path: dir.to_owned(), source })?;
        Ok(copied)
    }

    /// Forgets a durable name and its cursor, so that it no longer keeps messages from being dropped.
    ///
    /// # Errors
    /// [`Error::InUse`] while it has a consumer.
    pub fn forget(&self, name: &str) -> Result<(), Error> {
        self.cursors.forget(name)
    }

    async fn publish_chunk(&self, messages: Vec<Message>) -> Result<Vec<Receipt>, Error> {
        let kib = messages.iter().map(Message::size).sum::<usize>() / 1024 + 1;
        let permits = u32::try_from(kib).unwrap_or(QUEUED_KIB).min(QUEUED_KIB);
        let permit = Arc::clone(&self.queued).acquire_many_owned(permits).await.map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Publish(Publish { messages, reply, permit })).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    fn check(&self, message: &Message) -> Result<(), Error> {
        check_subject(&message.subject)?;
        let (size, limit) = (message.size(), self.max_message_bytes);
        if size > limit { Err(Error::TooLarge { size, limit }) } else { Ok(()) }
    }
}

#[async_trait]
impl Bus for Embedded {
    fn stream_id(&self) -> Uuid {
        self.stream_id
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<Vec<Receipt>, Error> {
        messages.iter().try_for_each(|message| self.check(message))?;
        let mut receipts = Vec::with_capacity(messages.len());
        // One after the other: were a chunk refused and the next one accepted, more than a prefix would be durable.
        for chunk in chunks(messages) {
            receipts.extend(self.publish_chunk(chunk).await?);
        }
        Ok(receipts)
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        let interest = Interest::of(&subscription)?;
        let Subscription { name, after, max_in_flight, .. } = subscription;
        let mut start = Start::after(self.stream_id, 0);
        let after = after.map(|position| {
            if position.stream_id == self.stream_id {
                return position.sequence;
            }
            start.found = Some(Finding::OtherStream { expected: position.stream_id, found: self.stream_id });
            0
        });
        let cursors = Arc::clone(&self.cursors);
        let claim = tokio::task::spawn_blocking(move || cursors.claim(&name, after)).await;
        let claim = claim.map_err(|e| Error::Unavailable(e.to_string()))??;
        Ok(Box::new(EmbeddedConsumer::new(Arc::clone(&self.log), claim, interest, max_in_flight, start)))
    }

    async fn read_past(&self, filters: Vec<String>, since: Since) -> Result<Box<dyn Past>, Error> {
        let interest = Interest::in_subjects(&filters)?;
        Ok(Box::new(EmbeddedPast::new(Arc::clone(&self.log), interest, since)))
    }

    async fn last_sequence(&self) -> Result<u64, Error> {
        Ok(self.log.end().sequence)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

/// Cuts a publish into pieces that fit into one record each.
fn chunks(messages: Vec<Message>) -> Vec<Vec<Message>> {
    let mut chunks: Vec<Vec<Message>> = Vec::with_capacity(1);
    let mut bytes = 0;
    let small = messages.len() <= GROUP_MESSAGES;
    if small && messages.iter().map(Message::size).sum::<usize>() <= GROUP_BYTES {
        chunks.push(messages);
        return chunks;
    }
    for message in messages {
        bytes += message.size();
        match chunks.last_mut() {
            Some(chunk) if bytes <= GROUP_BYTES && chunk.len() < GROUP_MESSAGES => chunk.push(message),
            _ => {
                bytes = message.size();
                chunks.push(vec![message]);
            }
        }
    }
    chunks
}

#[cfg(test)]
mod tests;
