//! Tests of crashes, a full disk, a failed fsync, and an upgrade.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use orlog_journal::{Disk, DurablePosition, LocalDisk};
use orlog_model::{Change, Commit, Destination, Status, TenantId, WorkKind};

use crate::options::{Durability, Options};
use crate::samples::{
    apply, at, checkpoint, dedupe_key, instance, key, record, small, timer, transition,
};
use crate::writer::open_with_disk;
use crate::{Error, Reader, TABLES, copy_consistently, open, open_in_memory, read_info};

/// Returns all readable content as text.
pub(crate) fn everything(reader: &Reader) -> String {
    // Flushes and openings derive `index` and `count` from the instances.
    let tables = TABLES
        .iter()
        .filter(|table| !["meta", "index", "count"].contains(table));
    let rows = tables.flat_map(|table| reader.inspect_rows(table, None, usize::MAX).unwrap());
    let rows: Vec<_> = rows
        .map(|row| format!("{} {}\n", row.key, row.value))
        .collect();
    format!(
        "{} {}\n{}",
        reader.position(),
        reader.outbox_depth().unwrap(),
        rows.concat()
    )
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).unwrap();
        }
    }
}

/// Returns a few transitions that write rows of all kinds, including changed and deleted ones.
pub(crate) fn group(number: u64) -> Vec<Change> {
    let key = key("acme", &format!("o-{}", number % 7));
    let mut commit = transition(&key, number);
    let before = number.checked_sub(7).filter(|before| *before > 0);
    commit.before = before.map(|before| Arc::new(instance(before, Status::Running)));
    commit.arm = vec![timer(i64::try_from(number).unwrap() + 100, number)];
    if number > 7 {
        commit.disarm = vec![timer(i64::try_from(number).unwrap() + 93, number - 7)];
    }
    vec![apply(commit), checkpoint(number)]
}

fn destination() -> Destination {
    Destination {
        kind: WorkKind::Effect,
        tenant: TenantId::new("acme").expect("valid"),
        name: "payments.charge".into(),
        priority: orlog_model::Priority::Normal,
    }
}

/// Completes the oldest work item.
pub(crate) fn complete_oldest(reader: &Reader) -> Vec<Change> {
    reader
        .outbox(&destination(), 0, 1)
        .unwrap()
        .into_iter()
        .map(|(key, _)| Change::Settle(key))
        .collect()
}

#[test]
fn store_recovers_after_a_crash_at_any_commit() {
    let dir = tempfile::tempdir().unwrap();
    let (live, killed_dir) = (dir.path().join("live"), dir.path().join("killed"));
    let (mut writer, reader) = open(&live, small()).unwrap();
    for number in 1..=24 {
        writer.commit(&group(number), at(5)).unwrap();
        writer.commit(&complete_oldest(&reader), at(5)).unwrap();
        if number % 10 == 0 {
            writer.flush().unwrap();
        }
        let killed = killed_dir.join(number.to_string());
        copy(&live, &killed);
        let (_writer, reopened) = open(&killed, small()).unwrap();
        assert_eq!(
            everything(&reopened),
            everything(&reader),
            "killed after commit {number}"
        );
    }
}

#[test]
fn torn_tail_record_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, reader) = open(dir.path(), small()).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    let expected = everything(&reader);
    let segment = dir.path().join("journal/00000000000000000001.seg");
    let before = fs::read(&segment).unwrap();
    writer.commit(&group(2), at(5)).unwrap();
    drop(writer);
    let mut bytes = fs::read(&segment).unwrap();
    let first = before.iter().zip(&bytes).position(|(a, b)| a != b).unwrap();
    bytes[first + 40..].fill(0);
    fs::write(&segment, bytes).unwrap();
    let (mut writer, reader) = open(dir.path(), small()).unwrap();
    assert_eq!(everything(&reader), expected);
    assert_eq!(writer.commit(&group(2), at(5)).unwrap(), 2);
}

