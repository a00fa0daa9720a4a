//! Tables on disk: one MDBX environment. Only this file and `mdbx/inspect.rs` use libmdbx.
//!
//! Pitfalls that the code avoids: a commit that returns `Ok(true)` has committed nothing; MDBX
//! splits pages at the insertion point by default, which halves the fill of random keys; a full map
//! invalidates the transaction.

pub(crate) mod inspect;
mod resident;

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use libmdbx::{
    Database, DatabaseOptions, Error as MdbxError, Mode, NoWriteMap, PageSize, RO, RW,
    ReadWriteOptions, SyncMode, TableFlags, Transaction, WriteFlags,
};

use orlog_model::count::{Operation, count};

use crate::encoding::checksum;
use crate::encoding::range::RowVisitor;
use crate::encoding::value::EMPTY;
use crate::error::Error;
use crate::memtable::Memtable;
use crate::stats::{PageStats, TableStats};
use crate::table::Table;
use crate::tables::{IndexChanges, RowAccess, ScanRange, TableSnapshot, Tables};

/// ENOSPC and EDQUOT, which libmdbx returns unchanged.
const NO_SPACE: [i32; 2] = [28, 122];

/// Maximum number of tables of an environment.
const MAX_TABLES: u64 = 32;

/// Maximum number of concurrent read transactions. More than the threads of a process that read:
/// the runtime has 512 threads for blocking work, a few workers and a few threads for each store.
const MAX_READERS: u32 = 1024;

/// Number of damaged rows of a store that are logged.
const LOGGED_DAMAGE: u64 = 100;

/// EAGAIN: this process already has the environment open.
const ALREADY_OPEN: i32 = 11;

/// Open environment.
#[derive(Debug)]
pub(crate) struct Mdbx {
    /// Handles of [`Table::ALL`], in that order. They belong to `db` and never leave this type.
    tables: Vec<libmdbx::Table<'static>>,
    db: Database<NoWriteMap>,
    path: PathBuf,
    /// Reads of damaged rows.
    damaged_reads: AtomicU64,
}

