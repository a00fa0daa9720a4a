//! Snapshots of shards: files in an object store, in pieces, with a checksum.
//!
//! They are written here and not by the client's `put`: its pieces are named by chance, so that what a process that died left
//! behind could never be told from what another one is writing. Here they are named after the shard, whose owner sweeps.
//! What is written is an ordinary object; the client and its command line read it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::object_store::{
    GetErrorKind, InfoErrorKind, ObjectInfo, ObjectOptions, ObjectStore,
};
use async_nats::jetstream::stream::{Config, DiscardPolicy};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use futures::TryStreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

use super::connection::Connection;
use super::shard_log::{DUPLICATES, LogError, unavailable};
use super::stream_config::StreamPlan;

/// The bucket.
pub const SNAPSHOT_BUCKET: &str = "orlog-snapshots";
const STREAM: &str = "OBJ_orlog-snapshots";
/// The size of a piece.
const PIECE: usize = 512 << 10;
/// Pieces on their way at once.
const WINDOW: usize = 8;
/// Nothing of a snapshot came for so long.
const SILENCE: Duration = Duration::from_secs(10);

/// A snapshot: its name within the shard, and what its maker noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Letters, digits and `-`.
    pub name: String,
    /// Notes, by name.
    pub notes: BTreeMap<String, String>,
}

/// One shard's snapshots.
#[derive(Clone)]
pub struct Snapshots {
    connection: Connection,
    bucket: ObjectStore,
    shard: u16,
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots").field("shard", &self.shard).finish_non_exhaustive()
    }
}

impl Snapshots {
    /// The stream of the bucket as it is made.
    #[must_use]
    pub fn plan(replicas: usize) -> StreamPlan {
        let config = Config {
            name: STREAM.to_owned(),
            description: Some("Snapshots of shards".to_owned()),
            subjects: vec![format!("$O.{SNAPSHOT_BUCKET}.C.>"), format!("$O.{SNAPSHOT_BUCKET}.M.>")],
            discard: DiscardPolicy::New,
            max_bytes: -1,
            duplicate_window: DUPLICATES,
            num_replicas: replicas,
            allow_rollup: true,
            allow_direct: false,
            ..Config::default()
        };
        StreamPlan { config, foreign: false }
    }

    /// The snapshots of a shard.
    ///
    /// # Errors
    /// [`LogError::Unavailable`], also if there is no bucket.
    pub async fn open(connection: &Connection, shard: u16) -> Result<Self, LogError> {
        let bucket = connection.jetstream.get_object_store(SNAPSHOT_BUCKET).await;
        let bucket = bucket.map_err(|error| {
            let text = format!("there is no bucket {SNAPSHOT_BUCKET}, or it cannot be looked at ({error}); `orlog streams apply` makes it");
            LogError::Unavailable(text)
        })?;
        Ok(Self { connection: connection.clone(), bucket, shard })
    }