#[test]
fn crash_between_flush_and_truncation_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let (live, backup) = (dir.path().join("live"), dir.path().join("backup"));
    let (mut writer, reader) = open(&live, small()).unwrap();
    for number in 1..=300 {
        writer.commit(&group(number), at(5)).unwrap();
    }
    let expected = everything(&reader);
    copy(&live.join("journal"), &backup);
    writer.flush().unwrap();
    drop(writer);
    assert_ne!(fs::read_dir(live.join("journal")).unwrap().count(), 0);
    fs::remove_dir_all(live.join("journal")).unwrap();
    copy(&backup, &live.join("journal"));
    let (mut writer, reader) = open(&live, small()).unwrap();
    assert_eq!(everything(&reader), expected);
    writer.commit(&group(301), at(5)).unwrap();
    assert_eq!(reader.position(), 301);
}

/// Opening a store that lost data fails with this text and writes nothing; with the loss accepted, it
/// continues at this position.
#[track_caller]
fn check_loss(dir: &Path, expected: Option<DurablePosition>, text: &str, position: u64) {
    let before = tree(dir);
    let options = || Options {
        expected,
        ..small()
    };
    match open(dir, options()) {
        Err(error @ Error::Lost { .. }) => assert!(error.to_string().contains(text), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(tree(dir), before, "nothing is written");
    assert!(matches!(read_info(dir, expected), Err(Error::Lost { .. })));
    for _ in 0..2 {
        let (mut writer, reader) = open(
            dir,
            Options {
                accept_data_loss: true,
                ..options()
            },
        )
        .unwrap();
        assert!(reader.position() >= position, "{}", reader.position());
        writer.commit(&group(400), at(5)).unwrap();
    }
    assert!(open(dir, small()).unwrap().1.position() > position + 1);
}

/// Returns the files and directories below a directory.
pub(crate) fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
    {
        if entry.is_dir() {
            found.extend(tree(&entry));
        }
        // Readers of the tables lock this file.
        if entry.file_name().unwrap() != "mdbx.lck" {
            found.push(entry);
        }
    }
    found.sort();
    found
}

/// Creates a store with this number of commits, the first of which are flushed.
fn store_with_commits(dir: &Path, commits: u64) -> Option<DurablePosition> {
    let (mut writer, reader) = open(dir, small()).unwrap();
    for number in 1..=commits {
        writer.commit(&group(number), at(5)).unwrap();
        if number == 10 {
            writer.flush().unwrap();
        }
    }
    let position = reader.durable_position();
    drop((writer, reader));
    position
}

#[test]
fn missing_journal_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    store_with_commits(dir.path(), 10);
    fs::remove_dir_all(dir.path().join("journal")).unwrap();
    check_loss(
        dir.path(),
        None,
        "the journal ends at commit 0, but commit 10 was durable",
        10,
    );
}

#[test]
fn journal_that_ends_before_the_durable_position_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let durable = store_with_commits(dir.path(), 12);
    assert_eq!(durable.map(|durable| durable.position), Some(12));
    let journal = dir.path().join("journal");
    let mut segments: Vec<_> = fs::read_dir(&journal)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    segments.sort();
    fs::remove_file(segments.last().unwrap()).unwrap();
    check_loss(dir.path(), durable, "commit 12 was durable", 10);
}

#[test]
fn missing_tables_are_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    store_with_commits(dir.path(), 12);
    fs::remove_dir_all(dir.path().join("tables")).unwrap();
    check_loss(
        dir.path(),
        None,
        "the journal exists, but the tables are missing",
        0,
    );
}

#[test]
fn missing_or_other_store_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let durable = store_with_commits(&store, 12);
    fs::remove_dir_all(&store).unwrap();
    fs::create_dir(&store).unwrap();
    check_loss(
        &store,
        durable,
        "it is missing; its commit 12 was durable",
        0,
    );
    check_loss(&store, durable, "but store", 0);
}

