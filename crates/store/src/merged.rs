//! Merged view of the tables: active memtable, immutable memtable, table engine.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::encoding::range::RowVisitor;
use crate::encoding::record::StoreState;
use crate::encoding::tuple::Key;
use crate::error::Error;
use crate::memtable::{Memtable, MemtableLookup};
use crate::replication::follower::RecordPosition;
use crate::store_dir::StoreDir;
use crate::table::Table;
use crate::tables::{RowAccess, ScanRange, TableSnapshot};

/// Layers of the tables that a read uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layers {
    All,
    Memtables,
}

/// Entries of the memtables in a range, which remain as they are while others commit.
#[derive(Debug, Default)]
pub(crate) struct MemtableEntries {
    /// Keys and their rows; `None`: the row is deleted.
    entries: Vec<(Bytes, Option<Bytes>)>,
    /// First key after the entries, if there are further ones.
    pub(crate) cut: Option<Key>,
}

/// All rows. An upper layer hides the lower ones. A new row is in a memtable until it is flushed.
#[derive(Debug)]
pub(crate) struct MergedTables {
    active: Memtable,
    frozen: Option<Arc<Memtable>>,
    disk: Arc<StoreDir>,
    flushed: u64,
}

impl MergedTables {
    /// Creates the merged view of an opened directory, without unflushed records.
    pub(crate) fn new(disk: Arc<StoreDir>) -> Self {
        let store_state = *disk.flushed_state();
        let active = Memtable::new(store_state, disk.last_entry());
        Self {
            active,
            frozen: None,
            disk,
            flushed: store_state.position,
        }
    }

    /// Creates the merged view and replays the unflushed journal records.
    pub(crate) fn replay(disk: &Arc<StoreDir>) -> Result<Self, Error> {
        let mut tables = Self::new(Arc::clone(disk));
        disk.replay(tables.flushed, |position, record| {
            tables.apply(
                RecordPosition::position(position),
                &Bytes::copy_from_slice(record),
            )
        })?;
        Ok(tables)
    }

    /// Returns the state of the store.
    pub(crate) fn state(&self) -> &StoreState {
        self.active.state()
    }

    /// Returns the active memtable.
    pub(crate) fn active(&self) -> &Memtable {
        &self.active
    }

    /// Returns the immutable memtable, which is flushed.
    pub(crate) fn immutable(&self) -> Option<&Arc<Memtable>> {
        self.frozen.as_ref()
    }

    /// Returns the directory of the table engine.
    pub(crate) fn disk(&self) -> &Arc<StoreDir> {
        &self.disk
    }

    /// Applies a record that is in the journal or the log.
    pub(crate) fn apply(&mut self, at: RecordPosition, record: &Bytes) -> Result<(), Error> {
        self.active.apply(at, record, Instant::now())
    }

    /// Makes the active memtable immutable, unless it is empty or another one is immutable.
    pub(crate) fn freeze(&mut self) {
        if self.frozen.is_none() && self.active.created_at().is_some() {
            let next = Memtable::new(*self.active.state(), self.active.last_entry());
            self.frozen = Some(Arc::new(std::mem::replace(&mut self.active, next)));
        }
    }