impl Mdbx {
    /// Opens the environment in the directory `path`, or creates it. `admit` first receives the row
    /// `format_key` of the table `meta` and can reject it before anything is changed.
    pub(crate) fn open(
        path: &Path,
        max_bytes: u64,
        format_key: &[u8],
        admit: impl FnOnce(Option<&[u8]>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mdbx_error = |action| move |error| translated(action, path, error);
        let db =
            Database::open_with_options(path, options(max_bytes)).map_err(mdbx_error("open"))?;
        prefer_full_pages(&db).map_err(mdbx_error("configure"))?;
        let format = format(&db, format_key).map_err(mdbx_error("read"))?;

        // Before anything is changed: a newer release may own the directory.
        admit(format.as_deref())?;
        // Only now: a rejected format may have no checksums.
        if let Some(row) = &format {
            verified(path, Table::Meta, format_key, row)?;
        }

        let tables = handles(&db).map_err(mdbx_error("open the tables of"))?;
        Ok(Self {
            tables,
            db,
            path: path.to_owned(),
            damaged_reads: AtomicU64::new(0),
        })
    }

    /// Writes the rows of one table. A cursor moves to the next key of the same page without
    /// another descent of the tree.
    fn flush_table(
        &self,
        txn: &Transaction<'_, RW, NoWriteMap>,
        table: Table,
        memtable: &Memtable,
    ) -> libmdbx::Result<()> {
        let mut cursor = txn.cursor(self.handle(table))?;
        let mut sealed = Vec::new();

        for (key, row) in memtable.table(table) {
            count(Operation::TableWrite);
            match row {
                Some(value) => {
                    checksum::seal(&mut sealed, table, key, value);
                    cursor.put(key, &sealed, WriteFlags::UPSERT)?;
                }
                None => {
                    // The row may have been written and deleted since the last flush.
                    if cursor.set::<()>(key)?.is_some() {
                        cursor.del(WriteFlags::empty())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn write_index(
        &self,
        txn: &Transaction<'_, RW, NoWriteMap>,
        changes: &IndexChanges,
    ) -> libmdbx::Result<()> {
        let mut cursor = txn.cursor(self.handle(Table::Index))?;
        let mut sealed = Vec::new();

        for (key, is_put) in changes {
            count(Operation::TableWrite);
            if *is_put {
                checksum::seal(&mut sealed, Table::Index, key, EMPTY);
                cursor.put(key, &sealed, WriteFlags::UPSERT)?;
            } else if cursor.set::<()>(key)?.is_some() {
                // An index that is built may not have the row yet.
                cursor.del(WriteFlags::empty())?;
            }
        }
        Ok(())
    }

    fn put_meta(
        &self,
        txn: &Transaction<'_, RW, NoWriteMap>,
        rows: &[(&[u8], &[u8])],
    ) -> libmdbx::Result<()> {
        let mut sealed = Vec::new();
        rows.iter().try_for_each(|(key, value)| {
            checksum::seal(&mut sealed, Table::Meta, key, value);
            txn.put(self.handle(Table::Meta), key, &sealed, WriteFlags::UPSERT)
        })
    }

    /// Returns the value of a row. A damaged row is counted and logged.
    fn verified<'a>(&self, table: Table, key: &[u8], row: &'a [u8]) -> Result<&'a [u8], Error> {
        verified(&self.path, table, key, row).inspect_err(|error| {
            // A damaged page has many rows, and each read would write a record.
            if self.damaged_reads.fetch_add(1, Ordering::Relaxed) < LOGGED_DAMAGE {
                tracing::error!(%error, "damaged row");
            }
        })
    }

    fn handle(&self, table: Table) -> &libmdbx::Table<'_> {
        &self.tables[table as usize]
    }

    fn mdbx_error(&self, action: &'static str, error: MdbxError) -> Error {
        translated(action, &self.path, error)
    }

    fn read_txn(&self) -> Result<Transaction<'_, RO, NoWriteMap>, Error> {
        self.db
            .begin_ro_txn()
            .map_err(|error| self.mdbx_error("read", error))
    }

    fn begin_read(&self) -> Result<MdbxSnapshot<'_>, Error> {
        let txn = self.read_txn()?;
        Ok(MdbxSnapshot { txn, of: self })
    }

    /// Writes all rows in one transaction. Returns whether nothing was committed.
    fn write_rows(
        &self,
        memtable: Option<&Memtable>,
        index: &IndexChanges,
        meta: &[(&[u8], &[u8])],
    ) -> libmdbx::Result<bool> {
        // An error drops the transaction, which aborts it, so no part of a flush is visible.
        let txn = self.db.begin_rw_txn()?;
        if let Some(memtable) = memtable {
            for table in Table::ALL {
                self.flush_table(&txn, table, memtable)?;
            }
        }
        self.write_index(&txn, index)?;
        // In the transaction of the rows, because the position of the tables is one of them.
        self.put_meta(&txn, meta)?;
        txn.commit()
    }

    fn table_stats(&self) -> libmdbx::Result<Vec<TableStats>> {
        let txn = self.db.begin_ro_txn()?;
        let mut stats = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            let stat = txn.table_stat(self.handle(table))?;
            stats.push(TableStats {
                name: table.name(),
                rows: stat.entries() as u64,
                pages: (stat.branch_pages() + stat.leaf_pages() + stat.overflow_pages()) as u64,
                bytes: stat.total_size(),
            });
        }
        Ok(stats)
    }

    fn page_stats(&self) -> libmdbx::Result<PageStats> {
        let info = self.db.info()?;
        let stat = self.db.stat()?;
        let total = info.geometry().current_size() / u64::from(stat.page_size()).max(1);
        // The pages after the last used one are free, but not in the free list.
        let used = (info.last_pgno() as u64 + 1).saturating_sub(self.db.freelist()? as u64);

        Ok(PageStats {
            total,
            free: total.saturating_sub(used),
            readers: info.num_readers() as u64,
        })
    }
}

impl Tables for Mdbx {
    fn get(&self, table: Table, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.begin_read()?.get(table, key, read)
    }

    fn contains(&self, table: Table, key: &[u8]) -> Result<bool, Error> {
        // The value is not read, so its damage does not matter.
        let row = self
            .read_txn()?
            .get::<()>(self.handle(table), key)
            .map_err(|error| self.mdbx_error("read", error))?;
        Ok(row.is_some())
    }

