//! The tables on disk: one MDBX environment. The only file that knows libmdbx.
//!
//! Traps that the code below avoids: a commit that answers `Ok(true)` has committed nothing; MDBX splits pages at the
//! insertion point unless told otherwise, which halves the fill of random keys; a full map spoils the transaction.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libmdbx::{
    Database, DatabaseOptions, Error as MdbxError, Mode, NoWriteMap, PageSize, RO, RW, ReadWriteOptions,
    SyncMode, TableFlags, Transaction, WriteFlags,
};

use crate::encoding::range::Visit;
use crate::error::Error;
use crate::memtable::Generation;
use crate::stats::{Pages, TableStats};
use crate::table::Table;

/// ENOSPC and EDQUOT, which libmdbx hands on as they are.
const NO_ROOM: [i32; 2] = [28, 122];

/// EAGAIN: the environment is open already, in this process.
const HELD: i32 = 11;

/// An open environment.
#[derive(Debug)]
pub(crate) struct Mdbx {
    /// Handles of [`Table::ALL`], in that order. They belong to `db` and are never handed out.
    tables: Vec<libmdbx::Table<'static>>,
    db: Database<NoWriteMap>,
    path: PathBuf,
}

impl Mdbx {
    /// Opens the environment in the folder `path`, or makes one. `admit` is shown the row `format_key` of the table
    /// `meta` first, and can refuse before anything is changed.
    pub(crate) fn open(
        path: &Path,
        max_bytes: u64,
        format_key: &[u8],
        admit: impl FnOnce(Option<&[u8]>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let wrong = |action| move |error| translated(action, path, error);
        let db = Database::open_with_options(path, options(max_bytes)).map_err(wrong("open"))?;
        prefer_full_pages(&db).map_err(wrong("configure"))?;
        admit(format(&db, format_key).map_err(wrong("read"))?.as_deref())?;
        let tables = handles(&db).map_err(wrong("open the tables of"))?;
        Ok(Self { tables, db, path: path.to_owned() })
    }

    /// Shows `read` the row with this key; `None` if there is none.
    pub(crate) fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        let get = || {
            let txn = self.db.begin_ro_txn()?;
            let row = txn.get::<Cow<'_, [u8]>>(self.handle(table), key)?;
            Ok(row.map(|row| read(&row)))
        };
        get().map_err(|error| self.wrong("read", error))
    }

