//! Feed consumer tests: a consumer has the content of the store, or receives an error and restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{
    Change, Commit, Instance, InstanceKey, InstanceReplacement, Name, Status, Task, TaskEvent,
    TaskEventKind, TaskRow, TaskSpec, TaskStatus, TaskUpdate, TenantId,
};
use proptest::prelude::*;
use uuid::Uuid;

use crate::samples::{apply, at, instance, key, record, small, transition};
use crate::{
    Error, FeedEntity, FeedEntityKind, FeedItem, FeedOffset, FeedQuery, FeedScanCursor, Options,
    Reader, Writer, open,
};

pub(super) fn fed() -> Options {
    Options {
        feed: true,
        memtable_bytes: 6 << 10,
        journal_segment_bytes: 8 << 10,
        ..small()
    }
}

pub(super) fn query(tenant: Option<&str>, limit: usize) -> FeedQuery {
    let tenant = tenant.map(|tenant| TenantId::new(tenant).unwrap());
    FeedQuery {
        tenant,
        kinds: FeedEntityKind::ALL.to_vec(),
        limit,
        bytes: 1 << 20,
    }
}

fn task(of: &InstanceKey, id: u128, status: TaskStatus, step: TaskEventKind) -> TaskUpdate {
    let form = TaskSpec {
        not_by: Vec::new(),
        is_in_doubt: false,
        round: 0,
        tag: Name::new("approve").unwrap(),
        title: "Approve".to_owned(),
        roles: vec![],
        assignee: None,
        due: None,
        outcomes: vec![],
        data: serde_json::Value::Null,
    };
    let task = Task {
        id: Uuid::from_u128(id),
        spec: form,
        claimed_by: None,
        opened_at: at(1),
    };
    TaskUpdate {
        row: TaskRow {
            instance: of.clone(),
            task,
            status,
            updated_at: at(1),
            outcome: None,
        },
        event: TaskEvent {
            kind: step,
            user: None,
            reason: None,
            at: at(1),
        },
    }
}

/// Returns one transition of an instance, with a task.
pub(super) fn moved(of: &InstanceKey, version: u64, status: Status) -> Change {
    let tasks = vec![task(
        of,
        u128::from(version % 3),
        TaskStatus::Completed,
        TaskEventKind::Opened,
    )];
    let snapshot = Instance {
        created_at: at(5),
        ..instance(version, status)
    };
    apply(Commit {
        instance: Some(Arc::new(snapshot)),
        history: Some(record(version)),
        tasks,
        ..Commit::empty(of.clone(), at(5))
    })
}

/// Consumer that stores the items of the feed.
pub(super) struct FeedConsumer {
    query: FeedQuery,
    pub(super) at: ConsumerState,
    rows: BTreeMap<String, (u64, Option<String>)>,
}

#[derive(Clone)]
pub(super) enum ConsumerState {
    Nowhere,
    Scanning(FeedOffset, Option<FeedScanCursor>),
    Following(FeedOffset),
}

impl FeedConsumer {
    pub(super) fn new(tenant: Option<&str>, limit: usize) -> Self {
        Self {
            query: query(tenant, limit),
            at: ConsumerState::Nowhere,
            rows: BTreeMap::new(),
        }
    }

    /// Reads one page; returns whether more may be available.
    pub(super) fn poll(&mut self, reader: &Reader) -> bool {
        match self.at.clone() {
            ConsumerState::Nowhere => {
                self.rows.clear();
                self.at = ConsumerState::Scanning(reader.feed_head().unwrap(), None);
                true
            }
            ConsumerState::Scanning(offset, cursor) => {
                let page = reader.feed_scan(&self.query, cursor.as_ref()).unwrap();
                self.take(page.items);
                self.at = if page.more {
                    ConsumerState::Scanning(offset, page.next)
                } else {
                    ConsumerState::Following(offset)
                };
                true
            }
            ConsumerState::Following(offset) => match reader.feed(&self.query, offset) {
                Ok(page) => {
                    self.take(page.items);
                    self.at = ConsumerState::Following(page.next);
                    page.more
                }
                Err(Error::FeedOffsetExpired { .. }) => {
                    self.at = ConsumerState::Nowhere;
                    true
                }
                Err(error) => panic!("{error}"),
            },
        }
    }

