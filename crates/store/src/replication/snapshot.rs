//! Copies of the tables: snapshots of a replicated shard, and copies on request.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, process};

use orlog_journal::Journal;

use crate::error::Error;
use crate::lock::lock;
use crate::read::reader::Reader;
use crate::replication::commit_log::{CommitLog, LogPosition, Snapshot};
use crate::replication::delta;
use crate::replication::metrics::LogMetrics;
use crate::replication::open::{COPY_PREFIX, ReplicationOptions};
use crate::shared::Shared;

/// Delay before a failed snapshot is retried.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Number of snapshots to keep: one may be in use while the next one is saved.
const RETAINED_SNAPSHOTS: usize = 2;

impl Reader {
    /// Copies the current or a slightly later state of the store into the new directory `dir`, while
    /// commits continue. The copy of a store without replication can be opened as a store. Returns the
    /// position of the copy.
    ///
    /// # Errors
    /// See [`Reader`]; [`Error::Full`] if there is no space for the copy.
    pub fn copy_to(&self, dir: &Path) -> Result<u64, Error> {
        let tables = dir.join("tables");
        fs::create_dir_all(&tables).map_err(Error::io("create the directory", &tables))?;
        let copied = copy(&self.shared, &tables.join("mdbx.dat"))?;
        if copied.log_position.is_none() {
            let mut options = orlog_journal::Options::new(copied.identity);
            (options.first_sequence, options.segment_bytes) = (copied.position + 1, 4096);
            Journal::open(dir.join("journal"), options)?;
        }
        Ok(copied.position)
    }
}

/// Content of a copy.
struct TableCopy {
    position: u64,
    log_position: Option<LogPosition>,
    /// Identity of the store, for its journal.
    identity: [u8; 16],
}

/// Flushes the store and copies the tables.
fn copy(shared: &Shared, file: &Path) -> Result<TableCopy, Error> {
    shared.flush_all()?;
    // Not during a flush: closing waits for this lock while it holds the other one.
    let _not_closed = lock(&shared.copying);
    let disk = shared.read(|tables| Ok(Arc::clone(tables.disk())))?;
    let (position, log_position) = disk.copy_tables(file)?;
    Ok(TableCopy { position, log_position, identity: disk.identity() })
}

/// Saves snapshots when they are due, until all wakers are dropped.
pub(crate) fn run(
    shared: &Arc<Shared>,
    meter: &LogMetrics,
    replication: &ReplicationOptions,
    dir: &Path,
    wake: &Receiver<()>,
) {
    let mut not_before: Option<Instant> = None;
    loop {
        let pause = not_before.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        if wake.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        if not_before.is_some_and(|at| at > Instant::now()) {
            continue;
        }
        let failed = replication.is_snapshot_due(meter) && !save(shared, meter, replication, dir);
        not_before = failed.then(|| Instant::now() + RETRY_DELAY);
    }
}

fn save(shared: &Arc<Shared>, meter: &LogMetrics, replication: &ReplicationOptions, dir: &Path) -> bool {
    let (start, behind) = (Instant::now(), meter.start_snapshot());
    let file = temporary(dir);
    let saved = make_and_save(shared, replication, behind.1, &file);
    // The next opening removes leftover files.
    fs::remove_file(&file).ok();
    let saved = match saved {
        Ok(position) => Ok(position),
        // The store is closing.
        Err(Error::Closed) => return true,
        Err(error) => {
            tracing::warn!(%error, "snapshot failed; the shard log grows until the next success");
            Err(error.to_string())
        }
    };
    let done = saved.is_ok();
    meter.end_snapshot(saved, start.elapsed(), behind);
    done
}

fn make_and_save(
    shared: &Shared,
    replication: &ReplicationOptions,
    log_bytes: u64,
    file: &Path,
) -> Result<u64, Error> {
    let log = &*replication.log;
    let identity = log.identity()?;
    let Some(snapshot) = make(shared, log, (identity, log_bytes), file)? else {
        // Before the first commit there is nothing to save.
        return Ok(0);
    };
    log.save(&snapshot, file)?;
    let mut ours = snapshots_of(log, identity)?;
    let retained: Vec<_> =
        ours.iter().take(RETAINED_SNAPSHOTS).filter_map(|kept| delta::chain(&ours, &kept.position)).collect();
    // The entry itself remains: a copy identifies the log by it.
    let purge = ours.get(RETAINED_SNAPSHOTS - 1).map(|oldest| oldest.position.number);
    ours.retain(|old| !retained.iter().flatten().any(|kept| kept == old));
    for old in &ours {
        log.delete_snapshot(&old.position)?;
    }
    // Entry numbers of a log that was recreated meanwhile are not comparable.
    if let Some(number) = purge
        && log.identity()? == identity
    {
        log.purge_before(number)?;
    }
    let (position, is_delta) = (snapshot.position.position, snapshot.base.is_some());
    tracing::debug!(position, is_delta, bytes = snapshot.bytes, "shard snapshot saved");
    Ok(position)
}

/// Writes the next snapshot: a delta if the tables are large and little has changed, otherwise a copy of the
/// tables. Returns `None` if there is no commit.
fn make(
    shared: &Shared,
    log: &dyn CommitLog,
    (identity, log_bytes): ([u8; 16], u64),
    file: &Path,
) -> Result<Option<Snapshot>, Error> {
    let existing = snapshots_of(log, identity)?;
    let newest = existing.first().map(|newest| newest.position);
    let chain = newest.and_then(|newest| delta::chain(&existing, &newest)).unwrap_or_default();
    if let Some(base) = newest
        && delta::is_worthwhile(&chain, log_bytes)
        && let Some(position) = delta::write(log, &base, shared.memtable_bytes, file)?
    {
        return Ok(Some(Snapshot { position, base: Some(base), bytes: size(file)? }));
    }
    fs::remove_file(file).ok();
    let TableCopy { log_position, .. } = copy(shared, file)?;
    let position = log_position.filter(|position| position.number > 0);
    position.map(|position| Ok(Snapshot { position, base: None, bytes: size(file)? })).transpose()
}

fn size(file: &Path) -> Result<u64, Error> {
    Ok(fs::metadata(file).map_err(Error::io("read", file))?.len())
}

/// Returns the snapshots of this log, newest first.
fn snapshots_of(log: &dyn CommitLog, identity: [u8; 16]) -> Result<Vec<Snapshot>, Error> {
    let mut snapshots = log.snapshots()?;
    snapshots.retain(|snapshot| snapshot.position.log == identity);
    snapshots.sort_by_key(|snapshot| Reverse((snapshot.position.position, snapshot.position.number)));
    Ok(snapshots)
}

/// Returns a name that no other run of a store in this directory uses.
fn temporary(dir: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    dir.join(format!("{COPY_PREFIX}{}-{next}", process::id()))
}
