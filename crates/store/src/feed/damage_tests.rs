//! Tests of damaged rows in the feed: a consumer restarts at most once, and misses no intact row.

use std::path::Path;

use orlog_model::{Change, Status};

use super::tests::{ConsumerState, FeedConsumer, fed, moved, query};
use crate::damage_tests::tables;
use crate::encoding::checksum;
use crate::recovery_tests::copy;
use crate::samples::{at, key};
use crate::table::Table;
use crate::{Error, FeedOffset, Reader, Writer, open};

/// Commits one instance.
fn commit(writer: &mut Writer, number: u64) {
    let order = key("acme", &format!("o-{number}"));
    writer
        .commit(&[moved(&order, 1, Status::Running)], at(5))
        .unwrap();
}

/// Creates a closed store with twelve commits; returns the feed offsets before the first and after each.
fn filled(dir: &Path) -> Vec<FeedOffset> {
    let (mut writer, reader) = open(dir, fed()).unwrap();
    let mut offsets = vec![reader.feed_head().unwrap()];
    for number in 1..=12 {
        commit(&mut writer, number);
        offsets.push(reader.feed_head().unwrap());
    }
    writer.close().unwrap();
    offsets
}

/// Flips one bit of a row of a closed store.
fn damage(dir: &Path, table: Table, row: usize, byte: usize) {
    let tables = tables(dir);
    let (key, mut row) = tables.stored_rows(table).swap_remove(row);
    row[byte] ^= 4;
    tables.store_row(table, &key, &row);
}

/// Follows the feed to its end; returns the number of restarts.
fn follow(consumer: &mut FeedConsumer, reader: &Reader) -> usize {
    let mut restarts = 0;
    for _ in 0..100 {
        let more = consumer.poll(reader);
        restarts += usize::from(matches!(consumer.at, ConsumerState::Nowhere));
        if !more {
            return restarts;
        }
    }
    panic!("the feed has no end");
}

fn orders(consumer: &FeedConsumer) -> usize {
    consumer
        .contents()
        .keys()
        .filter(|key| key.starts_with("instance"))
        .count()
}

#[test]
fn damaged_feed_row_expires_a_cursor_at_most_once() {
    let dir = tempfile::tempdir().unwrap();
    let intact = dir.path().join("intact");
    let offsets = filled(&intact);
    let mut expired = 0;
    // The format, the writer id, and the keys of the first, a middle and the last row.
    for (row, byte) in [0, 5, 11]
        .into_iter()
        .flat_map(|row| [0, 3, 25].map(|byte| (row, byte)))
    {
        let store = dir.path().join(format!("{row}-{byte}"));
        copy(&intact, &store);
        damage(&store, Table::Feed, row, byte);
        let (mut writer, reader) = open(&store, fed()).unwrap();
        for start in [0, 1, 5, 6, 7, 11, 12] {
            let mut consumer = FeedConsumer::new(None, 3);
            consumer.at = ConsumerState::Following(offsets[start]);
            let restarts = follow(&mut consumer, &reader);
            let expected = if restarts == 0 { 12 - start } else { 12 };
            assert!(
                restarts <= 1,
                "row {row}, byte {byte}, from {start}: {restarts}"
            );
            assert_eq!(
                orders(&consumer),
                expected,
                "row {row}, byte {byte}, from {start}"
            );
            expired += restarts;
        }
        let mut consumer = FeedConsumer::new(None, 3);
        follow(&mut consumer, &reader);
        commit(&mut writer, 13);
        assert_eq!(follow(&mut consumer, &reader), 0, "row {row}, byte {byte}");
        assert_eq!(orders(&consumer), 13);
    }
    assert!(expired > 9, "{expired}");
}

#[test]
fn unreadable_instance_expires_the_cursor_and_is_skipped_by_the_scan() {
    let dir = tempfile::tempdir().unwrap();
    let offsets = filled(dir.path());
    damage(dir.path(), Table::Instance, 0, 0);
    {
        let tables = tables(dir.path());
        let (key, _) = tables.stored_rows(Table::Instance).swap_remove(1);
        let mut row = Vec::new();
        checksum::seal(&mut row, Table::Instance, &key, b"another format");
        tables.store_row(Table::Instance, &key, &row);
    }
    let (mut writer, reader) = open(dir.path(), fed()).unwrap();
    let mut consumer = FeedConsumer::new(None, 100);
    consumer.at = ConsumerState::Following(offsets[0]);
    assert_eq!((follow(&mut consumer, &reader), orders(&consumer)), (1, 10));
    commit(&mut writer, 13);
    assert_eq!((follow(&mut consumer, &reader), orders(&consumer)), (0, 11));
}

#[test]
fn trim_deletes_unreadable_rows_and_expires_the_cursors_before_them() {
    let dir = tempfile::tempdir().unwrap();
    let offsets = filled(dir.path());
    damage(dir.path(), Table::Feed, 0, 0);
    damage(dir.path(), Table::Feed, 1, 0);
    let (mut writer, reader) = open(dir.path(), fed()).unwrap();
    assert!(reader.is_trim_due(at(0), 100).unwrap());
    writer
        .commit(
            &[Change::TrimFeed {
                before: at(0),
                retained_commits: 100,
            }],
            at(5),
        )
        .unwrap();
    assert!(!reader.is_trim_due(at(0), 100).unwrap());
    // The changes of the second commit are no longer in the feed.
    let read = reader.feed(&query(None, 100), offsets[1]);
    assert!(
        matches!(read, Err(Error::FeedOffsetExpired { .. })),
        "{read:?}"
    );
    assert!(reader.feed(&query(None, 100), offsets[3]).is_ok());
}
