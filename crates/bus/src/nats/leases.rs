//! Pods and shard owners in a key-value bucket.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream::Config;
use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;

use super::bucket::{Bucket, BucketView, BucketWatch, PutResult};
use super::connection::{Connection, unavailable};
use super::provision::find_stream;
use super::stream_config::StreamSpec;
use crate::Error;
use crate::membership::{ClusterView, Membership, Pod, ShardLease, ShardOwnership};

/// Maximum time until all records of a bucket are read.
const VIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Retention of a tombstone of an expired record.
const TOMBSTONE_TTL: Duration = Duration::from_mins(1);

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
    bucket: Bucket,
    ttl: Duration,
    watch: BucketWatch<ClusterView>,
    /// Sequence of this process's own announcement, after the first one.
    announced: Mutex<Option<u64>>,
}

#[derive(Serialize, Deserialize)]
struct PodRecord {
    incarnation: Uuid,
    url: String,
    draining: bool,
    /// Absent in the records of earlier releases.
    #[serde(default)]
    node_keys: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct ShardRecord {
    pod: Option<String>,
    incarnation: Option<Uuid>,
    epoch: u64,
}

impl Leases {
    /// Returns the specification of the bucket's stream: what the client creates for a bucket with
    /// tombstones.
    #[must_use]
    pub fn plan(bucket: &str, replicas: usize) -> StreamSpec {
        let config = Config {
            duplicate_window: TOMBSTONE_TTL,
            allow_message_ttl: true,
            subject_delete_marker_ttl: Some(TOMBSTONE_TTL),
            ..Bucket::config(bucket, "Pods and shard owners", replicas)
        };
        StreamSpec {
            config,
            is_external: false,
        }
    }

    /// Opens the existing bucket and starts to read it.
    ///
    /// # Errors
    /// If the servers do not respond or reject the request.
    pub async fn open(connection: &Connection, options: LeaseOptions) -> Result<Self, Error> {
        let bucket = Bucket::open(connection, &options.bucket).await?;
        let watch = bucket.watch();
        Ok(Self {
            bucket,
            ttl: options.ttl,
            watch,
            announced: Mutex::default(),
        })
    }

    /// Returns the names of the live pods of a bucket; empty if the bucket does not exist.
    ///
    /// # Errors
    /// If the servers do not respond or reject the request.
    pub async fn live_pods(connection: &Connection, bucket: &str) -> Result<Vec<String>, Error> {
        let stream = Self::plan(bucket, 1);
        let found = find_stream(connection, stream.name()).await;
        if found.map_err(unavailable)?.is_none() {
            return Ok(Vec::new());
        }

        let watch = Bucket::open(connection, bucket).await?.watch();
        let mut view: watch::Receiver<Arc<ClusterView>> = watch.view();
        let current = view.wait_for(|view| view.current);
        match tokio::time::timeout(VIEW_TIMEOUT, current).await {
            Ok(Ok(view)) => Ok(view.pods.keys().cloned().collect()),
            Ok(Err(_)) | Err(_) => Err(Error::Unavailable(format!(
                "the bucket {bucket} is not read after {VIEW_TIMEOUT:?}"
            ))),
        }
    }
}

#[async_trait]
impl Membership for Leases {
    fn view(&self) -> watch::Receiver<Arc<ClusterView>> {
        self.watch.view()
    }

