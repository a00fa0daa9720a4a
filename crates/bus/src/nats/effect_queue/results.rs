//! Stream of new results: a consumer without acknowledgements. It is recreated after the last received
//! result if it is lost or if a gap appears.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::Stream as StreamHandle;
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};

use crate::effect_queue::ResultStream;
use crate::nats::connection::{chain, unavailable};
use crate::nats::message::from_nats;
use crate::nats::temporary_consumer::{after, next_info, temporary};
use crate::signature::Signer;
use crate::subject::{self, SubjectKind};
use crate::{Error, Message};

/// Maximum number of results returned at once.
const PAGE: usize = 512;
const HEARTBEAT: Duration = Duration::from_millis(500);
const EXPIRES: Duration = Duration::from_secs(5);
/// The server deletes a consumer that is inactive for this duration.
const INACTIVE_THRESHOLD: Duration = Duration::from_secs(30);
/// Delay between two attempts to create a consumer.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct NatsResultStream {
    stream: StreamHandle<()>,
    /// Sequence of the last received result.
    last: u64,
    open: Option<OpenConsumer>,
    signer: Arc<Signer>,
}

struct OpenConsumer {
    messages: pull::Stream,
    consumer_sequence: u64,
}

impl NatsResultStream {
    /// Opens the stream after its current last message. The consumer exists before this returns, so that no
    /// later result is missed, even if the stream drops old messages.
    pub(super) async fn open(stream: StreamHandle<()>, signer: Arc<Signer>) -> Result<Self, Error> {
        let info = stream.get_info().await.map_err(unavailable)?;
        let mut results = Self { stream, last: info.state.last_sequence, open: None, signer };
        results.open = Some(results.make().await.map_err(Error::Unavailable)?);
        Ok(results)
    }

    async fn make(&self) -> Result<OpenConsumer, String> {
        let filters = subject::filters(None, SubjectKind::EffectResult, None);
        let config = pull::Config {
            description: Some("Live effect results".to_owned()),
            ..temporary(filters, after(self.last), INACTIVE_THRESHOLD)
        };
        let consumer = self.stream.create_consumer(config).await.map_err(|error| chain(&error))?;
        let messages = consumer.stream().max_messages_per_batch(PAGE).heartbeat(HEARTBEAT).expires(EXPIRES);
        let messages = messages.messages().await.map_err(|error| chain(&error))?;
        Ok(OpenConsumer { messages, consumer_sequence: 0 })
    }

    /// Returns the next authentic result; `None` if the consumer must be recreated.
    async fn one(&mut self) -> Option<Message> {
        loop {
            let open = self.open.as_mut()?;
            let message = open.messages.next().await?.ok()?;
            let sequence = next_info(&message, &mut open.consumer_sequence)?.stream_sequence;
            if sequence > self.last {
                self.last = sequence;
                let message = from_nats(message.message);
                if self.signer.verify(&message).is_ok() {
                    return Some(message.as_ref().clone());
                }
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
                Err(error) => tracing::warn!(error, "effect result subscription failed; retrying"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[async_trait]
impl ResultStream for NatsResultStream {
    async fn next(&mut self) -> Vec<Message> {
        let mut received = Vec::new();
        loop {
            if self.open.is_none() {
                self.reopen().await;
            }
            match self.one().await {
                Some(result) => received.push(result),
                None => self.open = None,
            }
            while received.len() < PAGE
                && let Some(Some(result)) = self.one().now_or_never()
            {
                received.push(result);
            }
            if !received.is_empty() {
                return received;
            }
        }
    }
}
