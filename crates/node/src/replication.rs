//! Commit log of replicated shards on NATS: adapts the log port of the store to the client of the
//! bus.
//!
//! The store calls from its own threads and blocks; the client runs on the runtime. A call on a
//! runtime thread moves the other tasks of that thread to another thread while it blocks.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orlog_bus::RetryLog;
use orlog_bus::nats::{self, Connection, ShardLog, Snapshots, StreamSet};
use orlog_store::{
    CommitLog, CommitLogError, Error, LogEntry, LogPosition, Options, Reader, ReplicationOptions,
    Snapshot, Writer,
};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Timeout of retries against an unavailable log; a cluster elects a new leader faster.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Prefix of the metadata about the base of a snapshot.
const BASE: &str = "base-";
/// Prefix of the metadata about the last claim of a log.
const CLAIM: &str = "claim-";
/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Policy for saving snapshots of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// Number of commits between snapshots …
    pub commits: u64,
    /// … or number of bytes of these commits.
    pub bytes: u64,
}

/// Returns the specifications of the log and snapshot streams.
#[must_use]
pub fn stream_specs(replicas: usize) -> StreamSet {
    StreamSet(vec![
        ShardLog::stream_spec(replicas),
        Snapshots::stream_spec(replicas),
    ])
}

/// Takes a shard over into the directory `dir` and fences its previous owner. `epoch` grows with
/// every lease of the shard; an owner without a lease has none. When `stopped` becomes true, all
/// requests to the log end as unavailable, also those of the returned writer.
///
/// # Errors
/// [`Error::Fenced`] if a later lease exists; [`Error::Unavailable`] if NATS does not respond
/// before the timeout; else errors that need an operator, see [`orlog_store::open_replicated`].
pub async fn open(
    connection: &Connection,
    shard: u16,
    epoch: Option<u64>,
    stopped: watch::Receiver<bool>,
    dir: PathBuf,
    options: Options,
    pace: SnapshotPolicy,
) -> Result<(Writer, Reader), Error> {
    let started = Instant::now();
    let mut retries = RetryLog::default();
    loop {
        let attempt = try_open(
            connection,
            shard,
            epoch,
            stopped.clone(),
            dir.clone(),
            options.clone(),
            pace,
        );
        match attempt.await {
            // The time limits only the start of another attempt: an attempt that loads a large
            // snapshot may take longer.
            Err(error @ Error::Unavailable { .. })
                if started.elapsed() < REQUEST_TIMEOUT && !*stopped.borrow() =>
            {
                retries.failed(|failures| {
                    tracing::warn!(shard, %error, failures, "shard takeover failed; retrying");
                });
                tokio::time::sleep(RETRY_DELAY).await;
            }
            opened => return opened,
        }
    }
}

async fn try_open(
    connection: &Connection,
    shard: u16,
    epoch: Option<u64>,
    stopped: watch::Receiver<bool>,
    dir: PathBuf,
    options: Options,
    pace: SnapshotPolicy,
) -> Result<(Writer, Reader), Error> {
    let unavailable = |error| Error::from(translated(error));
    let log = NatsCommitLog {
        runtime: Handle::current(),
        log: ShardLog::open(connection, shard)
            .await
            .map_err(unavailable)?,
        snapshots: Snapshots::open(connection, shard)
            .await
            .map_err(unavailable)?,
        epoch,
        stopped,
    };

    let snapshot_commits = pace.commits;
    let snapshot_bytes = pace.bytes;
    let replication = ReplicationOptions {
        log: Arc::new(log),
        epoch,
        snapshot_commits,
        snapshot_bytes,
    };

    // The store reads its files and waits for the log, which would block a thread of the runtime.
    tokio::task::spawn_blocking(move || orlog_store::open_replicated(&dir, options, replication))
        .await
        .unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
}

/// Log and snapshots of a shard on NATS.
#[derive(Debug)]
struct NatsCommitLog {
    runtime: Handle,
    log: ShardLog,
    snapshots: Snapshots,
    /// Epoch of the lease, if the owner has one.
    epoch: Option<u64>,
    /// Becomes true when the shard must stop.
    stopped: watch::Receiver<bool>,
}

