//! The queue of effects on JetStream.
//!
//! A command is stored in the stream of commands under its own subject, a result in the stream of
//! events. The server guarantees a single result: a result is published with the expectation that
//! its subject is empty. Lost acknowledgements, and rejections of a clustered stream that processes
//! another message, are resolved by a read.
//!
//! With signing keys, a message without a valid signature counts as absent: a job is returned or
//! terminated, a result is skipped, and a publish replaces it.

mod consumers;
mod jobs;
mod layout;
mod results;

use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{
    DirectGetErrorKind, RawMessageErrorKind, Stream as StreamHandle,
};
use async_trait::async_trait;
use orlog_model::EffectName;

use super::connection::{chain, unavailable};
use super::message::to_nats;
use super::{Connection, WORKFLOW_COMMANDS, WORKFLOW_DEADLETTERS, WORKFLOW_EVENTS, message};
use crate::effect_queue::{
    EffectQueue, EnqueuedCommand, JobBacklog, JobStream, JobSubscription, ReadConsistency,
    ResultPublish, ResultStream, StartRecord,
};
use crate::nats::filters::covers;
use crate::subject;
use crate::{Error, Message};

pub use consumers::consumer_name;
pub use layout::{ConsumerLayout, arrange_consumers};

/// Maximum number of publish attempts before the caller receives an error.
const MAX_ATTEMPTS: u32 = 8;
/// Maximum number of messages without a valid signature that are read under one subject.
const MAX_REJECTED: usize = 256;
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

/// Message under a subject.
enum StoredMessage {
    /// No message is stored.
    None,
    /// This message is authentic.
    Authentic(StreamMessage),
    /// No message is authentic; the last one has this sequence.
    Rejected(u64),
}

