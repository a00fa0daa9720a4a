//! Tests of append, sequence numbers, truncation and opening.

use std::fs;

use orlog_journal::{Error, Journal, MAX_PAYLOAD_BYTES, Options};

use crate::support::{IDENTITY, check_records, contents, files, fill, open, record_offset, small};

#[test]
fn reads_records_across_segments() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, recovery) = open(&dir.path().join("not/yet/there"));
    assert_eq!(
        (
            recovery.records,
            recovery.first_sequence,
            recovery.last_sequence
        ),
        (0, 1, 0)
    );
    fill(&mut journal, 500, 100);
    check_records(&journal, 1..=500, 100);
    assert!(files(journal.path(), "seg").len() > 10);
    assert_eq!(
        journal.bytes_on_disk(),
        files(journal.path(), "seg").len() as u64 * 4096
    );
}

#[test]
fn append_joins_parts_and_stores_empty_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    journal.append(&[b"a", b"", b"bc"]).unwrap();
    journal.append(&[]).unwrap();
    journal.append(&[&[0; 9]]).unwrap();
    let expected = vec![(1, b"abc".to_vec()), (2, Vec::new()), (3, vec![0; 9])];
    assert_eq!(contents(&journal.reader()), expected);
    drop(journal);
    assert_eq!(contents(&open(dir.path()).0.reader()), expected);
}

#[test]
fn continues_after_reopening_synced_or_not() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let (mut journal, recovery) = open(dir.path());
        assert_eq!((recovery.records, recovery.torn_bytes), (round * 17, 0));
        assert_eq!(journal.reader().last_synced(), round * 17);
        fill(&mut journal, 17, 200);
        if round % 2 == 0 {
            assert_eq!(journal.sync().unwrap(), (round + 1) * 17);
        }
    }
    check_records(&open(dir.path()).0, 1..=340, 200);
}

#[test]
fn fills_a_segment_to_its_last_byte() {
    for size in 4096 - 64 - 24 - 40..=4096 - 64 - 24 {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(dir.path());
        fill(&mut journal, 3, size);
        drop(journal);
        check_records(&open(dir.path()).0, 1..=3, size);
    }
}

#[test]
fn gives_a_large_record_a_segment_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    fill(&mut journal, 2, 100_000);
    fill(&mut journal, 1, 10);
    fill(&mut journal, 1, 300_000);
    drop(journal);
    let (journal, recovery) = open(dir.path());
    assert_eq!((recovery.records, recovery.segments), (4, 4));
    let sizes: Vec<_> = contents(&journal.reader())
        .iter()
        .map(|(_, bytes)| bytes.len())
        .collect();
    assert_eq!(sizes, [100_000, 100_000, 10, 300_000]);
}

#[test]
fn rejects_a_record_above_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    let part = vec![1; 1 << 20];
    let parts = vec![part.as_slice(); 1025];
    match journal.append(&parts) {
        Err(Error::TooLarge { bytes, limit }) => {
            assert_eq!((bytes, limit), (1025 << 20, MAX_PAYLOAD_BYTES));
        }
        other => panic!("{other:?}"),
    }
    fill(&mut journal, 1, 5);
    check_records(&journal, 1..=1, 5);
}

#[test]
fn truncation_removes_whole_segments_and_preserves_numbering() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    fill(&mut journal, 300, 100);
    journal.truncate_before(150).unwrap();
    let first = journal.first_sequence();
    assert!(first > 100 && first <= 150, "{first}");
    check_records(&journal, first..=300, 100);
    journal.truncate_before(u64::MAX).unwrap();
    assert_eq!(files(dir.path(), "seg").len(), 1);
    let first = journal.first_sequence();
    drop(journal);
    let (journal, recovery) = open(dir.path());
    assert_eq!(
        (recovery.first_sequence, recovery.last_sequence),
        (first, 300)
    );
    check_records(&journal, first..=300, 100);
}

#[test]
fn emptied_journal_preserves_numbering() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    fill(&mut journal, 1, 3900);
    // The next segment is created, and the power fails before it contains the record.
    fill(&mut journal, 1, 3900);
    journal.truncate_before(2).unwrap();
    drop(journal);
    let segment = files(dir.path(), "seg").remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    bytes[record_offset(0, 0)..].fill(0);
    fs::write(&segment, bytes).unwrap();
    for _ in 0..2 {
        let (journal, recovery) = open(dir.path());
        assert_eq!(
            (
                recovery.records,
                recovery.first_sequence,
                recovery.last_sequence
            ),
            (0, 2, 1)
        );
        assert_eq!((journal.first_sequence(), journal.next_sequence()), (2, 2));
    }
    let (mut journal, _) = open(dir.path());
    fill(&mut journal, 1, 10);
    check_records(&journal, 2..=2, 10);
}

#[test]
fn reused_segments_hide_old_records() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    for _ in 0..40 {
        fill(&mut journal, 36, 100);
        journal.truncate_before(journal.next_sequence()).unwrap();
        let (first, last) = (journal.first_sequence(), journal.next_sequence() - 1);
        assert!(!files(dir.path(), "spare").is_empty());
        assert!(journal.bytes_on_disk() <= 3 * 4096);
        drop(journal);
        let recovery;
        (journal, recovery) = open(dir.path());
        assert_eq!(
            (
                recovery.first_sequence,
                recovery.last_sequence,
                recovery.torn_bytes
            ),
            (first, last, 0)
        );
        check_records(&journal, first..=last, 100);
    }
}

#[test]
fn stale_spare_and_partial_segments_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    fill(&mut journal, 200, 100);
    journal.truncate_before(150).unwrap();
    drop(journal);
    assert_eq!(files(dir.path(), "spare").len(), 2);
    fs::write(dir.path().join("00000000000000000201.new"), b"half").unwrap();
    let (journal, _) = Journal::open(
        dir.path(),
        Options {
            segment_bytes: 8192,
            ..small()
        },
    )
    .unwrap();
    assert!(files(dir.path(), "spare").is_empty());
    assert!(files(dir.path(), "new").is_empty());
    check_records(&journal, journal.first_sequence()..=200, 100);
}

#[test]
fn second_writer_is_rejected_while_the_first_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    let result = Journal::open(dir.path(), small());
    assert!(matches!(result, Err(Error::Locked { path }) if path.ends_with("lock")));
    // Readers and syncers that outlive the writer do not keep the directory locked.
    let _others = (journal.reader(), journal.syncer());
    drop(journal);
    open(dir.path());
}

#[test]
fn newer_format_is_rejected_with_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let segment = files(dir.path(), "seg").remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    bytes[8] = 2;
    fs::write(&segment, bytes).unwrap();
    let error = Journal::open(dir.path(), small()).unwrap_err();
    assert!(
        matches!(&error, Error::NewerFormat { path, found: 2, supported: 1 } if *path == segment)
    );
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn journal_with_another_identity_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let result = Journal::open(dir.path(), Options::new([7; 16]));
    assert!(
        matches!(result, Err(Error::WrongIdentity { found: IDENTITY, expected, .. }) if expected == [7; 16])
    );
}
