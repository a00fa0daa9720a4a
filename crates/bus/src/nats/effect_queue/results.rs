//! Stream of new results: a reader of the stream of events. It is restarted at the end of the
//! stream if the stream was recreated or truncated.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream::Stream as StreamHandle;
use async_trait::async_trait;
use uuid::Uuid;

use crate::checkpoint::AckPosition;
use crate::effect_queue::ResultStream;
use crate::nats::connection::unavailable;
use crate::nats::raw_message::RawMessages;
use crate::nats::stream_reader::{ReaderConfig, ReaderEvent, StreamReader};
use crate::nats::{WORKFLOW_EVENTS, identity};
use crate::retry_log::RetryLog;
use crate::signature::Signer;
use crate::subject;
use crate::{Error, Message};

/// Delay between two attempts to restart the reader.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct NatsResultStream {
    stream: StreamHandle<()>,
    raw: RawMessages,
    reader: StreamReader,
    signer: Arc<Signer>,
    retries: RetryLog,
}

impl NatsResultStream {
    /// Opens the stream after its current last message.
    pub(super) async fn open(
        stream: StreamHandle<()>,
        raw: RawMessages,
        signer: Arc<Signer>,
    ) -> Result<Self, Error> {
        let reader = start(&stream, &raw).await?;
        Ok(Self {
            stream,
            raw,
            reader,
            signer,
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
            match start(&self.stream, &self.raw).await {
                Ok(reader) => {
                    self.reader = reader;
                    return;
                }
                Err(error) => reason = error.to_string(),
            }
        }
    }
}

async fn start(stream: &StreamHandle<()>, raw: &RawMessages) -> Result<StreamReader, Error> {
    let info = stream.get_info().await.map_err(unavailable)?;
    Ok(StreamReader::start(ReaderConfig {
        stream: stream.clone(),
        stream_name: WORKFLOW_EVENTS.to_owned(),
        stream_id: identity(&info),
        raw: raw.clone(),
        failures: Arc::default(),
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
                    let authentic = messages
                        .iter()
                        .filter(|s| s.defect.is_none() && self.signer.verify(&s.message).is_ok());
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