#[test]
fn full_tables_reject_commits_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let tight = crate::Options {
        max_bytes: 256 << 10,
        memtable_bytes: 32 << 10,
        ..small()
    };
    let (mut writer, reader) = open(dir.path(), tight.clone()).unwrap();
    let mut number = 1;
    let error = loop {
        match writer.commit(&group(number), at(5)) {
            Ok(position) => assert_eq!(position, number),
            Err(error) => break error,
        }
        number += 1;
        assert!(number < 5000, "the tables never became full");
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(writer.commit(&group(number), at(5)).is_err());
    assert!(reader.stats().flush_failure.is_some());
    let expected = everything(&reader);
    drop(writer);
    let (writer, reader) = open(dir.path(), tight).unwrap();
    assert_eq!(everything(&reader), expected);
    drop(writer);
    let (mut writer, reader) = open(dir.path(), small()).unwrap();
    assert_eq!(everything(&reader), expected);
    writer.commit(&group(number), at(5)).unwrap();
    writer.flush().unwrap();
    assert_eq!(
        reader
            .history(&key("acme", &format!("o-{}", number % 7)), number - 1, 9)
            .unwrap(),
        [record(number)]
    );
}

/// Disk that fails on request.
#[derive(Debug, Default)]
struct FaultyDisk {
    fault: AtomicU8,
}

const HEALTHY: u8 = 0;
const FULL: u8 = 1;
const FSYNC_FAILS: u8 = 2;
const NO_DESCRIPTORS: u8 = 3;

impl FaultyDisk {
    fn set(&self, fault: u8) {
        self.fault.store(fault, Ordering::SeqCst);
    }

    fn fails(&self, fault: u8) -> bool {
        self.fault.load(Ordering::SeqCst) == fault
    }
}

impl Disk for FaultyDisk {
    fn open(&self, options: &fs::OpenOptions, path: &std::path::Path) -> io::Result<fs::File> {
        const TOO_MANY_OPEN_FILES: i32 = 24;
        if self.fails(NO_DESCRIPTORS) {
            Err(io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES))
        } else {
            LocalDisk.open(options, path)
        }
    }

    fn allocate(&self, file: &fs::File, bytes: u64) -> io::Result<()> {
        if self.fails(FULL) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            LocalDisk.allocate(file, bytes)
        }
    }

    fn write_at(&self, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<()> {
        LocalDisk.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &fs::File) -> io::Result<()> {
        if self.fails(FSYNC_FAILS) {
            Err(io::Error::other("injected"))
        } else {
            LocalDisk.sync(file)
        }
    }

    fn sync_dir(&self, dir: &fs::File) -> io::Result<()> {
        LocalDisk.sync_dir(dir)
    }
}

#[test]
fn full_disk_rejects_commits_until_space_is_free() {
    check_retry(FULL, |error| matches!(error, Error::Full { .. }));
}

#[test]
fn failed_rotation_rejects_commits_until_a_descriptor_is_free() {
    check_retry(NO_DESCRIPTORS, |error| {
        matches!(error, Error::Rotation { .. })
    });
}

