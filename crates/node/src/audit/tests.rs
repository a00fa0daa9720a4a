//! Tests of the audit trail: chain, rotation, retention, denials and the tail.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use orlog_model::Timestamp;

use super::*;

const DAY: Duration = Duration::from_hours(24);

fn record(number: u32) -> AuditRecord {
    AuditRecord {
        id: uuid::Uuid::now_v7(),
        at: SystemClock.now().to_string(),
        user: Some(format!("user-{}", number % 2)),
        key: None,
        named_user: None,
        role: None,
        tenant: None,
        route: "POST /admin/reload".to_owned(),
        target: number.to_string(),
        outcome: AuditOutcome::Succeeded,
        status: 200,
        code: None,
        request_id: String::new(),
        source: None,
        forwarded_for: None,
        forwarded_by: None,
        node: String::new(),
        edit: None,
    }
}

fn options(dir: &Path, max_file_bytes: u64) -> AuditOptions {
    let dir = Some(dir.to_owned());
    AuditOptions {
        dir,
        max_file_bytes,
        max_total_bytes: u64::MAX,
        retention: 400 * DAY,
        summarizes: true,
        log: false,
        node: "n".to_owned(),
    }
}

fn limits(max_bytes: u64) -> FileLimits {
    FileLimits {
        max_bytes,
        retention: 30 * DAY,
        total: TotalLimit::Reject(u64::MAX),
    }
}

/// Returns a closed trail with records 0 to `count`.
fn trail(dir: &Path, count: u32, max_file_bytes: u64) {
    let audit = AuditTrail::open(&options(dir, max_file_bytes)).unwrap();
    (0..count).for_each(|number| audit.record(&record(number)));
}

fn targets(page: &AuditPage) -> Vec<u32> {
    page.records
        .iter()
        .map(|record| record["target"].as_str().unwrap().parse().unwrap())
        .collect()
}

fn newest(audit: &AuditTrail) -> AuditPage {
    audit
        .read(
            FileSet::Calls,
            &AuditFilter {
                limit: 99,
                scan: 99,
                ..AuditFilter::default()
            },
        )
        .unwrap()
}

fn verified(dir: &Path) -> Result<(u64, u64), String> {
    let found = verify(dir, FileSet::Calls, None).map_err(|error| error.to_string())?;
    Ok((found.first, found.last))
}

/// Changes the lines of a file.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let mut lines: Vec<String> = fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    change(&mut lines);
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn audit_files_rotate_and_pages_span_files() {
    let dir = tempfile::tempdir().unwrap();
    let audit = AuditTrail::open(&options(dir.path(), 1000)).unwrap();
    (0..40).for_each(|number| audit.record(&record(number)));
    let (mut found, mut next) = (Vec::new(), None::<String>);
    loop {
        let query = AuditFilter {
            cursor: next.as_deref(),
            limit: 2,
            scan: 100,
            ..AuditFilter::default()
        };
        let page = audit.read(FileSet::Calls, &query).unwrap();
        assert_eq!(page.broken_at, None);
        found.extend(targets(&page));
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    assert!(FileSet::Calls.numbers(dir.path()).unwrap().len() > 3);
    assert_eq!(found, (0..40).rev().collect::<Vec<_>>());
    assert_eq!(verified(dir.path()), Ok((1, 40)));
}

#[test]
fn audit_reader_filters_by_actor_within_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let audit = AuditTrail::open(&options(dir.path(), 1 << 20)).unwrap();
    (0..10).for_each(|number| audit.record(&record(number)));
    let query = AuditFilter {
        user: Some("user-1"),
        limit: 100,
        scan: 5,
        ..AuditFilter::default()
    };
    let page = audit.read(FileSet::Calls, &query).unwrap();
    assert_eq!(targets(&page), [9, 7, 5]);
    let rest = AuditFilter {
        cursor: page.next.as_deref(),
        scan: 100,
        ..query
    };
    assert_eq!(targets(&audit.read(FileSet::Calls, &rest).unwrap()), [3, 1]);
    assert!(
        audit
            .read(
                FileSet::Calls,
                &AuditFilter {
                    cursor: Some("x"),
                    ..query
                }
            )
            .is_err()
    );
}

#[test]
fn trail_at_its_maximum_size_rejects_records_and_keeps_the_older_ones() {
    let dir = tempfile::tempdir().unwrap();
    let limited = AuditOptions {
        max_total_bytes: 10_000,
        ..options(dir.path(), 2000)
    };
    let audit = AuditTrail::open(&limited).unwrap();
    for number in 0..100 {
        audit.record(&record(number));
        newest(&audit);
    }
    let page = newest(&audit);
    let kept = targets(&page);
    assert_eq!(kept.last(), Some(&0), "the first record remains");
    assert!(kept.len() < 100 && audit.bytes() <= 10_000, "{kept:?}");
    assert_eq!(audit.failures().get(), 100 - kept.len() as u64);
    drop(audit);
    assert_eq!(verified(dir.path()), Ok((1, kept.len() as u64)));
}