    /// Those there are.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub async fn list(&self) -> Result<Vec<Snapshot>, LogError> {
        let prefix = self.object("");
        let named = |info: ObjectInfo| {
            let name = info.name.strip_prefix(&prefix)?.to_owned();
            Some(Snapshot { name, notes: info.metadata.into_iter().collect() })
        };
        Ok(self.objects().await?.into_iter().filter_map(named).collect())
    }

    /// Not the client's `list`: that reads through a consumer, which may sit on a server that has just come back and knows little.
    async fn objects(&self) -> Result<Vec<ObjectInfo>, LogError> {
        let (mut objects, ours) = (Vec::new(), self.object(""));
        for (subject, _) in self.subjects("M", ">").await? {
            let name = URL_SAFE.decode(&subject).ok().and_then(|name| String::from_utf8(name).ok());
            let Some(name) = name.filter(|name| name.starts_with(&ours)) else { continue };
            match self.bucket.info(&name).await {
                Ok(info) if !info.deleted => objects.push(info),
                Ok(_) => {}
                Err(error) if error.kind() == InfoErrorKind::NotFound => {}
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Ok(objects)
    }

    /// Keeps a file. It is listed once all of it is there.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub async fn save(&self, snapshot: &Snapshot, file: &Path) -> Result<(), LogError> {
        let id = format!("{}-{}", self.object(&snapshot.name), Uuid::new_v4().simple());
        let saved = self.write(snapshot, file, &id).await;
        if saved.is_err() {
            self.purge(&id).await.ok();
        }
        saved
    }

    async fn write(&self, snapshot: &Snapshot, file: &Path, id: &str) -> Result<(), LogError> {
        let mut file = File::open(file).await.map_err(|error| unavailable(&error))?;
        let (mut hash, mut size, mut pieces) = (Sha256::new(), 0, 0);
        let mut under_way: VecDeque<PublishAckFuture> = VecDeque::new();
        let subject = format!("$O.{SNAPSHOT_BUCKET}.C.{id}");
        loop {
            let piece = read_piece(&mut file).await.map_err(|error| unavailable(&error))?;
            if piece.is_empty() {
                break;
            }
            hash.update(&piece);
            (size, pieces) = (size + piece.len(), pieces + 1);
            if under_way.len() == WINDOW
                && let Some(oldest) = under_way.pop_front()
            {
                oldest.await.map_err(|error| unavailable(&error))?;
            }
            let sent = self.connection.jetstream.publish(subject.clone(), piece.into()).await;
            under_way.push_back(sent.map_err(|error| unavailable(&error))?);
        }
        for ack in under_way {
            ack.await.map_err(|error| unavailable(&error))?;
        }
        let digest = format!("SHA-256={}", URL_SAFE.encode(hash.finalize()));
        self.describe(self.described(snapshot, id, (size, pieces), digest)).await
    }

    fn described(
        &self,
        snapshot: &Snapshot,
        id: &str,
        (size, chunks): (usize, usize),
        digest: String,
    ) -> ObjectInfo {
        ObjectInfo {
            name: self.object(&snapshot.name),
            description: None,
            metadata: snapshot.notes.clone().into_iter().collect(),
            headers: None,
            options: Some(ObjectOptions { link: None, max_chunk_size: Some(PIECE) }),
            bucket: SNAPSHOT_BUCKET.to_owned(),
            nuid: id.to_owned(),
            size,
            chunks,
            modified: None,
            digest: Some(digest),
            deleted: false,
        }
    }

    async fn describe(&self, info: ObjectInfo) -> Result<(), LogError> {
        let subject = format!("$O.{SNAPSHOT_BUCKET}.M.{}", URL_SAFE.encode(&info.name));
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", "sub");
        let body = serde_json::to_vec(&info).map_err(|error| unavailable(&error))?;
        let sent = self.connection.jetstream.publish_with_headers(subject, headers, body.into()).await;
        let ack = sent.map_err(|error| unavailable(&error))?.await;
        ack.map(drop).map_err(|error| unavailable(&error))
    }

    /// Makes a file of a snapshot.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if it is not what was saved, or is gone; [`LogError::Unavailable`].
    pub async fn load(&self, name: &str, file: &Path) -> Result<(), LogError> {
        let mut object = self.bucket.get(self.object(name)).await.map_err(|error| match error.kind() {
            GetErrorKind::NotFound => LogError::Damaged(format!("the snapshot {name} is gone")),
            _ => unavailable(&error),
        })?;
        let pieces: usize = self.subjects("C", &object.info.nuid).await?.iter().map(|(_, count)| count).sum();
        if pieces != object.info.chunks {
            // To read on would be to wait for what never comes.
            let text = format!("the snapshot {name} has {pieces} pieces of {}", object.info.chunks);
            return Err(LogError::Damaged(text));
        }
        let mut file = File::create(file).await.map_err(|error| unavailable(&error))?;
        let (expected, mut size, mut buffer) = (object.info.size, 0, vec![0; PIECE]);
        while size < expected {
            let read = tokio::time::timeout(SILENCE, object.read(&mut buffer)).await;
            let read = read.map_err(|error| unavailable(&error))?.map_err(|error| match error.kind() {
                std::io::ErrorKind::InvalidData => LogError::Damaged(format!("the snapshot {name}: {error}")),
                _ => unavailable(&error),
            })?;
            if read == 0 {
                let text = format!("the snapshot {name} has {size} bytes of {expected}");
                return Err(LogError::Damaged(text));
            }
            file.write_all(&buffer[..read]).await.map_err(|error| unavailable(&error))?;
            size += read;
        }
        file.sync_all().await.map_err(|error| unavailable(&error))
    }

    /// Drops a snapshot. One that is gone already is no error.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub async fn forget(&self, name: &str) -> Result<(), LogError> {
        let name = self.object(name);
        let Ok(info) = self.bucket.info(&name).await else { return Ok(()) };
        self.bucket.delete(&name).await.map_err(|error| unavailable(&error))?;
        self.purge(&info.nuid).await
    }

    /// Removes pieces of this shard that belong to no snapshot, where the name of what was to be saved sorts before `floor`: those of
    /// processes that died while they saved. Whose names sort behind it may still be saving.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub async fn sweep(&self, floor: &str) -> Result<(), LogError> {
        let kept: HashSet<String> = self.objects().await?.into_iter().map(|info| info.nuid).collect();
        let (ours, floor) = (self.object(""), self.object(floor));
        for (id, _) in self.subjects("C", "*").await? {
            if id.starts_with(&ours) && id < floor && !kept.contains(&id) {
                self.purge(&id).await?;
            }
        }
        Ok(())
    }

    /// What follows the kind (`C` for pieces, `M` for what is said about objects) in subjects, and how many messages each has.
    async fn subjects(&self, kind: &str, filter: &str) -> Result<Vec<(String, usize)>, LogError> {
        let prefix = format!("$O.{SNAPSHOT_BUCKET}.{kind}.");
        let stream = self.connection.jetstream.get_stream_no_info(STREAM).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        let subjects = stream.info_with_subjects(format!("{prefix}{filter}")).await;
        let subjects = subjects.map_err(|error| unavailable(&error))?.try_collect::<Vec<_>>().await;
        let rest =
            |(subject, count): (String, usize)| Some((subject.strip_prefix(&prefix)?.to_owned(), count));
        Ok(subjects.map_err(|error| unavailable(&error))?.into_iter().filter_map(rest).collect())
    }

    async fn purge(&self, id: &str) -> Result<(), LogError> {
        let stream = self.connection.jetstream.get_stream_no_info(STREAM).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        let purged = stream.purge().filter(format!("$O.{SNAPSHOT_BUCKET}.C.{id}")).await;
        purged.map(drop).map_err(|error| unavailable(&error))
    }

    fn object(&self, name: &str) -> String {
        format!("shard-{}-{name}", self.shard)
    }
}

/// The next piece: whole, but for the last one; empty at the end.
async fn read_piece(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut piece = Vec::with_capacity(PIECE);
    file.take(PIECE as u64).read_to_end(&mut piece).await?;
    Ok(piece)
}
