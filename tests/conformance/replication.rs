//! Replicated shard, whose commits are in a log before they are acknowledged: state after a crash, a
//! lost acknowledgement, a second writer, a truncated log. The logs here are in memory and fail on
//! demand; `replication_jetstream.rs` uses real ones.

pub(crate) mod groups;
mod pods;

use std::path::Path;
use std::time::Duration;

use orlog_store::{Error, FeedEntityKind, FeedQuery, ReplicationOptions, open_replicated};
use orlog_testkit::memory_log::{AppendFault, MemoryLog};
use orlog_testkit::wait::until_blocking;

use groups::{at, everything, group, small};
use pods::{Pod, model, seeds};

/// Entry size so small that every commit needs several entries.
const TINY: usize = 700;

#[test]
fn takeover_after_a_crash_at_any_append_sees_all_commits() {
    const COMMITS: u64 = 6;
    let model = model(COMMITS);
    let appends = {
        let log = MemoryLog::new(TINY);
        let mut pod = Pod::new(&log, 1);
        (1..=COMMITS).for_each(|number| pod.commit(number).expect("the log is sound"));
        pod.log.appends()
    };
    assert!(
        appends > 3 * usize::try_from(COMMITS).expect("small"),
        "no commit was split"
    );
    for append in 1..appends {
        for stored in [false, true] {
            let log = MemoryLog::new(TINY);
            let mut pod = Pod::new(&log, 1);
            pod.log.set_partitioned(append, stored);
            let acked = (1..=COMMITS)
                .take_while(|number| pod.commit(*number).is_ok())
                .count() as u64;
            assert!(acked < COMMITS);
            let mut next = Pod::new(&log, 2);
            let found = next.reader.position();
            assert!(
                found == acked || stored && found == acked + 1,
                "{found} of {acked}, append {append}"
            );
            assert_eq!(
                next.everything(),
                model[usize::try_from(found).expect("small")],
                "append {append}"
            );
            (found + 1..=COMMITS).for_each(|number| next.commit(number).expect("the log is sound"));
            assert_eq!(next.everything(), model[model.len() - 1]);
        }
    }
}

#[test]
fn stale_directory_of_a_crashed_pod_catches_up() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::new(&log, 1);
    (1..=9).for_each(|number| {
        pod.commit(number).expect("the log is sound");
        if number == 4 {
            pod.writer.flush().expect("there is room");
        }
    });
    let dir = pod.crash();
    let mut other = Pod::new(&log, 2);
    other.commit(10).expect("the log is sound");
    drop(other);
    let restarted = Pod::on(dir, &log, 3);
    assert_eq!(restarted.everything(), model(10)[10]);
    assert_eq!(restarted.asides(), 0);
}

#[test]
fn lost_acks_are_harmless() {
    let faults = [
        AppendFault::AckLost,
        AppendFault::Lost,
        AppendFault::Rejected,
        AppendFault::AckLost,
        AppendFault::Rejected,
        AppendFault::Lost,
    ];
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    pod.log.inject_faults(faults);
    (1..=4).for_each(|number| pod.commit(number).expect("tried again until it is there"));
    assert_eq!(pod.everything(), model(4)[4]);
    assert_eq!(Pod::new(&log, 2).everything(), model(4)[4]);
}

#[test]
fn commit_blocks_and_reports_while_the_log_is_unavailable() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::new(&log, 1);
    pod.commit(1).expect("the log is sound");
    pod.log.set_down(true);
    let error = pod
        .writer
        .commit(&group(2), at(2))
        .expect_err("the log does not respond");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(pod.writer.retry_commit().is_err());
    assert_eq!(
        pod.reader
            .stats()
            .replication
            .expect("replicated")
            .unavailable
            .as_deref(),
        Some("no response")
    );
    assert_eq!(
        pod.reader.position(),
        1,
        "no reader sees what is not in the log"
    );
    let other = pod
        .writer
        .commit(&group(3), at(3))
        .expect_err("one is on its way");
    assert!(other.to_string().contains("resume"), "{other}");
    pod.log.set_down(false);
    assert_eq!(pod.writer.retry_commit().expect("the log answers"), 2);
    assert_eq!(pod.writer.retry_commit().expect("nothing is on its way"), 2);
    assert_eq!(
        pod.reader
            .stats()
            .replication
            .expect("replicated")
            .unavailable,
        None
    );
    pod.commit(3).expect("the log is sound");
    assert_eq!(pod.everything(), model(3)[3]);
}

