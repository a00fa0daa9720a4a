//! Indexes of instances: rows of the table `index` that are derived from the snapshots.
//!
//! A flush compares the old and the new snapshot of each instance in the memtable and changes the
//! index rows that differ. So a transition costs nothing, and an instance that changed several
//! times since the last flush is indexed once. A query adds the instances of the memtables and
//! verifies each row that it finds (`read/indexed.rs`).
//!
//! A new index is built in the background, some instances at a time, while flushes already maintain
//! it.

use std::ops::ControlFlow;

use orlog_model::{InstanceKey, Name, SagaName};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::encoding::header::SnapshotHeader;
use crate::encoding::index_keys::{self, IndexedValue, StatusClass};
use crate::encoding::keys::read_instance;
use crate::encoding::range::{KeyRange, RowVisitor, successor_key};
use crate::encoding::tuple::{Key, KeyReader};
use crate::encoding::value::{decode, readable};
use crate::error::Error;
use crate::memtable::Memtable;
use crate::table::Table;
use crate::tables::{IndexChanges, RowAccess, ScanRange, Tables};

/// Number of rows that one step of a build reads or deletes.
const BUILD_STEP: usize = 4096;
/// Size of the instances of one step, in bytes. A commit that finds both memtables full waits for
/// the step.
const BUILD_STEP_BYTES: usize = 4 * 1024 * 1024;

/// Prefix of the indexed names of the parts of the business reference. The name of a variable
/// contains no dot.
const REFERENCE_PREFIX: &str = "reference.";

/// Function that reads variables from the state of a program: one value for each name, `None` for a
/// variable that is missing or is neither a boolean, a number nor text.
pub type VariableReader = fn(state: &[u8], names: &[&str]) -> Vec<Option<IndexedValue>>;

/// Index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Index {
    /// Instances by status, and by the time of the last change.
    Instances,
    /// Instances of a saga by the value of a variable, or by a part of the business reference.
    Variable(SagaName, Name),
}

/// Progress of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Progress {
    /// Instances up to this key are indexed; flushes index all others that change.
    Building(ByteBuf),
    Ready,
    /// No longer declared; its rows are deleted.
    Removing,
}

/// Indexes of a store, as stored in the table `meta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Indexes(Vec<(Index, Progress)>);

impl Indexes {
    /// Returns the indexes of a new store.
    pub(crate) fn new_store() -> Self {
        Self(vec![(Index::Instances, Progress::Ready)])
    }

    /// Returns the indexes of a store of a release without indexes.
    pub(crate) fn older_store() -> Self {
        Self(vec![(Index::Instances, Progress::Building(ByteBuf::new()))])
    }

    /// Returns whether queries can use an index.
    pub(crate) fn is_ready(&self, index: &Index) -> bool {
        self.0
            .iter()
            .any(|(of, progress)| of == index && *progress == Progress::Ready)
    }

    /// Returns the indexes after a declaration of all indexed variables; `None` if nothing changes.
    pub(crate) fn declare(&self, variables: &[(SagaName, Vec<Name>)]) -> Option<Self> {
        let declared = variables
            .iter()
            .flat_map(|(saga, names)| names.iter().map(move |name| (saga, name)));
        let wanted: Vec<_> = declared
            .map(|(saga, name)| Index::Variable(saga.clone(), name.clone()))
            .collect();

        let mut next = self.clone();
        for (index, progress) in &mut next.0 {
            let is_wanted = *index == Index::Instances || wanted.contains(index);
            match progress {
                // Some of its rows are deleted already, so the build starts again.
                Progress::Removing if is_wanted => *progress = Progress::Building(ByteBuf::new()),
                Progress::Building(_) | Progress::Ready if !is_wanted => {
                    *progress = Progress::Removing;
                }
                _ => {}
            }
        }

        for index in wanted {
            if !next.0.iter().any(|(known, _)| *known == index) {
                next.0.push((index, Progress::Building(ByteBuf::new())));
            }
        }

        (next != *self).then_some(next)
    }

    /// Returns the index changes that the rows of a memtable cause, compared with the tables below
    /// it.
    ///
    /// A damaged snapshot has no index rows here: those that it had remain, and a query skips them.
    pub(crate) fn changes(
        &self,
        tables: &dyn Tables,
        memtable: &Memtable,
        variables: VariableReader,
    ) -> Result<IndexChanges, Error> {
        let mut changes = Vec::new();
        let mut old = Vec::new();
        let mut new = Vec::new();
        for (row, value) in memtable.table(Table::Instance) {
            old.clear();
            new.clear();
            let key = instance_key(row)?;
            // Indexes in progress are maintained too: a build does not return to the instances that
            // it has passed.
            let add = |value: &[u8], keys: &mut Vec<Key>| {
                self.0
                    .iter()
                    .try_for_each(|(index, _)| add_keys(index, &key, value, variables, keys))
            };

            let stored = tables.row(Table::Instance, row, |value| add(value, &mut old));
            readable(stored.and_then(Option::transpose))?;
            readable(value.map_or(Ok(()), |value| add(value, &mut new)))?;

            changes.extend(
                old.iter()
                    .filter(|key| !new.contains(key))
                    .map(|key| (key.clone(), false)),
            );
            changes.extend(
                new.iter()
                    .filter(|key| !old.contains(key))
                    .map(|key| (key.clone(), true)),
            );
        }

        changes.sort_unstable();
        Ok(changes)
    }

