//! Consumer of the embedded bus, and its ack handle.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use orlog_journal::Cursor;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cursors::SubscriptionGuard;
use super::log::{LogEnd, ReadBatch, StreamLog};
use super::options::closed;
use crate::ack_handle::AckHandle;
use crate::checkpoint::AckPosition;
use crate::subject_matcher::SubjectMatcher;
use crate::{Acker, Consumer, Delivery, Error, MaxInFlight, SubscriptionStart};

/// Number of messages read from memory at a time.
const PREFETCH: usize = 1024;

/// Reads the stream from its cursor. It marks a message as delivered only when it returns it.
#[derive(Debug)]
pub(super) struct EmbeddedConsumer {
    log: Arc<StreamLog>,
    end: watch::Receiver<LogEnd>,
    interest: Arc<SubjectMatcher>,
    start: SubscriptionStart,
    ack_handle: Arc<AckHandle>,
    read_to: u64,
    old: DiskReadState,
    /// Releases the name when the consumer is dropped.
    _claim: SubscriptionGuard,
}

impl EmbeddedConsumer {
    /// Creates a consumer that starts after the ack floor of the guard.
    pub(super) fn new(
        log: Arc<StreamLog>,
        claim: SubscriptionGuard,
        interest: SubjectMatcher,
        max_in_flight: MaxInFlight,
        start: SubscriptionStart,
    ) -> Self {
        let start = SubscriptionStart { after: claim.ack_floor.load(Ordering::Relaxed), ..start };
        let moved = claim.moved.clone();
        let ack_handle =
            AckHandle::new(Arc::clone(&claim.ack_floor), max_in_flight, claim.has_checkpoint, move || {
                moved.notify();
            });
        Self {
            end: log.watch(),
            log,
            interest: Arc::new(interest),
            ack_handle: Arc::new(ack_handle),
            read_to: start.after,
            start,
            old: DiskReadState::Nowhere,
            _claim: claim,
        }
    }

    /// Delivers available messages: first those with a `nak`, then waiting ones up to the in-flight limits.
    fn take(&mut self, max: usize) -> Vec<Delivery> {
        let mut flight = self.ack_handle.in_flight();
        let deliveries = std::iter::from_fn(|| flight.deliver()).take(max).collect();
        self.ack_handle.publish_ack_floor(&flight);
        deliveries
    }

    /// Reads further messages; returns false if the end of the stream or the read-ahead limit was already
    /// reached.
    async fn read(&mut self) -> Result<bool, Error> {
        if !self.ack_handle.in_flight().has_read_capacity() {
            return Ok(false);
        }
        let batch = match self.log.read_cached(self.read_to, PREFETCH, &self.interest) {
            Some(batch) => {
                self.old = DiskReadState::Nowhere;
                batch
            }
            None => self.read_old().await?,
        };
        let progress = batch.read_to > self.read_to;
        self.read_to = batch.read_to;
        let mut flight = self.ack_handle.in_flight();
        batch.messages.into_iter().for_each(|stored| flight.read(stored));
        flight.advance(AckPosition { sequence: self.read_to, at: None });
        self.ack_handle.publish_ack_floor(&flight);
        Ok(progress)
    }

    async fn read_old(&mut self) -> Result<ReadBatch, Error> {
        loop {
            match &mut self.old {
                // Stored here while it runs: a caller that cancels and calls again continues the same read.
                DiskReadState::Reading(read) => {
                    let read = read.await;
                    self.old = DiskReadState::Nowhere;
                    let (batch, cursor) = read.map_err(|e| Error::Unavailable(e.to_string()))?;
                    self.old = cursor.map_or(DiskReadState::Nowhere, DiskReadState::At);
                    return batch;
                }
                DiskReadState::At(_) | DiskReadState::Nowhere => self.start_disk_read(),
            }
        }
    }

    fn start_disk_read(&mut self) {
        let (log, interest, after) = (Arc::clone(&self.log), Arc::clone(&self.interest), self.read_to);
        let mut cursor = match std::mem::replace(&mut self.old, DiskReadState::Nowhere) {
            DiskReadState::At(cursor) => Some(cursor),
            DiskReadState::Nowhere | DiskReadState::Reading(_) => None,
        };
        self.old = DiskReadState::Reading(tokio::task::spawn_blocking(move || {
            let batch = log.read_from_disk(&mut cursor, after, &interest);
            (batch, cursor)
        }));
    }
}

/// State of the disk read of a consumer.
#[derive(Debug)]
enum DiskReadState {
    Nowhere,
    At(Cursor),
    Reading(JoinHandle<(Result<ReadBatch, Error>, Option<Cursor>)>),
}

#[async_trait]
impl Consumer for EmbeddedConsumer {
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        loop {
            if self.end.borrow_and_update().closed {
                return Err(closed());
            }
            let deliveries = self.take(max.max(1));
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            if self.read().await? {
                tokio::task::consume_budget().await;
                continue;
            }
            tokio::select! {
                () = self.ack_handle.ready() => {}
                changed = self.end.changed() => changed.map_err(|_| closed())?,
            }
        }
    }

    fn subscription_start(&self) -> &SubscriptionStart {
        &self.start
    }

    fn acker(&self) -> Arc<dyn Acker> {
        Arc::<AckHandle>::clone(&self.ack_handle)
    }
}