/// Checks that commits fail with the expected error during the fault, change nothing, and succeed after it.
fn check_retry(fault: u8, is_expected: fn(&Error) -> bool) {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(FaultyDisk::default());
    let (mut writer, reader) =
        open_with_disk(dir.path(), small(), Arc::clone(&device) as Arc<dyn Disk>).unwrap();
    device.set(fault);
    let mut number = 1;
    let error = loop {
        match writer.commit(&group(number), at(5)) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(is_expected(&error), "{error}");
    assert_eq!(reader.position(), number - 1);
    let expected = everything(&reader);
    assert!(is_expected(
        &writer.commit(&group(number), at(5)).unwrap_err()
    ));
    assert_eq!(everything(&reader), expected);
    device.set(HEALTHY);
    assert_eq!(writer.commit(&group(number), at(5)).unwrap(), number);
}

#[test]
fn failed_fsync_blocks_commits_until_recovery() {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(FaultyDisk::default());
    let (mut writer, reader) =
        open_with_disk(dir.path(), small(), Arc::clone(&device) as Arc<dyn Disk>).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    device.set(FSYNC_FAILS);
    assert!(matches!(
        writer.commit(&group(2), at(5)),
        Err(Error::Poisoned { .. })
    ));
    device.set(HEALTHY);
    assert!(matches!(
        writer.commit(&group(2), at(5)),
        Err(Error::Poisoned { .. })
    ));
    assert!(matches!(writer.flush(), Err(Error::Poisoned { .. })));
    assert_eq!(reader.position(), 1);
    writer.recover().unwrap();
    // The record was written and only its fsync failed; reopening made it durable.
    assert_eq!(reader.position(), 2);
    assert_eq!(writer.commit(&group(3), at(5)).unwrap(), 3);
    assert_eq!(
        reader.history(&key("acme", "o-2"), 0, 9).unwrap(),
        [record(2)]
    );
}

#[test]
fn interval_durability_syncs_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let interval = Durability::Interval(Duration::from_millis(5));
    let (mut writer, reader) = open(
        dir.path(),
        crate::Options {
            durability: interval,
            ..small()
        },
    )
    .unwrap();
    for number in 1..=50 {
        writer.commit(&group(number), at(5)).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while reader.stats().fsync.count() == 0 {
        assert!(Instant::now() < deadline, "the journal was not synced");
        thread::yield_now();
    }
    let expected = everything(&reader);
    drop(writer);
    assert_eq!(everything(&open(dir.path(), small()).unwrap().1), expected);
}

#[test]
fn old_memtable_is_flushed_automatically() {
    let dir = tempfile::tempdir().unwrap();
    let options = crate::Options {
        memtable_max_age: Duration::from_millis(5),
        ..small()
    };
    let (mut writer, reader) = open(dir.path(), options).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    let expected = everything(&reader);
    let deadline = Instant::now() + Duration::from_secs(10);
    while reader.stats().flushed_position < 1 {
        assert!(Instant::now() < deadline, "the memtable was not flushed");
        thread::yield_now();
    }
    assert_eq!(everything(&reader), expected);
    assert_eq!(reader.stats().memtable_rows, 0);
}

#[test]
fn work_settled_within_a_memtable_never_reaches_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, reader) = open(dir.path(), small()).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    writer.commit(&complete_oldest(&reader), at(5)).unwrap();
    writer.commit(&group(2), at(5)).unwrap();
    writer.flush().unwrap();
    let rows = |table| {
        reader
            .stats()
            .tables
            .into_iter()
            .find(|stats| stats.name == table)
            .unwrap()
            .rows
    };
    assert_eq!(
        (rows("outbox"), rows("instance"), rows("dedupe")),
        (1, 2, 2)
    );
}

#[test]
fn newer_store_format_is_rejected_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(dir.path(), small()).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    drop(writer);
    let tables = dir.path().join("tables");
    let mdbx = crate::mdbx::Mdbx::open(&tables, 16 << 20, b"format", |_| Ok(())).unwrap();
    crate::tables::Tables::write(
        &mdbx,
        None,
        &Vec::new(),
        &[(b"format", &4u32.to_be_bytes())],
    )
    .unwrap();
    drop(mdbx);
    let before = fs::read(tables.join("mdbx.dat")).unwrap();
    let error = open(dir.path(), small()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NewerFormat {
                found: 4,
                supported: 3,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(fs::read(tables.join("mdbx.dat")).unwrap(), before);
}

#[test]
fn store_dir_has_one_writer_and_readers_close_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, reader) = open(dir.path(), small()).unwrap();
    let error = open(dir.path(), small()).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(writer);
    assert!(matches!(
        reader.instance(&key("acme", "o-1")),
        Err(Error::Closed)
    ));
    assert!(open(dir.path(), small()).is_ok());
}

