//! Tests of rebuilds: equal rows, rejected journals and copies, and crashes between the steps.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orlog_journal::DurablePosition;
use orlog_model::{Change, OutboxKey};

use crate::damage_tests::{damage, destination, filled};
use crate::mdbx::Mdbx;
use crate::rebuild::SwapStep;
use crate::recovery_tests::{complete_oldest, copy, everything, group, tree};
use crate::samples::{at, small};
use crate::table::Table;
use crate::{
    Error, Options, RebuildBase, RebuiltTables, Writer, copy_consistently, open, rebuild_tables,
};

/// Dedupe window that differs from the default: only the tables contain it.
const WINDOW: Duration = Duration::from_hours(7);
const NEW_STORE: RebuildBase = RebuildBase::NewStore {
    dedupe_window: WINDOW,
};

fn options() -> Options {
    Options {
        feed: true,
        dedupe_window: WINDOW,
        ..small()
    }
}

/// Makes commits that write, change and delete rows of all kinds.
fn commit(writer: &mut Writer, numbers: std::ops::RangeInclusive<u64>) {
    let reader = writer.reader();
    for number in numbers {
        let now = at(i64::try_from(number).unwrap() * 1_000_000);
        writer.commit(&group(number), now).unwrap();
        let mut second = if number % 2 == 0 {
            complete_oldest(&reader)
        } else {
            Vec::new()
        };
        second.push(Change::PurgeDedupe {
            before: reader.dedupe_horizon(now).unwrap(),
        });
        writer.commit(&second, now).unwrap();
    }
}

/// Creates a closed store; returns its durable position.
fn store_with_entries(dir: &Path, options: Options, last: u64) -> DurablePosition {
    let (mut writer, reader) = open(dir, options).unwrap();
    commit(&mut writer, 1..=last / 2);
    writer.flush().unwrap();
    commit(&mut writer, last / 2 + 1..=last);
    writer.close().unwrap();
    reader.durable_position().unwrap()
}

type StoredRows = Vec<(Table, Vec<(Vec<u8>, Vec<u8>)>)>;

/// Returns all rows as stored, including the table `meta`.
fn stored(dir: &Path) -> StoredRows {
    let tables = Mdbx::open(&dir.join("tables"), small().max_bytes, b"none", |_| Ok(())).unwrap();
    Table::ALL
        .iter()
        .map(|table| (*table, tables.stored_rows(*table)))
        .collect()
}

/// Rebuilds with small memtables, so that they are flushed several times.
fn rebuild(dir: &Path, expected: DurablePosition) -> Result<RebuiltTables, Error> {
    let options = Options {
        memtable_bytes: 8 << 10,
        journal_segment_bytes: 4096,
        ..small()
    };
    rebuild_tables(dir, expected, &options, |_| Ok(NEW_STORE))
}

fn rebuild_from(
    backup: &Path,
    dir: &Path,
    expected: DurablePosition,
) -> Result<RebuiltTables, Error> {
    rebuild_tables(dir, expected, &small(), |work| {
        copy(backup, work);
        Ok(RebuildBase::Copy)
    })
}

/// Overwrites the tables with zeros.
fn overwrite(dir: &Path) -> PathBuf {
    let file = dir.join("tables/mdbx.dat");
    let length = usize::try_from(fs::metadata(&file).unwrap().len()).unwrap();
    fs::write(&file, vec![0; length]).unwrap();
    file
}

#[track_caller]
fn check_rejected(result: Result<RebuiltTables, Error>, text: &str) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, Error::Mismatch { .. }) && error.to_string().contains(text),
        "{error}"
    );
}

#[test]
fn tables_rebuilt_from_a_complete_journal_equal_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let expected = store_with_entries(dir.path(), options(), 30);
    let original = stored(dir.path());
    assert!(original.iter().filter(|(_, rows)| !rows.is_empty()).count() >= 8);
    // Damaged, and missing.
    for round in 1..=2 {
        let file = overwrite(dir.path());
        if round == 2 {
            fs::remove_file(file).unwrap();
        }
        let rebuilt = rebuild(dir.path(), expected).unwrap();
        let aside = dir.path().join(format!("tables-aside-{round}"));
        assert_eq!(
            (rebuilt.position, rebuilt.aside.as_deref()),
            (60, Some(aside.as_path()))
        );
        assert_eq!(
            rebuilt.rows,
            original
                .iter()
                .map(|(_, rows)| rows.len() as u64)
                .sum::<u64>()
        );
        assert_eq!(
            aside.join("mdbx.dat").exists(),
            round == 1,
            "the old tables are kept"
        );
        assert_eq!(stored(dir.path()), original);
        assert!(!dir.path().join("rebuild").exists());
    }
    let durable = Options {
        expected: Some(expected),
        ..options()
    };
    let (mut writer, reader) = open(dir.path(), durable).unwrap();
    assert_eq!(reader.dedupe_window(), WINDOW);
    commit(&mut writer, 31..=31);
}

