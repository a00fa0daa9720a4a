//! What opening makes of unfinished writes and of damage.

use std::fs;
use std::path::Path;

use orlog_journal::{Error, Journal};

use crate::support::{RECORD_HEADER, check_holds, contents, files, fill, open, place, small};

const SIZE: usize = 13;

/// `synced` records that the disk has, then `loose` ones, of which each states that the former are durable.
fn written(dir: &Path, synced: u64, loose: u64) -> Vec<u8> {
    let (mut journal, _) = open(dir);
    fill(&mut journal, synced, SIZE);
    journal.sync().unwrap();
    fill(&mut journal, loose, SIZE);
    fs::read(&files(dir, "seg")[0]).unwrap()
}

/// Opens a journal whose only segment holds `bytes`: `kept` records survive, and it can be continued.
#[track_caller]
fn check_cut(bytes: &[u8], kept: u64, torn: bool) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("00000000000000000001.seg"), bytes).unwrap();
    let (mut journal, recovery) = open(dir.path());
    assert_eq!((recovery.records, recovery.torn_bytes > 0), (kept, torn), "{recovery:?}");
    check_holds(&journal, 1..=kept, SIZE);
    drop(journal);
    let recovery;
    (journal, recovery) = open(dir.path());
    assert_eq!((recovery.records, recovery.torn_bytes), (kept, 0), "cut once");
    fill(&mut journal, 1, SIZE);
    drop(journal);
    let (journal, recovery) = open(dir.path());
    assert_eq!((recovery.records, recovery.torn_bytes), (kept + 1, 0), "nothing rises again");
    check_holds(&journal, 1..=kept + 1, SIZE);
}

/// Opening a journal whose only segment holds `bytes` is refused at `offset`, and changes nothing.
#[track_caller]
fn check_corrupt(bytes: &[u8], at: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("00000000000000000001.seg");
    fs::write(&path, bytes).unwrap();
    match Journal::open(dir.path(), small()) {
        Err(Error::Corrupt { path: named, offset, .. }) => {
            assert_eq!((named, offset), (path.clone(), at as u64));
        }
        other => panic!("{other:?}"),
    }
    assert!(fs::read(path).unwrap() == bytes, "the file was changed");
}

#[test]
fn a_torn_tail_is_cut_at_every_byte_of_the_last_record() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(dir.path(), 2, 1);
    let (begin, end) = (place(2, SIZE), place(2, SIZE) + RECORD_HEADER + SIZE);
    for cut in begin..end {
        let mut zeroed = bytes.clone();
        zeroed[cut..].fill(0);
        check_cut(&zeroed, 2, cut > begin);
        // As a file that ends there; fewer than 8 bytes cannot be told from an end.
        check_cut(&bytes[..cut], 2, cut >= begin + 8);
    }
    check_cut(&bytes[..place(3, SIZE)], 3, false);
    check_cut(&bytes, 3, false);
}

#[test]
fn a_flipped_bit_in_the_last_record_cuts_it_off() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = written(dir.path(), 2, 1);
    let begin = place(2, SIZE);
    for bit in begin * 8..(begin + RECORD_HEADER + SIZE) * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        check_cut(&bytes, 2, true);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_flipped_bit_in_a_record_that_was_synced_is_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = written(dir.path(), 3, 2);
    let begin = place(1, SIZE);
    for bit in begin * 8..(begin + RECORD_HEADER + SIZE) * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        check_corrupt(&bytes, begin);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    bytes[begin..place(2, SIZE)].fill(0);
    check_corrupt(&bytes, begin);
    bytes[begin..place(3, SIZE)].fill(0);
    check_corrupt(&bytes, begin);
}

#[test]
fn whole_records_behind_the_cut_never_rise_again() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(dir.path(), 1, 5);
    let mut missing = bytes.clone();
    missing[place(1, SIZE)..place(2, SIZE)].fill(0);
    check_cut(&missing, 1, true);
    let mut damaged = bytes;
    damaged[place(2, SIZE) + RECORD_HEADER] ^= 1;
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
        bytes[place(index, 100) + byte] ^= 1;
        fs::write(&path, bytes).unwrap();
        let refused = Journal::open(dir.path(), small());
        assert!(
            matches!(refused, Err(Error::Corrupt { offset, .. }) if offset == place(index, 100) as u64),
            "record {index} byte {byte}"
        );
    }
    fs::write(&path, whole).unwrap();
    check_holds(&open(dir.path()).0, 1..=100, 100);
}

fn next_first(dir: &Path) -> u64 {
    files(dir, "seg")[1].file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

#[test]
fn a_missing_segment_is_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    fill(&mut journal, 100, 100);
    drop(journal);
    fs::remove_file(&files(dir.path(), "seg")[1]).unwrap();
    assert!(matches!(Journal::open(dir.path(), small()), Err(Error::Corrupt { .. })));
}

#[test]
fn a_damaged_header_and_a_wrong_name_are_corruption() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = files(dir.path(), "seg").remove(0);
    let renamed = path.with_file_name("00000000000000000009.seg");
    fs::rename(&path, &renamed).unwrap();
    assert!(matches!(Journal::open(dir.path(), small()), Err(Error::Corrupt { offset: 16, .. })));
    let mut bytes = fs::read(&renamed).unwrap();
    bytes[20] ^= 1;
    fs::write(&renamed, &bytes).unwrap();
    assert!(matches!(Journal::open(dir.path(), small()), Err(Error::Corrupt { offset: 0, .. })));
    fs::write(&renamed, &bytes[..40]).unwrap();
    assert!(matches!(Journal::open(dir.path(), small()), Err(Error::Corrupt { offset: 0, .. })));
}

#[test]
fn damage_that_happens_while_the_journal_is_open_is_reported_to_readers() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), 3, 0);
    let (journal, _) = open(dir.path());
    let path = files(dir.path(), "seg").remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[place(1, SIZE) + RECORD_HEADER] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut cursor = journal.reader().read_from(1).unwrap();
    assert!(cursor.read().unwrap().is_some());
    for _ in 0..2 {
        assert!(
            matches!(cursor.read(), Err(Error::Corrupt { offset, .. }) if offset == place(1, SIZE) as u64)
        );
    }
}

#[test]
fn a_payload_that_looks_like_a_record_is_not_taken_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = written(dir.path(), 3, 2);
    // The records of one journal, carried as payload by another whose header differs.
    let carried = bytes.split_off(place(0, SIZE));
    let other = tempfile::tempdir().unwrap();
    let options = orlog_journal::Options { identity: [9; 16], ..small() };
    let (mut journal, _) = Journal::open(other.path(), options.clone()).unwrap();
    journal.append(&[&carried[..200]]).unwrap();
    drop(journal);
    let path = files(other.path(), "seg").remove(0);
    let mut damaged = fs::read(&path).unwrap();
    damaged[place(0, 0)] ^= 4;
    fs::write(&path, damaged).unwrap();
    let (journal, recovery) = Journal::open(other.path(), options).unwrap();
    assert_eq!(recovery.records, 0);
    assert!(recovery.torn_bytes > 0);
    assert!(contents(&journal.reader()).is_empty());
}
