//! Stream of new results: a reader of the stream of events. It is restarted at the end of the
//! stream if the stream was recreated or truncated.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream::Stream as StreamHandle;
use async_trait::async_trait;
use uuid::Uuid;

use crate::checkpoint::AckPosition;
use crate::effect_queue::ResultStream;
use crate::nats::connection::{Connection, unavailable};
use crate::nats::raw_message::RawMessages;
use crate::nats::stream_reader::{ReaderConfig, ReaderEvent, StreamReader};
use crate::nats::{WORKFLOW_EVENTS, identity};
use crate::retry_log::RetryLog;
use crate::subject;
use crate::{Error, Message};

/// Delay between two attempts to restart the reader.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct NatsResultStream {
    stream: StreamHandle<()>,
    connection: Connection,
    reader: StreamReader,
    retries: RetryLog,
}

impl NatsResultStream {
    /// Opens the stream after its current last message.
    pub(super) async fn open(
        stream: StreamHandle<()>,
        connection: Connection,
    ) -> Result<Self, Error> {
        let reader = start(&stream, &connection).await?;
        Ok(Self {
            stream,
            connection,
            reader,
            retries: RetryLog::default(),
        })
    }
}

impl NatsResultStream {
    /// Ends a series of failures.
    fn works(&mut self) {
        self.retries.succeeded(|failures| {
            tracing::info!(failures, "effect results are received again");
        });
    }

    /// Starts another reader after the current one ended.
    async fn restart(&mut self, mut reason: String) {
        loop {
            self.retries.failed(|failures| {
                tracing::warn!(
                    error = reason,
                    failures,
                    "effect result subscription failed; retrying"
                );
            });
            tokio::time::sleep(PAUSE).await;
            // The new reader starts at the end of the stream. Senders look up the results in
            // between when their commands time out.
            match start(&self.stream, &self.connection).await {
                Ok(reader) => {
                    self.reader = reader;
                    return;
                }
                Err(error) => reason = error.to_string(),
            }
        }
    }
}

async fn start(stream: &StreamHandle<()>, connection: &Connection) -> Result<StreamReader, Error> {
    let info = stream.get_info().await.map_err(unavailable)?;
    Ok(StreamReader::start(ReaderConfig {
        stream: stream.clone(),
        stream_name: WORKFLOW_EVENTS.to_owned(),
        stream_id: identity(&info),
        raw: RawMessages::new(&connection.jetstream, WORKFLOW_EVENTS),
        failures: Arc::clone(&connection.read_failures),
        name: format!("results-{}", Uuid::new_v4().simple()),
        filters: subject::result_filters(None),
        after: AckPosition {
            sequence: info.state.last_sequence,
            at: None,
        },
        // Results of an outage must not be skipped.
        max_outage: None,
    }))
}

#[async_trait]
impl ResultStream for NatsResultStream {
    async fn next(&mut self) -> Vec<Message> {
        loop {
            match self.reader.next().await {
                ReaderEvent::Messages { messages, .. } => {
                    self.works();
                    let signer = &self.connection.signer;
                    // Other messages count as absent. A sender finds the authentic result with a
                    // read.
                    let authentic = messages
                        .iter()
                        .filter(|s| s.defect.is_none() && signer.verify(&s.message).is_ok());
                    let results: Vec<_> = authentic.map(|s| s.message.as_ref().clone()).collect();
                    if !results.is_empty() {
                        return results;
                    }
                }
                ReaderEvent::CaughtUp(_) => self.works(),
                ReaderEvent::Broken(reason) => {
                    self.restart(reason).await;
                }
            }
        }
    }
}
