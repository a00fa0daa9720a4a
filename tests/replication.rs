//! A shard whose commits are in a log before they count: what a crash, a lost acknowledgement, a second writer, a lost end of the
//! log leave of it. The logs here are in memory and fail on demand; `jetstream_log.rs` has real ones.

#[path = "replication/groups.rs"]
mod groups;
#[path = "replication/pods.rs"]
mod pods;

use std::path::Path;
use std::time::{Duration, Instant};

use orlog_store::{Error, Fed, FeedQuery, Replication, open_replicated};
use orlog_testkit::memory_log::{Fault, MemoryLog};

use groups::{at, everything, group, small};
use pods::{Pod, model, seeds};

/// So small that every commit takes several entries.
const TINY: usize = 700;

#[test]
fn whoever_takes_over_after_a_crash_at_any_append_finds_what_was_committed() {
    const COMMITS: u64 = 6;
    let model = model(COMMITS);
    let appends = {
        let log = MemoryLog::new(TINY);
        let mut pod = Pod::new(&log, 1);
        (1..=COMMITS).for_each(|number| pod.commit(number).expect("the log is sound"));
        pod.log.appends()
    };
    assert!(appends > 3 * usize::try_from(COMMITS).expect("small"), "no commit was split");
    for append in 1..appends {
        for stored in [false, true] {
            let log = MemoryLog::new(TINY);
            let mut pod = Pod::new(&log, 1);
            pod.log.cut(append, stored);
            let acked = (1..=COMMITS).take_while(|number| pod.commit(*number).is_ok()).count() as u64;
            assert!(acked < COMMITS);
            let mut next = Pod::new(&log, 2);
            let found = next.reader.position();
            assert!(found == acked || stored && found == acked + 1, "{found} of {acked}, append {append}");
            assert_eq!(next.everything(), model[usize::try_from(found).expect("small")], "append {append}");
            (found + 1..=COMMITS).for_each(|number| next.commit(number).expect("the log is sound"));
            assert_eq!(next.everything(), model[model.len() - 1]);
        }
    }
}

#[test]
fn the_folder_of_a_crashed_pod_is_brought_up_to_date() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::new(&log, 1);
    (1..=9).for_each(|number| {
        pod.commit(number).expect("the log is sound");
        if number == 4 {
            pod.writer.flush().expect("there is room");
        }
    });
    let folder = pod.crash();
    let mut other = Pod::new(&log, 2);
    other.commit(10).expect("the log is sound");
    drop(other);
    let again = Pod::on(folder, &log, 3);
    assert_eq!(again.everything(), model(10)[10]);
    assert_eq!(again.asides(), 0);
}

#[test]
fn acknowledgements_that_are_lost_change_nothing() {
    let faults = [Fault::AckLost, Fault::Lost, Fault::Refused, Fault::AckLost, Fault::Refused, Fault::Lost];
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    pod.log.fail(faults);
    (1..=4).for_each(|number| pod.commit(number).expect("tried again until it is there"));
    assert_eq!(pod.everything(), model(4)[4]);
    assert_eq!(Pod::new(&log, 2).everything(), model(4)[4]);
}

#[test]
fn while_the_log_is_away_a_commit_waits_and_says_so() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::new(&log, 1);
    pod.commit(1).expect("the log is sound");
    pod.log.set_down(true);
    let error = pod.writer.commit(&group(2), at(2)).expect_err("nobody answers");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(pod.writer.resume().is_err());
    assert_eq!(pod.reader.stats().replication.expect("replicated").unavailable.as_deref(), Some("no answer"));
    assert_eq!(pod.reader.position(), 1, "nobody sees what is not in the log");
    let other = pod.writer.commit(&group(3), at(3)).expect_err("one is on its way");
    assert!(other.to_string().contains("resume"), "{other}");
    pod.log.set_down(false);
    assert_eq!(pod.writer.resume().expect("the log answers"), 2);
    assert_eq!(pod.writer.resume().expect("nothing is on its way"), 2);
    assert_eq!(pod.reader.stats().replication.expect("replicated").unavailable, None);
    pod.commit(3).expect("the log is sound");
    assert_eq!(pod.everything(), model(3)[3]);
}

