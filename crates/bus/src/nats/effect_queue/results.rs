//! All words said from now on: a consumer of our own making, without acknowledgements, made anew after the last word heard
//! whenever it is lost or a hole shows.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::Stream as StreamHandle;
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};

use super::consumer_name::unavailable;
use crate::effect_queue::Words;
use crate::nats::connection::chain;
use crate::nats::message::from_nats;
use crate::subject::{self, Kind};
use crate::{Error, Message};

/// Words handed over at once, at most.
const PAGE: usize = 512;
const HEARTBEAT: Duration = Duration::from_millis(500);
const EXPIRES: Duration = Duration::from_secs(5);
/// A consumer that nobody asks is forgotten by the server after this.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// Between two tries to make a consumer.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct NatsWords {
    stream: StreamHandle<()>,
    /// The last word heard, by its place in the stream.
    last: u64,
    open: Option<Open>,
}

struct Open {
    messages: pull::Stream,
    consumer_sequence: u64,
}

impl NatsWords {
    /// From after what lies there now. The consumer is made before this returns, so that nothing said later is missed even
    /// if the stream is short of room.
    pub(super) async fn open(stream: StreamHandle<()>) -> Result<Self, Error> {
        let info = stream.get_info().await.map_err(|error| unavailable(&error))?;
        let mut words = Self { stream, last: info.state.last_sequence, open: None };
        words.open = Some(words.make().await.map_err(Error::Unavailable)?);
        Ok(words)
    }

    async fn make(&self) -> Result<Open, String> {
        let config = pull::Config {
            description: Some("results of effects, live".to_owned()),
            filter_subjects: subject::filters(None, Kind::EffectResult, None),
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: FORGOTTEN,
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.last + 1 },
            ..Default::default()
        };
        let consumer = self.stream.create_consumer(config).await.map_err(|error| chain(&error))?;
        let messages = consumer.stream().max_messages_per_batch(PAGE).heartbeat(HEARTBEAT).expires(EXPIRES);
        let messages = messages.messages().await.map_err(|error| chain(&error))?;
        Ok(Open { messages, consumer_sequence: 0 })
    }

    /// The next word; `None` when the consumer has to be made anew.
    async fn one(&mut self) -> Option<Message> {
        loop {
            let open = self.open.as_mut()?;
            let message = open.messages.next().await?.ok()?;
            let (sequence, consumer_sequence) =
                message.info().map(|info| (info.stream_sequence, info.consumer_sequence)).ok()?;
            if consumer_sequence != open.consumer_sequence + 1 {
                return None;
            }
            open.consumer_sequence = consumer_sequence;
            if sequence > self.last {
                self.last = sequence;
                return Some(from_nats(message.message).as_ref().clone());
            }
        }
    }

    async fn reopen(&mut self) {
        self.open = None;
        loop {
            match self.make().await {
                Ok(open) => {
                    self.open = Some(open);
                    return;
                }
                Err(error) => tracing::warn!(error, "results of effects cannot be heard; trying again"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[async_trait]
impl Words for NatsWords {
    async fn next(&mut self) -> Vec<Message> {
        let mut heard = Vec::new();
        loop {
            if self.open.is_none() {
                self.reopen().await;
            }
            match self.one().await {
                Some(word) => heard.push(word),
                None => self.open = None,
            }
            while heard.len() < PAGE
                && let Some(Some(word)) = self.one().now_or_never()
            {
                heard.push(word);
            }
            if !heard.is_empty() {
                return heard;
            }
        }
    }
}
