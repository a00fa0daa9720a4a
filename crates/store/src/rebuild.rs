//! Rebuild of damaged or missing tables: from a complete journal, or from a copy of the store and
//! the journal records after it.
//!
//! The old tables are not read, because a damaged page can end the process, and never deleted. The
//! new tables are complete, checked and durable before they replace the old ones. After a crash at
//! any point, the same rebuild can be repeated.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orlog_journal::{DurablePosition, Journal, LocalDisk, Reader};

use crate::counts::COUNTED;
use crate::encoding::record::StoreState;
use crate::error::Error;
use crate::mdbx::inspect::{TableProblem, check_tables};
use crate::memtable::Memtable;
use crate::merged::MergedTables;
use crate::options::Options;
use crate::presence;
use crate::replication::follower::{EntryId, RecordPosition};
use crate::store_dir::StoreDir;
use crate::table::Table;

/// State of the store before the first journal record that a rebuild applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuildBase {
    /// The new store with this dedupe window: the journal contains all commits.
    NewStore {
        /// Minimum time for which the store keeps dedupe keys.
        dedupe_window: Duration,
    },
    /// A copy of the store, made by [`crate::copy_consistently`], in the directory that `base`
    /// received.
    Copy,
}

/// Result of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuiltTables {
    /// Last commit.
    pub position: u64,
    /// Number of rows.
    pub rows: u64,
    /// Directory of the old tables; `None` if there were none.
    pub aside: Option<PathBuf>,
}

/// Builds the tables of the store in the directory `dir` again. The store has the identity in
/// `expected`, and its journal contains that position. `base` receives a directory for a copy of
/// the store, which does not exist yet. If it fails before the first rename, nothing was changed.
///
/// # Errors
/// - [`Error::Locked`]: a process has the store open.
/// - [`Error::Lost`]: the journal is missing, or ends before the expected position.
/// - [`Error::Mismatch`]: the journal does not continue the base, or the copy belongs to another
///   history.
/// - [`Error::DamagedJournal`]: the journal is damaged.
/// - [`Error::Damaged`] and [`Error::Corrupt`]: the copy is damaged.
/// - [`Error::Full`] and [`Error::Io`], and the errors of `base`.
pub fn rebuild_tables<E: From<Error>>(
    dir: &Path,
    expected: DurablePosition,
    options: &Options,
    base: impl FnOnce(&Path) -> Result<RebuildBase, E>,
) -> Result<RebuiltTables, E> {
    // A rebuild accepts no loss: a journal that ends too early is an error.
    let options = Options {
        expected: Some(expected),
        accept_data_loss: false,
        ..options.clone()
    };

    // Locks the store until the end.
    let journal = open_journal(dir, expected, &options)?;

    let work = dir.join(presence::REBUILD_DIR);
    // An interrupted rebuild may have left an incomplete directory.
    remove(&work)?;
    let built =
        base(&work).and_then(|base| Ok(build(&work, base, expected.identity, &journal, &options)?));
    let rows = built.inspect_err(|_| drop(fs::remove_dir_all(&work)))?;

    let mut aside = None;
    // After the first step, an opening finds the tables in `rebuild` and reports that the rebuild
    // was interrupted.
    for step in SwapStep::ALL {
        aside = step.run(dir)?.or(aside);
    }

    Ok(RebuiltTables {
        position: journal.next_sequence() - 1,
        rows,
        aside,
    })
}

fn open_journal(
    dir: &Path,
    expected: DurablePosition,
    options: &Options,
) -> Result<Journal, Error> {
    if !orlog_journal::has_segments(&dir.join("journal"))? {
        return Err(Error::Lost {
            path: dir.to_owned(),
            reason: "the journal is missing".to_owned(),
        });
    }

    // The old tables are not read, so their position is unknown.
    let flushed = DurablePosition {
        identity: expected.identity,
        position: 0,
    };
    presence::open_journal(dir, options, flushed, Arc::new(LocalDisk))
}

/// Builds the tables in the directory `work`. Returns the number of rows.
fn build(
    work: &Path,
    base: RebuildBase,
    identity: [u8; 16],
    journal: &Journal,
    options: &Options,
) -> Result<u64, Error> {
    let disk = match base {
        RebuildBase::NewStore { dedupe_window } => {
            // Without a base, the journal must start with the first commit.
            check_continues(journal, 0)?;
            StoreDir::create_tables(
                work,
                &Options {
                    dedupe_window,
                    ..options.clone()
                },
                identity,
            )?
        }
        RebuildBase::Copy => open_copy(work, identity, options)?,
    };

    // A copy has a journal of its own, with the commits after its tables.
    let mut tables = MergedTables::replay(&disk)?;
    check_continues(journal, tables.state().position)?;

    let log = journal.reader();
    check_history(&tables, &log)?;
    log.for_each(tables.state().position + 1, |position, record| {
        tables.apply(
            RecordPosition::position(position),
            &Bytes::copy_from_slice(record),
        )?;
        // A long journal must not stay in memory as one memtable.
        tables.flush_if_full(options.memtable_bytes)
    })?;

    tables.flush()?;
    // No journal record has the mark that the counts are complete.
    tables.count_if_needed()?;

    let StoreState {
        by_kind,
        outbox_depth,
        ..
    } = *tables.state();
    // The tables are closed before their directory is checked and renamed.
    drop((tables, disk));

    // A backup that only adjoins the journal has no rows in common with it: only its counters
    // reveal another history.
    if by_kind.iter().sum::<u64>() != outbox_depth {
        return Err(other_history(
            journal.path(),
            "the outbox has another depth",
        ));
    }

    // The names must be durable before the old tables are moved.
    sync_dir(&work.join("tables"))?;
    sync_dir(work)?;
    check_rows(work)
}