    async fn announce(&self, pod: &Pod) -> Result<bool, Error> {
        let key = pod_key(&pod.name);
        let Pod {
            incarnation,
            url,
            draining,
            node_keys,
            ..
        } = pod.clone();
        let record = PodRecord {
            incarnation,
            url,
            draining,
            node_keys,
        };

        let body = json(&record);
        // The first announcement replaces any record: usually that of the previous process under
        // this name. Such a process, if it still runs, finds the conflict and stops.
        let seen = *self.announced.lock();
        let put = match self
            .bucket
            .put(&key, body.clone(), seen, Some(self.ttl))
            .await?
        {
            PutResult::Done(revision) => revision,
            PutResult::Conflict => {
                // Expired meanwhile, stored although the response was lost, or written by another
                // process.
                let last = self.bucket.last(&key).await?;
                let other = last.as_ref().and_then(|(_, body)| read::<PodRecord>(body));
                if other.is_some_and(|other| other.incarnation != pod.incarnation) {
                    return Ok(false);
                }
                // An expired record leaves a tombstone or nothing; both are replaced only if they
                // are unchanged.
                let seen = last.map_or(0, |(sequence, _)| sequence);
                match self
                    .bucket
                    .put(&key, body, Some(seen), Some(self.ttl))
                    .await?
                {
                    PutResult::Done(revision) => revision,
                    PutResult::Conflict => {
                        return Err(Error::Unavailable(format!("{key} changes constantly")));
                    }
                }
            }
        };

        *self.announced.lock() = Some(put);
        Ok(true)
    }

    async fn leave(&self, pod: &Pod) -> Result<(), Error> {
        let Some(seen) = self.announced.lock().take() else {
            return Ok(());
        };
        // An empty body means no owner. It has the time to live of an announcement.
        self.bucket
            .put(&pod_key(&pod.name), Vec::new(), Some(seen), Some(self.ttl))
            .await
            .map(|_| ())
    }

    async fn acquire(
        &self,
        shard: u16,
        pod: &Pod,
        seen: ShardLease,
        log_epoch: u64,
    ) -> Result<Option<ShardLease>, Error> {
        // Larger than both: the records can be lost, and the log has seen other owners then.
        let epoch = seen.epoch.max(log_epoch) + 1;
        let record = ShardRecord {
            pod: Some(pod.name.clone()),
            incarnation: Some(pod.incarnation),
            epoch,
        };
        match self
            .bucket
            .put(&shard_key(shard), json(&record), Some(seen.revision), None)
            .await?
        {
            PutResult::Done(revision) => Ok(Some(ShardLease { epoch, revision })),
            PutResult::Conflict => Ok(None),
        }
    }

    async fn release(&self, shard: u16, lease: ShardLease) -> Result<(), Error> {
        let record = ShardRecord {
            pod: None,
            incarnation: None,
            epoch: lease.epoch,
        };
        self.bucket
            .put(&shard_key(shard), json(&record), Some(lease.revision), None)
            .await
            .map(|_| ())
    }
}

impl BucketView for ClusterView {
    fn begin(_last_sequence: u64) -> Self {
        Self {
            current: true,
            ..Self::default()
        }
    }

    fn note(&mut self, key: &str, sequence: u64, body: &[u8]) {
        match key.split_once('.') {
            Some(("pod", name)) => {
                let Ok(name) = crate::subject::decode_token(name) else {
                    return;
                };
                // An empty body is a pod that left. One that cannot be read counts as absent.
                self.pods.remove(name.as_ref());
                if let Some(PodRecord {
                    incarnation,
                    url,
                    draining,
                    node_keys,
                }) = read(body)
                {
                    let name = name.into_owned();
                    self.pods.insert(
                        name.clone(),
                        Pod {
                            name,
                            incarnation,
                            url,
                            draining,
                            node_keys,
                        },
                    );
                }
            }
            Some(("shard", number)) => {
                let Ok(number) = number.parse() else { return };
                // The log of the shard has the epoch of a record that cannot be read.
                let record = read::<ShardRecord>(body);
                let epoch = record.as_ref().map_or(0, |record| record.epoch);
                let owner = record.and_then(|record| record.pod.zip(record.incarnation));
                let lease = ShardLease {
                    epoch,
                    revision: sequence,
                };
                self.shards.insert(number, ShardOwnership { owner, lease });
            }
            _ => {}
        }
    }

    fn is_current(&self) -> bool {
        self.current
    }

    fn lose_currency(&mut self) {
        self.current = false;
    }
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