#[test]
fn background_work_during_a_recovery_does_not_block_commits() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, reader) = open(dir.path(), small()).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    // What a background thread finds while the writer recovers the store.
    reader.shared.close();
    assert!(matches!(reader.shared.flush(), Err(Error::Closed)));
    assert!(
        reader.shared.check_writable().is_ok(),
        "the store is not blocked"
    );
    writer.recover().unwrap();
    writer.commit(&group(2), at(5)).unwrap();
}

#[test]
fn idle_instance_uses_less_than_1_kib_of_disk() {
    const COUNT: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let options = crate::Options {
        max_bytes: 1 << 30,
        ..small()
    };
    let (mut writer, reader) = open(dir.path(), options).unwrap();
    for chunk in 0..COUNT / 1000 {
        let group: Vec<_> = (0..1000)
            .map(|index| sleeping(chunk * 1000 + index))
            .collect();
        writer.commit(&group, at(5)).unwrap();
    }
    writer.flush().unwrap();
    let bytes: u64 = reader.stats().tables.iter().map(|table| table.bytes).sum();
    println!("{} table bytes per instance", bytes / COUNT);
    assert!(bytes / COUNT < 1000, "{} bytes", bytes / COUNT);
    assert_eq!(
        reader.timers_due(at(i64::MAX), usize::MAX).unwrap().len() as u64,
        COUNT
    );
    assert_eq!(
        reader
            .count(&TenantId::new("acme").unwrap())
            .unwrap()
            .into_values()
            .sum::<u64>(),
        COUNT
    );
}

