//! The contract of a bus: durable publish, durable cursors, at-least-once delivery.
//!
//! Promises, executed by one conformance suite for every implementation:
//! - A publish that returned is durable; its messages are delivered to every matching subscription, in sequence order.
//! - Within the deduplication window a message id is stored once; publishing it again answers with the first sequence.
//! - A subscription's durable cursor is the end of the gapless prefix of what it acknowledged. A consumer that comes back
//!   under the same name is given everything after the cursor again, in order.
//! - What was refused (`nak`) is delivered again; never more than `max_in_flight` messages are unacknowledged.

use orlog_model::Slots;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use orlog_model::{StreamPosition, Timestamp};
use uuid::Uuid;

use crate::{Mark, Start};

/// What travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Dot-separated tokens, for example `tenant.acme.aggregate.order.o-1`.
    pub subject: String,
    /// For deduplication; `Nats-Msg-Id` on JetStream.
    pub id: Option<String>,
    /// Names are case-insensitive and sent as given.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub payload: Bytes,
}

impl Message {
    /// How large it is for limits: subject, id, headers and body together, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.subject.len() + self.id.as_ref().map_or(0, String::len) + headers + self.payload.len()
    }
}

/// The answer to a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Where the message lies in the stream.
    pub sequence: u64,
    /// It was there before.
    pub duplicate: bool,
}

/// What a consumer wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The durable name; the cursor is kept under it.
    pub name: String,
    /// Subject filters with `*` and `>` as in NATS; a message that matches any is delivered once.
    pub filters: Vec<String>,
    /// Only what lies in these slots.
    pub part: Option<Part>,
    /// Begin after this position instead of after the cursor, which is set there: for whoever keeps a checkpoint of
    /// their own. Where the stream is no longer what it was there, nothing is skipped, and [`Consumer::start`] tells.
    pub after: Option<StreamPosition>,
    /// Messages delivered and not yet acknowledged, at most.
    pub max_in_flight: usize,
}

/// A message on its way to a consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Where it lies in the stream.
    pub sequence: u64,
    /// 1 for the first delivery to this consumer.
    pub attempt: u32,
    /// When it was published.
    pub published_at: Timestamp,
    /// The message.
    pub message: Arc<Message>,
}

/// A bus, as its users see it.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Identity of the stream, made when the stream was made: sequence numbers of another stream mean nothing here.
    fn stream_id(&self) -> Uuid;

    /// Publishes the messages in order and returns when all of them are durable.
    /// Those of one subject lie in the stream in the order given, also where a publish that failed is made again.
    ///
    /// # Errors
    /// Any of them may be durable nevertheless; publishing all of them again under the same ids is harmless.
    async fn publish(&self, messages: Vec<Message>) -> Result<Vec<Receipt>, Error>;

    /// Opens the named subscription. One consumer a name at a time.
    ///
    /// # Errors
    /// When a filter is no subject filter, or the name is in use.
    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error>;

    /// Reads what lies in the stream now and matches one of the filters.
    ///
    /// # Errors
    /// When a filter is no subject filter, or the bus is gone.
    async fn read_past(&self, filters: Vec<String>, since: Since) -> Result<Box<dyn Past>, Error>;

    /// The sequence of the last message in the stream; 0 when it is empty.
    async fn last_sequence(&self) -> Result<u64, Error>;
}

/// One end of a subscription.
#[async_trait]
pub trait Consumer: Send {
    /// Waits for messages and returns at least one and at most `max`, in sequence order but for redeliveries.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the bus is gone.
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, Error>;

    /// Where it began, and what was found there.
    fn start(&self) -> &Start;

    /// A handle to acknowledge with, from anywhere.
    fn acker(&self) -> Arc<dyn Acker>;
}

/// The first message that is read, where it is there still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The one with this number.
    Sequence(u64),
    /// The first one that was published then or later.
    Time(Timestamp),
}

/// A part of a stream that ends where the stream ended when it was asked for. Nothing is acknowledged, no cursor is kept.
#[async_trait]
pub trait Past: Send {
    /// The next messages, in sequence order; none once the end is reached.
    ///
    /// # Errors
    /// When the bus is gone, or messages in between were dropped before they were read.
    async fn next(&mut self) -> Result<Vec<Delivery>, Error>;

    /// The last message of the stream when it was asked for: whoever wants what came since asks for what follows.
    fn end(&self) -> u64;
}

/// Acknowledges deliveries. Calls return at once and are harmless when repeated.
pub trait Acker: Send + Sync + 'static {
    /// The message is done with.
    fn ack(&self, sequence: u64);

    /// Deliver it again.
    fn nak(&self, sequence: u64);

    /// The end of the gapless prefix of what is done with: the cursor.
    fn floor(&self) -> u64;

    /// A message at or before the floor, of which the time is known where the bus knows it: what a checkpoint is made of.
    fn mark(&self) -> Mark;
}

/// What can go wrong on the way.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// There is no room; nothing was accepted. Accepts again once there is.
    #[error("the bus is full: {0}")]
    Full(String),
    /// A subject or filter is malformed.
    #[error("{subject:?} is no {what}: {reason}")]
    Subject {
        /// What was given.
        subject: String,
        /// `subject` or `subject filter`.
        what: &'static str,
        /// The rule it breaks.
        reason: String,
    },
    /// A message is larger than the bus takes.
    #[error("the message is {size} bytes long, the limit is {limit}")]
    TooLarge {
        /// Bytes found.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The durable name has a consumer already.
    #[error("the subscription {0:?} has a consumer already")]
    InUse(String),
    /// The bus is closed or its storage failed; the text says how.
    #[error("the bus is unavailable: {0}")]
    Unavailable(String),
}

/// A range of slots, and what lies in it.
///
/// A message lies in its tenant's slot. That of a tenant that is spread lies in the slot of the instance that its subject
/// names, `workflow.<saga>.<correlation>`; where it names none, in the tenant's home slot. One whose subject names no tenant
/// that can be, lies with the default tenant. So every message lies in exactly one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which tenants are spread.
    pub slots: Slots,
    /// The slots of this part.
    pub range: Range<u16>,
}
