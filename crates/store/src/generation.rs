//! A generation: rows that were committed and are not folded into the tables on disk yet.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Instant;

use crate::record::{Heads, Op};
use crate::table::Table;

/// What a row of the overlay costs besides its key and value: the tree, two allocations.
const ROW_BYTES: usize = 64;

/// What is known about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// A row that lies in no older generation and not on disk: deleting it leaves no trace.
    New(Box<[u8]>),
    /// A row that may hide an older one.
    Put(Box<[u8]>),
    /// No row, whatever lies below.
    Gone,
}

impl Entry {
    fn value(&self) -> Option<&[u8]> {
        match self {
            Entry::New(value) | Entry::Put(value) => Some(value),
            Entry::Gone => None,
        }
    }
}

/// What is known about a key: its row, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known<'a>(pub(crate) Option<&'a [u8]>);

/// Rows in key order, table by table, and where the store stood after the last of them.
#[derive(Debug)]
pub(crate) struct Generation {
    tables: [BTreeMap<Box<[u8]>, Entry>; Table::ALL.len()],
    bytes: usize,
    heads: Heads,
    born: Option<Instant>,
}

impl Generation {
    /// An empty one, on top of what the heads describe.
    pub(crate) fn on(heads: Heads) -> Self {
        Self { tables: std::array::from_fn(|_| BTreeMap::new()), bytes: 0, heads, born: None }
    }

    /// Where the store stood after its last commit.
    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }

    /// Notes the end of a commit, made at the moment `at`.
    pub(crate) fn advance(&mut self, heads: Heads, at: Instant) {
        self.heads = heads;
        self.born.get_or_insert(at);
    }

    /// When the first commit was applied; `None` if none was.
    pub(crate) fn born(&self) -> Option<Instant> {
        self.born
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Rows, the deleted ones among them.
    pub(crate) fn rows(&self) -> usize {
        self.tables.iter().map(BTreeMap::len).sum()
    }

    /// Applies an operation. `bottom` says that nothing lies below, so that deleted rows need no mark.
    pub(crate) fn apply(&mut self, op: Op<'_>, bottom: bool) {
        match op {
            Op::Insert(table, key, value) => self.put(table, key, Entry::New(value.into())),
            Op::Put(table, key, value) => self.put(table, key, Entry::Put(value.into())),
            Op::Delete(table, key) => self.delete(table, key, bottom),
        }
    }

    fn put(&mut self, table: Table, key: &[u8], entry: Entry) {
        let added = cost(key, &entry);
        let rows = &mut self.tables[table as usize];
        let Some(old) = rows.get_mut(key) else {
            rows.insert(key.into(), entry);
            self.bytes += added;
            return;
        };
        let removed = cost(key, old);
        *old = match (&*old, entry) {
            // What was new stays new, and what may hide an older row goes on hiding it.
            (Entry::New(_), Entry::Put(value)) => Entry::New(value),
            (Entry::Put(_) | Entry::Gone, Entry::New(value)) => Entry::Put(value),
            (_, entry) => entry,
        };
        self.bytes = self.bytes + added - removed;
    }

    fn delete(&mut self, table: Table, key: &[u8], bottom: bool) {
        let rows = &mut self.tables[table as usize];
        match rows.get_mut(key) {
            Some(Entry::Gone) => {}
            Some(Entry::Put(_)) if !bottom => {
                let old = rows.insert(key.into(), Entry::Gone);
                self.bytes -= old.as_ref().and_then(Entry::value).map_or(0, <[u8]>::len);
            }
            Some(entry) => {
                self.bytes -= cost(key, entry);
                rows.remove(key);
            }
            None if bottom => {}
            None => {
                rows.insert(key.into(), Entry::Gone);
                self.bytes += cost(key, &Entry::Gone);
            }
        }
    }

    /// What it knows about a key, if anything.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<Known<'_>> {
        self.tables[table as usize].get(key).map(|entry| Known(entry.value()))
    }

    /// What it knows about the keys from `from` to just before `end`, in order.
    pub(crate) fn range<'a>(
        &'a self,
        table: Table,
        from: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.tables[table as usize].range::<[u8], _>((Bound::Included(from), end));
        rows.map(|(key, entry)| (&**key, entry.value()))
    }

    /// All it knows about a table, in key order.
    pub(crate) fn table(&self, table: Table) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.tables[table as usize].iter().map(|(key, entry)| (&**key, entry.value()))
    }
}

fn cost(key: &[u8], entry: &Entry) -> usize {
    ROW_BYTES + key.len() + entry.value().map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(ops: &[Op<'_>]) -> Generation {
        let mut generation = Generation::on(Heads::NONE);
        for op in ops {
            generation.apply(*op, false);
        }
        generation
    }

    const PUT: Op<'static> = Op::Put(Table::Timer, b"k", b"old");
    const INSERT: Op<'static> = Op::Insert(Table::Timer, b"k", b"new");
    const DELETE: Op<'static> = Op::Delete(Table::Timer, b"k");

    #[track_caller]
    fn check(ops: &[Op<'_>], expected: Option<Known<'_>>) {
        let generation = generation(ops);
        assert_eq!(generation.get(Table::Timer, b"k"), expected, "{ops:?}");
        let bytes: usize =
            generation.table(Table::Timer).map(|(k, v)| 64 + k.len() + v.map_or(0, <[u8]>::len)).sum();
        assert_eq!(generation.bytes(), bytes, "{ops:?}");
    }

    #[test]
    fn only_rows_known_to_be_new_vanish_without_a_trace() {
        check(&[INSERT, DELETE], None);
        check(&[INSERT, PUT, DELETE], None);
        check(&[PUT, DELETE], Some(Known(None)));
        check(&[DELETE], Some(Known(None)));
        check(&[DELETE, DELETE], Some(Known(None)));
        check(&[DELETE, INSERT, DELETE], Some(Known(None)));
        check(&[PUT, INSERT, DELETE], Some(Known(None)));
        check(&[DELETE, PUT], Some(Known(Some(b"old"))));
        check(&[PUT, INSERT], Some(Known(Some(b"new"))));
    }

    #[test]
    fn at_the_bottom_nothing_deleted_is_remembered() {
        let mut generation = Generation::on(Heads::NONE);
        for op in [DELETE, PUT, DELETE, INSERT, DELETE] {
            generation.apply(op, true);
        }
        assert_eq!((generation.rows(), generation.bytes()), (0, 0));
    }
}
