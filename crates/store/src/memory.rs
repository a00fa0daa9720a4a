//! Tables in memory, for tests: the same contract as the tables on disk, but they end with the
//! process.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::encoding::range::RowVisitor;
use crate::encoding::value::EMPTY;
use crate::error::Error;
use crate::memtable::Memtable;
use crate::stats::TableStats;
use crate::table::Table;
use crate::tables::{IndexChanges, ScanRange, TableSnapshot, Tables};

type Rows = [BTreeMap<Box<[u8]>, Box<[u8]>>; Table::ALL.len()];

/// Rows of all tables. A snapshot shares them until the next write.
#[derive(Debug, Default)]
pub(crate) struct MemoryTables(RwLock<Arc<Rows>>);

struct MemorySnapshot(Arc<Rows>);

impl MemoryTables {
    fn rows(&self) -> Arc<Rows> {
        Arc::clone(&self.0.read())
    }
}

impl Tables for MemoryTables {
    fn get(&self, table: Table, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        MemorySnapshot(self.rows()).get(table, key, read)
    }

    fn contains(&self, table: Table, key: &[u8]) -> Result<bool, Error> {
        Ok(self.rows()[table as usize].contains_key(key))
    }

    fn write(
        &self,
        memtable: Option<&Memtable>,
        index: &IndexChanges,
        meta: &[(&[u8], &[u8])],
    ) -> Result<(), Error> {
        let mut rows = self.0.write();
        let rows = Arc::make_mut(&mut rows);
        for table in Table::ALL {
            let changed = &mut rows[table as usize];
            for (key, value) in memtable.iter().flat_map(|memtable| memtable.table(table)) {
                match value {
                    Some(value) => drop(changed.insert(key.into(), value.into())),
                    None => drop(changed.remove(key)),
                }
            }
        }
        for (key, is_put) in index {
            let indexed = &mut rows[Table::Index as usize];
            if *is_put {
                indexed.insert(key.as_slice().into(), EMPTY.into());
            } else {
                indexed.remove(key.as_slice());
            }
        }
        for (key, value) in meta {
            rows[Table::Meta as usize].insert((*key).into(), (*value).into());
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn TableSnapshot + '_>, Error> {
        Ok(Box::new(MemorySnapshot(self.rows())))
    }

    fn stats(&self) -> Result<Vec<TableStats>, Error> {
        let rows = self.rows();
        let of_table = |table: Table| TableStats {
            name: table.name(),
            rows: rows[table as usize].len() as u64,
            pages: 0,
            bytes: 0,
        };
        Ok(Table::ALL.map(of_table).into())
    }
}

impl TableSnapshot for MemorySnapshot {
    fn get(&self, table: Table, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        if let Some(value) = self.0[table as usize].get(key) {
            read(value);
        }
        Ok(())
    }

    fn scan(
        &self,
        range: ScanRange<'_>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        let end = range.end.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = &self.0[range.table as usize];
        let rows = rows.range::<[u8], _>((Bound::Included(range.from), end));
        for (key, value) in rows {
            if visit(key, value)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn copy(&self, path: &Path) -> Result<(), Error> {
        let reason = "a store in memory cannot be copied".to_owned();
        Err(Error::Mismatch {
            path: path.to_owned(),
            reason,
        })
    }
}