    fn follow(&mut self, reader: &Reader) {
        while self.poll(reader) {}
    }

    fn take(&mut self, items: Vec<FeedItem>) {
        for FeedItem { position, entity } in items {
            let (key, now) = describe(entity);
            let stored = self.rows.entry(key).or_insert((0, None));
            if stored.0 <= position {
                *stored = (position, now);
            }
        }
    }

    pub(super) fn contents(&self) -> BTreeMap<String, String> {
        let there = self
            .rows
            .iter()
            .filter_map(|(key, (_, now))| Some((key.clone(), now.clone()?)));
        there.collect()
    }
}

fn describe(entity: FeedEntity) -> (String, Option<String>) {
    fn text<T: std::fmt::Debug>(now: Option<T>) -> Option<String> {
        now.map(|now| format!("{now:?}"))
    }
    match entity {
        FeedEntity::Instance(key, now) => (format!("instance {key}"), text(now)),
        FeedEntity::Task(tenant, id, now) => (format!("task {tenant} {id}"), text(now)),
        FeedEntity::TaskEvent(tenant, id, number, now) => {
            (format!("event {tenant} {id} {number}"), text(now))
        }
        FeedEntity::HistoryEntry(key, version, now) => {
            (format!("record {key} {version}"), text(now))
        }
    }
}

/// Returns the content of a consumer that starts now.
fn there(reader: &Reader, tenant: Option<&str>) -> BTreeMap<String, String> {
    let mut fresh = FeedConsumer::new(tenant, 1000);
    fresh.follow(reader);
    fresh.contents()
}

#[test]
fn forgotten_history_entry_is_deleted_from_the_store_and_the_feed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, reader) = open(dir.path(), fed()).unwrap();
    let (of, mut consumer) = (key("acme", "o-1"), FeedConsumer::new(None, 10));
    for version in 1..=5_u64 {
        writer
            .commit(
                &[apply(Commit {
                    instance: Some(Arc::new(instance(version, Status::Running))),
                    history: Some(record(version)),
                    forgets: version.checked_sub(3).filter(|version| *version > 0),
                    ..Commit::empty(of.clone(), at(5))
                })],
                at(5),
            )
            .unwrap();
        consumer.follow(&reader);
    }
    let history = reader.history(&of, 0, 10).unwrap();
    assert_eq!(
        history
            .iter()
            .map(|entry| entry.version)
            .collect::<Vec<_>>(),
        [3, 4, 5]
    );
    assert_eq!(consumer.contents(), there(&reader, None));
}

#[derive(Debug, Clone)]
enum Step {
    Transition { instance: u8, status: usize },
    Replace { instance: u8 },
    Purge { instance: u8 },
    Trim { retained_commits: u64 },
    Poll { consumer: usize },
    Follow,
    Flush,
    Recover,
    Restart { with_feed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..5u8, 0..6usize).prop_map(|(instance, status)| Step::Transition { instance, status }),
        1 => (0..5u8).prop_map(|instance| Step::Replace { instance }),
        3 => (0..5u8).prop_map(|instance| Step::Purge { instance }),
        1 => (0..6u64).prop_map(|retained_commits| Step::Trim { retained_commits }),
        4 => (0..3usize).prop_map(|consumer| Step::Poll { consumer }),
        2 => Just(Step::Follow),
        1 => Just(Step::Flush),
        1 => Just(Step::Recover),
        1 => any::<bool>().prop_map(|with_feed| Step::Restart { with_feed }),
    ]
}

