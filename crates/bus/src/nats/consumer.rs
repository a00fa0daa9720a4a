//! Subscription to a stream. It reads from the shared reader, or by itself until it has caught up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::cursors::SubscriptionGuard;
use super::message_cache::CacheLookup;
use super::shared_reader::SharedReaderMember;
use super::stream_reader::{ReaderConfig, ReaderEvent, StreamReader};
use crate::ack_handle::AckHandle;
use crate::checkpoint::AckPosition;
use crate::in_flight::StoredMessage;
use crate::subject_matcher::SubjectMatcher;
use crate::{Acker, Consumer, Delivery, Error, MaxInFlight, SubscriptionStart};

/// Number of messages read from memory at a time.
const PREFETCH: usize = 1024;
/// Interval after which an idle reader restarts if the cache starts at a later sequence. The restart
/// determines how far the stream has no matching messages.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reads the stream from its start position. It marks a message as delivered only when it returns it.
pub(super) struct NatsConsumer {
    interest: SubjectMatcher,
    ack_handle: Arc<AckHandle>,
    read_to: AckPosition,
    member: SharedReaderMember,
    changes: watch::Receiver<u64>,
    /// Its own reader, if one is active.
    own: Option<StreamReader>,
    /// Whether a new own reader may detect that it has caught up with the shared reader.
    may_join: bool,
    requested: ReaderConfig,
    serial: u64,
    start: SubscriptionStart,
    /// Releases the name when the consumer is dropped.
    _claim: SubscriptionGuard,
}

impl NatsConsumer {
    /// Creates a consumer that starts at `start`; `wanted` configures its own reader.
    pub(super) fn new(
        claim: SubscriptionGuard,
        interest: SubjectMatcher,
        max_in_flight: MaxInFlight,
        member: SharedReaderMember,
        requested: ReaderConfig,
        start: SubscriptionStart,
    ) -> Self {
        Self {
            interest,
            ack_handle: Arc::new(AckHandle::new(Arc::clone(&claim.ack_floor), max_in_flight, false, || {})),
            read_to: AckPosition { sequence: start.after, at: None },
            changes: member.watch(),
            member,
            own: None,
            may_join: false,
            requested,
            serial: 0,
            start,
            _claim: claim,
        }
    }

    /// Delivers available messages: first those with a `nak`, then waiting ones up to the in-flight limits.
    fn take(&mut self, max: usize) -> Vec<Delivery> {
        let mut flight = self.ack_handle.in_flight();
        flight.advance(self.read_to);
        let deliveries = std::iter::from_fn(|| flight.deliver()).take(max).collect();
        self.ack_handle.publish_ack_floor(&flight);
        deliveries
    }

    /// Reads cached messages of the shared reader; returns `false` if there are no new ones.
    fn read(&mut self) -> Result<bool, Error> {
        let lookup = self.member.read_after(self.read_to.sequence, PREFETCH, &self.interest);
        match lookup.map_err(Error::Unavailable)? {
            CacheLookup::Hit(batch) => {
                self.own = None;
                let further = batch.read_to.sequence > self.read_to.sequence;
                if further {
                    self.advance_to(batch.read_to);
                }
                self.add(batch.messages);
                Ok(further)
            }
            found @ (CacheLookup::Evicted | CacheLookup::NotRead) => {
                self.may_join = matches!(found, CacheLookup::Evicted);
                if self.own.is_none() {
                    self.read_by_itself();
                }
                Ok(false)
            }
        }
    }

    fn read_by_itself(&mut self) {
        self.serial += 1;
        let name = format!("{}-{}", self.requested.name, self.serial);
        let after = self.read_to.sequence;
        self.own = Some(StreamReader::start(ReaderConfig { name, after, ..self.requested.clone() }));
    }

    fn handle_event(&mut self, event: ReaderEvent) -> Result<(), Error> {
        match event {
            ReaderEvent::Messages(messages) => {
                if let Some(last) = messages.last() {
                    self.advance_to(AckPosition { sequence: last.sequence, at: Some(last.published_at) });
                }
                let requested = messages.into_iter().filter(|s| self.interest.matches(&s.message.subject));
                self.add(requested.collect::<Vec<_>>());
            }
            ReaderEvent::CaughtUp(position) if position.sequence > self.read_to.sequence => {
                self.advance_to(position);
            }
            ReaderEvent::CaughtUp(_) => {}
            ReaderEvent::Broken(reason) => return Err(Error::Unavailable(reason)),
        }
        Ok(())
    }

    fn advance_to(&mut self, position: AckPosition) {
        self.read_to = position;
        self.member.advance(position.sequence);
    }

    /// Adds matching messages that were read.
    fn add(&self, messages: impl IntoIterator<Item = StoredMessage>) {
        let mut flight = self.ack_handle.in_flight();
        messages.into_iter().for_each(|stored| flight.read(stored));
    }

    /// Waits for new messages, or for an acknowledgement that frees capacity.
    async fn wait(&mut self, full: bool) -> Result<(), Error> {
        let ack_handle = Arc::clone(&self.ack_handle);
        let Some(own) = self.own.as_mut().filter(|_| !full) else {
            tokio::select! {
                () = ack_handle.ready() => {}
                changed = self.changes.changed() => drop(changed),
            }
            return Ok(());
        };
        tokio::select! {
            () = ack_handle.ready() => {}
            event = own.next() => self.handle_event(event)?,
            () = tokio::time::sleep(RECHECK_INTERVAL) => {
                if self.may_join {
                    self.own = None;
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Consumer for NatsConsumer {
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        loop {
            // Before the lookup, so that later changes are noticed.
            self.changes.borrow_and_update();
            let deliveries = self.take(max.max(1));
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            let is_full = !self.ack_handle.in_flight().has_read_capacity();
            if !is_full && self.read()? {
                tokio::task::consume_budget().await;
                continue;
            }
            self.wait(is_full).await?;
        }
    }

    fn subscription_start(&self) -> &SubscriptionStart {
        &self.start
    }

    fn acker(&self) -> Arc<dyn Acker> {
        Arc::<AckHandle>::clone(&self.ack_handle)
    }
}
