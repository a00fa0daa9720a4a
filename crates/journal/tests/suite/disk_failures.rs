//! Tests with a full disk, failed writes and failed fsyncs.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use orlog_journal::{Error, Journal};

use crate::support::{FaultyDisk, check_records, files, fill, open, payload, small};

fn open_on(dir: &Path, disk: &Arc<FaultyDisk>) -> Journal {
    Journal::open_on(dir, small(), Arc::clone(disk) as _)
        .unwrap()
        .0
}

#[test]
fn full_disk_is_detected_at_allocation_without_side_effects() {
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultyDisk::default());
        let mut journal = open_on(dir.path(), &disk);
        disk.set().allocate = Some(kind);
        let mut appended = 0;
        let error = loop {
            match journal.append(&[&payload(appended + 1, 1000)]) {
                Ok(sequence) => appended = sequence,
                Err(error) => break error,
            }
        };
        assert_eq!(appended, 3);
        assert!(
            matches!(
                error,
                Error::Full {
                    needed_bytes: 4096,
                    ..
                }
            ),
            "{error}"
        );
        assert!(
            files(dir.path(), "new").is_empty(),
            "it would occupy the missing space"
        );
        assert!(matches!(
            journal.append(&[&[1; 1000]]),
            Err(Error::Full { .. })
        ));
        check_records(&journal, 1..=3, 1000);
        assert_eq!(journal.sync().unwrap(), 3);
        disk.set().allocate = None;
        fill(&mut journal, 5, 1000);
        check_records(&journal, 1..=8, 1000);
        drop(journal);
        check_records(&open(dir.path()).0, 1..=8, 1000);
    }
}

#[test]
fn failed_rotation_is_retried_by_the_next_append() {
    const TOO_MANY_OPEN_FILES: i32 = 24;
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let mut journal = open_on(dir.path(), &disk);
    fill(&mut journal, 3, 1000);
    disk.set().open = Some(TOO_MANY_OPEN_FILES);
    for _ in 0..2 {
        let error = journal.append(&[&payload(4, 1000)]).unwrap_err();
        assert!(matches!(error, Error::Rotation { .. }), "{error}");
        assert!(error.to_string().contains("Too many open files"), "{error}");
    }
    check_records(&journal, 1..=3, 1000);
    disk.set().open = None;
    fill(&mut journal, 3, 1000);
    journal.truncate_before(4).unwrap();
    fill(&mut journal, 1, 1000);
    check_records(&journal, 4..=7, 1000);
}

#[test]
fn failed_append_leaves_no_partial_record() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        for count in 0..24 + 16 + 8 {
            let dir = tempfile::tempdir().unwrap();
            let disk = Arc::new(FaultyDisk::default());
            let mut journal = open_on(dir.path(), &disk);
            fill(&mut journal, 2, 16);
            // Only the first write fails: the shorter write that reverts it succeeds.
            disk.set().fail_next_write(kind, count);
            let error = journal.append(&[&payload(9, 16)]).unwrap_err();
            assert_eq!(
                matches!(error, Error::Full { .. }),
                kind == ErrorKind::StorageFull,
                "{error}"
            );
            check_records(&journal, 1..=2, 16);
            fill(&mut journal, 1, 5);
            drop(journal);
            let (journal, recovery) = open(dir.path());
            assert_eq!((recovery.records, journal.next_sequence()), (3, 4));
        }
    }
}

#[test]
fn failed_append_stays_absent_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let mut journal = open_on(dir.path(), &disk);
    fill(&mut journal, 2, 16);
    // Everything is written, but the call returns an error.
    disk.set().fail_next_write(ErrorKind::Other, usize::MAX);
    assert!(matches!(
        journal.append(&[&payload(3, 16)]),
        Err(Error::Io {
            action: "write",
            ..
        })
    ));
    drop(journal);
    check_records(&open(dir.path()).0, 1..=2, 16);
}

#[test]
fn append_that_cannot_be_rolled_back_poisons_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let mut journal = open_on(dir.path(), &disk);
    fill(&mut journal, 2, 16);
    disk.set().write = Some((ErrorKind::Other, 30));
    assert!(matches!(
        journal.append(&[&payload(3, 16)]),
        Err(Error::Poisoned { .. })
    ));
    disk.set().write = None;
    assert!(matches!(
        journal.append(&[&payload(3, 16)]),
        Err(Error::Poisoned { .. })
    ));
}

#[test]
fn a_failed_fsync_poisons_every_later_call_with_the_original_cause() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let mut journal = open_on(dir.path(), &disk);
    let (syncer, reader) = (journal.syncer(), journal.reader());
    fill(&mut journal, 2, 16);
    journal.sync().unwrap();
    fill(&mut journal, 2, 16);
    disk.set().sync = Some(ErrorKind::StorageFull);
    let check = |result: Result<u64, Error>| match result {
        Err(Error::Poisoned { cause, .. }) => assert_eq!(cause.kind(), ErrorKind::StorageFull),
        other => panic!("{other:?}"),
    };
    check(syncer.sync());
    disk.set().sync = None;
    check(journal.sync());
    check(syncer.sync());
    check(journal.append(&[b"x"]));
    check(journal.truncate_before(3).map(|()| 0));
    assert_eq!((reader.last_synced(), reader.last_written()), (2, 4));
    drop(journal);
    check_records(&open_on(dir.path(), &disk), 1..=4, 16);
}

#[test]
fn open_rewrites_records_of_failed_fsync() {
    for seed in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultyDisk::default());
        let mut journal = open_on(dir.path(), &disk);
        fill(&mut journal, 2, 500);
        journal.sync().unwrap();
        fill(&mut journal, 2, 500);
        disk.set().sync = Some(ErrorKind::Other);
        assert!(journal.sync().is_err());
        disk.set().sync = None;
        drop(journal);
        // The page cache still contains all four records, and the reopened journal guarantees them.
        let journal = open_on(dir.path(), &disk);
        assert_eq!(journal.reader().last_synced(), 4);
        drop(journal);
        disk.lose_power(&mut fastrand::Rng::with_seed(seed));
        check_records(&open_on(dir.path(), &disk), 1..=4, 500);
    }
}

#[test]
fn failed_directory_fsync_poisons() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let mut journal = open_on(dir.path(), &disk);
    fill(&mut journal, 3, 1000);
    disk.set().sync_dir_error = Some(ErrorKind::Other);
    assert!(matches!(
        journal.append(&[&[1; 1000]]),
        Err(Error::Poisoned { .. })
    ));
    disk.set().sync_dir_error = None;
    assert!(matches!(journal.sync(), Err(Error::Poisoned { .. })));
    drop(journal);
    let mut journal = open_on(dir.path(), &disk);
    fill(&mut journal, 1, 1000);
    check_records(&journal, 1..=4, 1000);
}

#[test]
fn an_allocated_file_has_its_whole_length_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create_new(dir.path().join("file")).unwrap();
    orlog_journal::Disk::allocate(&orlog_journal::LocalDisk, &file, 200_001).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 200_001);
}
