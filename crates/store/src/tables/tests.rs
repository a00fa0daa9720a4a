//! Conformance suite of table engines, for each of them.

use std::ops::ControlFlow;
use std::time::Instant;

use bytes::Bytes;
use tempfile::TempDir;

use super::{RowAccess, ScanRange, Tables};
use crate::encoding::record::{KeyPresence, RecordWriter, RowOp, StoreState};
use crate::encoding::tuple::Key;
use crate::mdbx::Mdbx;
use crate::memory::MemoryTables;
use crate::memtable::Memtable;
use crate::replication::follower::{EntryId, RecordPosition};
use crate::table::Table;

const A: &[u8] = b"a";
const B: &[u8] = b"b";
const C: &[u8] = b"c";

/// Runs a case on every engine.
#[track_caller]
fn on_each(case: impl Fn(&dyn Tables)) {
    let dir = TempDir::new().unwrap();
    case(&Mdbx::open(dir.path(), 16 << 20, b"format", |_| Ok(())).unwrap());
    case(&MemoryTables::default());
}

fn memtable(ops: &[RowOp<'_>]) -> Memtable {
    let mut record = RecordWriter::default();
    record.clear();
    for op in ops {
        match *op {
            RowOp::Insert(table, key, value) | RowOp::Put(table, key, value) => {
                record
                    .put(KeyPresence::Unknown, table, key, |b| {
                        b.extend_from_slice(value);
                    })
                    .unwrap();
            }
            RowOp::Delete(table, key) => record.delete(table, key).unwrap(),
        }
    }
    let record = Bytes::copy_from_slice(record.finish(&StoreState::NONE));
    let mut memtable = Memtable::new(StoreState::NONE, EntryId::NONE);
    memtable
        .apply(RecordPosition::position(1), &record, Instant::now())
        .unwrap();
    memtable
}

fn write(tables: &dyn Tables, ops: &[RowOp<'_>]) {
    tables
        .write(Some(&memtable(ops)), &Vec::new(), &[])
        .unwrap();
}

fn value(tables: &dyn Tables, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    tables
        .get(table, key, &mut |value| found = Some(value.to_vec()))
        .unwrap();
    assert_eq!(tables.contains(table, key).unwrap(), found.is_some());
    found
}

/// Returns the keys of a range, and whether the scan was ended after `max` rows.
fn keys(tables: &dyn Tables, from: &[u8], end: Option<&[u8]>, max: usize) -> (Vec<Vec<u8>>, bool) {
    let mut keys = Vec::new();
    let range = ScanRange {
        table: Table::Task,
        access: RowAccess::Values,
        from,
        end,
    };
    let flow = tables.scan(range, &mut |key, _| {
        keys.push(key.to_vec());
        Ok(if keys.len() < max {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    });
    (keys, flow.unwrap().is_break())
}

#[test]
fn written_rows_replace_and_delete_earlier_rows() {
    on_each(|tables| {
        write(
            tables,
            &[
                RowOp::Put(Table::Task, A, b"1"),
                RowOp::Put(Table::Task, B, b"2"),
            ],
        );
        write(
            tables,
            &[
                RowOp::Put(Table::Task, A, b"3"),
                RowOp::Delete(Table::Task, B),
            ],
        );
        write(
            tables,
            &[
                RowOp::Delete(Table::Task, C),
                RowOp::Put(Table::Timer, B, b""),
            ],
        );
        assert_eq!(value(tables, Table::Task, A).as_deref(), Some(&b"3"[..]));
        assert_eq!(value(tables, Table::Task, B), None);
        assert_eq!(
            value(tables, Table::Timer, B).as_deref(),
            Some(&b""[..]),
            "tables are separate"
        );
        let stats = tables.stats().unwrap();
        let rows = |table: Table| {
            stats
                .iter()
                .find(|stats| stats.name == table.name())
                .unwrap()
                .rows
        };
        assert_eq!(
            (rows(Table::Task), rows(Table::Timer), rows(Table::Outbox)),
            (1, 1, 0)
        );
        assert_eq!(tables.damaged_reads(), 0);
    });
}

#[test]
fn scans_return_a_range_in_key_order_until_they_are_ended() {
    on_each(|tables| {
        write(
            tables,
            &[C, A, b"ab", B].map(|key| RowOp::Put(Table::Task, key, b"x")),
        );
        let all = [A, b"ab", B, C].map(<[u8]>::to_vec);
        assert_eq!(keys(tables, b"", None, 9), (all.to_vec(), false));
        assert_eq!(keys(tables, b"aa", Some(C), 9), (all[1..3].to_vec(), false));
        assert_eq!(keys(tables, b"", None, 2), (all[..2].to_vec(), true));
        assert_eq!(keys(tables, b"d", None, 9), (vec![], false));
    });
}

#[test]
fn snapshots_are_unaffected_by_later_writes() {
    on_each(|tables| {
        tables
            .write(None, &Vec::new(), &[(b"heads", b"1")])
            .unwrap();
        let snapshot = tables.snapshot().unwrap();
        let index = vec![(Key::from_slice(A), false), (Key::from_slice(B), true)];
        tables
            .write(
                Some(&memtable(&[RowOp::Put(Table::Task, A, b"1")])),
                &index,
                &[(b"heads", b"2")],
            )
            .unwrap();
        assert_eq!(snapshot.meta(b"heads").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(snapshot.meta(b"none").unwrap(), None);
        assert_eq!(
            value(tables, Table::Meta, b"heads").as_deref(),
            Some(&b"2"[..])
        );
        let indexed = [A, B].map(|key| tables.contains(Table::Index, key).unwrap());
        assert_eq!(indexed, [false, true]);
        tables
            .write(None, &vec![(Key::from_slice(B), false)], &[])
            .unwrap();
        assert!(!tables.contains(Table::Index, B).unwrap());
    });
}

#[test]
fn an_error_of_the_visitor_ends_the_scan() {
    on_each(|tables| {
        write(
            tables,
            &[
                RowOp::Put(Table::Task, A, b"1"),
                RowOp::Put(Table::Task, B, b"2"),
            ],
        );
        let mut visited = 0;
        let all = ScanRange::of_table(Table::Task, RowAccess::Keys);
        let scanned = tables.scan(all, &mut |_, _| {
            visited += 1;
            Err(crate::Error::Closed)
        });
        assert!(matches!(scanned, Err(crate::Error::Closed)));
        assert_eq!(visited, 1);
    });
}
