//! Contract of a bus: durable publish, durable cursors, at-least-once delivery.
//!
//! Guarantees, verified by one conformance suite for every implementation:
//! - After a publish returns, its messages are durable. Every matching subscription receives them
//!   in sequence order, or in sequence order within each tenant if it limits the messages of a
//!   tenant.
//! - A message id is stored once within the deduplication window. A repeated publish returns the
//!   first sequence.
//! - The durable cursor of a subscription is the ack floor, or the last durable checkpoint of a
//!   consumer that has its own. A consumer that resubscribes under the same name receives
//!   everything after the cursor again, in order.
//! - A message with a `nak` is redelivered. At most `max_in_flight` messages are unacknowledged. A
//!   tenant at its limit does not delay the messages of others, except those after more than 32 MiB
//!   of its messages.

use orlog_model::SlotAssigner;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use compact_str::CompactString;
use orlog_model::{StreamPosition, Timestamp};
use uuid::Uuid;

use crate::codec::MAX_MESSAGE_BYTES;
use crate::{AckPosition, SubscriptionStart};

/// Names and values of headers. A text of at most 24 bytes needs no heap memory.
pub type Headers = Vec<(CompactString, CompactString)>;

/// Message on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Dot-separated tokens, for example `tenant.acme.aggregate.order.o-1`.
    pub subject: String,
    /// Deduplication id; `Nats-Msg-Id` on JetStream.
    pub id: Option<String>,
    /// Headers; names are case-insensitive and sent unchanged.
    pub headers: Headers,
    /// Message body.
    pub payload: Bytes,
}

impl Message {
    /// Returns the size that limits apply to: subject, id, headers and body together, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        self.subject.len() + self.id.as_ref().map_or(0, String::len) + headers + self.payload.len()
    }
}

/// Acknowledgement of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishAck {
    /// Sequence of the message in the stream.
    pub sequence: u64,
    /// Whether the message was already stored.
    pub duplicate: bool,
}

/// Configuration of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Durable name; the cursor is stored under it.
    pub name: String,
    /// Subject filters with `*` and `>` as in NATS; a message that matches several filters is
    /// delivered once.
    pub filters: Vec<String>,
    /// Restricts the subscription to these slots.
    pub partition: Option<Partition>,
    /// Start after this position instead of after the cursor, and set the cursor to it: for
    /// consumers with their own checkpoint. The consumer then moves the cursor with
    /// [`Acker::set_cursor`]. If the stream contradicts the position, no message is skipped; see
    /// [`Consumer::subscription_start`].
    pub start_after: Option<StreamPosition>,
    /// Maximum number of messages delivered and not yet acknowledged. Their size is limited to 64
    /// MiB.
    pub max_in_flight: MaxInFlight,
}

/// Maximum number of messages delivered and not yet acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxInFlight {
    /// Of all tenants.
    pub total: usize,
    /// Of each tenant; the tenants are served in turn. `None`: tenants are not distinguished.
    pub per_tenant: Option<usize>,
}

impl MaxInFlight {
    /// Returns a limit that does not distinguish tenants.
    #[must_use]
    pub const fn total(total: usize) -> Self {
        Self {
            total,
            per_tenant: None,
        }
    }
}

/// Delivery of a message to a consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Sequence of the message in the stream.
    pub sequence: u64,
    /// Number of this delivery to the consumer, from 1.
    pub attempt: u32,
    /// Publish time.
    pub published_at: Timestamp,
    /// Delivered message.
    pub message: Arc<Message>,
    /// Why the bus cannot read all of the message, which must not be applied; `None`: the message
    /// is complete.
    pub defect: Option<Arc<str>>,
}

/// Interface of a bus.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Returns the identity of the stream, created with the stream. Sequence numbers of another
    /// stream are invalid here.
    fn stream_id(&self) -> Uuid;

    /// Publishes the messages in order and returns when all of them are durable. Messages of one
    /// subject keep the given order in the stream, even if a failed publish is retried.
    ///
    /// # Errors
    /// Any of the messages may be durable after an error. A retry of all of them under the same ids
    /// is idempotent.
    async fn publish(&self, messages: Vec<Arc<Message>>) -> Result<Vec<PublishAck>, Error>;

    /// Opens the named subscription. Each name has at most one consumer.
    ///
    /// # Errors
    /// If a filter is not a valid subject filter, or if the name is in use.
    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error>;

    /// Scans the messages that are in the stream now and match one of the filters.
    ///
    /// # Errors
    /// If a filter is not a valid subject filter, or if the bus is closed.
    async fn scan(
        &self,
        filters: Vec<String>,
        since: ScanStart,
    ) -> Result<Box<dyn StreamScan>, Error>;

    /// Returns the sequence of the last message in the stream; 0 if the stream is empty.
    ///
    /// # Errors
    /// If the stream does not respond, or can store no messages because most of its servers are
    /// down.
    async fn last_sequence(&self) -> Result<u64, Error>;

    /// Returns the maximum size of a message, in bytes. Larger messages are rejected.
    fn max_message_size(&self) -> usize {
        MAX_MESSAGE_BYTES
    }

    /// Signs a workflow command, an effect result or a fact. Other messages, and all messages of a
    /// bus without signing keys, are unchanged.
    fn sign(&self, message: Message) -> Message {
        message
    }

    /// Signs an event or a signal that this node publishes for another system. All messages of a
    /// bus without signing keys are unchanged.
    fn vouch(&self, message: Message, _now: Timestamp) -> Message {
        message
    }

    /// Returns when a node published an event or a signal, or created a fact; `None` if no node has
    /// signed the message with a signing key of the bus.
    fn vouched_at(&self, _message: &Message) -> Option<Timestamp> {
        None
    }

    /// Returns why a workflow command, an effect result, or a fact that carries one, is not
    /// authentic; `None` if it is, or if the bus has no signing keys.
    fn rejection(&self, _message: &Message) -> Option<String> {
        None
    }

    /// Returns why the last publish was not stored; `None` if it was, or if servers store the
    /// messages.
    fn publish_failure(&self) -> Option<String> {
        None
    }
}

