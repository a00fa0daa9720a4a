//! Source of a subscription. It reads from the shared reader, or by itself until it has caught up.

use std::time::Duration;

use tokio::sync::watch;

use super::shared_reader::SharedReaderMember;
use super::stream_reader::{ReaderConfig, ReaderEvent, StreamReader};
use crate::Error;
use crate::checkpoint::AckPosition;
use crate::consumer::{CacheLookup, PREFETCH, ReadBatch, Source};
use crate::subject_matcher::SubjectMatcher;

/// Interval after which an idle reader restarts if the cache starts at a later sequence. The
/// restart determines how far the stream has no matching messages.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reads the messages of one subscription.
pub(super) struct NatsSource {
    interest: SubjectMatcher,
    member: SharedReaderMember,
    changes: watch::Receiver<u64>,
    /// Its own reader, if one is active.
    own: Option<StreamReader>,
    /// Messages of its own reader.
    received: Option<ReadBatch>,
    /// Whether a new own reader may detect that it has caught up with the shared reader.
    may_join: bool,
    /// Whether the own reader has emitted an event: an earlier restart would only delay its start.
    has_started: bool,
    requested: ReaderConfig,
    /// Everything up to here was returned.
    read_to: AckPosition,
    serial: u64,
}

impl NatsSource {
    /// Creates a source; `requested` configures its own reader.
    pub(super) fn new(
        interest: SubjectMatcher,
        member: SharedReaderMember,
        requested: ReaderConfig,
    ) -> Self {
        let changes = member.watch();
        let read_to = requested.after;
        Self {
            interest,
            member,
            changes,
            own: None,
            received: None,
            may_join: false,
            has_started: false,
            requested,
            read_to,
            serial: 0,
        }
    }

    fn read_by_itself(&mut self, sequence: u64) {
        // The time at this position detects a stream that lost its end.
        let at = self
            .read_to
            .at
            .filter(|_| self.read_to.sequence == sequence);
        let after = AckPosition { sequence, at };

        // The servers may still have the consumer of the previous reader, so each reader has
        // another name.
        self.serial += 1;
        self.has_started = false;
        let name = format!("{}-{}", self.requested.name, self.serial);
        self.own = Some(StreamReader::start(ReaderConfig {
            name,
            after,
            ..self.requested.clone()
        }));
    }

    fn receive(&mut self, event: ReaderEvent) -> Result<(), Error> {
        self.has_started = true;
        let (mut messages, read_to) = match event {
            ReaderEvent::Messages { messages, .. } => {
                let Some(last) = messages.last() else {
                    return Ok(());
                };
                let read_to = AckPosition {
                    sequence: last.sequence,
                    at: Some(last.published_at),
                };
                (messages, read_to)
            }
            ReaderEvent::CaughtUp(position) => (Vec::new(), position),
            ReaderEvent::Broken(reason) => return Err(Error::Unavailable(reason)),
        };

        // The servers apply wider filters, and no partition.
        messages.retain(|stored| self.interest.matches(&stored.message.subject));
        self.received = Some(ReadBatch { messages, read_to });
        Ok(())
    }

    fn lookup(&mut self, after: u64) -> Result<Option<ReadBatch>, Error> {
        // The messages of the own reader follow what was returned last, also if the cache has the
        // position now.
        if let Some(received) = self.received.take() {
            return Ok(Some(received));
        }
        match self
            .member
            .read_after(after, PREFETCH, &self.interest)
            .map_err(Error::Unavailable)?
        {
            CacheLookup::Hit(batch) => {
                // The shared reader has the position: one reader is enough from here.
                self.own = None;
                Ok(Some(batch))
            }
            found @ (CacheLookup::Evicted | CacheLookup::NotRead) => {
                // Only a subscription behind the cache reaches it by reading. One far ahead must
                // wait for the cache.
                self.may_join = matches!(found, CacheLookup::Evicted);
                if self.own.is_none() {
                    self.read_by_itself(after);
                }
                Ok(None)
            }
        }
    }
}

impl Source for NatsSource {
    fn start_round(&mut self) -> Result<(), Error> {
        self.changes.borrow_and_update();
        Ok(())
    }

    async fn read(&mut self, after: u64) -> Result<Option<ReadBatch>, Error> {
        let batch = self
            .lookup(after)?
            .filter(|batch| batch.read_to.sequence > after);

        if let Some(batch) = &batch {
            // Also for messages of the own reader: the shared one continues when a subscription has
            // passed its oldest message.
            self.member.advance(batch.read_to.sequence);
            self.read_to = batch.read_to;
        }
        Ok(batch)
    }

    async fn changed(&mut self, is_full: bool) -> Result<(), Error> {
        // A full consumer reads nothing, so its own reader waits too.
        let Some(own) = self.own.as_mut().filter(|_| !is_full) else {
            // This source keeps the shared reader and thus the sender, so the channel is never
            // closed.
            drop(self.changes.changed().await);
            return Ok(());
        };

        tokio::select! {
            event = own.next() => self.receive(event)?,
            () = tokio::time::sleep(RECHECK_INTERVAL) => {
                if self.may_join && self.has_started {
                    self.own = None;
                }
            }
        }
        Ok(())
    }
}
