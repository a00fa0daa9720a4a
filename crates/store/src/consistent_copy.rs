//! Copies of several stores as they stood at one moment, while they are written.
//!
//! What one store has because of another (what a saga says is heard in another shard) is in no copy without its cause. Tables are folded
//! and then copied at leisure; the few commits between the fold and the moment go into the journals of the copies. Commits stand still
//! only for the moment itself.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_model::{Source, StreamPosition};

use crate::encoding::keys;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::lock::lock;
use crate::merged::Tables;
use crate::read::reader::Reader;
use crate::store_dir::Disk;
use crate::table::Table;

/// What the copy of a store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// How many commits.
    pub position: u64,
    /// Up to where its sources are done with.
    pub checkpoints: Vec<(Source, StreamPosition)>,
    /// What of it is in the tables.
    folded: u64,
}

/// Copies stores, each into the new folder beside it, as all of them stood when `moment` was called, while commits go on. It is called
/// while nothing is committed in any of them, and must not look into one. The copies can be opened like any other store.
///
/// # Errors
/// See [`Reader`]; [`Error::Full`] if a copy finds no room; [`Error::Mismatch`] where a store follows a log.
pub fn copy_together<R>(
    stores: &[(Reader, PathBuf)],
    moment: impl FnOnce() -> R,
) -> Result<(Vec<Copied>, R), Error> {
    let (mut disks, mut not_folded, mut not_closed) = (Vec::new(), Vec::new(), Vec::new());
    for (reader, to) in stores {
        let shared = &*reader.shared;
        shared.fold_all()?;
        // In the order in which whoever closes takes them.
        not_folded.push(lock(&shared.folding));
        not_closed.push(lock(&shared.copying));
        disks.push(own_journal(shared.read(|tables| tables.disk().cloned().ok_or(Error::Closed))?, to)?);
    }
    let (copied, answer) = stand_still(stores, moment)?;
    for ((_, to), (disk, copied)) in stores.iter().zip(disks.iter().zip(&copied)) {
        disk.copy_journal(&to.join("journal"), copied.folded, copied.position)?;
    }
    let tables = disks.iter().map(|disk| disk.tables().still()).collect::<Result<Vec<_>, _>>()?;
    drop(not_folded);
    for ((_, to), tables) in stores.iter().zip(&tables) {
        let folder = to.join("tables");
        let wrong = |source| Error::Io { action: "create the folder", path: folder.clone(), source };
        std::fs::create_dir_all(&folder).map_err(wrong)?;
        tables.copy(&folder.join("mdbx.dat"))?;
    }
    drop(tables);
    drop(not_closed);
    Ok((copied, answer))
}

/// A store that follows a log is copied with that log.
fn own_journal(disk: Arc<Disk>, to: &Path) -> Result<Arc<Disk>, Error> {
    if disk.place().is_none() {
        return Ok(disk);
    }
    let reason = "the store that it is to be a copy of follows a log; copy the log".to_owned();
    Err(Error::Mismatch { path: to.to_owned(), reason })
}

fn stand_still<R>(
    stores: &[(Reader, PathBuf)],
    moment: impl FnOnce() -> R,
) -> Result<(Vec<Copied>, R), Error> {
    let still: Vec<_> = stores.iter().map(|(reader, _)| reader.shared.still()).collect();
    let answer = moment();
    let copied = still.iter().map(|tables| standing(tables.as_ref().ok_or(Error::Closed)?));
    Ok((copied.collect::<Result<_, _>>()?, answer))
}

fn standing(tables: &Tables) -> Result<Copied, Error> {
    let mut checkpoints = Vec::new();
    tables.scan(Table::Checkpoint, &[], None, &mut |key, value| {
        checkpoints.push((keys::read_checkpoint(key)?, decode(Table::Checkpoint, value)?));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Copied { position: tables.heads().position, checkpoints, folded: tables.folded_position() })
}
