//! Pods and shard owners in a key-value bucket.
//!
//! Writes do not use the client's own calls. Its `update` omits the time to live, and so does its
//! `create` after a tombstone, so that a lease would never expire. A message is published to the
//! subject of the key instead.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, Stream};
use async_trait::async_trait;
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::connection::{Connection, chain, unavailable};
use super::stream_config::StreamSpec;
use super::temporary_consumer::{create_on_leader, next_info, temporary};
use crate::Error;
use crate::membership::{ClusterView, Membership, Pod, ShardLease, ShardOwnership};
use crate::retry_log::RetryLog;

/// Retention of a tombstone of an expired record.
const TOMBSTONE_TTL: Duration = Duration::from_mins(1);
/// Heartbeat interval of the server. After two missed heartbeats the view is read again.
const HEARTBEAT: Duration = Duration::from_millis(500);
const EXPIRES: Duration = Duration::from_secs(5);
/// Delay between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Options of the leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Name of the bucket: all pods that use it share the shards.
    pub bucket: String,
    /// Time to live of a pod's announcement.
    pub ttl: Duration,
}

/// Lease records of a bucket.
pub struct Leases {
    connection: Connection,
    stream: Stream<()>,
    options: LeaseOptions,
    view: watch::Receiver<Arc<ClusterView>>,
    /// Sequence of this process's own announcement, after the first one.
    announced: Mutex<Option<u64>>,
    reading: AbortHandle,
}

#[derive(Serialize, Deserialize)]
struct PodRecord {
    incarnation: Uuid,
    url: String,
    draining: bool,
}

#[derive(Serialize, Deserialize)]
struct ShardRecord {
    pod: Option<String>,
    incarnation: Option<Uuid>,
    epoch: u64,
}

/// Result of a publish.
enum PutResult {
    Done(u64),
    /// The record is not the one that was read.
    Conflict,
}

impl Leases {
    /// Returns the specification of the bucket's stream: what the client creates for a bucket with
    /// tombstones.
    #[must_use]
    pub fn plan(bucket: &str, replicas: usize) -> StreamSpec {
        let config = Config {
            name: stream_name(bucket),
            description: Some("Pods and shard owners".to_owned()),
            subjects: vec![format!("{}>", prefix(bucket))],
            discard: DiscardPolicy::New,
            max_bytes: -1,
            max_messages_per_subject: 1,
            duplicate_window: TOMBSTONE_TTL,
            num_replicas: replicas,
            allow_rollup: true,
            deny_delete: true,
            allow_message_ttl: true,
            subject_delete_marker_ttl: Some(TOMBSTONE_TTL),
            // The last value is read from the leader.
            allow_direct: false,
            ..Config::default()
        };
        StreamSpec { config, is_external: false }
    }

    /// Opens the existing bucket and starts to read it.
    ///
    /// # Errors
    /// If the servers do not respond or reject the request.
    pub async fn open(connection: &Connection, options: LeaseOptions) -> Result<Self, Error> {
        let jetstream = &connection.jetstream;
        let stream = jetstream.get_stream_no_info(stream_name(&options.bucket)).await.map_err(unavailable)?;
        let (sender, view) = watch::channel(Arc::new(ClusterView::default()));
        let reader = BucketWatcher { stream: stream.clone(), prefix: prefix(&options.bucket), sender };
        let reading = tokio::spawn(reader.run()).abort_handle();
        Ok(Self {
            connection: connection.clone(),
            stream,
            options,
            view,
            announced: Mutex::default(),
            reading,
        })
    }