    fn write(
        &self,
        memtable: Option<&Memtable>,
        index: &IndexChanges,
        meta: &[(&[u8], &[u8])],
    ) -> Result<(), Error> {
        let nothing_committed = self
            .write_rows(memtable, index, meta)
            .map_err(|error| self.mdbx_error("write", error))?;

        if nothing_committed {
            let source = io::Error::other("the transaction was not committed");
            return Err(Error::Io {
                action: "write",
                path: self.path.clone(),
                source,
            });
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn TableSnapshot + '_>, Error> {
        Ok(Box::new(self.begin_read()?))
    }

    fn stats(&self) -> Result<Vec<TableStats>, Error> {
        self.table_stats()
            .map_err(|error| self.mdbx_error("examine", error))
    }

    fn bytes(&self) -> (u64, u64) {
        self.db.info().map_or((0, 0), |info| {
            let geometry = info.geometry();
            (geometry.current_size(), geometry.max_size())
        })
    }

    /// Scans the free list, which is short.
    fn pages(&self) -> Result<PageStats, Error> {
        self.page_stats()
            .map_err(|error| self.mdbx_error("examine", error))
    }

    fn release_memory(&self, limit: u64) {
        resident::release(&self.path.join("mdbx.dat"), limit);
    }

    fn damaged_reads(&self) -> u64 {
        self.damaged_reads.load(Ordering::Relaxed)
    }
}

/// Environment as of one moment.
struct MdbxSnapshot<'a> {
    txn: Transaction<'a, RO, NoWriteMap>,
    of: &'a Mdbx,
}

impl TableSnapshot for MdbxSnapshot<'_> {
    fn get(&self, table: Table, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let row = self
            .txn
            .get::<Cow<'_, [u8]>>(self.of.handle(table), key)
            .map_err(|error| self.of.mdbx_error("read", error))?;
        if let Some(row) = row {
            read(self.of.verified(table, key, &row)?);
        }
        Ok(())
    }

    fn scan(
        &self,
        range: ScanRange<'_>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        let mut cursor = self
            .txn
            .cursor(self.of.handle(range.table))
            .map_err(|error| self.of.mdbx_error("read", error))?;

        for row in cursor.iter_from::<Cow<'_, [u8]>, Cow<'_, [u8]>>(range.from) {
            let (key, value) = row.map_err(|error| self.of.mdbx_error("read", error))?;
            if range.end.is_some_and(|end| *key >= *end) {
                break;
            }

            // A scan of keys passes damaged rows, so that they can be deleted. Other scans skip
            // them or fail, depending on the table.
            let value = match self.of.verified(range.table, &key, &value) {
                Ok(value) => value,
                Err(_) if range.access == RowAccess::Keys => checksum::unverified(&value),
                Err(_) if range.table.skips_damaged_rows() => continue,
                Err(error) => return Err(error),
            };

            if visit(&key, value)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn copy(&self, path: &Path) -> Result<(), Error> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::Io {
            action: "copy to",
            path: path.to_owned(),
            source: io::Error::other("its name contains a zero byte"),
        })?;

        copy(&self.txn, &name).map_err(|error| translated("copy to", path, error))
    }
}

/// Returns the value of a row of the environment in `path`.
pub(crate) fn verified<'a>(
    path: &Path,
    table: Table,
    key: &[u8],
    row: &'a [u8],
) -> Result<&'a [u8], Error> {
    checksum::verify(table, key, row).ok_or_else(|| Error::Damaged {
        path: path.to_owned(),
        table: table.name(),
        key: hex::encode(key),
    })
}

fn options(max_bytes: u64) -> DatabaseOptions {
    let size = |bytes: u64| isize::try_from(bytes).ok();
    let step = (max_bytes / 16).clamp(64 << 10, 64 << 20);

    DatabaseOptions {
        max_tables: Some(MAX_TABLES),
        max_readers: Some(MAX_READERS),
        no_rdahead: true,
        page_size: Some(PageSize::Set(4096)),
        mode: Mode::ReadWrite(ReadWriteOptions {
            // The journal is truncated after a flush, so the tables must be durable.
            sync_mode: SyncMode::Durable,
            min_size: size(step.min(1 << 20)),
            max_size: size(max_bytes),
            growth_step: size(step),
            shrink_threshold: None,
        }),
        ..DatabaseOptions::default()
    }
}