#[test]
#[ignore = "a measurement of minutes: `cargo test --release -p orlog-store -- --ignored --nocapture a_million`"]
fn store_with_a_million_idle_instances_opens_in_two_seconds() {
    const COUNT: u64 = 1_000_000;
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let options = crate::Options {
        slots: small().slots,
        ..crate::Options::default()
    };
    let (mut writer, reader) = open(dir.path(), options.clone()).unwrap();
    let start = Instant::now();
    for chunk in 0..COUNT / 1000 {
        // Random order, as in production.
        let numbers =
            (0..1000).map(|index| (chunk * 1000 + index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12);
        writer
            .commit(&numbers.map(sleeping).collect::<Vec<_>>(), at(5))
            .unwrap();
    }
    println!("committed in {:?}", start.elapsed());
    // Half of the last memtable remains in the journal, as after a crash.
    let stats = reader.stats();
    println!(
        "memtable: {} rows, {} bytes",
        stats.memtable_rows, stats.memtable_bytes
    );
    drop(writer);
    let start = Instant::now();
    let (mut writer, reader) = open(dir.path(), options.clone()).unwrap();
    let (opened, next) = (start.elapsed(), reader.next_timer().unwrap());
    println!(
        "opened after a crash in {opened:?}, first read after {:?}: {next:?}",
        start.elapsed()
    );
    writer.flush().unwrap();
    let tables = reader.stats().tables;
    println!(
        "{} table bytes per instance",
        tables.iter().map(|table| table.bytes).sum::<u64>() / COUNT
    );
    println!("{tables:#?}");
    drop(writer);
    let start = Instant::now();
    let (_writer, reader) = open(dir.path(), options).unwrap();
    assert!(reader.next_timer().unwrap().is_some());
    println!("opened after a flush in {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(2) && opened < Duration::from_secs(2));
}

/// Returns an instance that has applied one event and waits for a timer.
fn sleeping(number: u64) -> Change {
    let key = key("acme", &format!("order-{number:012}"));
    let mut commit = transition(&key, 1);
    commit.work.clear();
    commit.arm = vec![timer(1_800_000_000_000 + i64::try_from(number).unwrap(), 1)];
    let instance = std::sync::Arc::make_mut(commit.instance.as_mut().unwrap());
    instance.timers = vec![orlog_model::ArmedTimer {
        name: commit.arm[0].name.clone(),
        token: 1,
        due: commit.arm[0].due,
        trace: None,
        signal: None,
    }];
    apply(commit)
}

#[test]
fn interrupted_downtime_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let window = Duration::from_secs(10);
    let options = || crate::Options {
        dedupe_window: window,
        ..small()
    };
    let of = key("acme", "o-1");
    let id = |number: i64| dedupe_key(number.unsigned_abs());
    // One run of the store at that time: whether it still has the first event, and one new event.
    let run = |now: i64| {
        let (mut writer, reader) = open(dir.path(), options()).unwrap();
        let known = reader.is_duplicate(&of, id(0), at(now)).unwrap();
        let commit = Commit {
            dedupe_key: Some(id(now)),
            ..Commit::empty(of.clone(), at(now))
        };
        let before = reader.dedupe_horizon(at(now)).unwrap();
        writer
            .commit(&[apply(commit), Change::PurgeDedupe { before }], at(now))
            .unwrap();
        known
    };
    assert!(!run(0));
    for restart in [1_000_000, 1_000_001, 1_009_000, 1_012_000] {
        assert!(run(restart), "the dedupe key is gone at {restart}");
    }
    // Ten days of restarts within each window expire the event too: two later windows contain events.
    assert!(
        !(1_020_000..1_050_000)
            .step_by(6_000)
            .map(run)
            .last()
            .unwrap()
    );
    let (_writer, reader) = open(dir.path(), options()).unwrap();
    assert!(
        reader.inspect_rows("dedupe", None, 99).unwrap().len() < 9,
        "expired dedupe keys are purged"
    );
}

/// Checks copies of two stores that exchange messages: the copy of the second contains only messages
/// that the copy of the first has sent.
#[test]
fn copies_of_several_stores_are_consistent() {
    const MESSAGES: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let (mut model, model_reader) = open_in_memory(small());
    let after = |number: u64| {
        model.commit(&group(number), at(5)).unwrap();
        everything(&model_reader)
    };
    let expected: Vec<String> = (1..=MESSAGES + 1).map(after).collect();
    let ([mut first, mut second], readers): ([_; 2], [_; 2]) = {
        let [(first, one), (second, two)] =
            ["a", "b"].map(|name| open(&dir.path().join(name), small()).unwrap());
        ([first, second], [one, two])
    };
    let committing = thread::spawn(move || {
        for number in 1..=MESSAGES {
            first.commit(&group(number), at(5)).unwrap();
            second.commit(&group(number), at(5)).unwrap();
        }
        (first, second)
    });
    let mut rounds = 0;
    while !committing.is_finished() {
        rounds += 1;
        let copies = ["a", "b"].map(|name| dir.path().join(format!("{rounds}-{name}")));
        let pairs: Vec<_> = readers
            .iter()
            .cloned()
            .zip(copies.iter().cloned())
            .collect();
        let before = readers[0].position();
        let (copies_info, moment) = copy_consistently(&pairs, || "now").unwrap();
        assert_eq!(moment, "now");
        let [first, second] = [copies_info[0].position, copies_info[1].position];
        assert!(first >= before, "the copy contains all earlier commits");
        assert!(
            first == second || first == second + 1,
            "round {rounds}: positions {first} and {second} are inconsistent"
        );
        for (copy, copied) in copies
            .iter()
            .zip(&copies_info)
            .filter(|(_, copied)| copied.position > 0)
        {
            assert_eq!(
                read_info(copy, None).unwrap().unwrap().position(),
                copied.position
            );
            let (mut writer, reader) = open(copy, small()).unwrap();
            let position = usize::try_from(copied.position).unwrap();
            assert_eq!(everything(&reader), expected[position - 1]);
            assert_eq!(reader.checkpoints().unwrap(), copied.checkpoints);
            writer.commit(&group(copied.position + 1), at(5)).unwrap();
            assert_eq!(everything(&reader), expected[position]);
        }
    }
    assert!(rounds > 1, "it was copied while it was written");
    drop(committing.join().unwrap());
}
