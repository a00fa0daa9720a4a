//! Memtable: committed rows that are not yet flushed to the tables on disk.
//!
//! Keys and values are slices of the records that contain them. A record is one allocation, and
//! dropping a memtable frees records, not rows: with two million small boxes, glibc paused for 0.1
//! s during cleanup.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::ops::Bound;
use std::time::Instant;

use bytes::Bytes;
use orlog_model::count::{Operation, count};

use crate::encoding::keys::{KINDS, class_numbers};
use crate::encoding::record::{self, KeyPresence, RecordWriter, RowOp, StoreState};
use crate::error::Error;
use crate::replication::follower::{EntryId, RecordPosition};
use crate::table::Table;

/// Memory overhead of a memtable row in addition to its part of the record: its tree node, in
/// bytes.
const ROW_BYTES: usize = 96;

/// Memtable entry of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MemtableEntry {
    /// Row that exists in no older memtable and not on disk: deleting it needs no tombstone.
    New(Bytes),
    /// Row that may hide an older one.
    Put(Bytes),
    /// No row, regardless of lower layers.
    Tombstone,
}

impl MemtableEntry {
    fn value(&self) -> Option<&Bytes> {
        match self {
            MemtableEntry::New(value) | MemtableEntry::Put(value) => Some(value),
            MemtableEntry::Tombstone => None,
        }
    }
}

/// Result of a lookup: a row, or its absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemtableLookup<B>(pub(crate) Option<B>);

/// Entry of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemtableRow<'a> {
    pub(crate) key: &'a [u8],
    /// `None`: the row is deleted.
    pub(crate) value: Option<&'a [u8]>,
    /// No older memtable and no table has the row.
    pub(crate) is_new: bool,
}

/// Rows in key order, table by table, with the state of the store after the last commit.
#[derive(Debug)]
pub(crate) struct Memtable {
    tables: [BTreeMap<Bytes, MemtableEntry>; Table::ALL.len()],
    /// Timers armed minus timers cancelled in this memtable.
    timers: i64,
    record_bytes: usize,
    store_state: StoreState,
    last_entry: EntryId,
    born: Option<Instant>,
}

impl Memtable {
    /// Creates an empty memtable on top of the state `store_state`.
    pub(crate) fn new(store_state: StoreState, last_entry: EntryId) -> Self {
        let tables = std::array::from_fn(|_| BTreeMap::new());
        Self {
            tables,
            timers: 0,
            record_bytes: 0,
            store_state,
            last_entry,
            born: None,
        }
    }

    /// Returns the log entry that contains the last commit.
    pub(crate) fn last_entry(&self) -> EntryId {
        self.last_entry
    }

    /// Returns the state of the store after the last commit.
    pub(crate) fn state(&self) -> &StoreState {
        &self.store_state
    }

    /// Applies the record of the commit at position `at`; the current instant is `now`.
    pub(crate) fn apply(
        &mut self,
        at: RecordPosition,
        record: &Bytes,
        now: Instant,
    ) -> Result<(), Error> {
        let (mut store_state, mut ops) = record::read(at.position, record)?;
        // Not in the record: they are counted from its operations.
        store_state.by_kind = self.store_state.by_kind;

        while let Some(op) = ops.next()? {
            self.count(op, &mut store_state);
            self.change(op, record);
        }

        self.store_state = store_state;
        self.last_entry = at.last_entry;
        self.record_bytes += record.len();
        // The age counts from the first commit, so an empty memtable is never due.
        self.born.get_or_insert(now);
        Ok(())
    }

    /// Returns the time of the first commit; `None` if there is none.
    pub(crate) fn created_at(&self) -> Option<Instant> {
        self.born
    }