#[test]
fn a_writer_that_was_replaced_commits_nothing_and_stays_refused() {
    let log = MemoryLog::new(TINY);
    let mut zombie = Pod::new(&log, 1);
    zombie.commit(1).expect("the log is sound");
    let mut owner = Pod::new(&log, 2);
    for _ in 0..2 {
        let error = zombie.commit(2).expect_err("another pod owns the log");
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
    }
    let error = zombie.writer.recover().expect_err("its lease is over");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    owner.commit(2).expect("the owner goes on");
    let late = open_replicated(zombie.folder.path(), small(), Replication::new(log.port(), 1))
        .expect_err("too late");
    assert!(late.to_string().contains("claimed for epoch 2, ours is 1"), "{late}");
    assert_eq!(Pod::new(&log, 3).everything(), model(2)[2]);
}

#[test]
fn a_writer_recovers_what_is_in_the_log() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::new(&log, 1);
    pod.log.fail([Fault::Late; 3]);
    assert!(matches!(pod.commit_once(1), Err(Error::Unavailable { .. })));
    pod.writer.recover().expect("the log answers");
    assert_eq!(log.deliver(), 0, "another entry is the last by now");
    (1..=2).for_each(|number| pod.commit(number).expect("the log is sound"));
    assert_eq!(pod.everything(), model(2)[2]);
}

#[test]
fn a_log_that_lost_its_end_is_not_continued_behind_anybodys_back() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    (1..=5).for_each(|number| pod.commit(number).expect("the log is sound"));
    pod.writer.close().expect("there is room");
    log.lose_tail(2);
    let error =
        open_replicated(pod.folder.path(), small(), Replication::new(log.port(), 2)).expect_err("too short");
    assert!(matches!(error, Error::LogLost { .. }), "{error}");
    assert!(error.to_string().contains("move"), "{error}");
    // Somebody decided to go on with what is left; the old folder does not belong to it any more.
    let mut other = Pod::new(&log, 2);
    assert_eq!(other.reader.position(), 3);
    (4..=9).for_each(|number| other.commit(number).expect("the log is sound"));
    drop(other);
    let again = Pod::on(pod.crash(), &log, 3);
    assert_eq!((again.everything(), again.asides()), (model(9)[9].clone(), 1));
}

#[test]
fn an_owner_notices_that_the_log_lost_its_end() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    (1..=3).for_each(|number| pod.commit(number).expect("the log is sound"));
    log.lose_tail(1);
    let error = pod.commit(4).expect_err("the log is shorter");
    assert!(error.to_string().contains("lost the end"), "{error}");
}

#[test]
fn a_log_that_was_made_anew_is_not_begun_again_in_silence() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    pod.commit(1).expect("the log is sound");
    pod.writer.close().expect("there is room");
    log.replace();
    let error =
        open_replicated(pod.folder.path(), small(), Replication::new(log.port(), 2)).expect_err("empty");
    assert!(error.to_string().contains("1 commits of an earlier one"), "{error}");
    let mut other = Pod::new(&log, 2);
    other.commit(1).expect("the log is sound");
    drop(other);
    let again = Pod::on(pod.crash(), &log, 3);
    assert_eq!((again.everything(), again.asides()), (model(1)[1].clone(), 1));
}

#[test]
fn folders_with_and_without_a_log_are_not_mistaken_for_each_other() {
    let log = MemoryLog::new(1 << 20);
    let folder = tempfile::tempdir().expect("a folder");
    let plain = folder.path().join("plain");
    drop(orlog_store::open(&plain, small()).expect("a new store"));
    let error = open_replicated(&plain, small(), Replication::new(log.port(), 1)).expect_err("no copy");
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    let followed = folder.path().join("followed");
    drop(open_replicated(&followed, small(), Replication::new(log.port(), 1)).expect("a new store"));
    let error = orlog_store::open(&followed, small()).expect_err("a copy");
    assert!(error.to_string().contains("open it with replication"), "{error}");
}

#[test]
fn the_first_writer_decides_for_how_long_events_are_remembered() {
    let log = MemoryLog::new(1 << 20);
    drop(Pod::new(&log, 1));
    let folder = tempfile::tempdir().expect("a folder");
    let options = orlog_store::Options { dedupe_window: Duration::from_secs(7), ..small() };
    let (_writer, reader) =
        open_replicated(folder.path(), options, Replication::new(log.port(), 2)).expect("the log is sound");
    assert_eq!(reader.dedupe_window(), small().dedupe_window);
}

