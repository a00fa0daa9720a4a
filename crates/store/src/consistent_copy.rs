//! Consistent copies of several stores as of one moment, while commits continue.
//!
//! A copy contains no effect without its cause in another store (a message of a saga that another
//! shard received). The tables are flushed and then copied without a pause; the few commits between
//! the flush and the moment go into the journals of the copies. Commits are blocked only at the
//! moment itself.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_model::{CheckpointKey, StreamPosition};

use crate::encoding::keys;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::lock::lock;
use crate::merged::MergedTables;
use crate::read::reader::Reader;
use crate::store_dir::StoreDir;
use crate::table::Table;

/// Content of the copy of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreCopy {
    /// Number of commits.
    pub position: u64,
    /// Checkpoints of its sources.
    pub checkpoints: Vec<(CheckpointKey, StreamPosition)>,
    /// Position of the tables of the copy.
    flushed_position: u64,
}

/// Copies stores, each into its new directory, as of the moment at which `moment` is called, while
/// commits continue. During that call no store commits; the call must not read a store. The copies
/// can be opened as stores.
///
/// # Errors
/// See [`Reader`]; [`Error::Full`] if there is no space for a copy; [`Error::Mismatch`] if a store
/// follows a log.
pub fn copy_consistently<R>(
    stores: &[(Reader, PathBuf)],
    moment: impl FnOnce() -> R,
) -> Result<(Vec<StoreCopy>, R), Error> {
    let mut disks = Vec::new();
    let mut flush_guards = Vec::new();
    let mut not_closed = Vec::new();
    for (reader, to) in stores {
        let shared = &*reader.shared;
        // The flush is outside of the moment. Only the few commits after it go into the journal of
        // the copy.
        shared.flush_all()?;

        // No further flush starts, because it truncates the journal. The locks are acquired in the
        // same order as by closing.
        flush_guards.push(lock(&shared.flushing));
        not_closed.push(lock(&shared.copying));

        disks.push(own_journal(
            shared.read(|tables| Ok(Arc::clone(tables.disk())))?,
            to,
        )?);
    }

    let (copied, result) = copy_states(stores, moment)?;
    // No flush runs, so the journals still contain the records after the flushed positions.
    for ((_, to), (disk, copied)) in stores.iter().zip(disks.iter().zip(&copied)) {
        disk.copy_journal(
            &to.join("journal"),
            copied.flushed_position,
            copied.position,
        )?;
    }

    // Without a flush since the moment, each snapshot of the tables has the flushed position of its
    // copy.
    let tables = disks
        .iter()
        .map(|disk| disk.tables().snapshot())
        .collect::<Result<Vec<_>, _>>()?;

    // From here on a flush changes no copy: the journals are copied, and the snapshots are fixed.
    drop(flush_guards);
    for ((_, to), tables) in stores.iter().zip(&tables) {
        let dir = to.join("tables");
        std::fs::create_dir_all(&dir).map_err(Error::io("create the directory", &dir))?;
        tables.copy(&dir.join("mdbx.dat"))?;
    }

    // The snapshots use the open tables, so a store may close only after them.
    drop(tables);
    drop(not_closed);
    Ok((copied, result))
}

/// Rejects a store that follows a log, because it is copied with that log.
fn own_journal(disk: Arc<StoreDir>, to: &Path) -> Result<Arc<StoreDir>, Error> {
    if disk.log_position().is_none() {
        return Ok(disk);
    }

    let reason = "the store to copy follows a log; copy the log".to_owned();
    Err(Error::Mismatch {
        path: to.to_owned(),
        reason,
    })
}

fn copy_states<R>(
    stores: &[(Reader, PathBuf)],
    moment: impl FnOnce() -> R,
) -> Result<(Vec<StoreCopy>, R), Error> {
    // No store commits while these guards exist.
    let guards: Vec<_> = stores
        .iter()
        .map(|(reader, _)| reader.shared.read_guard())
        .collect();

    let result = moment();
    let copied = guards
        .iter()
        .map(|tables| store_copy(tables.as_ref().ok_or(Error::Closed)?));
    Ok((copied.collect::<Result<_, _>>()?, result))
}

fn store_copy(tables: &MergedTables) -> Result<StoreCopy, Error> {
    // Read with the lock: a later checkpoint would cover messages whose commits are not in the
    // copy.
    let mut checkpoints = Vec::new();
    tables.scan(Table::Checkpoint, &[], None, &mut |key, value| {
        checkpoints.push((
            keys::read_checkpoint(key)?,
            decode(Table::Checkpoint, value)?,
        ));
        Ok(ControlFlow::Continue(()))
    })?;

    Ok(StoreCopy {
        position: tables.state().position,
        checkpoints,
        flushed_position: tables.flushed_position(),
    })
}