/// Consumer of a subscription.
#[async_trait]
pub trait Consumer: Send {
    /// Waits for messages and returns between one and `max` of them, in sequence order except for
    /// redeliveries. Cancel safe: dropping the future loses no message.
    ///
    /// # Errors
    /// If the bus is closed, or if the stream was recreated or truncated or is not readable for
    /// some time.
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, Error>;

    /// Returns the start position of the subscription and any stream anomaly.
    fn subscription_start(&self) -> &SubscriptionStart;

    /// Returns a handle that acknowledges deliveries from any thread.
    fn acker(&self) -> Arc<dyn Acker>;
}

/// First message of a scan, if it is still in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStart {
    /// The message with this sequence.
    Sequence(u64),
    /// The first message with this publish time or a later one.
    Time(Timestamp),
}

/// Scan of a stream up to its end at the time of the call. It acknowledges no message and has no
/// cursor.
#[async_trait]
pub trait StreamScan: Send {
    /// Returns the next messages in sequence order; an empty list at the end.
    ///
    /// # Errors
    /// If the bus is closed, or if messages were dropped before they were read.
    async fn next(&mut self) -> Result<Vec<Delivery>, Error>;

    /// Returns the last sequence of the stream at the start of the scan. Later messages have higher
    /// sequences.
    fn end_sequence(&self) -> u64;
}

/// Acknowledges deliveries. Calls never block and are idempotent.
pub trait Acker: Send + Sync + 'static {
    /// Acknowledges the message as processed.
    fn ack(&self, sequence: u64);

    /// Acknowledges the messages as processed.
    fn ack_all(&self, sequences: &[u64]);

    /// Requests redelivery of the message.
    fn nak(&self, sequence: u64);

    /// Returns the ack floor: the highest sequence with no unacknowledged message at or below it.
    /// It is the cursor of a subscription without a checkpoint.
    fn ack_floor(&self) -> u64;

    /// Returns a message at or before the ack floor, with its time if the bus has it. Checkpoints
    /// store this position.
    fn ack_position(&self) -> AckPosition;

    /// Returns the ack position as if these messages were acknowledged too. A commit that contains
    /// their consequences contains this position as its checkpoint, and acknowledges them when it
    /// is durable.
    fn ack_position_with(&self, sequences: &[u64]) -> AckPosition;

    /// Sets the cursor of a subscription that has its own checkpoint: a checkpoint with this
    /// sequence is durable.
    fn set_cursor(&self, sequence: u64);
}

/// Error of a bus operation.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The storage is full; nothing was accepted. Publishing succeeds again when space is
    /// available.
    #[error("the bus storage is full: {0}")]
    Full(String),
    /// A subject or filter is malformed.
    #[error("{subject:?} is not a valid {kind}: {reason}")]
    InvalidSubject {
        /// Actual value.
        subject: String,
        /// `subject` or `subject filter`.
        kind: &'static str,
        /// Violated rule.
        reason: String,
    },
    /// A message exceeds the size limit of the bus.
    #[error("message has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// Actual size in bytes.
        size: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The durable name already has a consumer.
    #[error("subscription {0:?} already has a consumer")]
    InUse(String),
    /// The bus is closed or its storage failed; the text gives the reason.
    #[error("the bus is unavailable: {0}")]
    Unavailable(String),
}

/// Range of slots, and the messages in it.
///
/// A message belongs to the slot of its tenant. For a key-sharded tenant it belongs to the slot of
/// the instance in its subject, `workflow.<saga>.<correlation>`, or to the home slot of the tenant
/// if the subject has no instance. If the subject has no valid tenant, the message belongs to the
/// default tenant. So every message belongs to exactly one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Slot assignment with the key-sharded tenants.
    pub slots: SlotAssigner,
    /// Slots of this partition.
    pub range: Range<u16>,
}
