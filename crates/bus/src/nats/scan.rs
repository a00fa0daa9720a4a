//! Scan of a stream through a temporary consumer.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::stream::Stream;
use async_trait::async_trait;
use futures::StreamExt as _;

use super::connection::chain;
use super::message::{from_nats, timestamp};
use crate::in_flight::StoredMessage;
use crate::{Delivery, Error, ScanStart, StreamScan};

/// Number of messages per fetch.
const PULL: usize = 1000;
/// Maximum time that the servers may take to return a message.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The servers delete a consumer that is inactive for this duration.
const INACTIVE: Duration = Duration::from_secs(30);

/// See [`StreamScan`].
#[derive(Debug)]
pub(super) struct NatsScan {
    consumer: Consumer<pull::Config>,
    /// Number of delivered messages according to the consumer; detects gaps.
    count: u64,
    end: u64,
    done: bool,
}

impl NatsScan {
    pub(super) async fn open(
        stream: &Stream<()>,
        name: String,
        filters: Vec<String>,
        since: ScanStart,
        end: u64,
    ) -> Result<Self, Error> {
        let deliver_policy = match since {
            ScanStart::Sequence(first) => DeliverPolicy::ByStartSequence { start_sequence: first.max(1) },
            ScanStart::Time(time) => {
                let start_time = async_nats::datetime::from_nanos(i128::from(time.as_millis()) * 1_000_000);
                let start_time = start_time.map_err(|error| Error::Unavailable(error.to_string()))?;
                DeliverPolicy::ByStartTime { start_time }
            }
        };
        let config = pull::Config {
            name: Some(name),
            filter_subjects: filters,
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: INACTIVE,
            deliver_policy,
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await;
        let consumer = consumer.map_err(|error| Error::Unavailable(chain(&error)))?;
        let done = consumer.cached_info().num_pending == 0;
        Ok(Self { consumer, count: 0, end, done })
    }

    async fn fetch(&mut self) -> Result<Vec<Delivery>, Error> {
        let unavailable = |error: &dyn std::error::Error| Error::Unavailable(chain(error));
        let batch = self.consumer.fetch().max_messages(PULL).messages().await;
        let mut batch = batch.map_err(|error| unavailable(&error))?;
        let mut found = Vec::new();
        while let Some(message) = batch.next().await {
            let message = message.map_err(|error| Error::Unavailable(error.to_string()))?;
            let info = message.info().map_err(|error| Error::Unavailable(error.to_string()))?;
            let (sequence, published_at) = (info.stream_sequence, timestamp(info.published));
            self.count += 1;
            if info.consumer_sequence != self.count {
                return Err(Error::Unavailable("messages were skipped; read again".to_owned()));
            }
            self.done = info.pending == 0 || sequence >= self.end;
            if sequence <= self.end {
                let message = from_nats(message.message);
                found.push(Delivery::new(StoredMessage { sequence, published_at, message }));
            }
            if self.done {
                break;
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl StreamScan for NatsScan {
    async fn next(&mut self) -> Result<Vec<Delivery>, Error> {
        while !self.done {
            let found = tokio::time::timeout(FETCH_TIMEOUT, self.fetch()).await;
            let found = found.map_err(|_| Error::Unavailable("the servers do not respond".to_owned()))??;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    fn end_sequence(&self) -> u64 {
        self.end
    }
}
