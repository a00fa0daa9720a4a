//! The queue of effects on JetStream.
//!
//! A command is stored in the stream of commands under its own subject, a result in the stream of
//! events. The server guarantees a single result: a result is published with the expectation that its
//! subject is empty. Lost acknowledgements, and rejections of a clustered stream that processes another
//! message, are resolved by a read.

mod consumer_name;
mod jobs;
mod results;

use std::time::Duration;

use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, RawMessageErrorKind, Stream as StreamHandle};
use async_trait::async_trait;
use orlog_model::EffectName;

use super::connection::chain;
use super::message::to_nats;
use super::{Connection, WORKFLOW_COMMANDS, WORKFLOW_DEADLETTERS, WORKFLOW_EVENTS, message};
use crate::effect_queue::{
    EffectQueue, EnqueuedCommand, JobStream, JobSubscription, ReadConsistency, ResultPublish, ResultStream,
};
use crate::{Error, Message};
use consumer_name::unavailable;

pub use consumer_name::consumer_name;

/// Maximum number of publish attempts before the caller receives an error.
const MAX_ATTEMPTS: u32 = 8;
/// Delay after the first attempt; it doubles.
const RETRY_DELAY: Duration = Duration::from_millis(25);

/// Effect queue on a NATS connection.
#[derive(Clone, Debug)]
pub struct NatsEffectQueue {
    connection: Connection,
}

/// Result of a publish.
enum PublishState {
    /// The message was stored.
    Fresh(u64),
    /// This message was already stored; it may be the same one if its acknowledgement was lost.
    Found(StreamMessage),
}

impl NatsEffectQueue {
    /// Creates a queue on this connection. The streams must exist.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    async fn stream(&self, name: &str) -> Result<StreamHandle<()>, Error> {
        let stream = self.connection.jetstream.get_stream_no_info(name).await;
        stream.map_err(|error| unavailable(&error))
    }

    async fn publish(&self, subject: &str, message: PublishMessage) -> Result<u64, PublishError> {
        let sent = self.connection.jetstream.send_publish(subject.to_owned(), message).await?;
        Ok(sent.await?.sequence)
    }

    /// Publishes a message; if the response is ambiguous, reads the stream.
    async fn lay(&self, stream: &str, message: &Message, new: bool) -> Result<PublishState, Error> {
        let mut publish = to_nats(message)?;
        if new {
            publish = publish.expected_last_subject_sequence(0);
        }
        let mut pause = RETRY_DELAY;
        let mut last = String::new();
        for _ in 0..MAX_ATTEMPTS {
            let error = match self.publish(&message.subject, publish.clone()).await {
                Ok(sequence) => return Ok(PublishState::Fresh(sequence)),
                Err(error) => error,
            };
            if error.kind() == PublishErrorKind::MaxPayloadExceeded {
                return Err(Error::TooLarge { size: message.size(), limit: self.connection.max_payload() });
            }
            last = chain(&error);
            // Without an expectation, the deduplication id makes a retry idempotent.
            if new && let Some(found) = self.last(stream, &message.subject).await? {
                return Ok(PublishState::Found(found));
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(Error::Unavailable(format!("publish on {} failed: {last}", message.subject)))
    }

    /// Returns the last message under a subject, as the leader of its stream has it.
    async fn last(&self, stream: &str, subject: &str) -> Result<Option<StreamMessage>, Error> {
        match self.stream(stream).await?.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(&error)),
        }
    }

    async fn last_nearby(&self, stream: &str, subject: &str) -> Result<Option<StreamMessage>, Error> {
        match self.stream(stream).await?.direct_get_last_for_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(unavailable(&error)),
        }
    }

    async fn is_stored(&self, enqueued: &EnqueuedCommand) -> Result<bool, Error> {
        match self.stream(WORKFLOW_COMMANDS).await?.get_raw_message(enqueued.sequence).await {
            Ok(message) => Ok(message.subject.as_str() == enqueued.subject),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(false),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

#[async_trait]
impl EffectQueue for NatsEffectQueue {
    async fn enqueue(&self, command: Message, first: bool) -> Result<EnqueuedCommand, Error> {
        let (sequence, already_queued) = match self.lay(WORKFLOW_COMMANDS, &command, first).await? {
            PublishState::Fresh(sequence) => (sequence, false),
            PublishState::Found(there) => (there.sequence, true),
        };
        Ok(EnqueuedCommand { subject: command.subject, sequence, already_queued })
    }

    /// A command at or below the ack floor of the consumer is acknowledged. A command above it may be
    /// acknowledged too while an older one is pending. The function then returns that it is pending, and
    /// the floor moves later.
    async fn is_pending(&self, effect: &EffectName, enqueued: &EnqueuedCommand) -> Result<bool, Error> {
        if !self.is_stored(enqueued).await? {
            return Ok(false);
        }
        match self.stream(WORKFLOW_COMMANDS).await?.consumer_info(consumer_name(effect)).await {
            Ok(info) => Ok(info.ack_floor.stream_sequence < enqueued.sequence),
            Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => Ok(true),
            Err(error) => Err(unavailable(&error)),
        }
    }

    async fn result(&self, subject: &str, consistency: ReadConsistency) -> Result<Option<Message>, Error> {
        let found = match consistency {
            ReadConsistency::Eventual => self.last_nearby(WORKFLOW_EVENTS, subject).await?,
            ReadConsistency::Linearizable => self.last(WORKFLOW_EVENTS, subject).await?,
        };
        Ok(found.map(message::from_stream_message))
    }

    async fn publish_result(&self, result: Message) -> Result<ResultPublish, Error> {
        Ok(match self.lay(WORKFLOW_EVENTS, &result, true).await? {
            PublishState::Fresh(_) => ResultPublish::Published,
            PublishState::Found(there) if there.payload == result.payload => ResultPublish::Published,
            PublishState::Found(there) => {
                ResultPublish::AlreadyPublished(message::from_stream_message(there))
            }
        })
    }

    async fn subscribe_results(&self) -> Result<Box<dyn ResultStream>, Error> {
        let stream = self.stream(WORKFLOW_EVENTS).await?;
        Ok(Box::new(results::NatsResultStream::open(stream).await?))
    }

    async fn subscribe_jobs(&self, subscription: JobSubscription) -> Result<Box<dyn JobStream>, Error> {
        let stream = self.stream(WORKFLOW_COMMANDS).await?;
        Ok(Box::new(jobs::NatsJobStream::open(stream, subscription).await?))
    }

    async fn dead_letter(&self, message: Message) -> Result<(), Error> {
        self.lay(WORKFLOW_DEADLETTERS, &message, false).await.map(|_| ())
    }
}