#[test]
fn requests_of_workers_are_summarized_when_the_trail_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let audit = AuditTrail::open(&options(dir.path(), 1 << 20)).unwrap();
    for number in 0..100 {
        let mut heartbeat = record(number);
        "POST /v1/work/jobs/{job}/heartbeat".clone_into(&mut heartbeat.route);
        heartbeat.user = Some("worker".to_owned());
        audit.record(&heartbeat);
    }
    let page = newest(&audit);
    assert_eq!(page.records.len(), 1, "{page:?}");
    assert_eq!(page.records[0]["count"], 100);
    assert_eq!(page.records[0]["user"], "worker");
}

#[test]
fn chain_continues_after_a_restart_and_a_truncated_line() {
    let dir = tempfile::tempdir().unwrap();
    trail(dir.path(), 2, 1 << 20);
    let file = FileSet::Calls.path(dir.path(), 1);
    let text = fs::read_to_string(&file).unwrap();
    // A crash has truncated the last line.
    fs::write(&file, &text[..text.len() - 20]).unwrap();
    assert_eq!(verified(dir.path()), Ok((1, 1)));
    let audit = AuditTrail::open(&options(dir.path(), 1 << 20)).unwrap();
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        text[..text.len() - 20],
        "opening writes nothing"
    );
    audit.record(&record(2));
    let page = newest(&audit);
    assert_eq!((targets(&page), page.broken_at), (vec![2, 0], None));
    let found = verify(dir.path(), FileSet::Calls, None).unwrap();
    assert_eq!((found.first, found.last, found.truncated), (1, 2, 1));
    // The truncated line belongs to the chain, too.
    edit(&file, |lines| lines[1] = "{\"another".to_owned());
    assert!(
        verified(dir.path())
            .unwrap_err()
            .contains("record 2 does not contain the hash")
    );
}

#[test]
fn truncated_first_line_of_a_file_does_not_restart_the_sequence() {
    let dir = tempfile::tempdir().unwrap();
    trail(dir.path(), 2, 1 << 20);
    fs::write(FileSet::Calls.path(dir.path(), 2), "{\"sequence\":3,\"prev").unwrap();
    trail(dir.path(), 1, 1 << 20);
    assert_eq!(verified(dir.path()), Ok((1, 3)));
}

#[test]
fn verification_names_the_first_broken_record() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut Vec<String>), expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        trail(dir.path(), 6, 1 << 20);
        edit(&FileSet::Calls.path(dir.path(), 1), change);
        let error = verified(dir.path()).unwrap_err();
        assert!(
            error.contains("audit-0000000001.jsonl:") && error.contains(expected),
            "{error}"
        );
    }
    let changed = ":4: record 4 does not contain the hash of the line before it";
    check(
        |lines| lines[2] = lines[2].replace("user-0", "user-9"),
        changed,
    );
    check(
        |lines| lines[2] = "removed".to_owned(),
        ":4: record 4 follows record 2",
    );
    check(
        |lines| drop(lines.remove(2)),
        ":3: record 4 follows record 2",
    );
    check(|lines| lines.swap(2, 3), ":3: record 4 follows record 2");
    check(
        |lines| lines.insert(2, lines[1].clone()),
        ":3: record 2 follows record 2",
    );
    check(
        |lines| lines.insert(2, "{}".to_owned()),
        ":3: the record after record 2 has no sequence",
    );
    check(
        |lines| lines[0] = lines[1].replace("\"sequence\":2", "\"sequence\":1"),
        ":1: record 1",
    );
}

#[test]
fn reader_reports_a_broken_record() {
    let dir = tempfile::tempdir().unwrap();
    trail(dir.path(), 6, 1 << 20);
    edit(&FileSet::Calls.path(dir.path(), 1), |lines| {
        lines[2] = lines[2].replace("user-0", "user-9");
    });
    let audit = AuditTrail::open(&options(dir.path(), 1 << 20)).unwrap();
    assert_eq!(newest(&audit).broken_at, Some(4));
    // The pair at the end of a page is compared, too.
    let page = audit.read(
        FileSet::Calls,
        &AuditFilter {
            limit: 3,
            scan: 99,
            ..AuditFilter::default()
        },
    );
    assert_eq!(page.unwrap().broken_at, Some(4));
}