    /// Builds or removes a part of the first index that is not ready: returns the progress and the
    /// changes.
    pub(crate) fn advance(
        &self,
        tables: &dyn Tables,
        variables: VariableReader,
    ) -> Result<Option<(Self, IndexChanges)>, Error> {
        let mut next = self.clone();
        // One index at a time, which limits the work of a step.
        let Some(at) = next
            .0
            .iter()
            .position(|(_, progress)| *progress != Progress::Ready)
        else {
            return Ok(None);
        };

        let (index, progress) = &mut next.0[at];
        let mut changes = Vec::new();
        match progress {
            Progress::Building(after) => {
                match build(tables, index, after, variables, &mut changes)? {
                    Some(last) => *after = ByteBuf::from(last),
                    None => *progress = Progress::Ready,
                }
            }
            // The index leaves the list in the transaction that deletes its last rows.
            _ if remove(tables, index, &mut changes)? => {}
            _ => drop(next.0.remove(at)),
        }

        Ok(Some((next, changes)))
    }
}

/// Adds the rows of an index for some instances after the key `after`. Returns the last one; `None`
/// after the last instance.
fn build(
    tables: &dyn Tables,
    index: &Index,
    after: &[u8],
    variables: VariableReader,
    changes: &mut IndexChanges,
) -> Result<Option<Vec<u8>>, Error> {
    let mut rows = 0;
    let mut bytes = 0;
    let mut last = None;
    let mut keys = Vec::new();
    let from = if after.is_empty() {
        Key::new()
    } else {
        successor_key(after)
    };

    let visit: &mut RowVisitor<'_> = &mut |row, value| {
        // A damaged instance gets no rows, as in a flush.
        readable(add_keys(
            index,
            &instance_key(row)?,
            value,
            variables,
            &mut keys,
        ))?;

        rows += 1;
        bytes += value.len();
        if rows < BUILD_STEP && bytes < BUILD_STEP_BYTES {
            return Ok(ControlFlow::Continue(()));
        }
        last = Some(row.to_vec());
        Ok(ControlFlow::Break(()))
    };

    let instances = ScanRange {
        from: &from,
        ..ScanRange::of_table(Table::Instance, RowAccess::Values)
    };
    let _flow = tables.scan(instances, visit)?;
    changes.extend(keys.into_iter().map(|key| (key, true)));
    changes.sort_unstable();
    Ok(last)
}

/// Deletes some rows of an index; returns whether more may remain.
fn remove(tables: &dyn Tables, index: &Index, changes: &mut IndexChanges) -> Result<bool, Error> {
    let Index::Variable(saga, name) = index else {
        return Ok(false);
    };

    let range = KeyRange::of_prefix(index_keys::of_variable(saga, name).finish());
    let flow = tables.scan(
        ScanRange {
            table: Table::Index,
            access: RowAccess::Keys,
            from: &range.start,
            end: range.end.as_deref(),
        },
        &mut |row, _| {
            changes.push((Key::from_slice(row), false));
            let is_full = changes.len() == BUILD_STEP;
            Ok(if is_full {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        },
    )?;
    Ok(flow.is_break())
}

/// Adds the keys of the rows that an index has for a snapshot.
fn add_keys(
    index: &Index,
    key: &InstanceKey,
    value: &[u8],
    variables: VariableReader,
    keys: &mut Vec<Key>,
) -> Result<(), Error> {
    match index {
        Index::Instances => {
            let header: SnapshotHeader<'_> = decode(Table::Instance, value)?;
            keys.push(index_keys::status(key, header.status));
            keys.push(index_keys::changed(
                key,
                StatusClass::of(header.status),
                header.updated_at,
            ));
        }
        Index::Variable(saga, name) if *saga == key.saga => {
            let header: SnapshotHeader<'_> = decode(Table::Instance, value)?;
            let value = indexed_value(&header, name, variables);
            keys.extend(value.map(|value| index_keys::variable(key, name, &value)));
        }
        Index::Variable(..) => {}
    }
    Ok(())
}

/// Returns the indexed value of a snapshot: a part of its business reference, or a variable.
pub(crate) fn indexed_value(
    header: &SnapshotHeader<'_>,
    name: &Name,
    variables: VariableReader,
) -> Option<IndexedValue> {
    match name.as_str().strip_prefix(REFERENCE_PREFIX) {
        Some(part) => {
            let (_, text) = header
                .reference_parts
                .iter()
                .find(|(name, _)| *name == part)?;
            Some(IndexedValue::Text((*text).to_owned()))
        }
        None => variables(header.state, &[name.as_str()]).pop().flatten(),
    }
}

fn instance_key(row: &[u8]) -> Result<InstanceKey, Error> {
    read_instance(&mut KeyReader::of(row)).map(|(_, key)| key)
}
