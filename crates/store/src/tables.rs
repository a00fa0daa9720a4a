//! Table engine: sorted tables below the memtable, behind the few operations that a store requires.
//!
//! `mdbx.rs` stores them on disk, `memory.rs` in memory. One suite, below, verifies both.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use crate::encoding::range::RowVisitor;
use crate::encoding::tuple::Key;
use crate::error::Error;
use crate::memtable::Memtable;
use crate::stats::{PageStats, TableStats};
use crate::table::Table;

/// Tables of one store. A write is atomic and durable when it returns, and every later read sees
/// it.
pub(crate) trait Tables: fmt::Debug + Send + Sync {
    /// Passes the value of the row with this key to `read`, if there is one. A damaged row is an
    /// error.
    fn get(&self, table: Table, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<(), Error>;

    /// Returns whether a row has this key, also if the row is damaged.
    fn contains(&self, table: Table, key: &[u8]) -> Result<bool, Error>;

    /// Writes the rows and tombstones of a memtable, changes of the table `index`, and rows of the
    /// table `meta`, each in key order.
    fn write(
        &self,
        memtable: Option<&Memtable>,
        index: &IndexChanges,
        meta: &[(&[u8], &[u8])],
    ) -> Result<(), Error>;

    /// Returns a snapshot of the current state, unaffected by later writes. While it exists, the
    /// space of replaced rows is not reused.
    fn snapshot(&self) -> Result<Box<dyn TableSnapshot + '_>, Error>;

    /// Returns the size of each table, without a scan.
    fn stats(&self) -> Result<Vec<TableStats>, Error>;

    /// Returns the size and the maximum size on disk, in bytes.
    fn bytes(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Returns the page statistics on disk.
    fn pages(&self) -> Result<PageStats, Error> {
        Ok(PageStats::default())
    }

    /// Releases the mapped pages of the tables if the process has more than `limit` bytes of file
    /// pages in memory.
    fn release_memory(&self, limit: u64) {
        let _ = limit;
    }

    /// Returns the number of reads of damaged rows.
    fn damaged_reads(&self) -> u64 {
        0
    }
}

/// Tables as of one moment.
pub(crate) trait TableSnapshot {
    /// Passes the value of the row with this key to `read`, as [`Tables::get`].
    fn get(&self, table: Table, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<(), Error>;

    /// Passes the rows of a range to `visit`, in key order, until it breaks; returns whether it
    /// did. A damaged row is skipped or fails the scan, depending on its table and on the access.
    fn scan(
        &self,
        range: ScanRange<'_>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<ControlFlow<()>, Error>;

    /// Copies all tables into the new file `path`, compacted.
    fn copy(&self, path: &Path) -> Result<(), Error>;
}

/// Changes of index rows, in key order: `true` writes the row, `false` deletes it.
pub(crate) type IndexChanges = Vec<(Key, bool)>;

/// Part of the rows that a scan requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowAccess {
    /// Keys and values: damaged rows are not passed.
    Values,
    /// Keys: damaged rows are passed too, so that they can be deleted.
    Keys,
}

/// Rows of a scan: those of a table with keys from `from` to before `end`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanRange<'a> {
    pub(crate) table: Table,
    pub(crate) access: RowAccess,
    pub(crate) from: &'a [u8],
    /// `None`: the end of the table.
    pub(crate) end: Option<&'a [u8]>,
}

impl ScanRange<'_> {
    /// Returns the range of a whole table.
    pub(crate) fn of_table(table: Table, access: RowAccess) -> Self {
        Self {
            table,
            access,
            from: &[],
            end: None,
        }
    }
}

impl dyn TableSnapshot + '_ {
    /// Returns the row with this key.
    pub(crate) fn row(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut found = None;
        self.get(table, key, &mut |value| found = Some(value.to_vec()))?;
        Ok(found)
    }

    /// Returns a row of the table `meta`.
    pub(crate) fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.row(Table::Meta, key)
    }
}

impl dyn Tables + '_ {
    /// Passes the rows of a range to `visit`, as [`TableSnapshot::scan`].
    pub(crate) fn scan(
        &self,
        range: ScanRange<'_>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        self.snapshot()?.scan(range, visit)
    }

    /// Passes the row with this key to `read`; returns `None` if there is none.
    pub(crate) fn row<R>(
        &self,
        table: Table,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        // The trait takes a function that can be called more than once; `read` can be called once.
        let mut read = Some(read);
        let mut found = None;
        self.get(table, key, &mut |value| {
            found = read.take().map(|read| read(value));
        })?;
        Ok(found)
    }
}