fn open_copy(work: &Path, identity: [u8; 16], options: &Options) -> Result<Arc<StoreDir>, Error> {
    // The copy may end before the expected position, which is that of the journal.
    let copy = StoreDir::open(
        work,
        &Options {
            expected: None,
            ..options.clone()
        },
        Arc::new(LocalDisk),
    )?;

    if copy.identity() != identity {
        let reason = format!(
            "it is a copy of store {}, not of store {}; use a backup of this store",
            hex::encode(copy.identity()),
            hex::encode(identity)
        );
        return Err(Error::Mismatch {
            path: work.to_owned(),
            reason,
        });
    }
    Ok(copy)
}

/// Checks that the journal contains all commits after `position`, or ends there.
fn check_continues(journal: &Journal, position: u64) -> Result<(), Error> {
    let first = journal.first_sequence();
    let last = journal.next_sequence() - 1;
    let reason = if position + 1 < first {
        let missing = first - 1;
        format!(
            "the commits {} to {missing} are no longer in the journal; use a backup with commit \
             {missing} (--backup)",
            position + 1
        )
    } else if position > last {
        format!(
            "it ends at commit {last}, before commit {position} of the backup; restore the backup \
             instead"
        )
    } else {
        return Ok(());
    };

    Err(Error::Mismatch {
        path: journal.path().to_owned(),
        reason,
    })
}

/// Compares a copy with the journal records up to its position: these must have written the same
/// rows.
fn check_history(copy: &MergedTables, log: &Reader) -> Result<(), Error> {
    let mut overlap = Memtable::new(StoreState::NONE, EntryId::NONE);
    let mut cursor = log.read_from(log.first_sequence())?;
    while let Some(record) = cursor.read_up_to(copy.state().position)? {
        overlap.apply(
            RecordPosition::position(record.sequence),
            &Bytes::copy_from_slice(record.payload),
            Instant::now(),
        )?;
    }

    if overlap.created_at().is_none() {
        return Ok(());
    }

    let path = Path::new("the backup");
    // No record contains the counters by kind.
    if (StoreState {
        by_kind: copy.state().by_kind,
        ..*overlap.state()
    }) != *copy.state()
    {
        return Err(other_history(path, "its last commit differs"));
    }

    for table in Table::ALL {
        for (key, row) in overlap.table(table) {
            // An opening may have counted the instances of the copy again.
            if table == Table::Count || key == COUNTED {
                continue;
            }

            let equal = copy
                .get(table, key, |found| row == Some(found))
                .map_err(|error| match error {
                    Error::Damaged { .. } => damaged_copy(table.name(), &error.to_string()),
                    error => error,
                })?;

            if !equal.unwrap_or(row.is_none()) {
                let key = hex::encode(key);
                return Err(other_history(
                    path,
                    &format!("the row {key} of table {} differs", table.name()),
                ));
            }
        }
    }
    Ok(())
}

fn other_history(path: &Path, difference: &str) -> Error {
    let reason = format!(
        "{difference}: the backup and the journal have different histories; use a backup of this \
         data directory"
    );
    Error::Mismatch {
        path: path.to_owned(),
        reason,
    }
}

/// Reads all rows: a copy may contain damaged ones.
fn check_rows(work: &Path) -> Result<u64, Error> {
    let mut first = None;
    let rows = check_tables(work, |problem| {
        first.get_or_insert(problem);
    })?;
    match first {
        None => Ok(rows),
        Some(TableProblem { table, reason, .. }) => Err(damaged_copy(table, &reason)),
    }
}

fn damaged_copy(table: &str, reason: &str) -> Error {
    let location = format!("table {table} of the backup");
    Error::Corrupt {
        location,
        reason: format!("{reason}; use another backup"),
    }
}

/// Step of the replacement of the old tables.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SwapStep {
    MoveOldAside,
    MoveNewIntoPlace,
    RemoveWorkDir,
}

impl SwapStep {
    /// All steps, in their order.
    pub(crate) const ALL: [Self; 3] = [
        Self::MoveOldAside,
        Self::MoveNewIntoPlace,
        Self::RemoveWorkDir,
    ];

    /// Runs the step durably. Returns the new name of the old tables.
    pub(crate) fn run(self, dir: &Path) -> Result<Option<PathBuf>, Error> {
        let work = dir.join(presence::REBUILD_DIR);
        let tables = dir.join("tables");
        let mut aside = None;

        match self {
            Self::MoveOldAside => aside = orlog_journal::move_aside(&tables)?,
            Self::MoveNewIntoPlace => {
                fs::rename(work.join("tables"), &tables)
                    .map_err(Error::io("move into place", &tables))?;
            }
            Self::RemoveWorkDir => remove(&work)?,
        }

        // Each step is durable before the next one, so a crash leaves a known state.
        sync_dir(dir)?;
        Ok(aside)
    }
}

fn remove(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", dir)(error))
        }
        _ => Ok(()),
    }
}

fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir)
        .and_then(|open| open.sync_all())
        .map_err(Error::io("sync", dir))
}