impl NatsEffectQueue {
    /// Creates a queue on this connection. The streams must exist.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    async fn stream(&self, name: &str) -> Result<StreamHandle<()>, Error> {
        self.connection
            .jetstream
            .get_stream_no_info(name)
            .await
            .map_err(unavailable)
    }

    async fn publish(&self, subject: &str, message: PublishMessage) -> Result<u64, PublishError> {
        let sent = self
            .connection
            .jetstream
            .send_publish(subject.to_owned(), message)
            .await?;
        Ok(sent.await?.sequence)
    }

    /// Publishes a message; if the response is ambiguous, reads the stream.
    async fn lay(&self, stream: &str, message: &Message, new: bool) -> Result<PublishState, Error> {
        // Sequence of the last message under the subject, if the message must be the first
        // authentic one.
        let mut expected = new.then_some(0);
        let mut pause = RETRY_DELAY;
        let mut last = String::new();

        for _ in 0..MAX_ATTEMPTS {
            let mut publish = to_nats(message)?;
            if let Some(sequence) = expected {
                publish = publish.expected_last_subject_sequence(sequence);
            }
            let error = match self.publish(&message.subject, publish).await {
                Ok(sequence) => return Ok(PublishState::Fresh(sequence)),
                Err(error) => error,
            };

            // A retry has the same result.
            if error.kind() == PublishErrorKind::MaxPayloadExceeded {
                return Err(Error::TooLarge {
                    size: message.size(),
                    limit: self.connection.max_payload(),
                });
            }
            last = chain(&error);
            // Without an expectation, the deduplication id makes a retry idempotent.
            if expected.is_some() {
                match self.stored(stream, &message.subject).await? {
                    StoredMessage::Authentic(found) => return Ok(PublishState::Found(found)),
                    StoredMessage::Rejected(sequence) => expected = Some(sequence),
                    StoredMessage::None => expected = Some(0),
                }
            }

            tokio::time::sleep(pause).await;
            pause *= 2;
        }

        Err(Error::Unavailable(format!(
            "publish on {} failed: {last}",
            message.subject
        )))
    }

    /// Returns the authentic message under a subject, as the leader of its stream has it.
    async fn stored(&self, stream: &str, subject: &str) -> Result<StoredMessage, Error> {
        let Some(last) = self.last(stream, subject).await? else {
            return Ok(StoredMessage::None);
        };
        let end = last.sequence;
        if self.is_authentic(&last) {
            return Ok(StoredMessage::Authentic(last));
        }

        // Others may have published on the subject after the authentic message.
        let handle = self.stream(stream).await?;
        let mut next = 1;
        for _ in 0..MAX_REJECTED {
            let message = match handle.get_first_raw_message_by_subject(subject, next).await {
                Ok(message) => message,
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                    return Ok(StoredMessage::Rejected(end));
                }
                Err(error) => return Err(unavailable(error)),
            };
            // Published after the read of the last message: it cannot be the first authentic one.
            if message.sequence >= end {
                return Ok(StoredMessage::Rejected(end));
            }
            if self.is_authentic(&message) {
                return Ok(StoredMessage::Authentic(message));
            }
            next = message.sequence + 1;
        }

        Err(Error::Unavailable(format!(
            "{subject} has more than {MAX_REJECTED} messages without a valid signature"
        )))
    }

    fn is_authentic(&self, message: &StreamMessage) -> bool {
        let signer = &self.connection.signer;
        !signer.is_enabled()
            || signer
                .verify(&message::from_stream_message(message.clone()))
                .is_ok()
    }

    /// Returns the last message under a subject, as the leader of its stream has it.
    async fn last(&self, stream: &str, subject: &str) -> Result<Option<StreamMessage>, Error> {
        match self
            .stream(stream)
            .await?
            .get_last_raw_message_by_subject(subject)
            .await
        {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    async fn last_nearby(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<StreamMessage>, Error> {
        match self
            .stream(stream)
            .await?
            .direct_get_last_for_subject(subject)
            .await
        {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    async fn is_stored(&self, enqueued: &EnqueuedCommand) -> Result<bool, Error> {
        match self
            .stream(WORKFLOW_COMMANDS)
            .await?
            .get_raw_message(enqueued.sequence)
            .await
        {
            // A recreated stream can have another command under this sequence.
            Ok(message) => Ok(message.subject.as_str() == enqueued.subject),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(false),
            Err(error) => Err(unavailable(error)),
        }
    }
}

#[async_trait]
impl EffectQueue for NatsEffectQueue {
    async fn enqueue(&self, command: Message, first: bool) -> Result<EnqueuedCommand, Error> {
        let command = self.connection.signer.sign(command);
        let (sequence, already_queued) = match self.lay(WORKFLOW_COMMANDS, &command, first).await? {
            PublishState::Fresh(sequence) => (sequence, false),
            PublishState::Found(there) => (there.sequence, true),
        };
        Ok(EnqueuedCommand {
            subject: command.subject,
            sequence,
            already_queued,
        })
    }

    /// A command without a consumer waits for a worker.
    async fn is_pending(
        &self,
        effect: &EffectName,
        enqueued: &EnqueuedCommand,
    ) -> Result<bool, Error> {
        if !self.is_stored(enqueued).await? {
            return Ok(false);
        }

        let stream = self.stream(WORKFLOW_COMMANDS).await?;
        let tenant = subject::tenant_of(&enqueued.subject)?;

        for name in [
            consumer_name(effect, None),
            consumer_name(effect, Some(&tenant)),
        ] {
            let Some(info) = consumers::info(&stream, &name).await? else {
                continue;
            };
            let filters = consumers::filters_of(&info.config);
            if filters
                .iter()
                .any(|filter| covers(filter, &enqueued.subject))
            {
                // A command above the ack floor may be acknowledged too, or was passed while the
                // filter excluded it, while another one is pending. It then counts as pending, and
                // the floor moves later.
                return Ok(consumers::is_pending(&info, enqueued.sequence));
            }
        }
        Ok(true)
    }

    async fn result(
        &self,
        subject: &str,
        consistency: ReadConsistency,
    ) -> Result<Option<Message>, Error> {
        let nearby = match consistency {
            ReadConsistency::Eventual => self.last_nearby(WORKFLOW_EVENTS, subject).await?,
            ReadConsistency::Linearizable => None,
        };

        // A nearby replica can lack a message, but what it has is stored: only a message that is
        // not authentic requires the leader.
        let found = match (nearby, consistency) {
            (None, ReadConsistency::Eventual) => None,
            (Some(message), _) if self.is_authentic(&message) => Some(message),
            _ => match self.stored(WORKFLOW_EVENTS, subject).await? {
                StoredMessage::Authentic(message) => Some(message),
                StoredMessage::None | StoredMessage::Rejected(_) => None,
            },
        };

        Ok(found.map(message::from_stream_message))
    }

    async fn publish_result(&self, result: Message) -> Result<ResultPublish, Error> {
        let result = self.connection.signer.sign(result);
        Ok(match self.lay(WORKFLOW_EVENTS, &result, true).await? {
            PublishState::Fresh(_) => ResultPublish::Published,
            PublishState::Found(there) if there.payload == result.payload => {
                ResultPublish::Published
            }
            PublishState::Found(there) => {
                ResultPublish::AlreadyPublished(message::from_stream_message(there))
            }
        })
    }

    async fn record_start(&self, start: Message) -> Result<StartRecord, Error> {
        let start = self.connection.signer.sign(start);
        Ok(match self.lay(WORKFLOW_EVENTS, &start, true).await? {
            PublishState::Fresh(_) => StartRecord::Recorded,
            // The acknowledgement of this message was lost.
            PublishState::Found(there) if there.payload == start.payload => StartRecord::Recorded,
            PublishState::Found(_) => StartRecord::AlreadyRecorded,
        })
    }

    async fn subscribe_results(&self) -> Result<Box<dyn ResultStream>, Error> {
        let stream = self.stream(WORKFLOW_EVENTS).await?;
        let opened = results::NatsResultStream::open(stream, self.connection.clone()).await?;
        Ok(Box::new(opened))
    }

    fn subscribe_jobs(&self, subscription: JobSubscription) -> Box<dyn JobStream> {
        Box::new(jobs::NatsJobStream::new(
            self.connection.clone(),
            subscription,
        ))
    }

    async fn backlog(&self, consumer: &str) -> Result<JobBacklog, Error> {
        let stream = self.stream(WORKFLOW_COMMANDS).await?;
        consumers::backlog(&stream, consumer).await
    }

    async fn dead_letter(&self, message: Message) -> Result<(), Error> {
        self.lay(WORKFLOW_DEADLETTERS, &message, false)
            .await
            .map(|_| ())
    }
}
