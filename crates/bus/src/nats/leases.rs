//! Pods and the holders of shards in a key-value bucket.
//!
//! The client's own calls are not used for writing: its `update` forgets the time to live, and so does its `create` behind a
//! marker, so that a lease would never end. A message is published to the key's subject instead.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, Stream};
use async_trait::async_trait;
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::connection::{Connection, chain};
use super::stream_config::StreamPlan;
use crate::Error;
use crate::membership::{Holding, Membership, Pod, View};

/// How long a marker of something that ended is kept.
const MARKERS: Duration = Duration::from_mins(1);
/// Twice as long without a word, and the view is read anew.
const HEARTBEAT: Duration = Duration::from_millis(500);
const EXPIRES: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// How leases are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// The bucket: pods that share one share the shards.
    pub bucket: String,
    /// How long a pod is there after it said so.
    pub ttl: Duration,
}

/// The records in a bucket.
pub struct Leases {
    connection: Connection,
    stream: Stream<()>,
    options: LeaseOptions,
    view: watch::Receiver<Arc<View>>,
    /// The number of this process's own announcement, once it made one.
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
}

/// What became of a publish.
enum Put {
    Done(u64),
    /// The record is not the one that was seen.
    Changed,
}

impl Leases {
    /// The stream of the bucket as it is made: what the client makes for a bucket with markers.
    #[must_use]
    pub fn plan(bucket: &str, replicas: usize) -> StreamPlan {
        let config = Config {
            name: stream_name(bucket),
            description: Some("Pods and the holders of shards".to_owned()),
            subjects: vec![format!("{}>", prefix(bucket))],
            discard: DiscardPolicy::New,
            max_bytes: -1,
            max_messages_per_subject: 1,
            duplicate_window: MARKERS,
            num_replicas: replicas,
            allow_rollup: true,
            deny_delete: true,
            allow_message_ttl: true,
            subject_delete_marker_ttl: Some(MARKERS),
            // The last word is asked of the leader.
            allow_direct: false,
            ..Config::default()
        };
        StreamPlan { config, foreign: false }
    }

    /// Opens the bucket, which is there, and begins to read it.
    ///
    /// # Errors
    /// When the servers do not answer or refuse.
    pub async fn open(connection: &Connection, options: LeaseOptions) -> Result<Self, Error> {
        let jetstream = &connection.jetstream;
        let stream = jetstream.get_stream_no_info(stream_name(&options.bucket)).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        let (sender, view) = watch::channel(Arc::new(View::default()));
        let reader = Reader { stream: stream.clone(), prefix: prefix(&options.bucket), sender };
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

    async fn put(&self, key: &str, body: Vec<u8>, seen: Option<u64>, ttl: bool) -> Result<Put, Error> {
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
            Ok(ack) => Ok(Put::Done(ack.sequence)),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(Put::Changed),
            // In a cluster a second message in flight is refused under another number (10164).
            Err(error) if chain(&error).contains("wrong last sequence") => Ok(Put::Changed),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// The last message of a key: its number and body; an empty body is that of a marker.
    async fn last(&self, key: &str) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let subject = format!("{}{key}", prefix(&self.options.bucket));
        match self.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Ok(Some((message.sequence, message.payload.to_vec()))),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(&error)),
        }
    }

    fn own(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Membership for Leases {
    fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    async fn announce(&self, pod: &Pod) -> Result<bool, Error> {
        let key = pod_key(&pod.name);
        let record = PodRecord { incarnation: pod.incarnation, url: pod.url.clone(), draining: pod.draining };
        let body = json(&record);
        let seen = *self.own();
        let put = match self.put(&key, body.clone(), seen, true).await? {
            Put::Done(revision) => revision,
            Put::Changed => {
                // Expired meanwhile, heard though the answer was lost, or somebody else's.
                let last = self.last(&key).await?;
                let other = last.as_ref().and_then(|(_, body)| read::<PodRecord>(body));
                if other.is_some_and(|other| other.incarnation != pod.incarnation) {
                    return Ok(false);
                }
                let seen = last.map_or(0, |(sequence, _)| sequence);
                match self.put(&key, body, Some(seen), true).await? {
                    Put::Done(revision) => revision,
                    Put::Changed => return Err(Error::Unavailable(format!("{key} changes all the time"))),
                }
            }
        };
        *self.own() = Some(put);
        Ok(true)
    }

    async fn withdraw(&self, pod: &Pod) -> Result<(), Error> {
        let Some(seen) = self.own().take() else { return Ok(()) };
        // Nothing in the body: nobody. It lives as long as an announcement.
        self.put(&pod_key(&pod.name), Vec::new(), Some(seen), true).await.map(|_| ())
    }

    async fn take(&self, shard: u16, pod: &Pod, seen: u64) -> Result<Option<u64>, Error> {
        let record = ShardRecord { pod: Some(pod.name.clone()), incarnation: Some(pod.incarnation) };
        match self.put(&shard_key(shard), json(&record), Some(seen), false).await? {
            Put::Done(epoch) => Ok(Some(epoch)),
            Put::Changed => Ok(None),
        }
    }

    async fn let_go(&self, shard: u16, epoch: u64) -> Result<(), Error> {
        let record = ShardRecord { pod: None, incarnation: None };
        self.put(&shard_key(shard), json(&record), Some(epoch), false).await.map(|_| ())
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Follows the bucket.
struct Reader {
    stream: Stream<()>,
    prefix: String,
    sender: watch::Sender<Arc<View>>,
}

impl Reader {
    async fn run(self) {
        loop {
            self.round().await;
            self.sender.send_modify(|view| {
                if view.current {
                    *view = Arc::new(View { current: false, ..View::clone(view) });
                }
            });
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// From one consumer on the servers to the next. Begins with everything there is, so that nothing that ended while
    /// nobody looked is believed to go on.
    async fn round(&self) -> Option<()> {
        let config = pull::Config {
            ack_policy: AckPolicy::None,
            filter_subject: format!("{}>", self.prefix),
            deliver_policy: DeliverPolicy::LastPerSubject,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: EXPIRES * 2,
            ..pull::Config::default()
        };
        let made = self.stream.create_consumer(config).await;
        let consumer = made.inspect_err(|error| tracing::warn!(%error, "the leases cannot be read")).ok()?;
        let mut left = consumer.cached_info().num_pending;
        let messages = consumer.stream().heartbeat(HEARTBEAT).expires(EXPIRES).messages().await.ok()?;
        let mut messages = std::pin::pin!(messages);
        let (mut view, mut numbers) = (View { current: true, ..View::default() }, 0);
        loop {
            if left == 0 {
                self.sender.send_if_modified(|shown| {
                    let changed = **shown != view;
                    if changed {
                        *shown = Arc::new(view.clone());
                    }
                    changed
                });
            }
            let message = messages.next().await?.ok()?;
            let info = message.info().ok()?;
            if info.consumer_sequence != numbers + 1 {
                return None;
            }
            (numbers, left) = (info.consumer_sequence, info.pending);
            let sequence = info.stream_sequence;
            self.note(&mut view, &message, sequence);
        }
    }

    fn note(&self, view: &mut View, message: &Message, sequence: u64) {
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
                let holder = read::<ShardRecord>(&message.payload)
                    .and_then(|record| record.pod.zip(record.incarnation));
                view.shards.insert(number, Holding { holder, epoch: sequence });
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

fn unavailable(error: &(dyn std::error::Error + 'static)) -> Error {
    Error::Unavailable(chain(error))
}