    /// Flushes the active memtable, for tables that no other thread uses.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.freeze();
        self.frozen
            .iter()
            .try_for_each(|frozen| self.disk.flush(frozen))?;
        self.drop_immutable();
        Ok(())
    }

    /// Flushes the active memtable if it has this size, so that a long log fits into memory.
    pub(crate) fn flush_if_full(&mut self, memtable_bytes: usize) -> Result<(), Error> {
        if self.active.bytes() >= memtable_bytes {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Removes the flushed memtable and returns it, so that it is dropped outside the lock.
    pub(crate) fn drop_immutable(&mut self) -> Option<Arc<Memtable>> {
        let flushed = self.frozen.take();
        self.flushed = flushed
            .as_ref()
            .map_or(self.flushed, |memtable| memtable.state().position);
        flushed
    }

    /// Returns the last commit that is flushed to the tables on disk.
    pub(crate) fn flushed_position(&self) -> u64 {
        self.flushed
    }

    /// Returns timers armed minus timers cancelled that are not flushed to disk yet.
    pub(crate) fn unflushed_timers(&self) -> i64 {
        self.active.timers() + self.frozen.as_ref().map_or(0, |frozen| frozen.timers())
    }

    /// Passes the row with this key to `read`; returns `None` if there is none.
    pub(crate) fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        match self.in_memory(table, key) {
            Some(MemtableLookup(row)) => Ok(row.map(|row| read(row))),
            None => self.disk.tables().row(table, key, read),
        }
    }

    /// Reads a row as [`MergedTables::get`], with a function that can fail.
    pub(crate) fn try_get<R>(
        &self,
        table: Table,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        self.get(table, key, read).and_then(Option::transpose)
    }

    /// Returns whether a row has this key, also if the row is damaged.
    pub(crate) fn contains(&self, table: Table, key: &[u8]) -> Result<bool, Error> {
        match self.in_memory(table, key) {
            Some(MemtableLookup(row)) => Ok(row.is_some()),
            None => self.disk.tables().contains(table, key),
        }
    }

    /// Returns the first `limit` entries of the memtables in a range.
    pub(crate) fn memtable_entries(&self, range: ScanRange<'_>, limit: usize) -> MemtableEntries {
        let mut entries = Vec::new();
        for (key, row) in self.memtable_rows(range) {
            // The first entry that does not fit ends the part that is complete.
            if entries.len() == limit {
                let cut = Some(Key::from_slice(key));
                return MemtableEntries { entries, cut };
            }
            entries.push((key.clone(), row.cloned()));
        }
        MemtableEntries { entries, cut: None }
    }

    /// Returns the entry of the memtables with this key, if there is one, for use without the lock
    /// of the tables. Its row is shared, not copied.
    pub(crate) fn shared_entry(&self, table: Table, key: &[u8]) -> Option<MemtableLookup<Bytes>> {
        let MemtableLookup(row) = self.in_memory(table, key)?;
        Some(MemtableLookup(row.cloned()))
    }

    fn in_memory(&self, table: Table, key: &[u8]) -> Option<MemtableLookup<&Bytes>> {
        // The upper memtable first: its entry, also a tombstone, hides that of the lower one.
        self.active
            .get(table, key)
            .or_else(|| self.frozen.as_ref()?.get(table, key))
    }

    /// Passes the rows from `from` to before `end` to `visit`, in key order, until it breaks. See
    /// [`Tables::scan`](crate::tables::Tables::scan) for damaged rows.
    pub(crate) fn scan(
        &self,
        table: Table,
        from: &[u8],
        end: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), Error> {
        let access = RowAccess::Values;
        self.scan_rows(
            ScanRange {
                table,
                access,
                from,
                end,
            },
            visit,
        )
    }

    /// Passes the rows as [`MergedTables::scan`], including damaged rows.
    pub(crate) fn scan_keys(
        &self,
        table: Table,
        from: &[u8],
        end: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), Error> {
        let access = RowAccess::Keys;
        self.scan_rows(
            ScanRange {
                table,
                access,
                from,
                end,
            },
            visit,
        )
    }

    /// Returns the entries of both memtables, in key order.
    fn memtable_rows<'a>(
        &'a self,
        range: ScanRange<'_>,
    ) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let entries = |memtable: &'a Memtable| memtable.range(range.table, range.from, range.end);
        let lower = self.frozen.as_deref().map(entries).into_iter().flatten();

        MemtableMerge {
            upper: entries(&self.active).peekable(),
            lower: lower.peekable(),
        }
    }

    fn scan_rows(&self, range: ScanRange<'_>, visit: &mut RowVisitor<'_>) -> Result<(), Error> {
        let entries = self.memtable_rows(range);
        let entries = entries.map(|(key, row)| (&**key, row.map(Bytes::as_ref)));
        // The immutable memtable is dropped only with the exclusive lock, so its rows are in the
        // entries or in this snapshot.
        let snapshot = self.disk.tables().snapshot()?;

        merge(entries, Some(&*snapshot), range, visit)
    }
}

impl MemtableEntries {
    /// Passes the rows to `visit` as [`MergedTables::scan`], merged with those of a snapshot of the
    /// tables on disk; without one, only those of the memtables. The range is that of the entries.
    pub(crate) fn scan(
        &self,
        disk: Option<&dyn TableSnapshot>,
        range: ScanRange<'_>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), Error> {
        let entries = self.entries.iter();
        let entries = entries.map(|(key, row)| (&**key, row.as_deref()));

        // Beyond the cut, entries are missing that hide rows on disk.
        let complete = ScanRange {
            end: self.cut.as_deref().or(range.end),
            ..range
        };
        merge(entries, disk, complete, visit)
    }
}

/// Passes the rows of the memtables and of the tables on disk to `visit`, in key order, until it
/// breaks. An entry of the memtables hides the row on disk.
fn merge<'a>(
    entries: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    disk: Option<&dyn TableSnapshot>,
    range: ScanRange<'_>,
    visit: &mut RowVisitor<'_>,
) -> Result<(), Error> {
    let mut entries = entries.peekable();

    if let Some(disk) = disk {
        let flow = disk.scan(range, &mut |key, value| {
            // The rows of the memtables that sort before the row on disk.
            while let Some((above, row)) = entries.next_if(|(above, _)| *above < key) {
                if let Some(row) = row
                    && visit(above, row)?.is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }

            match entries.next_if(|(above, _)| *above == key) {
                Some((_, Some(row))) => visit(key, row),
                Some((_, None)) => Ok(ControlFlow::Continue(())),
                None => visit(key, value),
            }
        })?;

        if flow.is_break() {
            return Ok(());
        }
    }

    // The rows of the memtables that sort after the last row on disk.
    for (key, row) in entries {
        if let Some(row) = row
            && visit(key, row)?.is_break()
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Merge of two memtables; the upper one hides the lower one.
struct MemtableMerge<U: Iterator, L: Iterator> {
    upper: Peekable<U>,
    lower: Peekable<L>,
}

/// Key, and its row, if any.
type Entry<'a> = (&'a Bytes, Option<&'a Bytes>);

impl<'a, U, L> Iterator for MemtableMerge<U, L>
where
    U: Iterator<Item = Entry<'a>>,
    L: Iterator<Item = Entry<'a>>,
{
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let order = match (self.upper.peek(), self.lower.peek()) {
            (Some((upper, _)), Some((lower, _))) => upper.cmp(lower),
            (None, Some(_)) => Ordering::Greater,
            (_, None) => Ordering::Less,
        };

        if order == Ordering::Equal {
            self.lower.next();
        }

        if order == Ordering::Greater {
            self.lower.next()
        } else {
            self.upper.next()
        }
    }
}