#[test]
fn expected_record_detects_a_removed_end() {
    let dir = tempfile::tempdir().unwrap();
    trail(dir.path(), 4, 1 << 20);
    let found = verify(dir.path(), FileSet::Calls, None).unwrap();
    let expected: ExpectedRecord = format!("{}:{}", found.last, found.hash).parse().unwrap();
    trail(dir.path(), 1, 1 << 20);
    verify(dir.path(), FileSet::Calls, Some(&expected)).unwrap();
    edit(&FileSet::Calls.path(dir.path(), 1), |lines| {
        lines.truncate(3);
    });
    assert_eq!(verified(dir.path()), Ok((1, 3)));
    let error = verify(dir.path(), FileSet::Calls, Some(&expected)).unwrap_err();
    assert!(
        matches!(error, VerifyError::Missing { sequence: 4, .. }),
        "{error}"
    );
    assert!("4:abc".parse::<ExpectedRecord>().is_err());
}

#[test]
fn chain_starts_after_records_of_older_versions() {
    let dir = tempfile::tempdir().unwrap();
    let file = FileSet::Calls.path(dir.path(), 7);
    fs::write(&file, "{\"target\":\"1\"}\n{\"target\":\"2\"}\n").unwrap();
    trail(dir.path(), 1, 1 << 20);
    let found = verify(dir.path(), FileSet::Calls, None).unwrap();
    assert_eq!((found.unchained, found.first, found.last), (2, 1, 1));
    edit(&file, |lines| lines[1] = "{\"target\":\"3\"}".to_owned());
    assert!(verified(dir.path()).is_err());
}

#[test]
fn retention_deletes_files_by_age_and_never_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let now = SystemClock.now();
    let mut files = AuditFiles::open(dir.path(), FileSet::Calls, limits(100)).unwrap();
    (0..8).for_each(|_| files.write(["{\"a\":1}"], now).unwrap());
    let age = |number: u64, days: u32| {
        let at = SystemTime::UNIX_EPOCH
            + Duration::from_millis(now.as_millis().try_into().unwrap())
            - days * DAY;
        File::options()
            .write(true)
            .open(FileSet::Calls.path(dir.path(), number))
            .unwrap()
            .set_modified(at)
    };
    let numbers = || FileSet::Calls.numbers(dir.path()).unwrap();
    let all = numbers();
    for number in &all {
        age(*number, 29).unwrap();
    }
    files.expire(now);
    assert_eq!(numbers(), all);
    for number in &all {
        age(*number, 31).unwrap();
    }
    age(5, 29).unwrap();
    files.expire(now);
    assert_eq!(
        numbers(),
        all[4..],
        "younger files, and those after them, remain"
    );
    age(5, 31).unwrap();
    files.expire(now);
    // The last file has the head of the chain.
    assert_eq!(numbers(), [8]);
    drop(files);
    let mut files = AuditFiles::open(dir.path(), FileSet::Calls, limits(100)).unwrap();
    files.write(["{\"a\":1}"], now).unwrap();
    assert_eq!(verified(dir.path()), Ok((9, 9)));
}

#[test]
fn file_is_rotated_after_a_day() {
    let (dir, start) = (tempfile::tempdir().unwrap(), SystemClock.now());
    let write = |now: Timestamp| {
        let mut files = AuditFiles::open(dir.path(), FileSet::Calls, limits(1 << 20)).unwrap();
        files
            .write([format!("{{\"at\":\"{now}\"}}").as_str()], now)
            .unwrap();
        FileSet::Calls.numbers(dir.path()).unwrap().len()
    };
    let later = |hours| start.saturating_add(Duration::from_hours(hours));
    assert_eq!(
        [
            write(start),
            write(later(23)),
            write(later(24)),
            write(later(47))
        ],
        [1, 1, 2, 2]
    );
}

#[test]
fn denials_have_their_own_bounded_files() {
    let dir = tempfile::tempdir().unwrap();
    let audit = AuditTrail::open(&options(dir.path(), 4096)).unwrap();
    audit.record(&record(1));
    let denial = |number: u32| Denial {
        route: "POST /v1/events".to_owned(),
        status: 401,
        code: None,
        user: None,
        source: Some(std::net::IpAddr::from(number.to_be_bytes())),
    };
    for number in 0..5000 {
        audit.deny(denial(number));
        // A read ends the period.
        (number % 250 == 0).then(|| newest(&audit));
    }
    assert_eq!(targets(&newest(&audit)), [1]);
    let size = FileSet::Denials.bytes(dir.path()).unwrap();
    assert!((4096..=5 * 4096).contains(&size), "{size}");
    let filter = AuditFilter {
        limit: 1,
        scan: 9,
        ..AuditFilter::default()
    };
    let page = audit.read(FileSet::Denials, &filter).unwrap();
    assert_eq!(
        (&page.records[0]["count"], page.broken_at),
        (&1.into(), None)
    );
    verify(dir.path(), FileSet::Denials, None).unwrap();
}

