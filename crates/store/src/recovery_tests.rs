//! What survives a crash, a full disk, a failed fsync, and a change of release.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use orlog_journal::{Disk, LocalDisk};
use orlog_model::{Change, Commit, EventId, Lane, TenantId, WorkKind};

use crate::options::Durability;
use crate::samples::{apply, at, checkpoint, key, record, small, timer, transition};
use crate::writer::open_on;
use crate::{Error, Reader, TABLES, copy_together, look, memory, open};

/// Everything that can be read, as text.
fn everything(reader: &Reader) -> String {
    let tables = TABLES.iter().filter(|table| **table != "meta");
    let rows = tables.flat_map(|table| reader.rows(table, None, usize::MAX).unwrap());
    let rows: Vec<_> = rows.map(|row| format!("{} {}\n", row.key, row.value)).collect();
    format!("{} {}\n{}", reader.position(), reader.outbox_depth().unwrap(), rows.concat())
}

fn copy(from: &Path, to: &Path) {
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

/// A few transitions that leave rows of all kinds, changed and deleted ones among them.
fn group(number: u64) -> Vec<Change> {
    let key = key("acme", &format!("o-{}", number % 7));
    let mut commit = transition(&key, number);
    commit.arm = vec![timer(i64::try_from(number).unwrap() + 100, number)];
    if number > 7 {
        commit.disarm = vec![timer(i64::try_from(number).unwrap() + 93, number - 7)];
    }
    vec![apply(commit), checkpoint(number)]
}

fn lane() -> Lane {
    Lane { kind: WorkKind::Effect, name: "payments.charge".into() }
}

/// Settles the oldest work item.
fn settle(reader: &Reader) -> Vec<Change> {
    reader.outbox(&lane(), 0, 1).unwrap().into_iter().map(|(key, _)| Change::Settle(key)).collect()
}

#[test]
fn a_store_that_was_killed_at_any_commit_answers_the_same_when_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let (live, dead) = (dir.path().join("live"), dir.path().join("dead"));
    let (mut writer, reader) = open(&live, small()).unwrap();
    for number in 1..=24 {
        writer.commit(&group(number), at(5)).unwrap();
        writer.commit(&settle(&reader), at(5)).unwrap();
        if number % 10 == 0 {
            writer.flush().unwrap();
        }
        let killed = dead.join(number.to_string());
        copy(&live, &killed);
        let (_writer, again) = open(&killed, small()).unwrap();
        assert_eq!(everything(&again), everything(&reader), "killed after commit {number}");
    }
}

#[test]
fn a_torn_record_at_the_end_is_as_if_it_had_never_been() {
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
fn a_crash_between_the_fold_and_the_end_of_the_journal_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (live, kept) = (dir.path().join("live"), dir.path().join("kept"));
    let (mut writer, reader) = open(&live, small()).unwrap();
    for number in 1..=300 {
        writer.commit(&group(number), at(5)).unwrap();
    }
    let expected = everything(&reader);
    copy(&live.join("journal"), &kept);
    writer.flush().unwrap();
    drop(writer);
    assert_ne!(fs::read_dir(live.join("journal")).unwrap().count(), 0);
    fs::remove_dir_all(live.join("journal")).unwrap();
    copy(&kept, &live.join("journal"));
    let (mut writer, reader) = open(&live, small()).unwrap();
    assert_eq!(everything(&reader), expected);
    writer.commit(&group(301), at(5)).unwrap();
    assert_eq!(reader.position(), 301);
}

#[test]
fn a_journal_that_ends_before_the_tables_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(dir.path(), small()).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    writer.flush().unwrap();
    drop(writer);
    fs::remove_dir_all(dir.path().join("journal")).unwrap();
    let error = open(dir.path(), small()).unwrap_err();
    assert!(error.to_string().contains("it ends at record 0, but the tables hold record 1"), "{error}");
}

#[test]
fn full_tables_refuse_commits_and_lose_none_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let tight = crate::Options { max_bytes: 256 << 10, generation_bytes: 32 << 10, ..small() };
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
    assert!(reader.stats().fold_failure.is_some());
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
        reader.history(&key("acme", &format!("o-{}", number % 7)), number - 1, 9).unwrap(),
        [record(number)]
    );
}

/// A disk that fails on demand.
#[derive(Debug, Default)]
struct Faulty {
    fault: AtomicU8,
}