#[test]
fn owner_without_a_lease_follows_the_latest_epoch() {
    let log = MemoryLog::new(TINY);
    let mut leased = Pod::new(&log, 35);
    leased.commit(1).expect("the log is sound");
    let dir = tempfile::tempdir().expect("a directory");
    let options = || ReplicationOptions {
        epoch: None,
        ..ReplicationOptions::new(log.commit_log(), 0)
    };
    for expected in 36..39 {
        let (writer, reader) =
            open_replicated(dir.path(), small(), options()).expect("a later epoch");
        assert_eq!(
            reader.stats().replication.expect("replicated").epoch,
            expected
        );
        drop(writer);
    }
    let error = leased.commit(2).expect_err("another node owns the log");
    assert!(
        matches!(error, Error::Fenced { epoch: 36..39, .. }),
        "{error}"
    );
    let other = tempfile::tempdir().expect("a directory");
    let late = open_replicated(
        other.path(),
        small(),
        ReplicationOptions::new(log.commit_log(), 1),
    );
    let late = late.expect_err("its lease is older than the log");
    assert!(matches!(late, Error::Fenced { epoch: 38, .. }), "{late}");
}

#[test]
fn fenced_writer_commits_nothing() {
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
    let late = open_replicated(
        zombie.dir.path(),
        small(),
        ReplicationOptions::new(log.commit_log(), 1),
    )
    .expect_err("too late");
    assert!(
        late.to_string()
            .contains("its log was claimed for epoch 2, but this writer has epoch 1"),
        "{late}"
    );
    assert_eq!(Pod::new(&log, 3).everything(), model(2)[2]);
}

#[test]
fn writer_recovers_entries_from_the_log() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::new(&log, 1);
    pod.log.inject_faults([AppendFault::Late; 3]);
    assert!(matches!(pod.commit_once(1), Err(Error::Unavailable { .. })));
    pod.writer.recover().expect("the log answers");
    assert_eq!(log.deliver_late(), 0, "another entry is the last by now");
    (1..=2).for_each(|number| pod.commit(number).expect("the log is sound"));
    assert_eq!(pod.everything(), model(2)[2]);
}

#[test]
fn truncated_log_is_not_continued_silently() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    (1..=5).for_each(|number| pod.commit(number).expect("the log is sound"));
    pod.writer.close().expect("there is room");
    log.lose_tail(2);
    let error = open_replicated(
        pod.dir.path(),
        small(),
        ReplicationOptions::new(log.commit_log(), 2),
    )
    .expect_err("too short");
    assert!(matches!(error, Error::LogLost { .. }), "{error}");
    assert!(error.to_string().contains("move"), "{error}");
    // An operator continued with the remaining log; the old directory no longer matches it.
    let mut other = Pod::new(&log, 2);
    assert_eq!(other.reader.position(), 3);
    (4..=9).for_each(|number| other.commit(number).expect("the log is sound"));
    drop(other);
    let restarted = Pod::on(pod.crash(), &log, 3);
    assert_eq!(
        (restarted.everything(), restarted.asides()),
        (model(9)[9].clone(), 1)
    );
}

#[test]
fn owner_detects_a_truncated_log() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    (1..=3).for_each(|number| pod.commit(number).expect("the log is sound"));
    log.lose_tail(1);
    let error = pod.commit(4).expect_err("the log is shorter");
    assert!(error.to_string().contains("lost the end"), "{error}");
}

#[test]
fn recreated_log_is_rejected() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    pod.commit(1).expect("the log is sound");
    pod.writer.close().expect("there is room");
    log.replace();
    let error = open_replicated(
        pod.dir.path(),
        small(),
        ReplicationOptions::new(log.commit_log(), 2),
    )
    .expect_err("empty");
    assert!(
        error.to_string().contains("1 commits of an earlier log"),
        "{error}"
    );
    let mut other = Pod::accepting_data_loss(&log, 2);
    other.commit(1).expect("the log is sound");
    drop(other);
    let restarted = Pod::on(pod.crash(), &log, 3);
    assert_eq!(
        (restarted.everything(), restarted.asides()),
        (model(1)[1].clone(), 1)
    );
}