#[tokio::test]
async fn begin_reports_whether_the_record_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let file = FileSet::Calls.path(dir.path(), 1);
    symlink("/dev/full", &file).unwrap();
    let audit = AuditTrail::open(&options(dir.path(), 1 << 20)).unwrap();
    assert_eq!(audit.begin(&record(1)).await, Err(NotWritten));
    assert_eq!(audit.failures().get(), 1);
    fs::remove_file(&file).unwrap();
    audit.begin(&record(2)).await.unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 1);
    // Without files nothing is durable.
    let audit = AuditTrail::open(&AuditOptions {
        dir: None,
        ..options(dir.path(), 1)
    })
    .unwrap();
    assert_eq!(audit.begin(&record(3)).await, Err(NotWritten));
}

#[test]
fn tail_returns_each_complete_line_once_across_files() {
    let dir = tempfile::tempdir().unwrap();
    let audit = AuditTrail::open(&options(dir.path(), 1000)).unwrap();
    let mut found = Vec::new();
    let read = |found: &mut Vec<Vec<u8>>| {
        newest(&audit);
        let batch = audit.unpublished().unwrap();
        assert!(!batch.is_after_gap);
        audit.set_published(batch.end).unwrap();
        found.extend(batch.lines);
    };
    for number in 0..20 {
        audit.record(&record(number));
        (number % 3 == 0).then(|| read(&mut found));
    }
    read(&mut found);
    read(&mut found);
    let sequences: Vec<u64> = found
        .iter()
        .map(|line| chain::Link::of(line).unwrap().sequence)
        .collect();
    assert_eq!(sequences, (1..=20).collect::<Vec<_>>());
    // A line that is not terminated is not complete.
    let last = *FileSet::Calls.numbers(dir.path()).unwrap().last().unwrap();
    let path = FileSet::Calls.path(dir.path(), last);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{{\"seq")).unwrap();
    assert!(audit.unpublished().unwrap().lines.is_empty());
    // Deleted files leave a gap.
    audit.set_published(TailPosition::default()).unwrap();
    let first = audit.unpublished().unwrap();
    assert!(first.lines.len() == 20 && !first.is_after_gap);
    fs::write(dir.path().join("published.position"), "1 0\n").unwrap();
    fs::remove_file(FileSet::Calls.path(dir.path(), 1)).unwrap();
    assert!(audit.unpublished().unwrap().is_after_gap);
}

#[test]
fn deleted_file_leaves_a_gap_only_if_it_had_unpublished_lines() {
    let dir = tempfile::tempdir().unwrap();
    let audit = AuditTrail::open(&options(dir.path(), 1000)).unwrap();
    let mut ends = vec![TailPosition::default()];
    for number in 0.. {
        audit.record(&record(number));
        newest(&audit);
        if FileSet::Calls.numbers(dir.path()).unwrap() == [1, 2] {
            break;
        }
        ends.push(audit.unpublished().unwrap().end);
        audit.set_published(*ends.last().unwrap()).unwrap();
    }

    // The first file was published completely, and the second one has a line.
    let second = FileSet::Calls.path(dir.path(), 2);
    let line = fs::read(&second).unwrap();
    fs::remove_file(FileSet::Calls.path(dir.path(), 1)).unwrap();
    let batch = audit.unpublished().unwrap();
    assert_eq!((batch.lines.len(), batch.is_after_gap), (1, false));

    // Only a later line shows whether lines are missing.
    fs::write(&second, "").unwrap();
    assert!(!audit.unpublished().unwrap().is_after_gap);
    fs::write(&second, line).unwrap();

    // The last line of the first file was not published.
    audit.set_published(ends[ends.len() - 2]).unwrap();
    assert!(audit.unpublished().unwrap().is_after_gap);
}

#[test]
fn file_that_disappears_while_the_sizes_are_read_has_no_size() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(FileSet::Calls.path(dir.path(), 1), "12345").unwrap();

    // The directory has the name, but there is no file any more.
    let missing = dir.path().join("missing");
    std::os::unix::fs::symlink(missing, FileSet::Calls.path(dir.path(), 2)).unwrap();
    assert_eq!(FileSet::Calls.bytes(dir.path()).unwrap(), 5);
}
