//! The writer: the one thread that appends to the log.
//!
//! It takes all publishes that wait, makes one record of them, has it synced, shows it to the readers and answers the
//! publishers, in this order. While the disk works, the next publishes gather: the group grows with the load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use orlog_journal::Journal;
use orlog_model::{Clock, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::dedupe::Dedupe;
use super::log::{End, Log};
use super::options::OpenError;
use super::options::{Durability, Options};
use super::record::{self, Builder, Group};
use crate::in_flight::Stored;
use crate::{Error, Message, Receipt};

/// A group is closed when it has this many bytes of messages.
pub(super) const GROUP_BYTES: usize = 4 << 20;
/// A group is closed when it has this many messages.
pub(super) const GROUP_MESSAGES: usize = 8192;

/// Numbers left unused where records may have been lost that were not synced: more than can be published between two
/// syncs.
const UNUSED_NUMBERS: u64 = 1 << 32;

/// What the writer is asked to do.
#[derive(Debug)]
pub(super) enum Job {
    /// Publish.
    Publish(Publish),
    /// Drop the records before this one; nobody needs them.
    DropBefore(u64),
    /// Finish what came before, and end.
    Stop,
}

/// Messages that become durable together.
#[derive(Debug)]
pub(super) struct Publish {
    pub(super) messages: Vec<Message>,
    pub(super) reply: oneshot::Sender<Result<Vec<Receipt>, Error>>,
    /// Given back with the answer: bounds what waits.
    pub(super) permit: OwnedSemaphorePermit,
}

/// The writer's thread, before and while it runs.
pub(super) struct Writer {
    journal: Journal,
    log: Arc<Log>,
    jobs: Receiver<Job>,
    clock: Arc<dyn Clock>,
    durability: Durability,
    dedupe: Dedupe,
    builder: Builder,
    next: u64,
    sync_due: Option<Instant>,
    failed: Option<Error>,
}

impl Writer {
    /// Reads the end of the log and remembers the ids in it.
    pub(super) fn open(
        journal: Journal,
        options: &Options,
        clock: Arc<dyn Clock>,
        jobs: Receiver<Job>,
    ) -> Result<Self, OpenError> {
        let reader = journal.reader();
        let last = last_group(&journal)?;
        let record = journal.next_sequence() - 1;
        let end = End { sequence: last.map_or(0, |group| group.end() - 1), record, closed: false };
        let log = Arc::new(Log::new(reader, options.recent_bytes, end));
        let mut writer = Self {
            journal,
            log,
            jobs,
            clock,
            durability: options.durability,
            dedupe: Dedupe::new(options.dedupe_window, options.dedupe_ids),
            builder: Builder::default(),
            next: end.sequence + 1,
            sync_due: None,
            failed: None,
        };
        writer.remember_ids(options.dedupe_window)?;
        writer.leave_numbers_unused(last)?;
        writer.note();
        Ok(writer)
    }

    /// The stream as its readers see it.
    pub(super) fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self) {
        while let Some(job) = self.next_job() {
            match job {
                Job::Publish(first) => {
                    let then = self.gather(first);
                    if matches!(then, Some(Job::Stop)) {
                        break;
                    }
                    if let Some(Job::DropBefore(record)) = then {
                        self.drop_before(record);
                    }
                }
                Job::DropBefore(record) => self.drop_before(record),
                Job::Stop => break,
            }
        }
        self.sync_now();
    }

    /// The next job; syncs on the way what is due. `None`: nobody can send any more.
    fn next_job(&mut self) -> Option<Job> {
        while let Some(due) = self.sync_due {
            match self.jobs.recv_deadline(due) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.sync_now(),
            }
        }
        self.jobs.recv().ok()
    }

    /// Publishes the first and all that wait behind it; answers the job that ended the group and is still to do.
    fn gather(&mut self, first: Publish) -> Option<Job> {
        let (mut bytes, mut count) = size(&first);
        let mut group = vec![first];
        let mut then = None;
        while bytes < GROUP_BYTES && count < GROUP_MESSAGES {
            match self.jobs.try_recv() {
                Ok(Job::Publish(publish)) => {
                    let (more_bytes, more) = size(&publish);
                    (bytes, count) = (bytes + more_bytes, count + more);
                    group.push(publish);
                }
                Ok(other) => {
                    then = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        self.publish(group);
        then
    }

    fn publish(&mut self, group: Vec<Publish>) {
        let now = self.clock.now();
        self.dedupe.expire(now);
        self.builder.begin(self.next, now, self.durability != Durability::Sync);
        let mut fresh = Vec::with_capacity(group.len());
        let mut answers = Vec::with_capacity(group.len());
        for Publish { messages, reply, permit } in group {
            let receipts: Vec<_> = messages.into_iter().map(|m| self.number(m, now, &mut fresh)).collect();
            answers.push((reply, receipts, permit));
        }
        let written = if fresh.is_empty() { self.intact() } else { self.write() };
        if let Ok(record) = written {
            self.next += fresh.len() as u64;
            self.log.extend(fresh, record);
        } else {
            self.dedupe.take_back(self.next);
        }
        self.note();
        for (reply, receipts, permit) in answers {
            let answer = written.as_ref().map(|_| receipts).map_err(Clone::clone);
            // A publisher that has stopped waiting will publish again under the same id, or does not care.
            drop(reply.send(answer));
            drop(permit);
        }
    }

    /// Gives the message its number and puts it into the record, unless it is known already.
    fn number(&mut self, message: Message, now: Timestamp, fresh: &mut Vec<Stored>) -> Receipt {
        let sequence = self.next + fresh.len() as u64;
        let known = message.id.as_ref().and_then(|id| self.dedupe.remember(id, sequence, now));
        if let Some(sequence) = known {
            return Receipt { sequence, duplicate: true };
        }
        self.builder.push(&message);
        fresh.push(Stored { sequence, published_at: now, message: Arc::new(message) });
        Receipt { sequence, duplicate: false }
    }

    /// Writes the record that was built, durably where that is promised.
    fn write(&mut self) -> Result<u64, Error> {
        self.intact()?;
        let record = self.journal.append(&[self.builder.finish()]).map_err(refusal)?;
        match self.durability {
            Durability::Sync => self.sync()?,
            Durability::Interval(interval) => {
                self.sync_due.get_or_insert_with(|| Instant::now() + interval);
            }
        }
        Ok(record)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.sync_due = None;
        self.journal.sync().map(|_| ()).map_err(|error| {
            let error = Error::Unavailable(error.to_string());
            self.failed = Some(error.clone());
            error
        })
    }

    /// Syncs where something waits for it. A failure is told to every publisher from then on.
    fn sync_now(&mut self) {
        if self.sync_due.is_some() {
            drop(self.sync());
        }
    }

    /// Whether the disk has not failed so far; the number says nothing.
    fn intact(&self) -> Result<u64, Error> {
        self.failed.clone().map_or(Ok(0), Err)
    }

    fn drop_before(&mut self, record: u64) {
        if self.log.is_held() {
            return;
        }
        // What cannot be dropped now is dropped later; a disk that fails shows at the next publish.
        drop(self.journal.truncate_before(record));
        self.note();
    }

    fn note(&self) {
        self.log.note(self.journal.bytes_on_disk(), self.dedupe.oldest().unwrap_or(self.next));
    }

    fn remember_ids(&mut self, window: Duration) -> Result<(), OpenError> {
        let begin = self.clock.now().before(window);
        let from = self.log.partition(|group| group.published_at < begin).map_err(unreadable)?;
        let mut cursor = self.journal.reader().read_from(from)?;
        while let Some(record) = cursor.read()? {
            let group = record::group(record.payload).map_err(unreadable)?;
            for parts in record::messages(record.payload).map_err(unreadable)? {
                let parts = parts.map_err(unreadable)?;
                if let Some(id) = parts.id {
                    self.dedupe.remember(id, parts.sequence, group.published_at);
                }
            }
            self.dedupe.expire(group.published_at);
        }
        Ok(())
    }

    /// Where the last record, or the next one, is not synced before its publisher is answered, a checkpoint elsewhere may
    /// name a number that a power failure took from us. Numbers are not given twice, so a range is left out, and a record
    /// without messages says durably that it may happen again.
    fn leave_numbers_unused(&mut self, last: Option<Group>) -> Result<(), OpenError> {
        if last.is_some_and(|group| group.unsynced) {
            self.next += UNUSED_NUMBERS;
        }
        if self.durability != Durability::Sync {
            self.builder.begin(self.next, self.clock.now(), true);
            self.journal.append(&[self.builder.finish()])?;
            self.journal.sync()?;
        }
        Ok(())
    }
}

fn size(publish: &Publish) -> (usize, usize) {
    (publish.messages.iter().map(Message::size).sum(), publish.messages.len())
}

fn last_group(journal: &Journal) -> Result<Option<Group>, OpenError> {
    let last = journal.next_sequence() - 1;
    if last < journal.first_sequence() {
        return Ok(None);
    }
    let mut cursor = journal.reader().read_from(last)?;
    let record = cursor.read()?;
    record.map(|record| record::group(record.payload)).transpose().map_err(unreadable)
}

fn refusal(error: orlog_journal::Error) -> Error {
    match error {
        orlog_journal::Error::Full { .. } => Error::Full(error.to_string()),
        other => Error::Unavailable(other.to_string()),
    }
}

fn unreadable(error: impl std::fmt::Display) -> OpenError {
    OpenError::Unreadable(error.to_string())
}
