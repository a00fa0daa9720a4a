//! Shards whose commits go to a log on NATS: the port of the store over the client of the bus.
//!
//! The store calls from threads of its own and waits; the client works on the runtime. A call made on a thread of the runtime
//! gives its place to another one for as long as it waits.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orlog_bus::nats::{self, Connection, Plan, ShardLog, Snapshot, Snapshots};
use orlog_store::{CommitLog, Entry, Error, LogError, Options, Place, Reader, Replication, Writer};
use tokio::runtime::Handle;

/// For how long a log that does not answer is tried; a cluster chooses a new leader in less.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// When a shard saves a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// After so many commits …
    pub commits: u64,
    /// … or so many bytes of them.
    pub bytes: u64,
}

/// The streams of the logs and the snapshots as they should be.
#[must_use]
pub fn plan(replicas: usize) -> Plan {
    Plan(vec![ShardLog::plan(replicas), Snapshots::plan(replicas)])
}

/// Takes a shard over into the folder `dir`: whoever wrote it before commits nothing more. `epoch` grows with every lease on the shard.
///
/// # Errors
/// [`Error::Fenced`] if somebody holds a later lease; [`Error::Unavailable`] if NATS has not answered for a while; else what a person
/// must deal with, see [`orlog_store::open_replicated`].
pub async fn open(
    connection: &Connection,
    shard: u16,
    epoch: u64,
    dir: PathBuf,
    options: Options,
    pace: Pace,
) -> Result<(Writer, Reader), Error> {
    let begun = Instant::now();
    loop {
        match try_open(connection, (shard, epoch), dir.clone(), options.clone(), pace).await {
            Err(error @ Error::Unavailable { .. }) if begun.elapsed() < PATIENCE => {
                tracing::warn!(shard, %error, "the shard cannot be taken over yet");
                tokio::time::sleep(PAUSE).await;
            }
            opened => return opened,
        }
    }
}

async fn try_open(
    connection: &Connection,
    (shard, epoch): (u16, u64),
    dir: PathBuf,
    options: Options,
    pace: Pace,
) -> Result<(Writer, Reader), Error> {
    let unavailable = |error| Error::from(translated(error));
    let log = Remote {
        runtime: Handle::current(),
        log: ShardLog::open(connection, shard).await.map_err(unavailable)?,
        snapshots: Snapshots::open(connection, shard).await.map_err(unavailable)?,
        epoch,
    };
    let (snapshot_commits, snapshot_bytes) = (pace.commits, pace.bytes);
    let replication = Replication { log: Arc::new(log), epoch, snapshot_commits, snapshot_bytes };
    let open = move || orlog_store::open_replicated(&dir, options, replication);
    tokio::task::spawn_blocking(open).await.unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
}

/// A shard's log and snapshots on NATS.
#[derive(Debug)]
struct Remote {
    runtime: Handle,
    log: ShardLog,
    snapshots: Snapshots,
    epoch: u64,
}

impl Remote {
    fn wait<T>(&self, answer: impl Future<Output = Result<T, nats::LogError>>) -> Result<T, LogError> {
        let wait = || self.runtime.block_on(answer);
        let answer = if Handle::try_current().is_ok() { tokio::task::block_in_place(wait) } else { wait() };
        answer.map_err(translated)
    }
}

fn translated(error: nats::LogError) -> LogError {
    match error {
        nats::LogError::Conflict(text) => LogError::Conflict(text),
        nats::LogError::Damaged(text) => LogError::Damaged(text),
        error @ nats::LogError::Unavailable(_) => LogError::Unavailable(error.to_string()),
    }
}

impl CommitLog for Remote {
    fn identity(&self) -> Result<[u8; 16], LogError> {
        self.wait(self.log.identity())
    }

    fn max_entry_bytes(&self) -> usize {
        self.log.max_entry_bytes()
    }

    fn append(&self, after: Option<u64>, entry: &Bytes) -> Result<u64, LogError> {
        self.wait(self.log.append(after, entry.clone()))
    }

    fn last(&self) -> Result<Option<Entry>, LogError> {
        let last = self.wait(self.log.last())?;
        Ok(last.map(|(number, bytes)| Entry { number, bytes }))
    }

    fn read(&self, after: u64, visit: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), LogError> {
        self.wait(self.log.read(after, &mut |number, bytes| visit(Entry { number, bytes })))
    }

    fn purge_before(&self, number: u64) -> Result<(), LogError> {
        self.wait(self.log.purge_before(number))
    }

    fn snapshots(&self) -> Result<Vec<Place>, LogError> {
        let snapshots = self.wait(self.snapshots.list())?;
        Ok(snapshots.iter().filter_map(|snapshot| read_notes(&snapshot.notes)).collect())
    }

    fn save(&self, place: &Place, file: &Path) -> Result<(), LogError> {
        self.wait(async {
            // Of this epoch nothing: an earlier life of this very process may still be writing.
            self.snapshots.sweep(&format!("{:020}", self.epoch)).await?;
            let snapshot = Snapshot { name: name(self.epoch, place), notes: notes(self.epoch, place) };
            self.snapshots.save(&snapshot, file).await
        })
    }

    fn load(&self, place: &Place, file: &Path) -> Result<(), LogError> {
        self.wait(async { self.snapshots.load(&self.stored_name(place).await?, file).await })
    }

    fn forget(&self, place: &Place) -> Result<(), LogError> {
        self.wait(async { self.snapshots.forget(&self.stored_name(place).await?).await })
    }
}

impl Remote {
    /// The name under which whoever saved it did so.
    async fn stored_name(&self, place: &Place) -> Result<String, nats::LogError> {
        let snapshots = self.snapshots.list().await?;
        let found =
            snapshots.into_iter().find(|snapshot| read_notes(&snapshot.notes).as_ref() == Some(place));
        found.map(|snapshot| snapshot.name).ok_or_else(|| {
            nats::LogError::Damaged(format!("the snapshot of commit {} is gone", place.position))
        })
    }
}

/// Begins with the epoch of whoever saves it, so that names grow with the owners of a shard.
fn name(epoch: u64, place: &Place) -> String {
    format!("{epoch:020}-{:020}-{:016x}", place.position, place.writer)
}

fn notes(saved_in: u64, place: &Place) -> BTreeMap<String, String> {
    let note = |name: &str, value: String| (name.to_owned(), value);
    BTreeMap::from([
        note("log", format!("{:032x}", u128::from_be_bytes(place.log))),
        note("position", place.position.to_string()),
        note("entry", place.number.to_string()),
        note("epoch", place.epoch.to_string()),
        note("writer", format!("{:016x}", place.writer)),
        note("saved-in-epoch", saved_in.to_string()),
    ])
}

/// `None` for something that is no snapshot of ours.
fn read_notes(notes: &BTreeMap<String, String>) -> Option<Place> {
    let number = |name: &str| notes.get(name)?.parse().ok();
    Some(Place {
        log: u128::from_str_radix(notes.get("log")?, 16).ok()?.to_be_bytes(),
        position: number("position")?,
        number: number("entry")?,
        epoch: number("epoch")?,
        writer: u64::from_str_radix(notes.get("writer")?, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_back_and_names_grow_with_epochs() {
        let place = Place { log: [0xa5; 16], position: 7, number: 99, epoch: 3, writer: 0xf00d };
        assert_eq!(read_notes(&notes(5, &place)), Some(place));
        assert_eq!(read_notes(&BTreeMap::new()), None);
        assert!(name(9, &place) < name(10, &place));
    }
}