/// A pod without a copy cannot detect the loss by its own data.
#[test]
fn purged_log_is_rejected_until_the_loss_is_accepted() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    (1..=3).for_each(|number| pod.commit(number).expect("the log is sound"));
    drop(pod);
    log.purge();
    let open = || {
        let dir = tempfile::tempdir().expect("a directory");
        let replication = ReplicationOptions::new(log.commit_log(), 2);
        open_replicated(dir.path(), small(), replication).expect_err("the log lost all entries")
    };
    let error = open();
    assert!(matches!(error, Error::LogLost { found: 0, .. }), "{error}");
    assert!(error.to_string().starts_with("OR0061: "), "{error}");

    // A pod of an earlier release does not check, and appends to the purged log.
    let recorded = log.commit_log().recorded_claim().expect("the log is sound");
    let recorded = recorded.expect("the first owner claimed the log");
    drop(Pod::accepting_data_loss(&log, 2));
    log.commit_log()
        .record_claim(&recorded)
        .expect("the log is sound");
    let error = open();
    assert!(
        matches!(error, Error::LogLost { found: 1.., .. }),
        "{error}"
    );

    let mut accepted = Pod::accepting_data_loss(&log, 3);
    assert_eq!(accepted.reader.position(), 0);
    accepted.commit(1).expect("the log is sound");
    drop(accepted);
    let next = Pod::new(&log, 4);
    assert_eq!(next.everything(), model(1)[1], "the acceptance is recorded");
}

#[test]
fn log_that_lost_the_claim_of_its_owner_is_rejected() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    (1..=3).for_each(|number| pod.commit(number).expect("the log is sound"));
    drop(pod);
    let entries = log.entries().len();
    let mut pod = Pod::new(&log, 2);
    pod.commit(4).expect("the log is sound");
    drop(pod);
    log.lose_tail(log.entries().len() - entries);
    let dir = tempfile::tempdir().expect("a directory");
    let replication = ReplicationOptions::new(log.commit_log(), 3);
    let error = open_replicated(dir.path(), small(), replication).expect_err("too short");
    assert!(matches!(error, Error::LogLost { .. }), "{error}");

    let accepted = Pod::accepting_data_loss(&log, 3);
    assert_eq!(accepted.everything(), model(3)[3]);
}

#[test]
fn claim_before_a_snapshot_is_not_required() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::with_snapshots(&log, 1, 2);
    for number in 1..=9 {
        pod.commit(number).expect("the log is sound");
        until_blocking("a snapshot of the commit", || {
            let snapshots = log.commit_log().snapshots().expect("the log is sound");
            let newest = snapshots
                .last()
                .map_or(0, |newest| newest.position.position);
            (newest + 2 > number).then_some(())
        });
    }
    drop(pod);
    let first = log.entries().first().map_or(0, |first| first.number);
    let claim = log.commit_log().recorded_claim().expect("the log is sound");
    assert!(
        claim.is_some_and(|claim| claim.number < first),
        "the claim was purged"
    );
    assert_eq!(Pod::new(&log, 2).everything(), model(9)[9]);
}

/// A stream that is restored from a backup has another creation time, and thus another identity.
#[test]
fn restored_log_is_continued_with_its_directories_and_snapshots() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::with_snapshots(&log, 1, 2);
    for number in 1..=5 {
        pod.commit(number).expect("the log is sound");
        until_blocking("a snapshot of the commit", || {
            let snapshots = log.commit_log().snapshots().expect("the log is sound");
            let newest = snapshots
                .last()
                .map_or(0, |newest| newest.position.position);
            (newest + 2 > number).then_some(())
        });
    }
    pod.writer.close().expect("there is room");
    let dir = pod.crash();
    log.restore();
    let mut without_directory = Pod::new(&log, 2);
    assert_eq!(without_directory.everything(), model(5)[5]);
    without_directory.commit(6).expect("the log is sound");
    drop(without_directory);

    let restarted = Pod::on(dir, &log, 3);
    assert_eq!(
        (restarted.everything(), restarted.asides()),
        (model(6)[6].clone(), 0)
    );
}

#[test]
fn replicated_and_local_directorys_are_not_interchangeable() {
    let log = MemoryLog::new(1 << 20);
    let dir = tempfile::tempdir().expect("a directory");
    let local = dir.path().join("plain");
    drop(orlog_store::open(&local, small()).expect("a new store"));
    let error = open_replicated(
        &local,
        small(),
        ReplicationOptions::new(log.commit_log(), 1),
    )
    .expect_err("no copy");
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    let followed = dir.path().join("followed");
    drop(
        open_replicated(
            &followed,
            small(),
            ReplicationOptions::new(log.commit_log(), 1),
        )
        .expect("a new store"),
    );
    let error = orlog_store::open(&followed, small()).expect_err("a copy");
    assert!(
        error.to_string().contains("open it with replication"),
        "{error}"
    );
}

#[test]
fn first_writer_fixes_the_dedupe_window() {
    let log = MemoryLog::new(1 << 20);
    drop(Pod::new(&log, 1));
    let dir = tempfile::tempdir().expect("a directory");
    let options = orlog_store::Options {
        dedupe_window: Duration::from_secs(7),
        ..small()
    };
    let (_writer, reader) = open_replicated(
        dir.path(),
        options,
        ReplicationOptions::new(log.commit_log(), 2),
    )
    .expect("the log is sound");
    assert_eq!(reader.dedupe_window(), small().dedupe_window);
}

