//! The queue of effects on JetStream.
//!
//! A command lies in the stream of commands under its own subject, a word in the stream of events. That there is one word only
//! is the server's doing: a word is published with the expectation that nothing lies under its subject. Acknowledgements that
//! were lost, and refusals of a clustered stream that is busy with another message, are resolved by looking.

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
use crate::effect_queue::{EffectQueue, FirstWord, Jobs, Look, Offered, Wanted, Words};
use crate::{Error, Message};
use consumer_name::unavailable;

pub use consumer_name::consumer_name;

/// How often a publish is tried before whoever asked hears that it does not go.
const TRIES: u32 = 8;
/// The pause after the first try; it doubles.
const PAUSE: Duration = Duration::from_millis(25);

/// The queue, on a connection.
#[derive(Clone, Debug)]
pub struct NatsEffects {
    connection: Connection,
}

/// What became of a publish.
enum Laid {
    /// It lies there.
    Fresh(u64),
    /// This lay there; it may be the same message, whose acknowledgement was lost.
    Found(StreamMessage),
}

impl NatsEffects {
    /// On this connection. The streams are there already.
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

    /// Publishes and, where the answer leaves open what became of it, looks.
    async fn lay(&self, stream: &str, message: &Message, new: bool) -> Result<Laid, Error> {
        let mut publish = to_nats(message)?;
        if new {
            publish = publish.expected_last_subject_sequence(0);
        }
        let mut pause = PAUSE;
        let mut last = String::new();
        for _ in 0..TRIES {
            let error = match self.publish(&message.subject, publish.clone()).await {
                Ok(sequence) => return Ok(Laid::Fresh(sequence)),
                Err(error) => error,
            };
            if error.kind() == PublishErrorKind::MaxPayloadExceeded {
                return Err(Error::TooLarge { size: message.size(), limit: self.connection.max_payload() });
            }
            last = chain(&error);
            // Without an expectation the id for deduplication makes trying again harmless.
            if new && let Some(found) = self.last(stream, &message.subject).await? {
                return Ok(Laid::Found(found));
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(Error::Unavailable(format!("{} was not taken: {last}", message.subject)))
    }

    /// What lies under a subject, as the leader of its stream knows it.
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

    async fn lies_there(&self, offered: &Offered) -> Result<bool, Error> {
        match self.stream(WORKFLOW_COMMANDS).await?.get_raw_message(offered.sequence).await {
            Ok(message) => Ok(message.subject.as_str() == offered.subject),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(false),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

#[async_trait]
impl EffectQueue for NatsEffects {
    async fn offer(&self, command: Message, first: bool) -> Result<Offered, Error> {
        let (sequence, found) = match self.lay(WORKFLOW_COMMANDS, &command, first).await? {
            Laid::Fresh(sequence) => (sequence, false),
            Laid::Found(there) => (there.sequence, true),
        };
        Ok(Offered { subject: command.subject, sequence, found })
    }

    /// Behind the ack floor of the consumer somebody is done with it. In front of it, it may be so too, as long as an older one
    /// is not done with: then this says that it waits, and the floor moves on.
    async fn is_waiting(&self, effect: &EffectName, offered: &Offered) -> Result<bool, Error> {
        if !self.lies_there(offered).await? {
            return Ok(false);
        }
        match self.stream(WORKFLOW_COMMANDS).await?.consumer_info(consumer_name(effect)).await {
            Ok(info) => Ok(info.ack_floor.stream_sequence < offered.sequence),
            Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => Ok(true),
            Err(error) => Err(unavailable(&error)),
        }
    }

    async fn word(&self, subject: &str, look: Look) -> Result<Option<Message>, Error> {
        let found = match look {
            Look::Quick => self.last_nearby(WORKFLOW_EVENTS, subject).await?,
            Look::Sure => self.last(WORKFLOW_EVENTS, subject).await?,
        };
        Ok(found.map(message::of_stream))
    }

    async fn say(&self, word: Message) -> Result<FirstWord, Error> {
        Ok(match self.lay(WORKFLOW_EVENTS, &word, true).await? {
            Laid::Fresh(_) => FirstWord::Ours,
            Laid::Found(there) if there.payload == word.payload => FirstWord::Ours,
            Laid::Found(there) => FirstWord::Theirs(message::of_stream(there)),
        })
    }

    async fn listen(&self) -> Result<Box<dyn Words>, Error> {
        let stream = self.stream(WORKFLOW_EVENTS).await?;
        Ok(Box::new(results::NatsWords::open(stream).await?))
    }

    async fn jobs(&self, wanted: Wanted) -> Result<Box<dyn Jobs>, Error> {
        let stream = self.stream(WORKFLOW_COMMANDS).await?;
        Ok(Box::new(jobs::NatsJobs::open(stream, wanted).await?))
    }

    async fn bury(&self, letter: Message) -> Result<(), Error> {
        self.lay(WORKFLOW_DEADLETTERS, &letter, false).await.map(|_| ())
    }
}
