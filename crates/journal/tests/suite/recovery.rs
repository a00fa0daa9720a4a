//! Tests of recovery after incomplete writes and corruption.

use std::fs;
use std::path::Path;

use orlog_journal::{Error, Journal, Options};

use crate::support::{
    RECORD_HEADER, check_records, contents, files, fill, open, record_offset, small,
};

const SIZE: usize = 13;

/// Returns `synced` durable records, then `loose` ones, each of which states that the former are
/// durable.
fn written(dir: &Path, synced: u64, loose: u64) -> Vec<u8> {
    let (mut journal, _) = open(dir);
    fill(&mut journal, synced, SIZE);
    journal.sync().unwrap();
    fill(&mut journal, loose, SIZE);
    fs::read(&files(dir, "seg")[0]).unwrap()
}

/// Opens a journal whose only segment contains `bytes`: `retained` records survive, and appends succeed.
#[track_caller]
fn check_cut(bytes: &[u8], retained: u64, torn: bool) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("00000000000000000001.seg"), bytes).unwrap();
    let (mut journal, recovery) = open(dir.path());
    assert_eq!(
        (recovery.records, recovery.torn_bytes > 0),
        (retained, torn),
        "{recovery:?}"
    );
    check_records(&journal, 1..=retained, SIZE);
    drop(journal);
    let recovery;
    (journal, recovery) = open(dir.path());
    assert_eq!(
        (recovery.records, recovery.torn_bytes),
        (retained, 0),
        "cut once"
    );
    fill(&mut journal, 1, SIZE);
    drop(journal);
    let (journal, recovery) = open(dir.path());
    assert_eq!(
        (recovery.records, recovery.torn_bytes),
        (retained + 1, 0),
        "no discarded record reappears"
    );
    check_records(&journal, 1..=retained + 1, SIZE);
}

/// Checks that opening a journal whose only segment contains `bytes` fails at `offset` and changes
/// nothing.
#[track_caller]
fn check_corrupt(bytes: &[u8], at: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("00000000000000000001.seg");
    fs::write(&path, bytes).unwrap();
    match Journal::open(dir.path(), small()) {
        Err(Error::Corrupt {
            path: named,
            offset,
            ..
        }) => {
            assert_eq!((named, offset), (path.clone(), at as u64));
        }
        other => panic!("{other:?}"),
    }
    assert!(fs::read(path).unwrap() == bytes, "the file was changed");
}

#[test]
fn journal_that_ends_before_an_expected_record_is_rejected_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let expect = |expected_last| Options {
        expected_last,
        ..small()
    };
    assert!(matches!(
        Journal::open(&missing, expect(1)),
        Err(Error::LostEnd {
            last: 0,
            expected: 1,
            ..
        })
    ));
    assert!(!missing.exists());
    written(dir.path(), 3, 0);
    assert!(matches!(
        Journal::open(dir.path(), expect(4)),
        Err(Error::LostEnd {
            last: 3,
            expected: 4,
            ..
        })
    ));
    assert_eq!(
        Journal::open(dir.path(), expect(3))
            .unwrap()
            .0
            .next_sequence(),
        4
    );
}

#[test]
fn torn_tail_is_truncated_at_any_byte() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(dir.path(), 2, 1);
    let (start, end) = (
        record_offset(2, SIZE),
        record_offset(2, SIZE) + RECORD_HEADER + SIZE,
    );
    for cut in start..end {
        let mut zeroed = bytes.clone();
        zeroed[cut..].fill(0);
        check_cut(&zeroed, 2, cut > start);
        // Like a file that ends there; fewer than 8 bytes are indistinguishable from an end.
        check_cut(&bytes[..cut], 2, cut >= start + 8);
    }
    check_cut(&bytes[..record_offset(3, SIZE)], 3, false);
    check_cut(&bytes, 3, false);
}

#[test]
fn bit_flip_in_the_unsynced_tail_truncates_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = written(dir.path(), 2, 1);
    let start = record_offset(2, SIZE);
    for bit in start * 8..(start + RECORD_HEADER + SIZE) * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        check_cut(&bytes, 2, true);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_flipped_bit_in_a_record_that_was_synced_is_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = written(dir.path(), 3, 2);
    let start = record_offset(1, SIZE);
    for bit in start * 8..(start + RECORD_HEADER + SIZE) * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        check_corrupt(&bytes, start);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    bytes[start..record_offset(2, SIZE)].fill(0);
    check_corrupt(&bytes, start);
    bytes[start..record_offset(3, SIZE)].fill(0);
    check_corrupt(&bytes, start);
}

