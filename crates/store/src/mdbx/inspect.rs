//! Reads an environment without opening it as a store: information and the check of all rows.

use std::borrow::Cow;
use std::path::Path;

use libmdbx::{Database, DatabaseOptions, Error as MdbxError, Mode, NoWriteMap, RO, Transaction};

use super::{MAX_TABLES, translated, verified};
use crate::error::Error;
use crate::table::Table;

/// Maximum number of reported problems of a store.
const MAX_PROBLEMS: usize = 100;

/// Problem in the tables of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableProblem {
    /// Table.
    pub table: &'static str,
    /// Damaged row or page, and the kind of damage.
    pub reason: String,
    /// Whether the damage is limited to one row that an open store skips, or reports when it is
    /// read.
    pub is_row: bool,
}

/// Reads every row of the store in the directory `dir` without opening it, and passes the first 100
/// problems to `report`: checksums, the order of the keys and the number of rows. Returns the
/// number of rows.
///
/// A damaged page can end the process with a signal: call it in a process of its own.
///
/// # Errors
/// [`Error::Corrupt`] or [`Error::Io`] if the tables cannot be opened.
pub fn check_tables(dir: &Path, mut report: impl FnMut(TableProblem)) -> Result<u64, Error> {
    let path = dir.join("tables");
    walk(&path, MAX_PROBLEMS, &mut report).map_err(|error| translated("check", &path, error))
}

/// Information about an environment, read without changes.
#[derive(Debug)]
pub(crate) struct EnvironmentInfo {
    /// Requested rows of the table `meta`, with their checksums; `None` for missing rows.
    pub(crate) meta: Vec<Option<Vec<u8>>>,
    /// Number of rows of each table, by name.
    pub(crate) rows: Vec<(&'static str, u64)>,
}

/// Reads an environment, also while another process writes it.
pub(crate) fn read_environment(path: &Path, keys: &[&[u8]]) -> Result<EnvironmentInfo, Error> {
    read_info(path, keys).map_err(|error| translated("inspect", path, error))
}

fn read_info(path: &Path, keys: &[&[u8]]) -> libmdbx::Result<EnvironmentInfo> {
    let options = DatabaseOptions {
        max_tables: Some(MAX_TABLES),
        mode: Mode::ReadOnly,
        no_rdahead: true,
        ..DatabaseOptions::default()
    };
    let db: Database<NoWriteMap> = Database::open_with_options(path, options)?;
    let txn = db.begin_ro_txn()?;
    let mut seen = EnvironmentInfo {
        meta: Vec::new(),
        rows: Vec::new(),
    };

    let meta = txn.open_table(Some(Table::Meta.name()))?;
    for key in keys {
        seen.meta.push(txn.get(&meta, key)?);
    }

    for table in Table::ALL {
        match txn.open_table(Some(table.name())) {
            Ok(open) => seen
                .rows
                .push((table.name(), txn.table_stat(&open)?.entries() as u64)),
            // A store of an earlier release lacks some tables until it is opened.
            Err(MdbxError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(seen)
}

/// Reads every row of the environment in `path` and passes each problem, with its table, to
/// `report`, at most `limit` of them. Returns the number of rows. A damaged page can end the
/// process with a signal.
fn walk(
    path: &Path,
    mut limit: usize,
    report: &mut dyn FnMut(TableProblem),
) -> libmdbx::Result<u64> {
    let options = DatabaseOptions {
        max_tables: Some(MAX_TABLES),
        mode: Mode::ReadOnly,
        ..DatabaseOptions::default()
    };
    let db: Database<NoWriteMap> = Database::open_with_options(path, options)?;
    // No read of rows examines the free list, but each write uses it.
    db.freelist()?;
    let txn = db.begin_ro_txn()?;

    let mut rows = 0;
    for table in Table::ALL {
        let mut problem = |reason: String, is_row: bool| {
            limit = limit.saturating_sub(1);
            report(TableProblem {
                table: table.name(),
                reason,
                is_row,
            });
            limit > 0
        };

        match walk_table(&txn, path, table, &mut problem) {
            Ok(found) => rows += found,
            // The other tables may be readable.
            Err(error) => {
                problem(error.to_string(), false);
            }
        }
        if limit == 0 {
            break;
        }
    }
    Ok(rows)
}

/// Checks the order, the checksums and the number of the rows of a table, until `problem` returns
/// `false`.
fn walk_table(
    txn: &Transaction<'_, RO, NoWriteMap>,
    path: &Path,
    table: Table,
    problem: &mut dyn FnMut(String, bool) -> bool,
) -> libmdbx::Result<u64> {
    let open = txn.open_table(Some(table.name()))?;
    let expected = txn.table_stat(&open)?.entries() as u64;
    let mut cursor = txn.cursor(&open)?;
    let mut rows = 0;
    let mut last = None;
    for row in cursor.iter_start::<Cow<'_, [u8]>, Cow<'_, [u8]>>() {
        let (key, value) = row?;
        rows += 1;

        // Rows that are not in order cannot be found, although their checksums match.
        let in_order = last.as_ref().is_none_or(|last: &Vec<u8>| **last < *key);
        let damaged = verified(path, table, &key, &value).err();
        let is_continued = match damaged {
            _ if !in_order => problem(
                format!("the key {} is not in order", hex::encode(&key)),
                false,
            ),
            Some(error) => problem(error.to_string(), !table.is_required()),
            None => true,
        };

        if !is_continued {
            return Ok(rows);
        }
        last = Some(key.into_owned());
    }

    // A page that is missing leaves no damaged row, only fewer rows.
    if rows != expected {
        problem(
            format!("{rows} rows are readable, {expected} are expected"),
            false,
        );
    }
    Ok(rows)
}