#[test]
fn whoever_follows_the_feed_goes_on_with_whoever_takes_over() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::new(&log, 1);
    let query = FeedQuery { tenant: None, kinds: vec![Fed::History], limit: 100, bytes: 1 << 20 };
    let told = |pod: &Pod, mark| {
        let page = pod.reader.feed(&query, mark).expect("the mark is good");
        (page.items.len(), page.next)
    };
    let begun = pod.reader.feed_head().expect("it keeps a feed");
    (1..=3).for_each(|number| pod.commit(number).expect("the log is sound"));
    let (count, mark) = told(&pod, begun);
    assert_eq!(count, 3);
    (4..=5).for_each(|number| pod.commit(number).expect("the log is sound"));
    let mut next = Pod::new(&log, 2);
    assert_eq!(told(&next, begun).0, 5);
    let (count, mark) = told(&next, mark);
    assert_eq!(count, 2);
    next.commit(6).expect("the log is sound");
    assert_eq!(told(&next, mark).0, 1);
    assert_eq!(next.reader.feed_head().expect("it keeps a feed").position, 6);
}

#[test]
fn snapshots_let_the_log_be_purged_and_a_shard_be_taken_over() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::with_snapshots(&log, 1, 5);
    (1..=4).for_each(|number| pod.commit(number).expect("the log is sound"));
    let early = pod.copy_folder();
    for number in 5..=23 {
        pod.commit(number).expect("the log is sound");
        if number % 5 == 0 {
            let due = number / 5;
            wait(|| pod.reader.stats().replication.expect("replicated").snapshots >= due);
        }
    }
    let places = orlog_store::CommitLog::snapshots(&log).expect("up");
    assert_eq!(places.len(), 2, "{places:?}");
    assert_eq!(log.entries()[0].number, places[0].number, "the log begins where the older one ends");
    pod.commit(24).expect("the log is sound");
    drop(pod);
    let expected = &model(24)[24];
    assert_eq!(&Pod::new(&log, 2).everything(), expected);
    let old = Pod::on(early, &log, 3);
    assert_eq!((&old.everything(), old.asides()), (expected, 1), "what it had was purged");
}

#[test]
fn a_snapshot_that_cannot_be_read_makes_way_for_an_older_one() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::with_snapshots(&log, 1, 3);
    for number in 1..=6 {
        pod.commit(number).expect("the log is sound");
        let due = number / 3;
        wait(|| pod.reader.stats().replication.expect("replicated").snapshots >= due);
    }
    drop(pod);
    log.damage(6);
    assert_eq!(Pod::new(&log, 2).everything(), model(6)[6]);
    log.damage(3);
    let folder = tempfile::tempdir().expect("a folder");
    let error =
        open_replicated(folder.path(), small(), Replication::new(log.port(), 3)).expect_err("none is whole");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test]
fn a_copy_of_a_store_is_a_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    let (mut writer, reader) = orlog_store::open(&folder.path().join("store"), small()).expect("a new store");
    for number in 1..=7 {
        writer.commit(&group(number), at(number)).expect("there is room");
    }
    assert_eq!(reader.copy_to(&copy).expect("there is room"), 7);
    drop(writer);
    for number in 8..=9 {
        let (mut writer, reader) = orlog_store::open(&copy, small()).expect("the copy opens");
        assert_eq!(everything(&reader), model(number - 1)[usize::try_from(number).expect("small") - 1]);
        assert_eq!(writer.commit(&group(number), at(number)).expect("there is room"), number);
    }
}

/// Pods come, take over, write with a log that fails, sleep and wake up as zombies, in an order that the seed decides.
#[test]
fn whatever_happens_every_commit_counts_once_and_none_is_by_a_zombie() {
    let met = seeds().into_iter().map(pods::chaos).fold(pods::Met::default(), pods::Met::and);
    assert!(met.acked > 0 && met.fenced > 0 && met.silent > 0, "{met:?}");
}

#[track_caller]
fn wait(fact: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !fact() {
        assert!(Instant::now() < deadline, "it never came true");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The folder of a pod that was killed.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("a file");
        }
    }
}