#[test]
fn records_after_the_cut_never_reappear() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(dir.path(), 1, 5);
    let mut missing = bytes.clone();
    missing[record_offset(1, SIZE)..record_offset(2, SIZE)].fill(0);
    check_cut(&missing, 1, true);
    let mut damaged = bytes;
    damaged[record_offset(2, SIZE) + RECORD_HEADER] ^= 1;
    check_cut(&damaged, 2, true);
}

#[test]
fn damage_in_a_segment_that_is_not_the_last_is_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    fill(&mut journal, 100, 100);
    drop(journal);
    let path = files(dir.path(), "seg").remove(0);
    let whole = fs::read(&path).unwrap();
    let last = usize::try_from(next_first(dir.path()) - 2).unwrap();
    for (index, byte) in [(0, 0), (3, 30), (last, 8), (last, 100)] {
        let mut bytes = whole.clone();
        bytes[record_offset(index, 100) + byte] ^= 1;
        fs::write(&path, bytes).unwrap();
        let result = Journal::open(dir.path(), small());
        assert!(
            matches!(result, Err(Error::Corrupt { offset, .. }) if offset == record_offset(index, 100) as u64),
            "record {index} byte {byte}"
        );
    }
    fs::write(&path, whole).unwrap();
    check_records(&open(dir.path()).0, 1..=100, 100);
}

fn next_first(dir: &Path) -> u64 {
    files(dir, "seg")[1]
        .file_stem()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn a_missing_segment_is_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    fill(&mut journal, 100, 100);
    drop(journal);
    fs::remove_file(&files(dir.path(), "seg")[1]).unwrap();
    assert!(matches!(
        Journal::open(dir.path(), small()),
        Err(Error::Corrupt { .. })
    ));
}

#[test]
fn damaged_header_and_invalid_name_are_corruption() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = files(dir.path(), "seg").remove(0);
    let renamed = path.with_file_name("00000000000000000009.seg");
    fs::rename(&path, &renamed).unwrap();
    assert!(matches!(
        Journal::open(dir.path(), small()),
        Err(Error::Corrupt { offset: 16, .. })
    ));
    let mut bytes = fs::read(&renamed).unwrap();
    bytes[20] ^= 1;
    fs::write(&renamed, &bytes).unwrap();
    assert!(matches!(
        Journal::open(dir.path(), small()),
        Err(Error::Corrupt { offset: 0, .. })
    ));
    fs::write(&renamed, &bytes[..40]).unwrap();
    assert!(matches!(
        Journal::open(dir.path(), small()),
        Err(Error::Corrupt { offset: 0, .. })
    ));
}

#[test]
fn damage_that_happens_while_the_journal_is_open_is_reported_to_readers() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), 3, 0);
    let (journal, _) = open(dir.path());
    let path = files(dir.path(), "seg").remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[record_offset(1, SIZE) + RECORD_HEADER] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut cursor = journal.reader().read_from(1).unwrap();
    assert!(cursor.read().unwrap().is_some());
    for _ in 0..2 {
        assert!(
            matches!(cursor.read(), Err(Error::Corrupt { offset, .. }) if offset == record_offset(1, SIZE) as u64)
        );
    }
}

#[test]
fn payload_that_resembles_a_record_is_not_parsed_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = written(dir.path(), 3, 2);
    // The records of one journal as payload of another journal with a different header.
    let carried = bytes.split_off(record_offset(0, SIZE));
    let other = tempfile::tempdir().unwrap();
    let options = orlog_journal::Options {
        identity: [9; 16],
        ..small()
    };
    let (mut journal, _) = Journal::open(other.path(), options.clone()).unwrap();
    journal.append(&[&carried[..200]]).unwrap();
    drop(journal);
    let path = files(other.path(), "seg").remove(0);
    let mut damaged = fs::read(&path).unwrap();
    damaged[record_offset(0, 0)] ^= 4;
    fs::write(&path, damaged).unwrap();
    let (journal, recovery) = Journal::open(other.path(), options).unwrap();
    assert_eq!(recovery.records, 0);
    assert!(recovery.torn_bytes > 0);
    assert!(contents(&journal.reader()).is_empty());
}
