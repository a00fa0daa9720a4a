//! Scan of a stream through a temporary consumer.

use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::stream::Stream;
use async_trait::async_trait;
use futures::StreamExt as _;

use super::connection::chain;
use super::message::{from_nats, timestamp};
use super::temporary_consumer::{after, create_on_leader, next_info, since, temporary};
use crate::consumer::StoredMessage;
use crate::{Delivery, Error, ScanStart, StreamScan};

/// Number of messages per fetch.
const PULL: usize = 1000;
/// Maximum time that the servers may take to return a message.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of consecutive failed fetches after which a scan fails. A consumer that was just created may not
/// be reachable yet from all servers.
const FETCH_ATTEMPTS: u32 = 20;
/// Delay between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
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
    /// Opens the scan of all messages up to the end of the stream, as its leader states it.
    pub(super) async fn open(
        stream: &Stream<()>,
        name: &str,
        filters: &[String],
        start: ScanStart,
    ) -> Result<Self, Error> {
        let deliver_policy = match start {
            ScanStart::Sequence(first) => after(first.saturating_sub(1)),
            ScanStart::Time(time) => since(time)?,
        };
        let config = |attempt| pull::Config {
            name: Some(format!("{name}-{attempt}")),
            ..temporary(filters.to_vec(), deliver_policy, INACTIVE)
        };
        let (info, consumer) = create_on_leader(stream, config).await?;
        let done = consumer.cached_info().num_pending == 0;
        Ok(Self { consumer, count: 0, end: info.state.last_sequence, done })
    }

    /// Reads the next messages. A failure of the servers ends the batch and is returned beside it; no message
    /// is lost, because the next batch continues after the received messages.
    async fn fetch(&mut self) -> Result<(Vec<Delivery>, Option<String>), Error> {
        let mut found = Vec::new();
        let mut batch = match self.consumer.fetch().max_messages(PULL).messages().await {
            Ok(batch) => batch,
            Err(error) => return Ok((found, Some(chain(&error)))),
        };
        while let Some(message) = batch.next().await {
            let message = match message {
                Ok(message) => message,
                Err(error) => return Ok((found, Some(error.to_string()))),
            };
            let skipped = || Error::Unavailable("messages were skipped; read again".to_owned());
            let info = next_info(&message, &mut self.count).ok_or_else(skipped)?;
            let (sequence, published_at) = (info.stream_sequence, timestamp(info.published));
            self.done = info.pending == 0 || sequence >= self.end;
            if sequence <= self.end {
                let message = from_nats(message.message);
                found.push(StoredMessage { sequence, published_at, message }.delivery(1));
            }
            if self.done {
                break;
            }
        }
        Ok((found, None))
    }
}

#[async_trait]
impl StreamScan for NatsScan {
    async fn next(&mut self) -> Result<Vec<Delivery>, Error> {
        let mut failures = 0;
        while !self.done {
            let fetched = tokio::time::timeout(FETCH_TIMEOUT, self.fetch()).await;
            let (found, failure) =
                fetched.map_err(|_| Error::Unavailable("the servers do not respond".to_owned()))??;
            if !found.is_empty() {
                return Ok(found);
            }
            let Some(failure) = failure else { continue };
            failures += 1;
            if failures >= FETCH_ATTEMPTS {
                return Err(Error::Unavailable(failure));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(Vec::new())
    }

    fn end_sequence(&self) -> u64 {
        self.end
    }
}