    async fn put(&self, key: &str, body: Vec<u8>, seen: Option<u64>, ttl: bool) -> Result<PutResult, Error> {
        let mut message = PublishMessage::build().payload(body.into());
        if let Some(seen) = seen {
            message = message.expected_last_subject_sequence(seen);
        }
        if ttl {
            message = message.ttl(self.options.ttl);
        }
        let subject = format!("{}{key}", prefix(&self.options.bucket));
        let ack = self.connection.jetstream.send_publish(subject, message).await;
        match async { ack?.await }.await {
            Ok(ack) => Ok(PutResult::Done(ack.sequence)),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(PutResult::Conflict),
            // In a cluster, a second message in flight is rejected with another code (10164).
            Err(error) if chain(&error).contains("wrong last sequence") => Ok(PutResult::Conflict),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Returns the sequence and body of the last message of a key; a tombstone has an empty body.
    async fn last(&self, key: &str) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let subject = format!("{}{key}", prefix(&self.options.bucket));
        match self.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Ok(Some((message.sequence, message.payload.to_vec()))),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    fn own(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Membership for Leases {
    fn view(&self) -> watch::Receiver<Arc<ClusterView>> {
        self.view.clone()
    }

    async fn announce(&self, pod: &Pod) -> Result<bool, Error> {
        let key = pod_key(&pod.name);
        let record = PodRecord { incarnation: pod.incarnation, url: pod.url.clone(), draining: pod.draining };
        let body = json(&record);
        let seen = *self.own();
        let put = match self.put(&key, body.clone(), seen, true).await? {
            PutResult::Done(revision) => revision,
            PutResult::Conflict => {
                // Expired meanwhile, stored although the response was lost, or written by another process.
                let last = self.last(&key).await?;
                let other = last.as_ref().and_then(|(_, body)| read::<PodRecord>(body));
                if other.is_some_and(|other| other.incarnation != pod.incarnation) {
                    return Ok(false);
                }
                let seen = last.map_or(0, |(sequence, _)| sequence);
                match self.put(&key, body, Some(seen), true).await? {
                    PutResult::Done(revision) => revision,
                    PutResult::Conflict => {
                        return Err(Error::Unavailable(format!("{key} changes constantly")));
                    }
                }
            }
        };
        *self.own() = Some(put);
        Ok(true)
    }

    async fn leave(&self, pod: &Pod) -> Result<(), Error> {
        let Some(seen) = self.own().take() else { return Ok(()) };
        // An empty body means no owner. It has the time to live of an announcement.
        self.put(&pod_key(&pod.name), Vec::new(), Some(seen), true).await.map(|_| ())
    }

    async fn acquire(
        &self,
        shard: u16,
        pod: &Pod,
        seen: ShardLease,
        log_epoch: u64,
    ) -> Result<Option<ShardLease>, Error> {
        let epoch = seen.epoch.max(log_epoch) + 1;
        let record = ShardRecord { pod: Some(pod.name.clone()), incarnation: Some(pod.incarnation), epoch };
        match self.put(&shard_key(shard), json(&record), Some(seen.revision), false).await? {
            PutResult::Done(revision) => Ok(Some(ShardLease { epoch, revision })),
            PutResult::Conflict => Ok(None),
        }
    }

    async fn release(&self, shard: u16, lease: ShardLease) -> Result<(), Error> {
        let record = ShardRecord { pod: None, incarnation: None, epoch: lease.epoch };
        self.put(&shard_key(shard), json(&record), Some(lease.revision), false).await.map(|_| ())
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Watcher of the bucket.
struct BucketWatcher {
    stream: Stream<()>,
    prefix: String,
    sender: watch::Sender<Arc<ClusterView>>,
}

impl BucketWatcher {
    async fn run(self) {
        let mut retries = RetryLog::default();
        loop {
            self.round(&mut retries).await;
            self.sender.send_modify(|view| {
                if view.current {
                    *view = Arc::new(ClusterView { current: false, ..ClusterView::clone(view) });
                }
            });
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads until the current consumer ends. Starts with all records, so that records that expired while
    /// no consumer was active are removed.
    async fn round(&self, retries: &mut RetryLog) -> Option<()> {
        let filter = vec![format!("{}>", self.prefix)];
        let config = |_| temporary(filter.clone(), DeliverPolicy::LastPerSubject, EXPIRES * 2);
        // A lagging server lacks the last records.
        let created = create_on_leader(&self.stream, config).await;
        let failed = |error: &Error| {
            retries.failed(|count| tracing::warn!(%error, failures = count, "lease read failed; retrying"));
        };
        let (_, consumer) = created.inspect_err(failed).ok()?;
        retries.succeeded();
        let mut remaining = consumer.cached_info().num_pending;
        let messages = consumer.stream().heartbeat(HEARTBEAT).expires(EXPIRES).messages().await.ok()?;
        let mut messages = std::pin::pin!(messages);
        let (mut view, mut numbers) = (ClusterView { current: true, ..ClusterView::default() }, 0);
        loop {
            if remaining == 0 {
                self.sender.send_if_modified(|current| {
                    let changed = **current != view;
                    if changed {
                        *current = Arc::new(view.clone());
                    }
                    changed
                });
            }
            let message = messages.next().await?.ok()?;
            let info = next_info(&message, &mut numbers)?;
            remaining = info.pending;
            let sequence = info.stream_sequence;
            self.note(&mut view, &message, sequence);
        }
    }

    fn note(&self, view: &mut ClusterView, message: &Message, sequence: u64) {
        let Some(key) = message.subject.strip_prefix(&self.prefix) else { return };
        match key.split_once('.') {
            Some(("pod", name)) => {
                let Ok(name) = crate::subject::decode_token(name) else { return };
                view.pods.remove(name.as_ref());
                if let Some(PodRecord { incarnation, url, draining }) = read(&message.payload) {
                    let name = name.into_owned();
                    view.pods.insert(name.clone(), Pod { name, incarnation, url, draining });
                }
            }
            Some(("shard", number)) => {
                let Ok(number) = number.parse() else { return };
                // The log of the shard has the epoch of a record that cannot be read.
                let record = read::<ShardRecord>(&message.payload);
                let epoch = record.as_ref().map_or(0, |record| record.epoch);
                let owner = record.and_then(|record| record.pod.zip(record.incarnation));
                let lease = ShardLease { epoch, revision: sequence };
                view.shards.insert(number, ShardOwnership { owner, lease });
            }
            _ => {}
        }
    }
}

fn prefix(bucket: &str) -> String {
    format!("$KV.{bucket}.")
}

fn stream_name(bucket: &str) -> String {
    format!("KV_{bucket}")
}

fn pod_key(name: &str) -> String {
    format!("pod.{}", crate::subject::encode_token(name))
}

fn shard_key(shard: u16) -> String {
    format!("shard.{shard}")
}

fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record is plain data")
}

fn read<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}
