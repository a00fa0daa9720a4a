//! Key-value bucket: writes with compare-and-set, and a view that follows all records.
//!
//! Writes do not use the client's own calls. Its `update` omits the time to live, and so does its
//! `create` after a tombstone, so that a record would never expire. A message is published to the
//! subject of the key instead.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, Stream};
use futures::StreamExt as _;
use orlog_model::whole_seconds;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::connection::{Connection, chain, unavailable};
use super::raw_message::RawMessages;
use super::temporary_consumer::{
    UnacknowledgedMessages, after, create_on_leader, next_info, temporary,
};
use crate::Error;
use crate::retry_log::RetryLog;

/// Heartbeat interval of the server. After two missed heartbeats the view is read again.
const HEARTBEAT: Duration = Duration::from_millis(500);
const EXPIRES: Duration = Duration::from_secs(5);
/// Deduplication window: the default of the servers.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);
/// Delay between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of consumers that may end before all records are read. Then the records are read one by
/// one.
const MAX_INCOMPLETE_LOADS: u32 = 2;

/// Bucket on the servers.
pub(super) struct Bucket {
    connection: Connection,
    stream: Stream<()>,
    raw: RawMessages,
    prefix: String,
}

/// Result of a write.
pub(super) enum PutResult {
    /// Stored under this sequence.
    Done(u64),
    /// The record is not the one that was read.
    Conflict,
}

/// State that follows the records of a bucket.
pub(super) trait BucketView: Clone + Default + PartialEq + Send + Sync + 'static {
    /// Creates the empty state before all records are read; `last_sequence` is that of the bucket.
    fn begin(last_sequence: u64) -> Self;

    /// Applies the last message of a key; a tombstone has an empty body.
    fn note(&mut self, key: &str, sequence: u64, body: &[u8]);

    /// Returns whether this can be a later state than `last`; otherwise the bucket lost records,
    /// and `last` stays.
    fn can_follow(&self, _last: &Self) -> bool {
        true
    }

    /// Returns whether this is the current state of the servers.
    fn is_current(&self) -> bool;

    /// Marks the state as possibly outdated.
    fn lose_currency(&mut self);
}

/// View of a bucket; drop ends the task that follows it.
pub(super) struct BucketWatch<V> {
    view: watch::Receiver<Arc<V>>,
    reading: AbortHandle,
}

impl<V> BucketWatch<V> {
    pub(super) fn view(&self) -> watch::Receiver<Arc<V>> {
        self.view.clone()
    }
}

impl<V> Drop for BucketWatch<V> {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Bucket {
    /// Returns the configuration of the bucket's stream: what the client creates for a bucket.
    pub(super) fn config(bucket: &str, description: &str, replicas: usize) -> Config {
        Config {
            name: stream_name(bucket),
            description: Some(description.to_owned()),
            subjects: vec![format!("{}>", prefix(bucket))],
            discard: DiscardPolicy::New,
            max_bytes: -1,
            max_messages_per_subject: 1,
            duplicate_window: DUPLICATE_WINDOW,
            num_replicas: replicas,
            allow_rollup: true,
            deny_delete: true,
            // The last value is read from the leader.
            allow_direct: false,
            ..Config::default()
        }
    }

    /// Opens the existing bucket.
    pub(super) async fn open(connection: &Connection, bucket: &str) -> Result<Self, Error> {
        let stream = connection
            .jetstream
            .get_stream_no_info(stream_name(bucket))
            .await;
        let stream = stream.map_err(unavailable)?;

        Ok(Self {
            connection: connection.clone(),
            stream,
            raw: RawMessages::new(&connection.jetstream, &stream_name(bucket)),
            prefix: prefix(bucket),
        })
    }