const HEALTHY: u8 = 0;
const FULL: u8 = 1;
const FSYNC_FAILS: u8 = 2;

impl Faulty {
    fn set(&self, fault: u8) {
        self.fault.store(fault, Ordering::SeqCst);
    }

    fn fails(&self, fault: u8) -> bool {
        self.fault.load(Ordering::SeqCst) == fault
    }
}

impl Disk for Faulty {
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
        if self.fails(FSYNC_FAILS) { Err(io::Error::other("injected")) } else { LocalDisk.sync(file) }
    }

    fn sync_folder(&self, folder: &fs::File) -> io::Result<()> {
        LocalDisk.sync_folder(folder)
    }
}

#[test]
fn a_full_disk_refuses_commits_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(Faulty::default());
    let (mut writer, reader) = open_on(dir.path(), small(), Arc::clone(&device) as Arc<dyn Disk>).unwrap();
    device.set(FULL);
    let mut number = 1;
    let error = loop {
        match writer.commit(&group(number), at(5)) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert_eq!(reader.position(), number - 1);
    let expected = everything(&reader);
    assert!(matches!(writer.commit(&group(number), at(5)), Err(Error::Full { .. })));
    assert_eq!(everything(&reader), expected);
    device.set(HEALTHY);
    assert_eq!(writer.commit(&group(number), at(5)).unwrap(), number);
}

#[test]
fn after_a_failed_fsync_nothing_is_accepted_until_the_store_is_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(Faulty::default());
    let (mut writer, reader) = open_on(dir.path(), small(), Arc::clone(&device) as Arc<dyn Disk>).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    device.set(FSYNC_FAILS);
    assert!(matches!(writer.commit(&group(2), at(5)), Err(Error::Poisoned { .. })));
    device.set(HEALTHY);
    assert!(matches!(writer.commit(&group(2), at(5)), Err(Error::Poisoned { .. })));
    assert!(matches!(writer.flush(), Err(Error::Poisoned { .. })));
    assert_eq!(reader.position(), 1);
    writer.recover().unwrap();
    // The record was written, only its fsync failed; opening made it durable.
    assert_eq!(reader.position(), 2);
    assert_eq!(writer.commit(&group(3), at(5)).unwrap(), 3);
    assert_eq!(reader.history(&key("acme", "o-2"), 0, 9).unwrap(), [record(2)]);
}

#[test]
fn an_interval_syncs_behind_the_commits() {
    let dir = tempfile::tempdir().unwrap();
    let interval = Durability::Interval(Duration::from_millis(5));
    let (mut writer, reader) = open(dir.path(), crate::Options { durability: interval, ..small() }).unwrap();
    for number in 1..=50 {
        writer.commit(&group(number), at(5)).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while reader.stats().fsync.count() == 0 {
        assert!(Instant::now() < deadline, "nothing was synced");
        thread::yield_now();
    }
    let expected = everything(&reader);
    drop(writer);
    assert_eq!(everything(&open(dir.path(), small()).unwrap().1), expected);
}

#[test]
fn an_old_generation_is_folded_without_being_asked() {
    let dir = tempfile::tempdir().unwrap();
    let options = crate::Options { generation_age: Duration::from_millis(5), ..small() };
    let (mut writer, reader) = open(dir.path(), options).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    let expected = everything(&reader);
    let deadline = Instant::now() + Duration::from_secs(10);
    while reader.stats().folded_position < 1 {
        assert!(Instant::now() < deadline, "nothing was folded");
        thread::yield_now();
    }
    assert_eq!(everything(&reader), expected);
    assert_eq!(reader.stats().overlay_rows, 0);
}

#[test]
fn work_that_is_done_within_a_generation_never_reaches_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, reader) = open(dir.path(), small()).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    writer.commit(&settle(&reader), at(5)).unwrap();
    writer.commit(&group(2), at(5)).unwrap();
    writer.flush().unwrap();
    let rows = |table| reader.stats().tables.into_iter().find(|stats| stats.name == table).unwrap().rows;
    assert_eq!((rows("outbox"), rows("instance"), rows("applied")), (1, 2, 2));
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(dir.path(), small()).unwrap();
    writer.commit(&group(1), at(5)).unwrap();
    drop(writer);
    let tables = dir.path().join("tables");
    let mdbx = crate::mdbx::Mdbx::open(&tables, 16 << 20, b"format", |_| Ok(())).unwrap();
    mdbx.describe(&[(b"format", &2u32.to_be_bytes())]).unwrap();
    drop(mdbx);
    let before = fs::read(tables.join("mdbx.dat")).unwrap();
    let error = open(dir.path(), small()).unwrap_err();
    assert!(matches!(error, Error::NewerFormat { found: 2, supported: 1, .. }), "{error}");
    assert_eq!(fs::read(tables.join("mdbx.dat")).unwrap(), before);
}

