//! Copies of the tables: snapshots of a replicated shard, and copies for whoever wants one.

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
use crate::replication::commit_log::Place;
use crate::replication::metrics::Meter;
use crate::replication::open::{COPY_PREFIX, Replication};
use crate::shared::Shared;

/// A snapshot that could not be saved is tried again after this.
const PAUSE: Duration = Duration::from_secs(10);

/// How many snapshots are kept: one may be being read while the next one is saved.
const KEPT: usize = 2;

impl Reader {
    /// Copies the store as it stands, or a little later, into the new folder `dir`, while commits go on. The copy of a store without
    /// replication can be opened like any other; the position it reaches is the answer.
    ///
    /// # Errors
    /// See [`Reader`]; [`Error::Full`] if the copy finds no room.
    pub fn copy_to(&self, dir: &Path) -> Result<u64, Error> {
        let tables = dir.join("tables");
        let wrong = |source| Error::Io { action: "create the folder", path: tables.clone(), source };
        fs::create_dir_all(&tables).map_err(wrong)?;
        let copied = copy(&self.shared, &tables.join("mdbx.dat"))?;
        if copied.place.is_none() {
            let mut options = orlog_journal::Options::new(copied.identity);
            (options.first_sequence, options.segment_bytes) = (copied.position + 1, 4096);
            Journal::open(dir.join("journal"), options)?;
        }
        Ok(copied.position)
    }
}

/// What a copy holds.
struct Copied {
    position: u64,
    place: Option<Place>,
    /// Of the store, for its journal.
    identity: [u8; 16],
}

/// Copies the tables, and first brings them up to date.
fn copy(shared: &Shared, file: &Path) -> Result<Copied, Error> {
    shared.fold_all()?;
    // Not while it folds: closing waits for this lock with the other one held.
    let _not_closed = lock(&shared.copying);
    let disk = shared.read(|tables| tables.disk().cloned().ok_or(Error::Closed))?;
    let (position, place) = disk.copy_tables(file)?;
    Ok(Copied { position, place, identity: disk.identity() })
}

/// Saves snapshots when they are due, until nobody can wake it any more.
pub(crate) fn run(
    shared: &Arc<Shared>,
    meter: &Meter,
    replication: &Replication,
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
        let failed = replication.is_due(meter) && !save(shared, meter, replication, dir);
        not_before = failed.then(|| Instant::now() + PAUSE);
    }
}

fn save(shared: &Arc<Shared>, meter: &Meter, replication: &Replication, dir: &Path) -> bool {
    let (begun, behind) = (Instant::now(), meter.begin_snapshot());
    let file = temporary(dir);
    let saved = copy_and_save(shared, replication, &file);
    // What is left is removed with the next opening.
    fs::remove_file(&file).ok();
    let saved = match saved {
        Ok(position) => Ok(position),
        // The store is being closed.
        Err(Error::Closed) => return true,
        Err(error) => {
            tracing::warn!(%error, "no snapshot of the shard could be saved; its log grows until one is");
            Err(error.to_string())
        }
    };
    let done = saved.is_ok();
    meter.end_snapshot(saved, begun.elapsed(), behind);
    done
}

fn copy_and_save(shared: &Shared, replication: &Replication, file: &Path) -> Result<u64, Error> {
    let Copied { position, place, .. } = copy(shared, file)?;
    let log = &*replication.log;
    // Before the first commit there is nothing to keep.
    let Some(place) = place.filter(|place| place.number > 0) else { return Ok(position) };
    log.save(&place, file)?;
    let mut ours = log.snapshots()?;
    ours.retain(|other| other.log == place.log);
    ours.sort_by_key(|place| std::cmp::Reverse((place.position, place.number)));
    for old in ours.iter().skip(KEPT) {
        log.forget(old)?;
    }
    // Numbers mean nothing in a log that was made anew meanwhile.
    if let Some(oldest) = ours.get(KEPT - 1)
        && log.identity()? == place.log
    {
        // The entry itself stays: by it a copy recognises the log.
        log.purge_before(oldest.number)?;
    }
    tracing::debug!(position, "a snapshot of the shard was saved");
    Ok(position)
}

/// A name that no other life of a store in this folder uses.
fn temporary(dir: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    dir.join(format!("{COPY_PREFIX}{}-{next}", process::id()))
}
