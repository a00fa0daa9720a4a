//! Copies of the tables: snapshots of a replicated shard, and copies on request.

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
use crate::replication::commit_log::LogPosition;
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
    let saved = copy_and_save(shared, replication, &file);
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

fn copy_and_save(shared: &Shared, replication: &ReplicationOptions, file: &Path) -> Result<u64, Error> {
    let TableCopy { position, log_position: place, .. } = copy(shared, file)?;
    let log = &*replication.log;
    // Before the first commit there is nothing to save.
    let Some(log_position) = place.filter(|log_position| log_position.number > 0) else {
        return Ok(position);
    };
    log.save(&log_position, file)?;
    let mut ours = log.snapshots()?;
    ours.retain(|other| other.log == log_position.log);
    ours.sort_by_key(|log_position| std::cmp::Reverse((log_position.position, log_position.number)));
    for old in ours.iter().skip(RETAINED_SNAPSHOTS) {
        log.delete_snapshot(old)?;
    }
    // Entry numbers of a log that was recreated meanwhile are not comparable.
    if let Some(oldest) = ours.get(RETAINED_SNAPSHOTS - 1)
        && log.identity()? == log_position.log
    {
        // The entry itself remains: a copy identifies the log by it.
        log.purge_before(oldest.number)?;
    }
    tracing::debug!(position, "shard snapshot saved");
    Ok(position)
}

/// Returns a name that no other run of a store in this directory uses.
fn temporary(dir: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    dir.join(format!("{COPY_PREFIX}{}-{next}", process::id()))
}
