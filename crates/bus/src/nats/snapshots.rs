//! Snapshots of shards: files in an object store, in chunks, with a checksum.
//!
//! This module writes them without the client's `put`, because `put` uses random chunk names. The
//! orphaned chunks of a crashed process could then not be distinguished from a write in progress.
//! Here the shard is part of the chunk name, and the owner of the shard deletes orphans. The result
//! is an ordinary object that the client and its CLI can read.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::object_store::{
    GetErrorKind, InfoErrorKind, ObjectInfo, ObjectOptions, ObjectStore,
};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, Stream};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use futures::TryStreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

use super::connection::Connection;
use super::shard_log::{DUPLICATES, ShardLogError, unavailable};
use super::stream_config::StreamSpec;

/// Name of the bucket.
pub const SNAPSHOT_BUCKET: &str = "orlog-snapshots";
const STREAM: &str = "OBJ_orlog-snapshots";
/// Name of the empty object with the last claim of the log. It is in the bucket, not in the log, so
/// that it outlasts the log.
const CLAIM: &str = "claim";
/// Size of a chunk.
const CHUNK_BYTES: usize = 512 << 10;
/// Maximum number of chunks in flight.
const MAX_IN_FLIGHT_CHUNKS: usize = 8;
/// Timeout of reads of a snapshot.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Snapshot: its name within the shard, and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Name of letters, digits and `-`.
    pub name: String,
    /// Metadata by name.
    pub metadata: BTreeMap<String, String>,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

/// Metadata of an object, before it is stored. An object is listed when its metadata is stored.
struct Description {
    info: ObjectInfo,
    /// Sequence of the metadata that it replaces (0: none); `None`: whatever there is.
    replaces: Option<u64>,
}

/// Metadata of an object, as it is stored.
struct StoredMetadata {
    sequence: u64,
    /// `None` if it cannot be read.
    info: Option<ObjectInfo>,
}

/// Snapshots of one shard. Each request can fail with [`ShardLogError::Unavailable`].
#[derive(Clone)]
pub struct Snapshots {
    connection: Connection,
    bucket: ObjectStore,
    shard: u16,
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots")
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}

#[expect(
    clippy::missing_errors_doc,
    reason = "the documentation of the type has the common error"
)]
impl Snapshots {
    /// Returns the specification of the bucket's stream.
    #[must_use]
    pub fn stream_spec(replicas: usize) -> StreamSpec {
        let config = Config {
            name: STREAM.to_owned(),
            description: Some("Snapshots of shards".to_owned()),
            subjects: vec![
                format!("$O.{SNAPSHOT_BUCKET}.C.>"),
                format!("$O.{SNAPSHOT_BUCKET}.M.>"),
            ],
            discard: DiscardPolicy::New,
            max_bytes: -1,
            duplicate_window: DUPLICATES,
            num_replicas: replicas,
            allow_rollup: true,
            allow_direct: false,
            ..Config::default()
        };
        StreamSpec {
            config,
            is_external: false,
        }
    }

    /// Returns the snapshots of a shard.
    ///
    /// # Errors
    /// [`ShardLogError::Unavailable`], also if the bucket does not exist.
    pub async fn open(connection: &Connection, shard: u16) -> Result<Self, ShardLogError> {
        let bucket = connection.jetstream.get_object_store(SNAPSHOT_BUCKET).await;
        let bucket = bucket.map_err(|error| {
            let text = format!(
                "bucket {SNAPSHOT_BUCKET} is missing or unavailable ({error}); run `orlog streams \
                 apply` to create it"
            );
            ShardLogError::Unavailable(text)
        })?;
        Ok(Self {
            connection: connection.clone(),
            bucket,
            shard,
        })
    }

    /// Returns the existing snapshots.
    pub async fn list(&self) -> Result<Vec<Snapshot>, ShardLogError> {
        let prefix = self.object("");
        let mut snapshots = Vec::new();
        for info in self.objects().await? {
            let Some(name) = info.name.strip_prefix(&prefix) else {
                continue;
            };
            if name != CLAIM {
                snapshots.push(Snapshot {
                    name: name.to_owned(),
                    metadata: info.metadata.into_iter().collect(),
                    bytes: info.size as u64,
                });
            }
        }
        Ok(snapshots)
    }