#[test]
fn feed_consumers_continue_after_a_takeover() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::new(&log, 1);
    let query = FeedQuery {
        tenant: None,
        kinds: vec![FeedEntityKind::History],
        limit: 100,
        bytes: 1 << 20,
    };
    let read_feed = |pod: &Pod, offset| {
        let page = pod.reader.feed(&query, offset).expect("the mark is good");
        (page.items.len(), page.next)
    };
    let start_offset = pod.reader.feed_head().expect("it keeps a feed");
    (1..=3).for_each(|number| pod.commit(number).expect("the log is sound"));
    let (count, offset) = read_feed(&pod, start_offset);
    assert_eq!(count, 3);
    (4..=5).for_each(|number| pod.commit(number).expect("the log is sound"));
    let mut next = Pod::new(&log, 2);
    assert_eq!(read_feed(&next, start_offset).0, 5);
    let (count, offset) = read_feed(&next, offset);
    assert_eq!(count, 2);
    next.commit(6).expect("the log is sound");
    assert_eq!(read_feed(&next, offset).0, 1);
    assert_eq!(
        next.reader.feed_head().expect("it keeps a feed").position,
        6
    );
}

#[test]
fn snapshots_allow_log_purge_and_takeover() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::with_snapshots(&log, 1, 5);
    (1..=4).for_each(|number| pod.commit(number).expect("the log is sound"));
    let early = pod.copy_dir();
    for number in 5..=23 {
        pod.commit(number).expect("the log is sound");
        if number % 5 == 0 {
            let due = number / 5;
            wait(|| {
                pod.reader
                    .stats()
                    .replication
                    .expect("replicated")
                    .snapshots
                    >= due
            });
        }
    }
    let snapshots = orlog_store::CommitLog::snapshots(&log).expect("up");
    let positions: Vec<_> = snapshots.iter().map(|snapshot| snapshot.position).collect();
    let bases: Vec<_> = snapshots.iter().map(|snapshot| snapshot.base).collect();
    let expected: Vec<_> = std::iter::once(None)
        .chain(positions.iter().copied().map(Some))
        .take(4)
        .collect();
    assert_eq!(bases, expected, "one full snapshot, then deltas");
    assert!(
        snapshots[1..]
            .iter()
            .all(|delta| delta.bytes < snapshots[0].bytes / 4),
        "{snapshots:?}"
    );
    assert_eq!(
        log.entries()[0].number,
        positions[0].number,
        "the log begins where the full snapshot ends"
    );
    pod.commit(24).expect("the log is sound");
    drop(pod);
    let expected = &model(24)[24];
    assert_eq!(&Pod::new(&log, 2).everything(), expected);
    let old = Pod::on(early, &log, 3);
    assert_eq!(
        (&old.everything(), old.asides()),
        (expected, 1),
        "what it had was purged"
    );
}

#[test]
fn pod_that_restarts_before_each_threshold_saves_snapshots() {
    let by_commits = (5, u64::MAX);
    let by_bytes = (u64::MAX, 10_000);
    for (commits, bytes) in [by_commits, by_bytes] {
        let log = MemoryLog::new(TINY);
        let mut dir = tempfile::tempdir().expect("a directory");
        for epoch in 1..=6 {
            let mut pod = Pod::on_with_thresholds(dir, &log, epoch, commits, bytes);
            // Fewer commits and bytes than a threshold in each run.
            pod.commit(2 * epoch - 1).expect("the log is sound");
            pod.commit(2 * epoch).expect("the log is sound");
            pod.writer.flush().expect("there is room");
            dir = pod.crash();
        }
        let pod = Pod::on_with_thresholds(dir, &log, 7, commits, bytes);
        wait(|| {
            !orlog_store::CommitLog::snapshots(&log)
                .expect("up")
                .is_empty()
        });
        assert_eq!(pod.everything(), model(12)[12]);
    }
}

#[test]
fn record_continues_when_the_log_raises_its_entry_limit() {
    for is_stored in [false, true] {
        let log = MemoryLog::new(TINY);
        let mut pod = pod_with_a_pending_part(&log, is_stored);

        log.set_max_entry_bytes(TINY * 2);
        assert_eq!(pod.writer.retry_commit().expect("the log is sound"), 3);
        assert_eq!(pod.everything(), model(3)[3]);
        assert_eq!(Pod::new(&log, 2).everything(), model(3)[3]);
    }
}

