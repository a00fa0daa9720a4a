//! Consumer of a subscription, the same for every bus.
//!
//! A bus implements a [`Source`], which reads its messages. This module decides which messages are
//! delivered: in-flight limits, queues of the tenants, redelivery, the ack floor and the cursor of
//! the durable name.

mod ack_handle;
mod durable_names;
mod in_flight;
mod message_cache;
mod tenant_queues;

use std::sync::Arc;

use async_trait::async_trait;

use crate::checkpoint::AckPosition;
use crate::{Acker, Consumer, Delivery, Error, SubscriptionStart};

pub(crate) use ack_handle::AckHandle;
pub(crate) use durable_names::{DurableName, DurableNames, NameGuard};
pub(crate) use in_flight::StoredMessage;
pub(crate) use message_cache::{CacheLookup, MessageCache};

/// Number of messages that a source reads from memory at a time.
pub(crate) const PREFETCH: usize = 1024;

/// Result of a read: the matching messages up to `read_to`.
#[derive(Debug)]
pub(crate) struct ReadBatch {
    pub(crate) messages: Vec<StoredMessage>,
    pub(crate) read_to: AckPosition,
}

/// Messages of one subscription, in sequence order.
pub(crate) trait Source: Send + 'static {
    /// Starts a round: [`Source::changed`] reports changes after this call.
    ///
    /// # Errors
    /// If the bus is closed.
    fn start_round(&mut self) -> Result<(), Error>;

    /// Returns the messages after a sequence that can be read now; `None` if the position does not
    /// advance. Cancel safe.
    ///
    /// # Errors
    /// If the bus is closed, or if the stream was recreated or truncated.
    fn read(&mut self, after: u64)
    -> impl Future<Output = Result<Option<ReadBatch>, Error>> + Send;

    /// Waits until a read may return more messages. If the consumer is full, it reads only after an
    /// acknowledgement. Cancel safe.
    ///
    /// # Errors
    /// As [`Source::read`].
    fn changed(&mut self, is_full: bool) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Consumer of a source. It marks a message as delivered only when it returns it.
pub(crate) struct SourceConsumer<S, T> {
    source: S,
    ack_handle: Arc<AckHandle>,
    read_to: u64,
    start: SubscriptionStart,
    /// Releases the name when the consumer is dropped.
    _name: NameGuard<T>,
}

impl<S, T> SourceConsumer<S, T> {
    /// Creates a consumer that starts after `start`.
    pub(crate) fn new(
        source: S,
        ack_handle: AckHandle,
        name: NameGuard<T>,
        start: SubscriptionStart,
    ) -> Self {
        Self {
            source,
            ack_handle: Arc::new(ack_handle),
            read_to: start.after,
            start,
            _name: name,
        }
    }

    /// Delivers available messages: first those with a `nak`, then waiting ones up to the in-flight
    /// limits.
    fn take(&self, max: usize) -> Vec<Delivery> {
        let mut flight = self.ack_handle.in_flight();
        let deliveries = std::iter::from_fn(|| flight.deliver()).take(max).collect();
        self.ack_handle.publish_ack_floor(&flight);
        deliveries
    }

    fn add(&mut self, batch: ReadBatch) {
        self.read_to = batch.read_to.sequence;

        let mut flight = self.ack_handle.in_flight();
        for stored in batch.messages {
            flight.read(stored);
        }
        // Sequences that the subscription does not match have no slot. Without this line the ack
        // floor would stay before them until the next matching message.
        flight.advance(batch.read_to);
        self.ack_handle.publish_ack_floor(&flight);
    }
}

#[async_trait]
impl<S: Source, T: Send + 'static> Consumer for SourceConsumer<S, T> {
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        loop {
            // Before the look at the messages: a change that they do not include ends the wait.
            self.source.start_round()?;

            // With `max` 0 this call would never return, although messages wait.
            let deliveries = self.take(max.max(1));
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }

            // A consumer that cannot deliver still reads ahead: messages of other tenants follow
            // those of a tenant at its limit.
            let is_full = !self.ack_handle.in_flight().has_read_capacity();
            if !is_full && let Some(batch) = self.source.read(self.read_to).await? {
                // Delivered at the start of the loop, or skipped if no message matches the
                // subscription.
                self.add(batch);
                // A subscription that matches few messages skips many batches in a row. Other tasks
                // of the thread must run meanwhile.
                tokio::task::consume_budget().await;
                continue;
            }

            // An acknowledgement makes waiting or rejected messages deliverable; a change of the
            // bus adds new ones.
            tokio::select! {
                () = self.ack_handle.ready() => {}
                changed = self.source.changed(is_full) => changed?,
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