impl NatsCommitLog {
    fn wait<T>(
        &self,
        response: impl Future<Output = Result<T, nats::ShardLogError>>,
    ) -> Result<T, CommitLogError> {
        let stopped = self.stopped.clone();
        let response = async {
            tokio::select! {
                // A response that has arrived counts, also if the shard is stopping: the commit is
                // in the log.
                biased;
                response = response => response,
                () = until(stopped) => {
                    Err(nats::ShardLogError::Unavailable("the shard is stopping".to_owned()))
                }
            }
        };
        let wait = || self.runtime.block_on(response);

        // The store calls from its own threads and from those of the runtime, which must not block.
        let response = if Handle::try_current().is_ok() {
            tokio::task::block_in_place(wait)
        } else {
            wait()
        };

        response.map_err(translated)
    }
}

/// Waits until the value is true; for ever if the sender is dropped.
async fn until(mut stopped: watch::Receiver<bool>) {
    if stopped.wait_for(|stopped| *stopped).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn translated(error: nats::ShardLogError) -> CommitLogError {
    match error {
        nats::ShardLogError::Conflict(text) => CommitLogError::Conflict(text),
        nats::ShardLogError::Damaged(text) => CommitLogError::Damaged(text),
        error @ nats::ShardLogError::Unavailable(_) => {
            CommitLogError::Unavailable(error.to_string())
        }
    }
}

impl CommitLog for NatsCommitLog {
    fn identity(&self) -> Result<[u8; 16], CommitLogError> {
        self.wait(self.log.identity())
    }

    fn max_entry_bytes(&self) -> usize {
        self.log.max_entry_bytes()
    }

    fn append(&self, after: Option<u64>, entry: &Bytes) -> Result<u64, CommitLogError> {
        self.wait(self.log.append(after, entry.clone()))
    }

    fn last(&self) -> Result<Option<LogEntry>, CommitLogError> {
        let last = self.wait(self.log.last())?;
        Ok(last.map(|(number, bytes)| LogEntry { number, bytes }))
    }

    fn read(
        &self,
        after: u64,
        visit: &mut dyn FnMut(LogEntry) -> ControlFlow<()>,
    ) -> Result<(), CommitLogError> {
        self.wait(self.log.read(after, &mut |number, bytes| {
            visit(LogEntry { number, bytes })
        }))
    }

    fn purge_before(&self, number: u64) -> Result<(), CommitLogError> {
        self.wait(self.log.purge_before(number))
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>, CommitLogError> {
        let snapshots = self.wait(self.snapshots.list())?;

        Ok(snapshots
            .iter()
            .filter_map(|object| {
                let (position, base) = read_notes(&object.metadata)?;
                Some(Snapshot {
                    position,
                    base,
                    bytes: object.bytes,
                })
            })
            .collect())
    }

    fn save(&self, snapshot: &Snapshot, file: &Path) -> Result<(), CommitLogError> {
        // Without a lease, the claim of the log has determined the epoch.
        let epoch = self.epoch.unwrap_or(snapshot.position.epoch);
        self.wait(async {
            // Keeps snapshots of this epoch: an earlier run of this process may still write them.
            self.snapshots
                .delete_orphans(&format!("{epoch:020}"))
                .await?;

            let object = nats::Snapshot {
                name: name(epoch, snapshot),
                metadata: notes(epoch, snapshot),
                bytes: snapshot.bytes,
            };
            self.snapshots.save(&object, file).await
        })
    }

    fn load(&self, snapshot: &Snapshot, file: &Path) -> Result<(), CommitLogError> {
        self.wait(async {
            self.snapshots
                .load(&self.stored_name(snapshot).await?, file)
                .await
        })
    }

    fn delete_snapshot(&self, snapshot: &Snapshot) -> Result<(), CommitLogError> {
        self.wait(async {
            self.snapshots
                .delete(&self.stored_name(snapshot).await?)
                .await
        })
    }

    fn recorded_claim(&self) -> Result<Option<LogPosition>, CommitLogError> {
        let recorded = self.wait(self.snapshots.claim())?;
        Ok(recorded.and_then(|notes| read_position(&notes, CLAIM)))
    }

    fn record_claim(&self, claim: &LogPosition) -> Result<(), CommitLogError> {
        let mut notes = BTreeMap::new();
        note_position(&mut notes, CLAIM, *claim);
        self.wait(self.snapshots.record_claim(notes))
    }
}

impl NatsCommitLog {
    /// Returns the name under which the snapshot was saved.
    async fn stored_name(&self, snapshot: &Snapshot) -> Result<String, nats::ShardLogError> {
        // The name contains the epoch of the process that saved it, which a `Snapshot` does not
        // have. Only the metadata identifies the object.
        let notes = Some((snapshot.position, snapshot.base));
        let objects = self.snapshots.list().await?;
        let found = objects
            .into_iter()
            .find(|object| read_notes(&object.metadata) == notes);

        found.map(|object| object.name).ok_or_else(|| {
            nats::ShardLogError::Damaged(format!(
                "the snapshot of commit {} no longer exists",
                snapshot.position.position
            ))
        })
    }
}

/// Returns the name of a snapshot. It starts with the epoch of the writer, so names grow with the
/// owners of a shard; a delta and a full snapshot of one position have different names.
fn name(epoch: u64, Snapshot { position, base, .. }: &Snapshot) -> String {
    let base = base.map_or_else(String::new, |base| format!("-{:020}", base.position));
    format!(
        "{epoch:020}-{:020}-{:016x}{base}",
        position.position, position.writer
    )
}

fn notes(saved_in: u64, snapshot: &Snapshot) -> BTreeMap<String, String> {
    let mut notes = BTreeMap::from([("saved-in-epoch".to_owned(), saved_in.to_string())]);
    note_position(&mut notes, "", snapshot.position);
    if let Some(base) = snapshot.base {
        note_position(&mut notes, BASE, base);
    }
    notes
}

fn note_position(notes: &mut BTreeMap<String, String>, prefix: &str, position: LogPosition) {
    let mut note = |name: &str, value: String| drop(notes.insert(format!("{prefix}{name}"), value));
    note("log", format!("{:032x}", u128::from_be_bytes(position.log)));
    note("position", position.position.to_string());
    note("entry", position.number.to_string());
    note("epoch", position.epoch.to_string());
    note("writer", format!("{:016x}", position.writer));
}

/// Reads the metadata of a snapshot, its position and its base; `None` if it is not a snapshot of
/// Orlog.
fn read_notes(notes: &BTreeMap<String, String>) -> Option<(LogPosition, Option<LogPosition>)> {
    Some((read_position(notes, "")?, read_position(notes, BASE)))
}

fn read_position(notes: &BTreeMap<String, String>, prefix: &str) -> Option<LogPosition> {
    let note = |name: &str| notes.get(&format!("{prefix}{name}"));
    let number = |name: &str| note(name)?.parse().ok();

    Some(LogPosition {
        log: u128::from_str_radix(note("log")?, 16).ok()?.to_be_bytes(),
        position: number("position")?,
        number: number("entry")?,
        epoch: number("epoch")?,
        writer: u64::from_str_radix(note("writer")?, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_metadata_round_trips_and_names_sort_by_epoch() {
        let log_position = LogPosition {
            log: [0xa5; 16],
            position: 7,
            number: 99,
            epoch: 3,
            writer: 0xf00d,
        };
        let base = LogPosition {
            position: 3,
            number: 40,
            ..log_position
        };
        for base in [None, Some(base)] {
            let snapshot = Snapshot {
                position: log_position,
                base,
                bytes: 1,
            };
            assert_eq!(read_notes(&notes(5, &snapshot)), Some((log_position, base)));
        }
        assert_eq!(read_notes(&BTreeMap::new()), None);
        let [full, delta] = [None, Some(base)].map(|base| Snapshot {
            position: log_position,
            base,
            bytes: 1,
        });
        assert!(name(9, &delta) < name(10, &full));
        assert_ne!(name(9, &full), name(9, &delta));
    }
}