/// A part of the earlier size may be stored under the same header.
#[test]
fn record_is_not_divided_again_when_the_log_lowers_its_entry_limit() {
    // With one byte less, the number of parts would be the same.
    for limit in [TINY / 2, TINY - 1] {
        for is_stored in [false, true] {
            let log = MemoryLog::new(TINY);
            let mut pod = pod_with_a_pending_part(&log, is_stored);

            log.set_max_entry_bytes(limit);
            let error = pod.writer.retry_commit().expect_err("the part is too long");
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
            assert_eq!(pod.reader.position(), 2);

            pod.writer.recover().expect("the log is sound");
            assert_eq!(pod.reader.position(), 2, "the record is incomplete");
            pod.commit(3).expect("the log is sound");
            assert_eq!(pod.everything(), model(3)[3]);
            assert_eq!(Pod::new(&log, 2).everything(), model(3)[3]);
        }
    }
}

/// Returns a pod whose third commit has its first part in the log, and no response to the second.
fn pod_with_a_pending_part(log: &MemoryLog, is_stored: bool) -> Pod {
    let mut pod = Pod::new(log, 1);
    (1..=2).for_each(|number| pod.commit(number).expect("the log is sound"));

    pod.log.set_partitioned(pod.log.appends() + 1, is_stored);
    let error = pod.commit_once(3).expect_err("the log does not respond");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    pod.log.set_down(false);
    pod
}

#[test]
fn snapshot_is_saved_while_the_log_before_the_start_cannot_be_counted() {
    let log = MemoryLog::new(1 << 20);
    let mut pod = Pod::new(&log, 1);
    (1..=2).for_each(|number| pod.commit(number).expect("the log is sound"));
    pod.writer.close().expect("there is space");
    let dir = pod.crash();
    let end = log.entries().last().expect("there are commits").number;

    // The takeover with the old directory follows these commits, which reach the threshold.
    let mut other = Pod::new(&log, 2);
    (3..=5).for_each(|number| other.commit(number).expect("the log is sound"));
    drop(other);
    log.set_unreadable_before(end);

    let pod = Pod::on_with_thresholds(dir, &log, 3, 3, u64::MAX);
    wait(|| {
        let stats = pod.reader.stats().replication.expect("replicated");
        stats.snapshots == 1
    });
}

#[test]
fn unreadable_snapshot_falls_back_to_an_older_one() {
    let log = MemoryLog::new(TINY);
    let mut pod = Pod::with_snapshots(&log, 1, 3);
    for number in 1..=6 {
        pod.commit(number).expect("the log is sound");
        let due = number / 3;
        wait(|| {
            pod.reader
                .stats()
                .replication
                .expect("replicated")
                .snapshots
                >= due
        });
    }
    drop(pod);
    log.damage(6);
    assert_eq!(Pod::new(&log, 2).everything(), model(6)[6]);
    log.damage(3);
    let dir = tempfile::tempdir().expect("a directory");
    let error = open_replicated(
        dir.path(),
        small(),
        ReplicationOptions::new(log.commit_log(), 3),
    )
    .expect_err("none is whole");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test]
fn store_copy_can_be_opened() {
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("copy");
    let (mut writer, reader) =
        orlog_store::open(&dir.path().join("store"), small()).expect("a new store");
    for number in 1..=7 {
        writer
            .commit(&group(number), at(number))
            .expect("there is room");
    }
    assert_eq!(reader.copy_to(&copy).expect("there is room"), 7);
    drop(writer);
    for number in 8..=9 {
        let (mut writer, reader) = orlog_store::open(&copy, small()).expect("the copy opens");
        assert_eq!(
            everything(&reader),
            model(number - 1)[usize::try_from(number).expect("small") - 1]
        );
        assert_eq!(
            writer
                .commit(&group(number), at(number))
                .expect("there is room"),
            number
        );
    }
}

/// Pods start, take over, write to a failing log, pause and resume as former owners, in a seeded order.
#[test]
fn random_faults_keep_commits_unique_and_fence_stale_writers() {
    let met = seeds()
        .into_iter()
        .map(pods::chaos)
        .fold(pods::CommitCounts::default(), pods::CommitCounts::and);
    assert!(
        met.acked > 0 && met.fenced > 0 && met.unanswered > 0,
        "{met:?}"
    );
}

#[track_caller]
pub(crate) fn wait(mut fact: impl FnMut() -> bool) {
    until_blocking("the condition", || fact().then_some(()));
}

/// Copies the directory of a killed pod.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from)
        .expect("a directory")
        .map(|entry| entry.expect("an entry"))
    {
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("a file");
        }
    }
}