struct FeedFixture {
    dir: tempfile::TempDir,
    open: Option<(Writer, Reader)>,
    consumers: [FeedConsumer; 3],
    versions: BTreeMap<u8, u64>,
}

fn name(number: u8) -> InstanceKey {
    key(
        if number.is_multiple_of(2) {
            "acme"
        } else {
            "zeta"
        },
        &format!("o-{number}"),
    )
}

impl FeedFixture {
    fn restart(&mut self, feed: bool) {
        self.open = None;
        self.open = Some(open(self.dir.path(), Options { feed, ..fed() }).unwrap());
    }

    fn commit(&mut self, group: &[Change]) {
        self.open.as_mut().unwrap().0.commit(group, at(5)).unwrap();
    }

    fn take(&mut self, step: &Step) {
        let has_feed = self.open.as_ref().unwrap().1.is_feed_enabled();
        match step {
            Step::Transition { instance, status } => {
                let version = self.versions.entry(*instance).or_default();
                *version += 1;
                let change = moved(&name(*instance), *version, Status::ALL[*status]);
                self.commit(&[change]);
            }
            Step::Replace { instance } => {
                let key = name(*instance);
                let replacement = InstanceReplacement {
                    instance: crate::samples::instance(1, Status::Completed),
                    history: vec![record(1)],
                    dedupe_keys: vec![],
                    tasks: vec![],
                    work: vec![],
                    removed_work: vec![],
                    key,
                };
                self.versions.insert(*instance, 1);
                self.commit(&[Change::Replace(Box::new(replacement))]);
            }
            Step::Purge { instance } => {
                let (key, version) = (
                    name(*instance),
                    self.versions.get(instance).copied().unwrap_or(0),
                );
                let tasks = (0..3).map(Uuid::from_u128).collect();
                self.commit(&[Change::PurgeInstance {
                    key: key.clone(),
                    version,
                }]);
                self.commit(&[Change::PurgeTasks {
                    instance: key,
                    tasks,
                }]);
            }
            Step::Trim {
                retained_commits: keep,
            } => {
                self.commit(&[Change::TrimFeed {
                    before: at(0),
                    retained_commits: *keep,
                }]);
            }
            Step::Poll { consumer } if has_feed => {
                self.consumers[*consumer].poll(&self.open.as_ref().unwrap().1);
            }
            Step::Follow if has_feed => self.compare(),
            Step::Poll { .. } | Step::Follow => {
                assert!(matches!(
                    self.open.as_ref().unwrap().1.feed_head(),
                    Err(Error::FeedDisabled)
                ));
            }
            Step::Flush => self.open.as_mut().unwrap().0.flush().unwrap(),
            Step::Recover => self.open.as_mut().unwrap().0.recover().unwrap(),
            Step::Restart { with_feed } => self.restart(*with_feed),
        }
    }