/// Makes MDBX split pages in the middle, not at the insertion point.
#[expect(unsafe_code, reason = "libmdbx does not wrap this option")]
fn prefer_full_pages(db: &Database<NoWriteMap>) -> libmdbx::Result<()> {
    // SAFETY: the environment is open and no other code uses it yet.
    let code = unsafe {
        mdbx_sys::mdbx_env_set_option(
            db.ptr().0,
            mdbx_sys::MDBX_opt_prefer_waf_insteadof_balance,
            0,
        )
    };

    if code == mdbx_sys::MDBX_SUCCESS {
        Ok(())
    } else {
        Err(MdbxError::from_err_code(code))
    }
}

/// Copies the content that a transaction sees.
#[expect(unsafe_code, reason = "libmdbx does not wrap this call")]
fn copy(txn: &Transaction<'_, RO, NoWriteMap>, name: &CStr) -> libmdbx::Result<()> {
    // SAFETY: the transaction is open and no other code uses it; the name ends with a zero.
    let code = unsafe {
        mdbx_sys::mdbx_txn_copy2pathname(txn.txn().0, name.as_ptr(), mdbx_sys::MDBX_CP_COMPACT)
    };

    if code == mdbx_sys::MDBX_SUCCESS {
        Ok(())
    } else {
        Err(MdbxError::from_err_code(code))
    }
}

/// Returns a row of the table `meta`, if that table exists.
fn format(db: &Database<NoWriteMap>, key: &[u8]) -> libmdbx::Result<Option<Vec<u8>>> {
    let txn = db.begin_ro_txn()?;
    match txn.open_table(Some(Table::Meta.name())) {
        Ok(meta) => txn.get(&meta, key),
        // A new environment has no tables yet.
        Err(MdbxError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns handles that are valid as long as the environment. Creates missing tables.
#[expect(
    unsafe_code,
    reason = "handles and environment live in one struct, which the borrow checker cannot express"
)]
fn handles(db: &Database<NoWriteMap>) -> libmdbx::Result<Vec<libmdbx::Table<'static>>> {
    let txn = db.begin_rw_txn()?;
    // A store of an earlier release lacks the tables that were added since.
    for table in Table::ALL {
        txn.prime_for_permaopen(txn.create_table(Some(table.name()), TableFlags::empty())?);
    }

    let (_, tables) = txn.commit_and_rebind_open_dbs()?;
    // SAFETY: a handle is a number that the environment resolves. `Mdbx` owns both, and lends a
    // handle no longer than itself.
    Ok(unsafe {
        std::mem::transmute::<Vec<libmdbx::Table<'_>>, Vec<libmdbx::Table<'static>>>(tables)
    })
}

fn translated(action: &'static str, path: &Path, error: MdbxError) -> Error {
    let full = |reason: &str| Error::Full {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };

    match error {
        MdbxError::MapFull => full(
            "the tables have reached the maximum size; raise it (`store.max_size`) and restart the \
             node",
        ),
        MdbxError::UnableExtendMapsize => {
            full("the tables cannot grow; free disk space or address space")
        }
        MdbxError::Other(code) if NO_SPACE.contains(&code) => {
            full("the disk is full; free disk space")
        }
        MdbxError::Busy | MdbxError::Other(ALREADY_OPEN) => Error::Locked {
            path: path.to_owned(),
        },
        MdbxError::Corrupted
        | MdbxError::PageNotFound
        | MdbxError::CursorFull
        | MdbxError::VersionMismatch
        | MdbxError::Invalid => Error::Corrupt {
            location: path.display().to_string(),
            reason: error.to_string(),
        },
        other => Error::Io {
            action,
            path: path.to_owned(),
            source: io::Error::other(other),
        },
    }
}

#[cfg(test)]
impl Mdbx {
    /// Returns the rows of a table as stored, with their checksums.
    pub(crate) fn stored_rows(&self, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
        let txn = self.db.begin_ro_txn().unwrap();
        let mut cursor = txn.cursor(self.handle(table)).unwrap();
        let rows = cursor
            .iter_start::<Cow<'_, [u8]>, Cow<'_, [u8]>>()
            .map(Result::unwrap);
        rows.map(|(key, row)| (key.into_owned(), row.into_owned()))
            .collect()
    }

    /// Stores a row without adding a checksum.
    pub(crate) fn store_row(&self, table: Table, key: &[u8], row: &[u8]) {
        let txn = self.db.begin_rw_txn().unwrap();
        txn.put(self.handle(table), key, row, WriteFlags::UPSERT)
            .unwrap();
        txn.commit().unwrap();
    }
}