#[test]
fn one_folder_has_one_writer_and_its_readers_end_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, reader) = open(dir.path(), small()).unwrap();
    let error = open(dir.path(), small()).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(writer);
    assert!(matches!(reader.instance(&key("acme", "o-1")), Err(Error::Closed)));
    assert!(open(dir.path(), small()).is_ok());
}

#[test]
fn a_store_of_format_1_is_still_read() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1");
    let dir = tempfile::tempdir().unwrap();
    copy(&recorded.join("store"), dir.path());
    let (_writer, reader) = open(dir.path(), small()).unwrap();
    assert_eq!(everything(&reader), fs::read_to_string(recorded.join("expected.txt")).unwrap());
}

#[test]
#[ignore = "writes the recorded files of the current format; run by hand when a release gets a new format"]
fn record_the_current_format() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1");
    let options = crate::Options { max_bytes: 1 << 20, journal_segment_bytes: 16 << 10, ..small() };
    let (mut writer, reader) = open(&recorded.join("store"), options).unwrap();
    for number in 1..=12 {
        writer.commit(&group(number), at(5)).unwrap();
        if number == 9 {
            writer.flush().unwrap();
        }
    }
    writer.commit(&settle(&reader), at(5)).unwrap();
    fs::write(recorded.join("expected.txt"), everything(&reader)).unwrap();
    drop(writer);
    fs::remove_file(recorded.join("store/tables/mdbx.lck")).unwrap();
}

#[test]
fn a_sleeping_instance_costs_less_than_a_kilobyte_of_disk() {
    const COUNT: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let options = crate::Options { max_bytes: 1 << 30, ..small() };
    let (mut writer, reader) = open(dir.path(), options).unwrap();
    for chunk in 0..COUNT / 1000 {
        let group: Vec<_> = (0..1000).map(|index| sleeping(chunk * 1000 + index)).collect();
        writer.commit(&group, at(5)).unwrap();
    }
    writer.flush().unwrap();
    let bytes: u64 = reader.stats().tables.iter().map(|table| table.bytes).sum();
    println!("{} bytes of tables an instance", bytes / COUNT);
    assert!(bytes / COUNT < 1000, "{} bytes", bytes / COUNT);
    assert_eq!(reader.timers_due(at(i64::MAX), usize::MAX).unwrap().len() as u64, COUNT);
    assert_eq!(reader.count(&TenantId::new("acme").unwrap()).unwrap().into_values().sum::<u64>(), COUNT);
}