    fn compare(&mut self) {
        let reader = &self.open.as_ref().unwrap().1;
        for consumer in &mut self.consumers {
            consumer.follow(reader);
            let tenant = consumer.query.tenant.as_ref().map(TenantId::as_str);
            assert_eq!(consumer.contents(), there(reader, tenant));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn feed_consumer_converges_after_any_fault(steps in proptest::collection::vec(step(), 1..100)) {
        let consumers =
            [FeedConsumer::new(Some("acme"), 2), FeedConsumer::new(Some("zeta"), 40), FeedConsumer::new(None, 7)];
        let dir = tempfile::tempdir().unwrap();
        let mut fixture = FeedFixture { dir, open: None, consumers, versions: BTreeMap::new() };
        fixture.restart(true);
        for step in &steps {
            fixture.take(step);
        }
        fixture.restart(true);
        fixture.compare();
    }
}

/// Creates a store with a feed in its own directory.
fn store() -> (tempfile::TempDir, Writer, Reader) {
    let dir = tempfile::tempdir().unwrap();
    let (writer, reader) = open(dir.path(), fed()).unwrap();
    (dir, writer, reader)
}

#[track_caller]
fn expired_error(reader: &Reader, offset: FeedOffset) -> String {
    let error = reader.feed(&query(None, 10), offset).unwrap_err();
    assert!(matches!(error, Error::FeedOffsetExpired { .. }), "{error}");
    error.to_string()
}

#[test]
fn feed_offset_is_valid_until_trimmed() {
    let (_dir, mut writer, reader) = store();
    let first = reader.feed_head().unwrap();
    for version in 1..=20 {
        writer
            .commit(
                &[moved(&key("acme", "o-1"), version, Status::Running)],
                at(5),
            )
            .unwrap();
    }
    let middle = reader.feed(&query(None, 8), first).unwrap();
    assert!(middle.more && middle.next.position > first.position);
    let head = reader.feed_head().unwrap();
    let trim = Change::TrimFeed {
        before: at(0),
        retained_commits: 0,
    };
    assert!(
        reader.is_trim_due(at(6), 1_000).unwrap() && !reader.is_trim_due(at(5), 1_000).unwrap()
    );
    writer.commit(std::slice::from_ref(&trim), at(5)).unwrap();
    assert!(!reader.is_trim_due(at(i64::MAX), 0).unwrap());
    for offset in [first, middle.next] {
        assert!(expired_error(&reader, offset).contains("have been deleted"));
    }
    for flushed in [false, true] {
        if flushed {
            writer.flush().unwrap();
        }
        assert_eq!(reader.feed_head().unwrap(), head);
        assert_eq!(reader.feed(&query(None, 10), head).unwrap().items, []);
    }
    writer
        .commit(&[moved(&key("acme", "o-1"), 21, Status::Running)], at(5))
        .unwrap();
    assert_eq!(reader.feed(&query(None, 10), head).unwrap().items.len(), 4);
}

#[test]
fn diverged_copy_accepts_only_offsets_from_before_the_copy() {
    let (_dir, mut writer, reader) = store();
    let commit = |writer: &mut Writer, version| {
        writer
            .commit(
                &[moved(&key("acme", "o-1"), version, Status::Running)],
                at(5),
            )
            .unwrap();
    };
    (1..=3).for_each(|version| commit(&mut writer, version));
    let shared = reader.feed_head().unwrap();
    let start = FeedOffset {
        position: 0,
        part: 0,
        writer_id: 0,
    };
    let copied = tempfile::tempdir().unwrap();
    reader.copy_to(&copied.path().join("copy")).unwrap();
    commit(&mut writer, 4);
    let own = reader.feed_head().unwrap();
    // A lagging consumer also receives changes that the copy does not contain.
    let lagging = reader.feed(&query(None, 1), start).unwrap();
    assert!(lagging.more && lagging.next.position < shared.position && lagging.as_of == own);
    assert_eq!(reader.feed_scan(&query(None, 1), None).unwrap().as_of, own);
    let (mut other, restored) = open(&copied.path().join("copy"), fed()).unwrap();
    assert_eq!(restored.feed_head().unwrap(), shared);
    assert!(expired_error(&restored, own).contains("another run of the store"));
    assert!(restored.check_feed_offset(&lagging.next).is_ok());
    assert!(matches!(
        restored.check_feed_offset(&lagging.as_of),
        Err(Error::FeedOffsetExpired { .. })
    ));
    commit(&mut other, 4);
    assert_eq!(restored.feed_head().unwrap().position, own.position);
    assert!(expired_error(&restored, own).contains("another run of the store"));
    assert_eq!(
        restored.feed(&query(None, 10), shared).unwrap().items.len(),
        4
    );
}

#[test]
fn commits_without_feed_are_detected_as_a_gap() {
    let (dir, mut writer, reader) = store();
    writer
        .commit(&[moved(&key("acme", "o-1"), 1, Status::Running)], at(5))
        .unwrap();
    let offset = reader.feed_head().unwrap();
    drop(writer);
    drop(
        open(
            dir.path(),
            Options {
                feed: false,
                ..fed()
            },
        )
        .unwrap(),
    );
    let (writer, reader) = open(dir.path(), fed()).unwrap();
    assert!(
        reader.feed(&query(None, 10), offset).is_ok(),
        "no commit was made without the feed"
    );
    drop(writer);
    let (mut writer, reader) = open(
        dir.path(),
        Options {
            feed: false,
            ..fed()
        },
    )
    .unwrap();
    writer
        .commit(&[moved(&key("acme", "o-1"), 2, Status::Running)], at(5))
        .unwrap();
    assert!(
        reader.is_trim_due(at(0), 1_000).unwrap(),
        "the remaining rows are due"
    );
    drop(writer);
    let (mut writer, reader) = open(dir.path(), fed()).unwrap();
    expired_error(&reader, offset);
    writer
        .commit(&[moved(&key("acme", "o-1"), 3, Status::Running)], at(5))
        .unwrap();
    expired_error(&reader, offset);
}

#[test]
fn feed_page_is_bounded_and_deduplicated() {
    let (_dir, mut writer, reader) = store();
    let start = reader.feed_head().unwrap();
    let group: Vec<_> = (0..100)
        .map(|n| {
            moved(
                &key("acme", &format!("o-{}", n % 50)),
                n / 50 + 1,
                Status::Running,
            )
        })
        .collect();
    writer.commit(&group, at(5)).unwrap();
    let part = reader.feed(&query(None, 10), start).unwrap();
    assert!(
        part.more && (10..42).contains(&part.items.len()),
        "{}",
        part.items.len()
    );
    let few = FeedQuery {
        bytes: 1,
        ..query(None, 1_000_000)
    };
    assert!(reader.feed(&few, start).unwrap().items.len() <= 32);
    assert_eq!(reader.feed_scan(&few, None).unwrap().items.len(), 1);
    let all = reader.feed(&query(None, 1_000_000), start).unwrap();
    let instances = all
        .items
        .iter()
        .filter(|item| matches!(item.entity, FeedEntity::Instance(..)));
    assert_eq!((instances.count(), all.more), (50, false));
    let instances = FeedQuery {
        kinds: vec![FeedEntityKind::Instances],
        ..query(Some("acme"), 1_000_000)
    };
    assert_eq!(reader.feed(&instances, start).unwrap().items.len(), 50);
    let cursor = reader
        .feed_scan(&query(None, 3), None)
        .unwrap()
        .next
        .unwrap();
    assert_eq!(
        FeedScanCursor::try_from(String::from(cursor.clone())),
        Ok(cursor)
    );
    for invalid in ["", "0", "zz", "02ab"] {
        assert!(
            FeedScanCursor::try_from(invalid.to_owned()).is_err(),
            "{invalid}"
        );
    }
}

#[test]
#[ignore = "a measurement: run it alone with --nocapture"]
fn feed_overhead() {
    for (feed, group) in [(false, 1), (true, 1), (false, 100), (true, 100)] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            feed,
            max_bytes: 4 << 30,
            ..small()
        };
        let (mut writer, reader) = open(dir.path(), options).unwrap();
        let start = std::time::Instant::now();
        for batch in 0..20_000 / group {
            let one = |n| apply(transition(&key("acme", &format!("order-{batch}-{n}")), 1));
            writer
                .commit(&(0..group).map(one).collect::<Vec<_>>(), at(5))
                .unwrap();
        }
        let (duration, rows) = (start.elapsed(), reader.stats().memtable_rows);
        let records = reader.stats().memtable_bytes - rows * 96;
        writer.flush().unwrap();
        let tables: u64 = reader.stats().tables.iter().map(|table| table.bytes).sum();
        println!(
            "feed {feed}, groups of {group}: {duration:?}, records of {records} bytes, {rows} rows, tables of {tables} bytes"
        );
    }
}
