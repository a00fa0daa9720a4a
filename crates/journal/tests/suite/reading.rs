//! Tests of reads while the journal is written and truncated.

use std::thread;
use std::time::{Duration, Instant};

use orlog_journal::Error;

use crate::support::{fill, open, payload};

const DEADLINE: Duration = Duration::from_mins(1);

#[test]
fn a_reader_follows_a_concurrent_writer_and_a_concurrent_syncer() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    let (reader, syncer) = (journal.reader(), journal.syncer());
    let last = 3000;
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut cursor = reader.read_from(1).unwrap();
            while cursor.next_sequence() <= last {
                assert!(
                    started.elapsed() < DEADLINE,
                    "is at {}",
                    cursor.next_sequence()
                );
                match cursor.read().unwrap() {
                    Some(record) => assert_eq!(record.payload, payload(record.sequence, 150)),
                    None => thread::yield_now(),
                }
            }
        });
        scope.spawn(|| {
            while reader.last_synced() < last {
                assert!(started.elapsed() < DEADLINE);
                assert!(syncer.sync().unwrap() <= reader.last_written());
                thread::yield_now();
            }
        });
        fill(&mut journal, last, 150);
    });
}

#[test]
fn reader_during_truncation_reads_valid_records_or_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    let reader = journal.reader();
    fill(&mut journal, 1, 150);
    let last = 5000;
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut read, mut truncations) = (0, 0);
            let mut cursor = reader.read_from(reader.first_sequence()).unwrap();
            while reader.last_written() < last {
                assert!(started.elapsed() < DEADLINE);
                match cursor.read() {
                    Ok(Some(record)) => {
                        assert_eq!(record.payload, payload(record.sequence, 150));
                        read += 1;
                    }
                    Ok(None) => thread::yield_now(),
                    Err(Error::Truncated { .. }) => {
                        truncations += 1;
                        // It may be dropped again before the cursor is positioned.
                        cursor = reader.read_from(reader.first_sequence()).unwrap_or(cursor);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            assert!(read > 0, "truncations: {truncations}");
        });
        while journal.next_sequence() <= last {
            fill(&mut journal, 30, 150);
            journal.truncate_before(journal.next_sequence()).unwrap();
        }
    });
}

#[test]
fn a_cursor_can_be_bounded_and_waits_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    let reader = journal.reader();
    let mut cursor = reader.read_from(2).unwrap();
    assert_eq!(cursor.read().unwrap(), None);
    fill(&mut journal, 2, 10);
    journal.sync().unwrap();
    fill(&mut journal, 1, 10);
    assert_eq!((reader.last_synced(), reader.last_written()), (2, 3));
    assert_eq!(
        cursor
            .read_up_to(reader.last_synced())
            .unwrap()
            .map(|record| record.sequence),
        Some(2)
    );
    assert_eq!(cursor.read_up_to(reader.last_synced()).unwrap(), None);
    assert_eq!(
        cursor.read().unwrap().map(|record| record.sequence),
        Some(3)
    );
    assert_eq!(cursor.read().unwrap(), None);
}

#[test]
fn a_cursor_finds_every_record_of_a_large_segment() {
    let dir = tempfile::tempdir().unwrap();
    let options = orlog_journal::Options {
        segment_bytes: 2 << 20,
        ..crate::support::small()
    };
    let (mut journal, _) = orlog_journal::Journal::open(dir.path(), options.clone()).unwrap();
    fill(&mut journal, 300, 10_000);
    for _ in 0..2 {
        for sequence in 1..=300 {
            let mut cursor = journal.reader().read_from(sequence).unwrap();
            let record = cursor.read().unwrap().unwrap();
            assert_eq!(
                (record.sequence, record.payload),
                (sequence, payload(sequence, 10_000).as_slice())
            );
        }
        drop(journal);
        (journal, _) = orlog_journal::Journal::open(dir.path(), options.clone()).unwrap();
    }
}

#[test]
fn truncated_record_error_names_the_first_available_record() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    fill(&mut journal, 100, 100);
    let mut early = journal.reader().read_from(1).unwrap();
    journal.truncate_before(100).unwrap();
    let first = journal.first_sequence();
    assert!(matches!(early.read(), Err(Error::Truncated { requested: 1, first: f }) if f == first));
    assert!(
        matches!(journal.reader().read_from(1), Err(Error::Truncated { requested: 1, first: f }) if f == first)
    );
    assert!(
        journal
            .reader()
            .read_from(first)
            .unwrap()
            .read()
            .unwrap()
            .is_some()
    );
}