#[test]
fn skipped_work_and_timers_exist_again_after_a_rebuild() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    damage(dir.path(), Table::Outbox);
    damage(dir.path(), Table::Timer);
    let (mut writer, reader) = open(dir.path(), options()).unwrap();
    let pending = reader.outbox(&destination(), 0, 100).unwrap();
    assert_eq!(
        (
            pending.len(),
            reader.timers_due(at(1000), 100).unwrap().len()
        ),
        (9, 9)
    );
    // The node continues without the damaged rows.
    writer
        .commit(&[Change::Settle(pending[0].0.clone())], at(6))
        .unwrap();
    writer.close().unwrap();
    let expected = reader.durable_position().unwrap();
    rebuild(dir.path(), expected).unwrap();
    let (_writer, reader) = open(dir.path(), options()).unwrap();
    let skipped = (1..=10)
        .find(|sequence| pending.iter().all(|(key, _)| key.sequence != *sequence))
        .unwrap();
    let found = reader.outbox(&destination(), 0, 100).unwrap();
    let expected: Vec<_> = (1..=10)
        .filter(|sequence| *sequence != pending[0].0.sequence)
        .collect();
    assert_eq!(
        found
            .iter()
            .map(|(key, _)| key.sequence)
            .collect::<Vec<_>>(),
        expected
    );
    assert!(found.iter().any(|(key, _)| *key
        == OutboxKey {
            sequence: skipped,
            ..key.clone()
        }));
    assert_eq!(reader.timers_due(at(1000), 100).unwrap().len(), 10);
    assert_eq!(reader.stats().damaged_reads, 0);
}

#[test]
fn truncated_journal_is_rebuilt_only_with_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let (live, backup) = (dir.path().join("live"), dir.path().join("backup"));
    let segments = Options {
        journal_segment_bytes: 4096,
        ..options()
    };
    let (mut writer, reader) = open(&live, segments.clone()).unwrap();
    commit(&mut writer, 1..=20);
    copy_consistently(&[(reader.clone(), backup.clone())], || ()).unwrap();
    commit(&mut writer, 21..=25);
    let expected = reader.durable_position().unwrap();
    let rows = everything(&reader);
    drop(writer);
    let before = tree(&live);
    check_rejected(rebuild(&live, expected), "the commits 1 to ");
    assert_eq!(tree(&live), before, "nothing is changed");
    overwrite(&live);
    assert_eq!(rebuild_from(&backup, &live, expected).unwrap().position, 50);
    let (mut writer, reader) = open(&live, segments).unwrap();
    assert_eq!(everything(&reader), rows);

    // The journal no longer continues the backup.
    commit(&mut writer, 26..=60);
    writer.close().unwrap();
    let expected = reader.durable_position().unwrap();
    let rejected = rebuild_from(&backup, &live, expected);
    check_rejected(rejected, "the commits 41 to ");
}

#[test]
fn copy_and_journal_give_the_rows_of_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    let (mut writer, reader) = open(&live, options()).unwrap();
    for number in 1..=24 {
        commit(&mut writer, number..=number);
        if number % 10 == 0 {
            writer.flush().unwrap();
        }
        // With unflushed commits in the journal.
        copy(&live, &dir.path().join(number.to_string()));
    }
    writer.close().unwrap();
    let (expected, original) = (reader.durable_position().unwrap(), stored(&live));
    for number in 1..=24 {
        overwrite(&live);
        let backup = dir.path().join(number.to_string());
        assert_eq!(rebuild_from(&backup, &live, expected).unwrap().position, 48);
        assert_eq!(stored(&live), original, "from commit {}", number * 2);
    }
}

#[test]
fn copy_of_another_history_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        feed: false,
        ..options()
    };
    let [live, origin, same, diverged, ahead, stranger] =
        ["live", "origin", "same", "diverged", "ahead", "stranger"]
            .map(|name| dir.path().join(name));
    store_with_entries(&origin, options(), 10);
    for to in [&live, &same, &diverged, &ahead] {
        copy(&origin, to);
    }
    let expected = store_with_entries(&live, options(), 16);
    let original = stored(&live);
    store_with_entries(&same, options(), 16);
    store_with_entries(&ahead, options(), 17);
    let (mut writer, _) = open(&diverged, options()).unwrap();
    commit(&mut writer, 1..=15);
    let mut last = group(16);
    if let Change::Apply(commit) = &mut last[0] {
        commit.history.as_mut().unwrap().note = "another decision".to_owned();
    }
    writer.commit(&last, at(16_000_000)).unwrap();
    drop(writer);
    store_with_entries(&stranger, options(), 10);
    for is_flushed in [false, true] {
        rebuild_from(&same, &live, expected).unwrap();
        let differs = ": the backup and the journal have different histories";
        check_rejected(
            rebuild_from(&diverged, &live, expected),
            &format!("of table history differs{differs}"),
        );
        check_rejected(
            rebuild_from(&ahead, &live, expected),
            "of the backup; restore the backup instead",
        );
        check_rejected(
            rebuild_from(&stranger, &live, expected),
            "it is a copy of store ",
        );
        assert_eq!(stored(&live), original, "nothing is changed");
        if !is_flushed {
            for dir in [&same, &diverged] {
                open(dir, options()).unwrap().0.close().unwrap();
            }
        }
    }
}