    /// Shows `visit` the rows from `from` to just before `end`, in key order, until it breaks; says whether it did.
    pub(crate) fn scan(
        &self,
        table: Table,
        from: &[u8],
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        let txn = self.db.begin_ro_txn().map_err(|error| self.wrong("read", error))?;
        let mut cursor = txn.cursor(self.handle(table)).map_err(|error| self.wrong("read", error))?;
        for row in cursor.iter_from::<Cow<'_, [u8]>, Cow<'_, [u8]>>(from) {
            let (key, value) = row.map_err(|error| self.wrong("read", error))?;
            if end.is_some_and(|end| *key >= *end) {
                break;
            }
            if visit(&key, &value)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Brings the tables up to date with a generation, all or nothing, together with rows of the table `meta`.
    pub(crate) fn fold(&self, generation: &Generation, meta: &[(&[u8], &[u8])]) -> Result<(), Error> {
        self.write(|txn| {
            for table in Table::ALL {
                self.fold_table(txn, table, generation)?;
            }
            self.put_meta(txn, meta)
        })
    }

    /// A cursor finds its way from one key to the next of the same page without descending the tree again.
    fn fold_table(
        &self,
        txn: &Transaction<'_, RW, NoWriteMap>,
        table: Table,
        generation: &Generation,
    ) -> libmdbx::Result<()> {
        let mut cursor = txn.cursor(self.handle(table))?;
        for (key, row) in generation.table(table) {
            match row {
                Some(value) => cursor.put(key, value, WriteFlags::UPSERT)?,
                None => {
                    if cursor.set::<()>(key)?.is_some() {
                        cursor.del(WriteFlags::empty())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes rows of the table `meta`.
    pub(crate) fn describe(&self, rows: &[(&[u8], &[u8])]) -> Result<(), Error> {
        self.write(|txn| self.put_meta(txn, rows))
    }

    fn put_meta(
        &self,
        txn: &Transaction<'_, RW, NoWriteMap>,
        rows: &[(&[u8], &[u8])],
    ) -> libmdbx::Result<()> {
        let put =
            |(key, value): &(&[u8], &[u8])| txn.put(self.handle(Table::Meta), key, value, WriteFlags::UPSERT);
        rows.iter().try_for_each(put)
    }

    /// Everything as it is now, also while others write. Until it is dropped, pages that are freed are not used again.
    pub(crate) fn still(&self) -> Result<Still<'_>, Error> {
        let txn = self.db.begin_ro_txn().map_err(|error| self.wrong("read", error))?;
        Ok(Still { txn, of: self })
    }

    fn write(
        &self,
        change: impl FnOnce(&Transaction<'_, RW, NoWriteMap>) -> libmdbx::Result<()>,
    ) -> Result<(), Error> {
        let commit = || {
            let txn = self.db.begin_rw_txn()?;
            change(&txn)?;
            txn.commit()
        };
        let nothing_committed = commit().map_err(|error| self.wrong("write", error))?;
        if nothing_committed {
            let source = io::Error::other("the transaction committed nothing");
            return Err(Error::Io { action: "write", path: self.path.clone(), source });
        }
        Ok(())
    }

    /// The size of the file and the largest one that it may have, in bytes.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let sizes = |info: libmdbx::Info| (info.geometry().current_size(), info.geometry().max_size());
        self.db.info().map_or((0, 0), sizes)
    }

    /// The pages of the file, and who reads them. Goes through the list of free ones, which is short.
    pub(crate) fn pages(&self) -> Result<Pages, Error> {
        let pages = || {
            let (info, stat) = (self.db.info()?, self.db.stat()?);
            let all = info.geometry().current_size() / u64::from(stat.page_size()).max(1);
            let used = (info.last_pgno() as u64 + 1).saturating_sub(self.db.freelist()? as u64);
            Ok(Pages { all, free: all.saturating_sub(used), readers: info.num_readers() as u64 })
        };
        pages().map_err(|error| self.wrong("examine", error))
    }

    /// Rows and pages of each table, without counting them.
    pub(crate) fn stats(&self) -> Result<Vec<TableStats>, Error> {
        let stats = || {
            let txn = self.db.begin_ro_txn()?;
            let of_table = |table: &Table| {
                let stat = txn.table_stat(self.handle(*table))?;
                Ok(TableStats {
                    name: table.name(),
                    rows: stat.entries() as u64,
                    pages: (stat.branch_pages() + stat.leaf_pages() + stat.overflow_pages()) as u64,
                    bytes: stat.total_size(),
                })
            };
            Table::ALL.iter().map(of_table).collect::<libmdbx::Result<Vec<_>>>()
        };
        stats().map_err(|error| self.wrong("examine", error))
    }

    fn handle(&self, table: Table) -> &libmdbx::Table<'_> {
        &self.tables[table as usize]
    }

    fn wrong(&self, action: &'static str, error: MdbxError) -> Error {
        translated(action, &self.path, error)
    }
}

/// An environment as it was at one moment.
#[derive(Debug)]
pub(crate) struct Still<'a> {
    txn: Transaction<'a, RO, NoWriteMap>,
    of: &'a Mdbx,
}

impl Still<'_> {
    /// A row of the table `meta`.
    pub(crate) fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.txn.get(self.of.handle(Table::Meta), key).map_err(|error| self.of.wrong("read", error))
    }

    /// Copies everything into the new file `path`, without gaps.
    pub(crate) fn copy(&self, path: &Path) -> Result<(), Error> {
        let name = CString::new(path.as_os_str().as_bytes());
        let source = || io::Error::other("its name holds a zero byte");
        let name =
            name.map_err(|_| Error::Io { action: "copy to", path: path.to_owned(), source: source() })?;
        copy(&self.txn, &name).map_err(|error| translated("copy to", path, error))
    }
}

fn options(max_bytes: u64) -> DatabaseOptions {
    let size = |bytes: u64| isize::try_from(bytes).ok();
    let step = (max_bytes / 16).clamp(64 << 10, 64 << 20);
    DatabaseOptions {
        max_tables: Some(16),
        max_readers: Some(256),
        no_rdahead: true,
        page_size: Some(PageSize::Set(4096)),
        mode: Mode::ReadWrite(ReadWriteOptions {
            sync_mode: SyncMode::Durable,
            min_size: size(step.min(1 << 20)),
            max_size: size(max_bytes),
            growth_step: size(step),
            shrink_threshold: None,
        }),
        ..DatabaseOptions::default()
    }
}

/// What can be seen of an environment without changing it.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The rows of the table `meta` that were asked for; nothing where it has no such row.
    pub(crate) meta: Vec<Option<Vec<u8>>>,
    /// Rows of each table, by its name.
    pub(crate) rows: Vec<(&'static str, u64)>,
}

/// Looks into an environment, also beside a process that writes it.
pub(crate) fn look(path: &Path, keys: &[&[u8]]) -> Result<Seen, Error> {
    let read = || {
        let options = DatabaseOptions {
            max_tables: Some(16),
            mode: Mode::ReadOnly,
            no_rdahead: true,
            ..DatabaseOptions::default()
        };
        let db: Database<NoWriteMap> = Database::open_with_options(path, options)?;
        let txn = db.begin_ro_txn()?;
        let mut seen = Seen { meta: Vec::new(), rows: Vec::new() };
        let meta = txn.open_table(Some(Table::Meta.name()))?;
        for key in keys {
            seen.meta.push(txn.get(&meta, key)?);
        }
        for table in Table::ALL {
            match txn.open_table(Some(table.name())) {
                Ok(open) => seen.rows.push((table.name(), txn.table_stat(&open)?.entries() as u64)),
                // A store of an earlier release lacks some until it is opened.
                Err(MdbxError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(seen)
    };
    read().map_err(|error| translated("look into", path, error))
}

/// Splits pages in the middle, not at the insertion point.
#[expect(unsafe_code, reason = "libmdbx does not wrap this option")]
fn prefer_full_pages(db: &Database<NoWriteMap>) -> libmdbx::Result<()> {
    // SAFETY: the environment is open and nobody else uses it yet.
    let code = unsafe {
        mdbx_sys::mdbx_env_set_option(db.ptr().0, mdbx_sys::MDBX_opt_prefer_waf_insteadof_balance, 0)
    };
    if code == mdbx_sys::MDBX_SUCCESS { Ok(()) } else { Err(MdbxError::from_err_code(code)) }
}

/// Copies what a transaction sees.
#[expect(unsafe_code, reason = "libmdbx does not wrap this call")]
fn copy(txn: &Transaction<'_, RO, NoWriteMap>, name: &CStr) -> libmdbx::Result<()> {
    // SAFETY: the transaction is open and nobody else uses it; the name ends with a zero.
    let code =
        unsafe { mdbx_sys::mdbx_txn_copy2pathname(txn.txn().0, name.as_ptr(), mdbx_sys::MDBX_CP_COMPACT) };
    if code == mdbx_sys::MDBX_SUCCESS { Ok(()) } else { Err(MdbxError::from_err_code(code)) }
}

/// A row of the table `meta`, if there is that table.
fn format(db: &Database<NoWriteMap>, key: &[u8]) -> libmdbx::Result<Option<Vec<u8>>> {
    let txn = db.begin_ro_txn()?;
    match txn.open_table(Some(Table::Meta.name())) {
        Ok(meta) => txn.get(&meta, key),
        Err(MdbxError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Handles that stay valid as long as the environment, made with their tables where those are missing.
#[expect(
    unsafe_code,
    reason = "handles and environment live in one struct, which the borrow checker cannot express"
)]
fn handles(db: &Database<NoWriteMap>) -> libmdbx::Result<Vec<libmdbx::Table<'static>>> {
    let txn = db.begin_rw_txn()?;
    for table in Table::ALL {
        txn.prime_for_permaopen(txn.create_table(Some(table.name()), TableFlags::empty())?);
    }
    let (_, tables) = txn.commit_and_rebind_open_dbs()?;
    // SAFETY: a handle is a number that the environment knows. `Mdbx` keeps both, and lends a handle no longer than itself.
    Ok(unsafe { std::mem::transmute::<Vec<libmdbx::Table<'_>>, Vec<libmdbx::Table<'static>>>(tables) })
}

fn translated(action: &'static str, path: &Path, error: MdbxError) -> Error {
    let full = |reason: &str| Error::Full { path: path.to_owned(), reason: reason.to_owned() };
    let damaged =
        |error: MdbxError| Error::Corrupt { place: path.display().to_string(), reason: error.to_string() };
    match error {
        MdbxError::MapFull => {
            full("the tables have reached their largest size; raise it and open the store anew")
        }
        MdbxError::UnableExtendMapsize => full("the tables cannot grow; free disk space or address space"),
        MdbxError::Other(code) if NO_ROOM.contains(&code) => full("the disk is full; free disk space"),
        MdbxError::Busy | MdbxError::Other(HELD) => Error::Locked { path: path.to_owned() },
        MdbxError::Corrupted
        | MdbxError::PageNotFound
        | MdbxError::CursorFull
        | MdbxError::VersionMismatch
        | MdbxError::Invalid => damaged(error),
        other => Error::Io { action, path: path.to_owned(), source: io::Error::other(other) },
    }
}