    /// Starts to follow the bucket.
    pub(super) fn watch<V: BucketView>(&self) -> BucketWatch<V> {
        let (sender, view) = watch::channel(Arc::new(V::default()));
        let reader = BucketWatcher {
            stream: self.stream.clone(),
            raw: self.raw.clone(),
            prefix: self.prefix.clone(),
            sender,
            incomplete_loads: 0,
        };
        BucketWatch {
            view,
            reading: tokio::spawn(reader.run()).abort_handle(),
        }
    }

    /// Writes a record if the last message of its key has the sequence `seen`; `None`: in any case.
    pub(super) async fn put(
        &self,
        key: &str,
        body: Vec<u8>,
        seen: Option<u64>,
        ttl: Option<Duration>,
    ) -> Result<PutResult, Error> {
        let message = record(body, seen, ttl);
        let ack = self
            .connection
            .jetstream
            .send_publish(format!("{}{key}", self.prefix), message)
            .await;

        match async { ack?.await }.await {
            Ok(ack) => Ok(PutResult::Done(ack.sequence)),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                Ok(PutResult::Conflict)
            }
            // In a cluster, a second message in flight is rejected with another code (10164).
            Err(error) if chain(&error).contains("wrong last sequence") => Ok(PutResult::Conflict),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Returns the sequence of the last record, from the leader.
    pub(super) async fn last_sequence(&self) -> Result<u64, Error> {
        self.stream
            .get_info()
            .await
            .map(|info| info.state.last_sequence)
            .map_err(unavailable)
    }

    /// Returns the sequence and body of the last message of a key; a tombstone has an empty body.
    pub(super) async fn last(&self, key: &str) -> Result<Option<(u64, Vec<u8>)>, Error> {
        match self
            .stream
            .get_last_raw_message_by_subject(&format!("{}{key}", self.prefix))
            .await
        {
            Ok(message) => Ok(Some((message.sequence, message.payload.to_vec()))),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }
}

fn record(body: Vec<u8>, seen: Option<u64>, ttl: Option<Duration>) -> PublishMessage {
    let mut message = PublishMessage::build().payload(body.into());
    if let Some(seen) = seen {
        message = message.expected_last_subject_sequence(seen);
    }
    if let Some(ttl) = ttl {
        // Servers count whole seconds, and the client would round down. A record that expires
        // before its writer expects it has two owners.
        message = message.ttl(Duration::from_secs(whole_seconds(ttl)));
    }
    message
}

/// Watcher of a bucket.
struct BucketWatcher<V> {
    stream: Stream<()>,
    raw: RawMessages,
    prefix: String,
    sender: watch::Sender<Arc<V>>,
    /// Number of consumers that ended before all records were read.
    incomplete_loads: u32,
}

/// Records that were read one by one.
struct LoadedRecords<V> {
    view: V,
    /// Sequence up to which they were read.
    end: u64,
    /// Whether the client cannot parse one of them.
    has_defect: bool,
}

impl<V: BucketView> BucketWatcher<V> {
    async fn run(mut self) {
        let mut retries = RetryLog::default();
        loop {
            if let Err(error) = self.round(&mut retries).await {
                let bucket = &self.prefix;
                retries.failed(|count| {
                    tracing::warn!(
                        bucket, %error, failures = count,
                        "bucket read failed; retrying"
                    );
                });
            }

            // Until it is read again, the view may lack changes; owners must not rely on it.
            self.sender.send_if_modified(|view| {
                let was_current = view.is_current();
                if was_current {
                    Arc::make_mut(view).lose_currency();
                }
                was_current
            });

            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads all records one by one. The client closes its connection at a record whose headers it
    /// cannot parse, so that a consumer never gets past it. The bucket has one message of each key.
    async fn load_singly(&self, filter: &[String]) -> Result<LoadedRecords<V>, Error> {
        let info = self.stream.get_info().await.map_err(unavailable)?;
        let end = info.state.last_sequence;

        let mut loaded = LoadedRecords {
            view: V::begin(end),
            end,
            has_defect: false,
        };
        let mut last = 0;
        while last < end {
            // The consumer delivers the records after the end: those that are written meanwhile do
            // not prolong the load.
            let Some(stored) = self.raw.first_from(last + 1, end, filter).await? else {
                break;
            };
            last = stored.sequence;
            loaded.has_defect |= stored.defect.is_some();
            if let Some(key) = stored.message.subject.strip_prefix(&self.prefix) {
                loaded.view.note(key, last, &stored.message.payload);
            }
        }
        Ok(loaded)
    }

    /// Reads until the current consumer ends. Starts with all records, so that records that expired
    /// while no consumer was active are removed.
    async fn round(&mut self, retries: &mut RetryLog) -> Result<(), Error> {
        let filter = vec![format!("{}>", self.prefix)];
        let loaded = if self.incomplete_loads < MAX_INCOMPLETE_LOADS {
            None
        } else {
            Some(self.load_singly(&filter).await?)
        };
        let policy = match &loaded {
            None => DeliverPolicy::LastPerSubject,
            Some(loaded) => after(loaded.end),
        };

        // A lagging server lacks the last records.
        let (info, consumer) = create_on_leader(&self.stream, |_| pull::Config {
            // Without a name, the request has a subject that permissions with a wildcard after the
            // stream do not cover.
            name: Some(Uuid::new_v4().simple().to_string()),
            ..temporary(filter.clone(), policy, EXPIRES * 2)
        })
        .await?;
        let mut remaining = consumer.cached_info().num_pending;
        let pull = consumer.stream().heartbeat(HEARTBEAT).expires(EXPIRES);
        let mut messages = UnacknowledgedMessages::receive(&self.raw.client(), pull).await?;

        let has_defect = loaded.as_ref().is_some_and(|loaded| loaded.has_defect);
        let mut view = match loaded {
            None => V::begin(info.state.last_sequence),
            Some(loaded) => loaded.view,
        };

        let mut numbers = 0;
        let mut is_complete = false;
        loop {
            // Not before: a partial view would show owners as absent.
            if remaining == 0 {
                if !view.can_follow(&self.sender.borrow()) {
                    return Err(Error::Unavailable(
                        "the bucket lost records; restore its stream".to_owned(),
                    ));
                }
                is_complete = true;
                // A consumer would end at a record with a defect again.
                if !has_defect {
                    self.incomplete_loads = 0;
                }
                retries.succeeded(|failures| {
                    let bucket = &self.prefix;
                    tracing::info!(bucket, failures, "bucket is read again");
                });
                self.sender.send_if_modified(|current| {
                    let changed = **current != view;
                    if changed {
                        *current = Arc::new(view.clone());
                    }
                    changed
                });
            }

            let Some(Ok(message)) = messages.next().await else {
                self.incomplete_loads += u32::from(!is_complete);
                return Ok(());
            };
            // A message is missing. The next round reads all records again.
            let Some(info) = next_info(&message, &mut numbers) else {
                return Ok(());
            };

            remaining = info.pending;
            if let Some(key) = message.subject.strip_prefix(&self.prefix) {
                view.note(key, info.stream_sequence, &message.payload);
            }
        }
    }
}

fn prefix(bucket: &str) -> String {
    format!("$KV.{bucket}.")
}

fn stream_name(bucket: &str) -> String {
    format!("KV_{bucket}")
}

#[cfg(test)]
mod tests {
    use async_nats::header::NATS_MESSAGE_TTL;

    use super::*;

    #[test]
    fn record_lives_at_least_as_long_as_its_writer_expects() {
        for (millis, seconds) in [(1000, "1"), (1900, "2"), (2000, "2"), (2001, "3")] {
            let ttl = Some(Duration::from_millis(millis));
            let message = record(Vec::new(), None, ttl).outbound_message("x");
            let headers = message.headers.expect("the time to live is a header");
            let ttl = headers.get(NATS_MESSAGE_TTL).map(ToString::to_string);
            assert_eq!(ttl.as_deref(), Some(seconds), "{millis} ms");
        }
    }
}