#[test]
#[ignore = "a measurement of minutes: `cargo test --release -p orlog-store -- --ignored --nocapture a_million`"]
fn a_million_sleeping_instances_open_within_two_seconds() {
    const COUNT: u64 = 1_000_000;
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let options = crate::Options { slots: small().slots, ..crate::Options::default() };
    let (mut writer, reader) = open(dir.path(), options.clone()).unwrap();
    let begun = Instant::now();
    for chunk in 0..COUNT / 1000 {
        // Scattered, as instances come in real life.
        let numbers = (0..1000).map(|index| (chunk * 1000 + index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12);
        writer.commit(&numbers.map(sleeping).collect::<Vec<_>>(), at(5)).unwrap();
    }
    println!("committed in {:?}", begun.elapsed());
    // Half of the last generation stays in the journal, as after a crash.
    let stats = reader.stats();
    println!("overlay: {} rows, {} bytes", stats.overlay_rows, stats.overlay_bytes);
    drop(writer);
    let begun = Instant::now();
    let (mut writer, reader) = open(dir.path(), options.clone()).unwrap();
    let (opened, next) = (begun.elapsed(), reader.next_timer().unwrap());
    println!("opened after a crash in {opened:?}, first answer after {:?}: {next:?}", begun.elapsed());
    writer.flush().unwrap();
    let tables = reader.stats().tables;
    println!("{} bytes of tables an instance", tables.iter().map(|table| table.bytes).sum::<u64>() / COUNT);
    println!("{tables:#?}");
    drop(writer);
    let begun = Instant::now();
    let (_writer, reader) = open(dir.path(), options).unwrap();
    assert!(reader.next_timer().unwrap().is_some());
    println!("opened after a flush in {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(2) && opened < Duration::from_secs(2));
}

/// An instance that has taken one event and waits for a timer.
fn sleeping(number: u64) -> Change {
    let key = key("acme", &format!("order-{number:012}"));
    let mut commit = transition(&key, 1);
    commit.work.clear();
    commit.arm = vec![timer(1_800_000_000_000 + i64::try_from(number).unwrap(), 1)];
    let instance = commit.instance.as_mut().unwrap();
    instance.timers = vec![orlog_model::ArmedTimer {
        name: commit.arm[0].name.clone(),
        token: 1,
        due: commit.arm[0].due,
        trace: None,
    }];
    apply(commit)
}

#[test]
fn a_rest_may_be_interrupted_but_not_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let window = Duration::from_secs(10);
    let options = || crate::Options { dedupe_window: window, ..small() };
    let of = key("acme", "o-1");
    let id = |number: i64| EventId::new(format!("e-{number}")).unwrap();
    // A life of the store at that time: what it still knows of the event before all, and one that it applies.
    let life = |now: i64| {
        let (mut writer, reader) = open(dir.path(), options()).unwrap();
        let known = reader.applied(&of, &id(0), at(now)).unwrap();
        let commit = Commit { applied: Some(id(now)), ..Commit::empty(of.clone(), at(now)) };
        let before = reader.remembered_since(at(now)).unwrap();
        writer.commit(&[apply(commit), Change::PurgeApplied { before }], at(now)).unwrap();
        known
    };
    assert!(!life(0));
    for restart in [1_000_000, 1_000_001, 1_009_000, 1_012_000] {
        assert!(life(restart), "it may be delivered again at {restart}");
    }
    // Ten days of restarts more often than once a window forget as well: events were applied in two windows since.
    assert!(!(1_020_000..1_050_000).step_by(6_000).map(life).last().unwrap());
    let (_writer, reader) = open(dir.path(), options()).unwrap();
    assert!(reader.rows("dedupe", None, 99).unwrap().len() < 9, "what is forgotten is purged");
}

/// Two stores between which words travel: the second hears only what the first has said.
#[test]
fn copies_of_several_stores_are_of_one_moment() {
    const SAID: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let (mut model, told) = memory(small());
    let after = |number: u64| {
        model.commit(&group(number), at(5)).unwrap();
        everything(&told)
    };
    let expected: Vec<String> = (1..=SAID + 1).map(after).collect();
    let ([mut first, mut second], readers): ([_; 2], [_; 2]) = {
        let [(first, one), (second, two)] =
            ["a", "b"].map(|name| open(&dir.path().join(name), small()).unwrap());
        ([first, second], [one, two])
    };
    let talking = thread::spawn(move || {
        for number in 1..=SAID {
            first.commit(&group(number), at(5)).unwrap();
            second.commit(&group(number), at(5)).unwrap();
        }
        (first, second)
    });
    let mut rounds = 0;
    while !talking.is_finished() {
        rounds += 1;
        let copies = ["a", "b"].map(|name| dir.path().join(format!("{rounds}-{name}")));
        let pairs: Vec<_> = readers.iter().cloned().zip(copies.iter().cloned()).collect();
        let before = readers[0].position();
        let (stood, moment) = copy_together(&pairs, || "now").unwrap();
        assert_eq!(moment, "now");
        let [first, second] = [stood[0].position, stood[1].position];
        assert!(first >= before, "what was committed before is in it");
        assert!(
            first == second || first == second + 1,
            "round {rounds}: {first} and {second} are of two moments"
        );
        for (copy, copied) in copies.iter().zip(&stood).filter(|(_, copied)| copied.position > 0) {
            assert_eq!(look(copy).unwrap().unwrap().position(), copied.position);
            let (mut writer, reader) = open(copy, small()).unwrap();
            let position = usize::try_from(copied.position).unwrap();
            assert_eq!(everything(&reader), expected[position - 1]);
            assert_eq!(reader.checkpoints().unwrap(), copied.checkpoints);
            writer.commit(&group(copied.position + 1), at(5)).unwrap();
            assert_eq!(everything(&reader), expected[position]);
        }
    }
    assert!(rounds > 1, "it was copied while it was written");
    drop(talking.join().unwrap());
}