    /// Lists the objects without the client's `list`, which reads through a consumer. That consumer
    /// may be on a server that has just restarted and lags.
    async fn objects(&self) -> Result<Vec<ObjectInfo>, ShardLogError> {
        let mut objects = Vec::new();
        let ours = self.object("");
        for (subject, _) in self.subjects("M", ">").await? {
            let name = URL_SAFE
                .decode(&subject)
                .ok()
                .and_then(|name| String::from_utf8(name).ok());
            let Some(name) = name.filter(|name| name.starts_with(&ours)) else {
                continue;
            };

            match self.bucket.info(&name).await {
                Ok(info) if !info.deleted => objects.push(info),
                Ok(_) => {}
                Err(error) if error.kind() == InfoErrorKind::NotFound => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Ok(objects)
    }

    /// Returns the recorded claim of the log of the shard, if there is one.
    pub async fn claim(&self) -> Result<Option<BTreeMap<String, String>>, ShardLogError> {
        match self.bucket.info(self.object(CLAIM)).await {
            Ok(info) if !info.deleted => Ok(Some(info.metadata.into_iter().collect())),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Records a claim of the log of the shard, in place of the earlier one.
    pub async fn record_claim(
        &self,
        metadata: BTreeMap<String, String>,
    ) -> Result<(), ShardLogError> {
        let claim = Snapshot {
            name: CLAIM.to_owned(),
            metadata,
            bytes: 0,
        };
        let id = self.object(CLAIM);
        self.describe(&Description {
            info: self.described(&claim, &id, 0, 0, digest(Sha256::new())),
            replaces: None,
        })
        .await
    }

    /// Saves a file as a snapshot. It is listed after all of it is stored.
    pub async fn save(&self, snapshot: &Snapshot, file: &Path) -> Result<(), ShardLogError> {
        // Unique for each attempt: two saves under one name must not mix their chunks.
        let id = format!(
            "{}-{}",
            self.object(&snapshot.name),
            Uuid::new_v4().simple()
        );

        let description = match self.write(snapshot, file, &id).await {
            Ok(description) => description,
            Err(error) => {
                // The next owner deletes what remains as orphans, so a failure here is not an error
                // of its own.
                self.purge(&id).await.ok();
                return Err(error);
            }
        };

        match self.describe(&description).await {
            Ok(()) => Ok(()),
            Err(error) => self.withdraw(description, error).await,
        }
    }

    /// Determines the result of a description that failed with `error`: the servers may have stored
    /// it, or store it later. Deletes the chunks only if they cannot be listed any more. A snapshot
    /// without chunks would be the base of the next one, and older ones would be deleted for it.
    async fn withdraw(
        &self,
        mut description: Description,
        error: ShardLogError,
    ) -> Result<(), ShardLogError> {
        let id = description.info.nuid.clone();
        // Earlier metadata may list a complete snapshot, which a withdrawal would delete.
        let is_first = description.replaces == Some(0);
        description.info.deleted = true;

        // A read cannot prove that the description does not arrive later. The withdrawal replaces
        // the same metadata, so the servers store only one of the two.
        let is_withdrawn = is_first && self.describe(&description).await.is_ok();
        let stored = self.metadata(&description.info.name).await.ok().flatten();
        if let Some(stored) = &stored
            && let Some(info) = &stored.info
            && info.nuid == id
            && !info.deleted
        {
            return Ok(());
        }

        // Later metadata has taken the place of the description: the servers reject it from now on.
        let is_overtaken = description
            .replaces
            .zip(stored)
            .is_some_and(|(replaces, stored)| stored.sequence > replaces);
        // Otherwise it may still arrive. The chunks remain: the next owner deletes them if no
        // snapshot refers to them.
        if is_withdrawn || is_overtaken {
            self.purge(&id).await.ok();
        }
        Err(error)
    }

    /// Stores the chunks of a snapshot. Returns its description, which is not stored yet.
    async fn write(
        &self,
        snapshot: &Snapshot,
        file: &Path,
        id: &str,
    ) -> Result<Description, ShardLogError> {
        let mut file = File::open(file).await.map_err(unavailable)?;
        let mut hash = Sha256::new();
        let mut size = 0;
        let mut pieces = 0;
        let mut in_flight: VecDeque<PublishAckFuture> = VecDeque::new();
        let subject = format!("$O.{SNAPSHOT_BUCKET}.C.{id}");

        loop {
            let piece = read_piece(&mut file).await.map_err(unavailable)?;
            if piece.is_empty() {
                break;
            }
            hash.update(&piece);
            size += piece.len();
            pieces += 1;

            if in_flight.len() == MAX_IN_FLIGHT_CHUNKS
                && let Some(oldest) = in_flight.pop_front()
            {
                oldest.await.map_err(unavailable)?;
            }

            let sent = self
                .connection
                .jetstream
                .publish(subject.clone(), piece.into())
                .await;
            in_flight.push_back(sent.map_err(unavailable)?);
        }

        for ack in in_flight {
            ack.await.map_err(unavailable)?;
        }

        // A later owner of the shard may have deleted the first chunks as remains of a crash.
        let stored: usize = self
            .subjects("C", id)
            .await?
            .iter()
            .map(|(_, count)| count)
            .sum();
        if stored != pieces {
            let text = format!("snapshot {} has {stored} chunks of {pieces}", snapshot.name);
            return Err(ShardLogError::Damaged(text));
        }

        let info = self.described(snapshot, id, size, pieces, digest(hash));
        let earlier = self.metadata(&info.name).await?;
        let replaces = earlier.map_or(0, |earlier| earlier.sequence);
        Ok(Description {
            info,
            replaces: Some(replaces),
        })
    }

    /// Returns the metadata of an object, if there is some. Its sequence and its content are of one
    /// read.
    async fn metadata(&self, object: &str) -> Result<Option<StoredMetadata>, ShardLogError> {
        let stream = self.stream().await?;
        match stream
            .get_last_raw_message_by_subject(&metadata_subject(object))
            .await
        {
            Ok(message) => {
                let info = serde_json::from_slice(&message.payload).ok();
                let sequence = message.sequence;
                Ok(Some(StoredMetadata { sequence, info }))
            }
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    fn described(
        &self,
        snapshot: &Snapshot,
        id: &str,
        size: usize,
        chunks: usize,
        digest: String,
    ) -> ObjectInfo {
        ObjectInfo {
            name: self.object(&snapshot.name),
            description: None,
            metadata: snapshot.metadata.clone().into_iter().collect(),
            headers: None,
            options: Some(ObjectOptions {
                link: None,
                max_chunk_size: Some(CHUNK_BYTES),
            }),
            bucket: SNAPSHOT_BUCKET.to_owned(),
            nuid: id.to_owned(),
            size,
            chunks,
            modified: None,
            digest: Some(digest),
            deleted: false,
        }
    }

    async fn describe(&self, description: &Description) -> Result<(), ShardLogError> {
        let Description { info, replaces } = description;
        let body = serde_json::to_vec(info).map_err(unavailable)?;
        // The message replaces the earlier metadata of the object atomically.
        let mut message = PublishMessage::build()
            .payload(body.into())
            .header("Nats-Rollup", "sub");
        if let Some(replaces) = replaces {
            message = message.expected_last_subject_sequence(*replaces);
        }

        let sent = self
            .connection
            .jetstream
            .send_publish(metadata_subject(&info.name), message)
            .await;
        let ack = sent.map_err(unavailable)?.await;
        ack.map(drop).map_err(unavailable)
    }

    /// Writes a snapshot to a file.
    ///
    /// # Errors
    /// [`ShardLogError::Damaged`] if it is missing or differs from the saved file;
    /// [`ShardLogError::Unavailable`].
    pub async fn load(&self, name: &str, file: &Path) -> Result<(), ShardLogError> {
        let mut object =
            self.bucket
                .get(self.object(name))
                .await
                .map_err(|error| match error.kind() {
                    GetErrorKind::NotFound => {
                        ShardLogError::Damaged(format!("snapshot {name} does not exist"))
                    }
                    _ => unavailable(error),
                })?;

        let pieces: usize = self
            .subjects("C", &object.info.nuid)
            .await?
            .iter()
            .map(|(_, count)| count)
            .sum();
        if pieces != object.info.chunks {
            // A further read would wait forever.
            let text = format!(
                "snapshot {name} has {pieces} chunks of {}",
                object.info.chunks
            );
            return Err(ShardLogError::Damaged(text));
        }

        let mut file = File::create(file).await.map_err(unavailable)?;
        let expected = object.info.size;
        let mut size = 0;
        let mut buffer = vec![0; CHUNK_BYTES];
        while size < expected {
            let read = tokio::time::timeout(READ_TIMEOUT, object.read(&mut buffer)).await;
            let read = read
                .map_err(unavailable)?
                .map_err(|error| match error.kind() {
                    std::io::ErrorKind::InvalidData => {
                        ShardLogError::Damaged(format!("snapshot {name}: {error}"))
                    }
                    _ => unavailable(error),
                })?;

            if read == 0 {
                let text = format!("snapshot {name} has {size} bytes of {expected}");
                return Err(ShardLogError::Damaged(text));
            }

            file.write_all(&buffer[..read]).await.map_err(unavailable)?;
            size += read;
        }

        file.sync_all().await.map_err(unavailable)
    }

    /// Deletes a snapshot. No-op if it does not exist.
    pub async fn delete(&self, name: &str) -> Result<(), ShardLogError> {
        let name = self.object(name);
        let info = match self.bucket.info(&name).await {
            Ok(info) => info,
            Err(error) if error.kind() == InfoErrorKind::NotFound => return Ok(()),
            // It may exist. A caller that takes it for deleted purges the log that it needs.
            Err(error) => return Err(unavailable(error)),
        };
        // The metadata first: a crash in between leaves chunks that are deleted as orphans.
        self.bucket.delete(&name).await.map_err(unavailable)?;
        self.purge(&info.nuid).await
    }

    /// Deletes chunks of this shard that belong to no snapshot, if the name of the incomplete
    /// snapshot sorts before `before`. They are remains of processes that crashed during a save. A
    /// snapshot with a later name may still be in progress.
    pub async fn delete_orphans(&self, before: &str) -> Result<(), ShardLogError> {
        let referenced: HashSet<String> = self
            .objects()
            .await?
            .into_iter()
            .map(|info| info.nuid)
            .collect();

        let ours = self.object("");
        let before = self.object(before);
        for (id, _) in self.subjects("C", "*").await? {
            if id.starts_with(&ours) && id < before && !referenced.contains(&id) {
                self.purge(&id).await?;
            }
        }
        Ok(())
    }

    /// Returns the subject parts after the kind (`C`: chunks, `M`: object metadata), and the number
    /// of messages of each.
    async fn subjects(
        &self,
        kind: &str,
        filter: &str,
    ) -> Result<Vec<(String, usize)>, ShardLogError> {
        let prefix = format!("$O.{SNAPSHOT_BUCKET}.{kind}.");
        let stream = self.stream().await?;
        let subjects = stream.info_with_subjects(format!("{prefix}{filter}")).await;
        let subjects = subjects.map_err(unavailable)?.try_collect::<Vec<_>>().await;
        let mut counts = Vec::new();
        for (subject, count) in subjects.map_err(unavailable)? {
            if let Some(rest) = subject.strip_prefix(&prefix) {
                counts.push((rest.to_owned(), count));
            }
        }
        Ok(counts)
    }

    async fn purge(&self, id: &str) -> Result<(), ShardLogError> {
        let stream = self.stream().await?;
        let purged = stream
            .purge()
            .filter(format!("$O.{SNAPSHOT_BUCKET}.C.{id}"))
            .await;
        purged.map(drop).map_err(unavailable)
    }

    async fn stream(&self) -> Result<Stream<()>, ShardLogError> {
        let stream = self.connection.jetstream.get_stream_no_info(STREAM).await;
        stream.map_err(unavailable)
    }

    fn object(&self, name: &str) -> String {
        format!("shard-{}-{name}", self.shard)
    }
}

fn metadata_subject(object: &str) -> String {
    format!("$O.{SNAPSHOT_BUCKET}.M.{}", URL_SAFE.encode(object))
}

fn digest(hash: Sha256) -> String {
    format!("SHA-256={}", URL_SAFE.encode(hash.finalize()))
}

/// Reads the next chunk: full size except for the last one; empty at the end.
async fn read_piece(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut piece = Vec::with_capacity(CHUNK_BYTES);
    file.take(CHUNK_BYTES as u64)
        .read_to_end(&mut piece)
        .await?;
    Ok(piece)
}
