//! Copies of the tables: snapshots of a replicated shard, and copies on request.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};
use std::{fs, process};

use orlog_journal::Journal;

use crate::error::Error;
use crate::lock::lock;
use crate::read::reader::Reader;
use crate::replication::commit_log::{CommitLog, LogPosition, Snapshot};
use crate::replication::delta;
use crate::replication::metrics::{LogMetrics, LogTail};
use crate::replication::open::{COPY_PREFIX, ReplicationOptions};
use crate::shared::Shared;

/// Delay before a failed snapshot is retried.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Number of snapshots to keep: one may be in use while the next one is saved.
const RETAINED_SNAPSHOTS: usize = 2;

impl Reader {
    /// Copies the current or a slightly later state of the store into the new directory `dir`,
    /// while commits continue. The copy of a store without replication can be opened as a store.
    /// Returns the position of the copy.
    ///
    /// # Errors
    /// See [`Reader`]; [`Error::Full`] if there is no space for the copy.
    pub fn copy_to(&self, dir: &Path) -> Result<u64, Error> {
        let tables = dir.join("tables");
        fs::create_dir_all(&tables).map_err(Error::io("create the directory", &tables))?;
        let copied = copy(&self.shared, &tables.join("mdbx.dat"))?;

        // The journal of the copy starts after its tables. Without it, an opening would report a
        // loss.
        if copied.log_position.is_none() {
            let mut options = orlog_journal::Options::new(copied.identity);
            options.first_sequence = copied.position + 1;
            options.segment_bytes = 4096;
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
    Ok(TableCopy {
        position,
        log_position,
        identity: disk.identity(),
    })
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
    let mut failures = 0_u64;
    loop {
        let pause = not_before.map_or(Duration::MAX, |at| {
            at.saturating_duration_since(Instant::now())
        });

        if wake.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // A later commit also wakes the thread; it must not shorten the delay after a failure.
        if not_before.is_some_and(|at| at > Instant::now()) {
            continue;
        }

        not_before = None;
        // A failure lasts: it is logged once, and so is its end.
        match save_if_due(shared, meter, replication, dir) {
            Ok(is_saved) if failures > 0 => {
                tracing::info!(failures, is_saved, "snapshots can be saved again");
                failures = 0;
            }
            // The store is closing.
            Ok(_) | Err(Error::Closed) => {}
            Err(_) if wake.try_recv() == Err(TryRecvError::Disconnected) => return,
            Err(error) => {
                // While it fails, the statistics of the store contain the reason.
                if failures == 0 {
                    tracing::warn!(
                        %error,
                        "snapshot failed; the shard log grows until the next success"
                    );
                }
                failures += 1;
                not_before = Some(Instant::now() + RETRY_DELAY);
            }
        }
    }
}

/// Saves a snapshot if the log after the last one exceeds a threshold. Returns whether it did.
fn save_if_due(
    shared: &Arc<Shared>,
    meter: &LogMetrics,
    replication: &ReplicationOptions,
    dir: &Path,
) -> Result<bool, Error> {
    // The rest of the log may exceed a threshold alone. The snapshot then covers the part that
    // cannot be counted.
    let counted = count_until_start(meter, replication);
    if !replication.is_snapshot_due(meter) {
        return counted.map(|()| false);
    }
    save(shared, meter, replication, dir)?;
    Ok(true)
}

/// Counts the log between the last snapshot and the copy with which the takeover started, once. The
/// takeover itself reads only the log after its copy: without this, a pod that restarts often would
/// never reach a threshold, and the log would grow without a limit.
fn count_until_start(meter: &LogMetrics, replication: &ReplicationOptions) -> Result<(), Error> {
    let Some(start) = meter.uncounted() else {
        return Ok(());
    };

    match tail_before(&start, replication) {
        Ok(tail) => {
            meter.count_until_start(start, tail);
            Ok(())
        }
        Err(error) => {
            let reason = Err(error.to_string());
            meter.end_snapshot(reason, Duration::ZERO, LogTail::default());
            Err(error)
        }
    }
}

/// Measures the log from the last snapshot to `end`. The size is exact only below the threshold of
/// snapshots.
fn tail_before(end: &LogPosition, replication: &ReplicationOptions) -> Result<LogTail, Error> {
    // An empty copy has nothing behind it.
    if end.number == 0 {
        return Ok(LogTail::default());
    }

    let log = &*replication.log;
    let saved = delta::list(log, log.identity()?)?;
    let newest = delta::chains(&saved).next().unwrap_or_default();
    let newest = newest.last().map(|snapshot| snapshot.position);
    let mut tail = LogTail {
        commits: end
            .position
            .saturating_sub(newest.map_or(0, |newest| newest.position)),
        bytes: 0,
    };
    if tail.commits == 0 {
        return Ok(tail);
    }

    let after = newest.map_or(0, |newest| newest.number);
    log.read(after, &mut |entry| {
        if entry.number > end.number || tail.bytes >= replication.snapshot_bytes {
            return ControlFlow::Break(());
        }
        tail.bytes += entry.bytes.len() as u64;
        ControlFlow::Continue(())
    })?;
    Ok(tail)
}

fn save(
    shared: &Arc<Shared>,
    meter: &LogMetrics,
    replication: &ReplicationOptions,
    dir: &Path,
) -> Result<(), Error> {
    let start = Instant::now();
    let covered = meter.start_snapshot();
    let file = temporary(dir);
    let saved = make_and_save(shared, replication, covered.bytes, &file);
    // The next opening removes leftover files.
    fs::remove_file(&file).ok();

    let measured = match &saved {
        Err(Error::Closed) => {
            meter.cancel_snapshot(covered);
            return Err(Error::Closed);
        }
        Ok(position) => Ok(*position),
        Err(error) => Err(error.to_string()),
    };
    meter.end_snapshot(measured, start.elapsed(), covered);
    saved.map(|_| ())
}

fn make_and_save(
    shared: &Shared,
    replication: &ReplicationOptions,
    log_bytes: u64,
    file: &Path,
) -> Result<u64, Error> {
    let log = &*replication.log;
    let identity = log.identity()?;
    let Some(snapshot) = make(shared, log, identity, log_bytes, file)? else {
        // Before the first commit there is nothing to save.
        return Ok(0);
    };

    log.save(&snapshot, file)?;
    // Listed after the save, so that the new snapshot counts.
    let ours = delta::list(log, identity)?;
    if let Some(oldest) = oldest_retained(&ours) {
        // The snapshots first: one whose log entries are purged could not be continued.
        for old in ours
            .iter()
            .filter(|old| old.position.position < oldest.position)
        {
            log.delete_snapshot(old)?;
        }

        // Entry numbers of a log that was recreated meanwhile are not comparable.
        if log.identity()? == identity {
            // The entry itself remains: a copy identifies the log by it.
            log.purge_before(oldest.number)?;
        }
    }

    let position = snapshot.position.position;
    tracing::debug!(
        position,
        is_delta = snapshot.base.is_some(),
        bytes = snapshot.bytes,
        "shard snapshot saved"
    );
    Ok(position)
}

/// Returns the position before which snapshots and log entries can be deleted: that of the oldest
/// full snapshot in the chains of the newest snapshots; `None` if there are fewer.
///
/// Former owners can save and delete at the same time, each with an older list. Of all lists that
/// led to a deletion, take the one with the latest result: no owner deletes a snapshot of its
/// chains, nor a log entry after them.
fn oldest_retained(snapshots: &[Snapshot]) -> Option<LogPosition> {
    let retained: Vec<_> = delta::chains(snapshots).take(RETAINED_SNAPSHOTS).collect();
    let full = retained
        .iter()
        .filter_map(|chain| chain.first())
        .map(|full| full.position);
    full.min_by_key(|full| full.position)
        .filter(|_| retained.len() == RETAINED_SNAPSHOTS)
}

/// Writes the next snapshot: a delta if the tables are large and little has changed, otherwise a
/// copy of the tables. Returns `None` if there is no commit.
fn make(
    shared: &Shared,
    log: &dyn CommitLog,
    identity: [u8; 16],
    log_bytes: u64,
    file: &Path,
) -> Result<Option<Snapshot>, Error> {
    let existing = delta::list(log, identity)?;
    let chain = delta::chains(&existing).next().unwrap_or_default();

    // If the log does not continue the base, no delta is written and a full snapshot follows.
    if let Some(base) = chain.last().map(|newest| newest.position)
        && delta::is_worthwhile(&chain, log_bytes)
        && let Some(position) = delta::write(log, &base, shared.memtable_bytes, file)?
    {
        return Ok(Some(Snapshot {
            position,
            base: Some(base),
            bytes: size(file)?,
        }));
    }

    // A delta that was not completed has left its file; the copy is a new file.
    fs::remove_file(file).ok();
    let TableCopy { log_position, .. } = copy(shared, file)?;
    // Without an entry, no reader could compare the snapshot with the log.
    let position = log_position.filter(|position| position.number > 0);
    position
        .map(|position| {
            Ok(Snapshot {
                position,
                base: None,
                bytes: size(file)?,
            })
        })
        .transpose()
}

fn size(file: &Path) -> Result<u64, Error> {
    Ok(fs::metadata(file).map_err(Error::io("read", file))?.len())
}

/// Returns a name that no other run of a store in this directory uses.
fn temporary(dir: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    dir.join(format!("{COPY_PREFIX}{}-{next}", process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: u64) -> LogPosition {
        LogPosition {
            log: [7; 16],
            position,
            number: position * 2,
            epoch: 1,
            writer: 1,
        }
    }

    fn snapshot(position: u64, base: Option<u64>) -> Snapshot {
        Snapshot {
            position: at(position),
            base: base.map(at),
            bytes: 1,
        }
    }

    #[test]
    fn full_snapshot_replaces_a_delta_of_its_position_in_a_chain() {
        let snapshots = [
            snapshot(21, Some(14)),
            snapshot(14, Some(7)),
            snapshot(14, None),
        ];
        let chains: Vec<_> = delta::chains(&snapshots).collect();
        assert_eq!(
            chains,
            [vec![snapshots[2], snapshots[0]], vec![snapshots[2]]]
        );
    }

    #[test]
    fn deletion_retains_the_full_snapshots_of_the_two_newest_complete_chains() {
        let incomplete = [snapshot(40, Some(33)), snapshot(35, Some(3))];
        let complete = [
            snapshot(28, Some(21)),
            snapshot(21, Some(14)),
            snapshot(14, None),
            snapshot(7, None),
        ];
        let snapshots = [&incomplete[..], &complete[..]].concat();
        assert_eq!(oldest_retained(&snapshots), Some(at(14)));
        assert_eq!(oldest_retained(&snapshots[4..]), Some(at(7)));
        assert_eq!(oldest_retained(&snapshots[5..]), None);
        assert_eq!(oldest_retained(&incomplete), None);
    }
}