#[test]
fn copy_of_another_history_that_only_adjoins_the_journal_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let [live, other] = ["live", "other"].map(|name| dir.path().join(name));
    let options = || Options {
        journal_segment_bytes: 4096,
        ..options()
    };
    drop(open(&live, options()).unwrap());
    copy(&live, &other);
    let expected = store_with_entries(&live, options(), 30);
    let first = orlog_journal::verify(&live.join("journal"))
        .unwrap()
        .first_sequence;
    let (mut writer, _) = open(&other, options()).unwrap();
    for number in 1..first {
        assert_eq!(writer.commit(&[], at(5)).unwrap(), number);
    }
    drop(writer);
    check_rejected(
        rebuild_from(&other, &live, expected),
        "the outbox has another depth: the backup and",
    );
}

#[test]
fn copy_with_a_damaged_row_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (live, backup) = (dir.path().join("live"), dir.path().join("backup"));
    let segments = Options {
        journal_segment_bytes: 4096,
        ..options()
    };
    let (mut writer, reader) = open(&live, segments).unwrap();
    commit(&mut writer, 1..=30);
    writer.flush().unwrap();
    copy(&live, &backup);
    writer.close().unwrap();
    let (expected, original) = (reader.durable_position().unwrap(), stored(&live));
    let check = |text: &str| {
        let error = rebuild_from(&backup, &live, expected)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(text) && error.contains("use another backup"),
            "{error}"
        );
        assert_eq!(stored(&live), original, "nothing is changed");
    };
    // The journal still contains the last write of the first row, but not that of the second.
    damage(&backup, Table::Checkpoint);
    check("table checkpoint of the backup is corrupt");
    fs::remove_dir_all(&backup).unwrap();
    copy(&live, &backup);
    damage(&backup, Table::History);
    check("table history of the backup is corrupt");
}

#[test]
fn rebuild_is_repeated_after_a_crash_between_any_steps() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    let expected = store_with_entries(&live, options(), 12);
    let original = stored(&live);
    let complete = dir.path().join("complete");
    copy(&live, &complete);
    for crash in 0..=SwapStep::ALL.len() {
        let store = dir.path().join(crash.to_string());
        copy(&live, &store);
        overwrite(&store);
        let new = store.join("rebuild/tables");
        copy(&complete.join("tables"), &new);
        for step in &SwapStep::ALL[..crash] {
            step.run(&store).unwrap();
        }
        rebuild(&store, expected).unwrap();
        assert_eq!(stored(&store), original, "crash after {crash} steps");
        let kept = fs::read(store.join("tables-aside-1/mdbx.dat")).unwrap();
        assert!(
            kept.iter().all(|byte| *byte == 0),
            "the damaged tables are kept"
        );
        assert!(!store.join("rebuild").exists());
    }
    // A crash while the new tables are written.
    overwrite(&live);
    fs::create_dir_all(live.join("rebuild/tables")).unwrap();
    fs::write(live.join("rebuild/tables/mdbx.dat"), "partial").unwrap();
    rebuild(&live, expected).unwrap();
    assert_eq!(stored(&live), original);
    // Remains of another rebuild.
    let other = dir.path().join("other");
    store_with_entries(&other, options(), 3);
    copy(&other.join("tables"), &live.join("rebuild/tables"));
    rebuild(&live, expected).unwrap();
    assert_eq!(stored(&live), original);
}

#[test]
fn loss_is_not_accepted_between_the_steps_of_a_rebuild() {
    let dir = tempfile::tempdir().unwrap();
    let expected = store_with_entries(dir.path(), options(), 12);
    let original = stored(dir.path());
    copy(
        &dir.path().join("tables"),
        &dir.path().join("rebuild/tables"),
    );
    SwapStep::MoveOldAside.run(dir.path()).unwrap();
    let accepted = Options {
        expected: Some(expected),
        accept_data_loss: true,
        ..options()
    };
    let error = open(dir.path(), accepted)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(error.contains("run `orlog rebuild` again"), "{error}");
    rebuild(dir.path(), expected).unwrap();
    assert_eq!(stored(dir.path()), original);
}

#[test]
fn store_in_use_or_with_a_shortened_journal_is_not_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let expected = store_with_entries(dir.path(), options(), 4);
    let (writer, _) = open(dir.path(), options()).unwrap();
    assert!(matches!(
        rebuild(dir.path(), expected),
        Err(Error::Locked { .. })
    ));
    drop(writer);
    let later = DurablePosition {
        position: expected.position + 1,
        ..expected
    };
    assert!(matches!(
        rebuild(dir.path(), later),
        Err(Error::Lost { .. })
    ));
    fs::remove_dir_all(dir.path().join("journal")).unwrap();
    let before = tree(dir.path());
    // Also if the position is the one of a new store.
    for position in [expected.position, 0] {
        let missing = rebuild(
            dir.path(),
            DurablePosition {
                position,
                ..expected
            },
        );
        assert!(matches!(missing, Err(Error::Lost { .. })), "{missing:?}");
        assert_eq!(tree(dir.path()), before);
    }
}