    /// Returns the approximate memory size, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.record_bytes + self.rows() * ROW_BYTES
    }

    /// Returns the number of rows, including deleted ones.
    pub(crate) fn rows(&self) -> usize {
        self.tables.iter().map(BTreeMap::len).sum()
    }

    /// Updates the counters that no record contains. A written work item or timer did not exist
    /// before; a deleted one did.
    fn count(&mut self, op: RowOp<'_>, store_state: &mut StoreState) {
        let kind = |key: &[u8]| {
            key.first()
                .map(|class| class_numbers(*class).1)
                .filter(|kind| *kind < KINDS.len())
        };

        match op {
            // An outbox key is written once, so each insertion is a new row.
            RowOp::Insert(Table::Outbox, key, _) => {
                if let Some(kind) = kind(key) {
                    store_state.by_kind[kind] += 1;
                }
            }
            RowOp::Delete(Table::Outbox, key) => {
                if let Some(kind) = kind(key) {
                    store_state.by_kind[kind] = store_state.by_kind[kind].saturating_sub(1);
                }
            }
            RowOp::Insert(Table::Timer, ..) | RowOp::Put(Table::Timer, ..) => self.timers += 1,
            RowOp::Delete(Table::Timer, _) => self.timers -= 1,
            RowOp::Insert(..) | RowOp::Put(..) | RowOp::Delete(..) => {}
        }
    }

    /// Returns timers armed minus timers cancelled in this memtable.
    pub(crate) fn timers(&self) -> i64 {
        self.timers
    }

    fn change(&mut self, op: RowOp<'_>, record: &Bytes) {
        count(Operation::MemtableWrite);

        let part = |slice: &[u8]| record.slice_ref(slice);
        match op {
            RowOp::Insert(table, key, value) => {
                self.put(table, part(key), MemtableEntry::New(part(value)));
            }
            RowOp::Put(table, key, value) => {
                self.put(table, part(key), MemtableEntry::Put(part(value)));
            }
            RowOp::Delete(table, key) => self.delete(table, part(key)),
        }
    }

    fn put(&mut self, table: Table, key: Bytes, entry: MemtableEntry) {
        match self.tables[table as usize].entry(key) {
            MapEntry::Vacant(map_entry) => {
                map_entry.insert(entry);
            }
            MapEntry::Occupied(mut map_entry) => {
                let entry = match (map_entry.get(), entry) {
                    // A new row remains new, and a row that may hide an older one continues to hide
                    // it.
                    (MemtableEntry::New(_), MemtableEntry::Put(value)) => MemtableEntry::New(value),
                    (
                        MemtableEntry::Put(_) | MemtableEntry::Tombstone,
                        MemtableEntry::New(value),
                    ) => MemtableEntry::Put(value),
                    (_, entry) => entry,
                };
                map_entry.insert(entry);
            }
        }
    }

    fn delete(&mut self, table: Table, key: Bytes) {
        let rows = &mut self.tables[table as usize];
        match rows.get_mut(&key) {
            // No lower layer has the row, so nothing must be hidden.
            Some(MemtableEntry::New(_)) => {
                rows.remove(&key);
            }
            Some(entry) => *entry = MemtableEntry::Tombstone,
            // A lower layer may have the row.
            None => {
                rows.insert(key, MemtableEntry::Tombstone);
            }
        }
    }

    /// Returns the entry of a key, if there is one.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<MemtableLookup<&Bytes>> {
        self.tables[table as usize]
            .get(key)
            .map(|entry| MemtableLookup(entry.value()))
    }

    /// Returns the entries of the keys from `from` to before `end`, in order.
    pub(crate) fn range<'a>(
        &'a self,
        table: Table,
        from: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)> + use<'a> {
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.tables[table as usize].range::<[u8], _>((Bound::Included(from), end));
        rows.map(|(key, entry)| (key, entry.value()))
    }

    /// Writes the operations whose result is this memtable.
    pub(crate) fn copy_to(&self, record: &mut RecordWriter) -> Result<(), Error> {
        for table in Table::ALL {
            for (key, entry) in &self.tables[table as usize] {
                let put = |record: &mut RecordWriter, presence, value: &Bytes| {
                    record.put(presence, table, key, |buffer| {
                        buffer.extend_from_slice(value);
                    })
                };
                match entry {
                    MemtableEntry::New(value) => put(record, KeyPresence::Absent, value)?,
                    MemtableEntry::Put(value) => put(record, KeyPresence::Unknown, value)?,
                    MemtableEntry::Tombstone => record.delete(table, key)?,
                }
            }
        }
        Ok(())
    }

    /// Returns all entries of a table, in key order, with whether an older row can exist.
    pub(crate) fn rows_of(&self, table: Table) -> impl Iterator<Item = MemtableRow<'_>> {
        self.tables[table as usize]
            .iter()
            .map(|(key, entry)| MemtableRow {
                key,
                value: entry.value().map(Bytes::as_ref),
                is_new: matches!(entry, MemtableEntry::New(_)),
            })
    }

    /// Returns all entries of a table, in key order.
    pub(crate) fn table(&self, table: Table) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.tables[table as usize]
            .iter()
            .map(|(key, entry)| (&**key, entry.value().map(Bytes::as_ref)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memtable(ops: &[RowOp<'_>]) -> Memtable {
        let mut record = RecordWriter::default();
        record.clear();
        for op in ops {
            match *op {
                RowOp::Insert(table, key, value) => {
                    record.put(KeyPresence::Absent, table, key, |b| {
                        b.extend_from_slice(value);
                    })
                }
                RowOp::Put(table, key, value) => {
                    record.put(KeyPresence::Unknown, table, key, |b| {
                        b.extend_from_slice(value);
                    })
                }
                RowOp::Delete(table, key) => record.delete(table, key),
            }
            .unwrap();
        }
        let record = Bytes::copy_from_slice(record.finish(&StoreState::NONE));
        let mut memtable = Memtable::new(StoreState::NONE, EntryId::NONE);
        memtable
            .apply(RecordPosition::position(1), &record, Instant::now())
            .unwrap();
        memtable
    }

    const PUT: RowOp<'static> = RowOp::Put(Table::Timer, b"k", b"old");
    const INSERT: RowOp<'static> = RowOp::Insert(Table::Timer, b"k", b"new");
    const DELETE: RowOp<'static> = RowOp::Delete(Table::Timer, b"k");

    #[track_caller]
    fn check(ops: &[RowOp<'_>], expected: Option<&MemtableLookup<Bytes>>) {
        let memtable = memtable(ops);
        let found = memtable.get(Table::Timer, b"k");
        let found = found.map(|MemtableLookup(row)| MemtableLookup(row.cloned()));
        assert_eq!(found.as_ref(), expected, "{ops:?}");
    }

    #[test]
    fn delete_of_an_absent_key_leaves_no_tombstone() {
        check(&[INSERT, DELETE], None);
        check(&[INSERT, PUT, DELETE], None);
        check(&[PUT, DELETE], Some(&MemtableLookup(None)));
        check(&[DELETE], Some(&MemtableLookup(None)));
        check(&[DELETE, DELETE], Some(&MemtableLookup(None)));
        check(&[DELETE, INSERT, DELETE], Some(&MemtableLookup(None)));
        check(&[PUT, INSERT, DELETE], Some(&MemtableLookup(None)));
        check(
            &[DELETE, PUT],
            Some(&MemtableLookup(Some(Bytes::from_static(b"old")))),
        );
        check(
            &[PUT, INSERT],
            Some(&MemtableLookup(Some(Bytes::from_static(b"new")))),
        );
    }
}
