//! Consumers of the feed: whatever happens to the store, who follows has what is there, or is told to begin again.

use std::collections::BTreeMap;

use orlog_model::{
    Change, Commit, Instance, InstanceKey, Name, Replacement, Status, Task, TaskEntry, TaskEvent, TaskForm,
    TaskRow, TaskStatus, TaskStep, TenantId,
};
use proptest::prelude::*;
use uuid::Uuid;

use crate::samples::{apply, at, instance, key, record, small, transition};
use crate::{Entity, Error, Fed, FeedMark, FeedPlace, FeedQuery, Options, Reader, Touched, Writer, open};

fn fed() -> Options {
    Options { feed: true, generation_bytes: 6 << 10, journal_segment_bytes: 8 << 10, ..small() }
}

fn query(tenant: Option<&str>, limit: usize) -> FeedQuery {
    let tenant = tenant.map(|tenant| TenantId::new(tenant).unwrap());
    FeedQuery { tenant, kinds: Fed::ALL.to_vec(), limit, bytes: 1 << 20 }
}

fn task(of: &InstanceKey, id: u128, status: TaskStatus, step: TaskStep) -> TaskEntry {
    let form = TaskForm {
        tag: Name::new("approve").unwrap(),
        title: "Approve".to_owned(),
        roles: vec![],
        assignee: None,
        due: None,
        outcomes: vec![],
        data: serde_json::Value::Null,
    };
    let task = Task { id: Uuid::from_u128(id), form, claimed_by: None, opened_at: at(1) };
    TaskEntry {
        row: TaskRow { instance: of.clone(), task, status, updated_at: at(1), outcome: None },
        event: TaskEvent { step, by: None, reason: None, at: at(1) },
    }
}

/// One transition of an instance, with a task of its own.
fn moved(of: &InstanceKey, version: u64, status: Status) -> Change {
    let tasks = vec![task(of, u128::from(version % 3), TaskStatus::Completed, TaskStep::Opened)];
    let snapshot = Instance { created_at: at(5), ..instance(version, status) };
    apply(Commit {
        instance: Some(snapshot),
        history: Some(record(version)),
        tasks,
        ..Commit::empty(of.clone(), at(5))
    })
}

/// Somebody who keeps what the feed tells.
struct Consumer {
    query: FeedQuery,
    at: At,
    rows: BTreeMap<String, (u64, Option<String>)>,
}

#[derive(Clone)]
enum At {
    Nowhere,
    Scanning(FeedMark, Option<FeedPlace>),
    Following(FeedMark),
}

impl Consumer {
    fn new(tenant: Option<&str>, limit: usize) -> Self {
        Self { query: query(tenant, limit), at: At::Nowhere, rows: BTreeMap::new() }
    }

    /// One look; says whether there may be more.
    fn look(&mut self, reader: &Reader) -> bool {
        match self.at.clone() {
            At::Nowhere => {
                self.rows.clear();
                self.at = At::Scanning(reader.feed_head().unwrap(), None);
                true
            }
            At::Scanning(mark, place) => {
                let page = reader.feed_scan(&self.query, place.as_ref()).unwrap();
                self.take(page.items);
                self.at = if page.more { At::Scanning(mark, page.next) } else { At::Following(mark) };
                true
            }
            At::Following(mark) => match reader.feed(&self.query, mark) {
                Ok(page) => {
                    self.take(page.items);
                    self.at = At::Following(page.next);
                    page.more
                }
                Err(Error::MarkGone { .. }) => {
                    self.at = At::Nowhere;
                    true
                }
                Err(error) => panic!("{error}"),
            },
        }
    }

    fn follow(&mut self, reader: &Reader) {
        while self.look(reader) {}
    }

    fn take(&mut self, items: Vec<Touched>) {
        for Touched { position, entity } in items {
            let (key, now) = shown(entity);
            let kept = self.rows.entry(key).or_insert((0, None));
            if kept.0 <= position {
                *kept = (position, now);
            }
        }
    }

    fn standing(&self) -> BTreeMap<String, String> {
        let there = self.rows.iter().filter_map(|(key, (_, now))| Some((key.clone(), now.clone()?)));
        there.collect()
    }
}

fn shown(entity: Entity) -> (String, Option<String>) {
    fn text<T: std::fmt::Debug>(now: Option<T>) -> Option<String> {
        now.map(|now| format!("{now:?}"))
    }
    match entity {
        Entity::Instance(key, now) => (format!("instance {key}"), text(now)),
        Entity::Task(tenant, id, now) => (format!("task {tenant} {id}"), text(now)),
        Entity::TaskEvent(tenant, id, number, now) => (format!("event {tenant} {id} {number}"), text(now)),
        Entity::Record(key, version, now) => (format!("record {key} {version}"), text(now)),
    }
}

/// What a consumer has that begins now.
fn there(reader: &Reader, tenant: Option<&str>) -> BTreeMap<String, String> {
    let mut fresh = Consumer::new(tenant, 1000);
    fresh.follow(reader);
    fresh.standing()
}

#[derive(Debug, Clone)]
enum Step {
    Move { instance: u8, status: usize },
    Replace { instance: u8 },
    Forget { instance: u8 },
    Trim { keep: u64 },
    Look { consumer: usize },
    Follow,
    Flush,
    Recover,
    Restart { with_feed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..5u8, 0..6usize).prop_map(|(instance, status)| Step::Move { instance, status }),
        1 => (0..5u8).prop_map(|instance| Step::Replace { instance }),
        3 => (0..5u8).prop_map(|instance| Step::Forget { instance }),
        1 => (0..6u64).prop_map(|keep| Step::Trim { keep }),
        4 => (0..3usize).prop_map(|consumer| Step::Look { consumer }),
        2 => Just(Step::Follow),
        1 => Just(Step::Flush),
        1 => Just(Step::Recover),
        1 => any::<bool>().prop_map(|with_feed| Step::Restart { with_feed }),
    ]
}

struct Rig {
    dir: tempfile::TempDir,
    open: Option<(Writer, Reader)>,
    consumers: [Consumer; 3],
    versions: BTreeMap<u8, u64>,
}

fn name(number: u8) -> InstanceKey {
    key(if number.is_multiple_of(2) { "acme" } else { "zeta" }, &format!("o-{number}"))
}

impl Rig {
    fn restart(&mut self, feed: bool) {
        self.open = None;
        self.open = Some(open(self.dir.path(), Options { feed, ..fed() }).unwrap());
    }

    fn commit(&mut self, group: &[Change]) {
        self.open.as_mut().unwrap().0.commit(group, at(5)).unwrap();
    }

    fn take(&mut self, step: &Step) {
        let keeps_feed = self.open.as_ref().unwrap().1.keeps_feed();
        match step {
            Step::Move { instance, status } => {
                let version = self.versions.entry(*instance).or_default();
                *version += 1;
                let change = moved(&name(*instance), *version, Status::ALL[*status]);
                self.commit(&[change]);
            }
            Step::Replace { instance } => {
                let key = name(*instance);
                let replacement = Replacement {
                    instance: crate::samples::instance(1, Status::Completed),
                    history: vec![record(1)],
                    applied: vec![],
                    tasks: vec![],
                    work: vec![],
                    dropped: vec![],
                    key,
                };
                self.versions.insert(*instance, 1);
                self.commit(&[Change::Replace(Box::new(replacement))]);
            }
            Step::Forget { instance } => {
                let (key, version) = (name(*instance), self.versions.get(instance).copied().unwrap_or(0));
                let tasks = (0..3).map(Uuid::from_u128).collect();
                self.commit(&[Change::PurgeInstance { key: key.clone(), version }]);
                self.commit(&[Change::PurgeTasks { instance: key, tasks }]);
            }
            Step::Trim { keep } => self.commit(&[Change::TrimFeed { before: at(0), keep: *keep }]),
            Step::Look { consumer } if keeps_feed => {
                self.consumers[*consumer].look(&self.open.as_ref().unwrap().1);
            }
            Step::Follow if keeps_feed => self.compare(),
            Step::Look { .. } | Step::Follow => {
                assert!(matches!(self.open.as_ref().unwrap().1.feed_head(), Err(Error::NoFeed)));
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
            assert_eq!(consumer.standing(), there(reader, tenant));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn who_follows_has_what_is_there_whatever_happens(steps in proptest::collection::vec(step(), 1..100)) {
        let consumers =
            [Consumer::new(Some("acme"), 2), Consumer::new(Some("zeta"), 40), Consumer::new(None, 7)];
        let dir = tempfile::tempdir().unwrap();
        let mut rig = Rig { dir, open: None, consumers, versions: BTreeMap::new() };
        rig.restart(true);
        for step in &steps {
            rig.take(step);
        }
        rig.restart(true);
        rig.compare();
    }
}

/// A store with a feed in a folder of its own.
fn store() -> (tempfile::TempDir, Writer, Reader) {
    let dir = tempfile::tempdir().unwrap();
    let (writer, reader) = open(dir.path(), fed()).unwrap();
    (dir, writer, reader)
}

#[track_caller]
fn gone(reader: &Reader, mark: FeedMark) -> String {
    let error = reader.feed(&query(None, 10), mark).unwrap_err();
    assert!(matches!(error, Error::MarkGone { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_mark_is_good_until_its_commits_are_trimmed_and_the_head_always_is() {
    let (_dir, mut writer, reader) = store();
    let first = reader.feed_head().unwrap();
    for version in 1..=20 {
        writer.commit(&[moved(&key("acme", "o-1"), version, Status::Running)], at(5)).unwrap();
    }
    let middle = reader.feed(&query(None, 8), first).unwrap();
    assert!(middle.more && middle.next.position > first.position);
    let head = reader.feed_head().unwrap();
    let trim = Change::TrimFeed { before: at(0), keep: 0 };
    assert!(reader.is_trim_due(at(6), 1_000).unwrap() && !reader.is_trim_due(at(5), 1_000).unwrap());
    writer.commit(std::slice::from_ref(&trim), at(5)).unwrap();
    assert!(!reader.is_trim_due(at(i64::MAX), 0).unwrap());
    for mark in [first, middle.next] {
        assert!(gone(&reader, mark).contains("not kept any more"));
    }
    for flushed in [false, true] {
        if flushed {
            writer.flush().unwrap();
        }
        assert_eq!(reader.feed_head().unwrap(), head);
        assert_eq!(reader.feed(&query(None, 10), head).unwrap().items, []);
    }
    writer.commit(&[moved(&key("acme", "o-1"), 21, Status::Running)], at(5)).unwrap();
    assert_eq!(reader.feed(&query(None, 10), head).unwrap().items.len(), 4);
}

#[test]
fn a_copy_that_goes_its_own_way_knows_the_marks_of_before_and_no_others() {
    let (_dir, mut writer, reader) = store();
    let commit = |writer: &mut Writer, version| {
        writer.commit(&[moved(&key("acme", "o-1"), version, Status::Running)], at(5)).unwrap();
    };
    (1..=3).for_each(|version| commit(&mut writer, version));
    let shared = reader.feed_head().unwrap();
    let begun = FeedMark { position: 0, part: 0, life: 0 };
    let copied = tempfile::tempdir().unwrap();
    reader.copy_to(&copied.path().join("copy")).unwrap();
    commit(&mut writer, 4);
    let own = reader.feed_head().unwrap();
    // Who lags has heard of what was not copied, too.
    let lagging = reader.feed(&query(None, 1), begun).unwrap();
    assert!(lagging.more && lagging.next.position < shared.position && lagging.seen == own);
    assert_eq!(reader.feed_scan(&query(None, 1), None).unwrap().seen, own);
    let (mut other, restored) = open(&copied.path().join("copy"), fed()).unwrap();
    assert_eq!(restored.feed_head().unwrap(), shared);
    assert!(gone(&restored, own).contains("another life"));
    assert!(restored.feed_holds(&lagging.next).is_ok());
    assert!(matches!(restored.feed_holds(&lagging.seen), Err(Error::MarkGone { .. })));
    commit(&mut other, 4);
    assert_eq!(restored.feed_head().unwrap().position, own.position);
    assert!(gone(&restored, own).contains("another life"));
    assert_eq!(restored.feed(&query(None, 10), shared).unwrap().items.len(), 4);
}

#[test]
fn commits_without_a_feed_are_a_gap_that_is_noticed() {
    let (dir, mut writer, reader) = store();
    writer.commit(&[moved(&key("acme", "o-1"), 1, Status::Running)], at(5)).unwrap();
    let mark = reader.feed_head().unwrap();
    drop(writer);
    drop(open(dir.path(), Options { feed: false, ..fed() }).unwrap());
    let (writer, reader) = open(dir.path(), fed()).unwrap();
    assert!(reader.feed(&query(None, 10), mark).is_ok(), "nothing was committed without it");
    drop(writer);
    let (mut writer, reader) = open(dir.path(), Options { feed: false, ..fed() }).unwrap();
    writer.commit(&[moved(&key("acme", "o-1"), 2, Status::Running)], at(5)).unwrap();
    assert!(reader.is_trim_due(at(0), 1_000).unwrap(), "what is left of it goes");
    drop(writer);
    let (mut writer, reader) = open(dir.path(), fed()).unwrap();
    gone(&reader, mark);
    writer.commit(&[moved(&key("acme", "o-1"), 3, Status::Running)], at(5)).unwrap();
    gone(&reader, mark);
}

#[test]
fn a_part_is_bounded_by_rows_and_by_bytes_and_names_a_thing_once() {
    let (_dir, mut writer, reader) = store();
    let begun = reader.feed_head().unwrap();
    let group: Vec<_> = (0..100)
        .map(|n| moved(&key("acme", &format!("o-{}", n % 50)), n / 50 + 1, Status::Running))
        .collect();
    writer.commit(&group, at(5)).unwrap();
    let part = reader.feed(&query(None, 10), begun).unwrap();
    assert!(part.more && (10..42).contains(&part.items.len()), "{}", part.items.len());
    let few = FeedQuery { bytes: 1, ..query(None, 1_000_000) };
    assert!(reader.feed(&few, begun).unwrap().items.len() <= 32);
    assert_eq!(reader.feed_scan(&few, None).unwrap().items.len(), 1);
    let all = reader.feed(&query(None, 1_000_000), begun).unwrap();
    let instances = all.items.iter().filter(|item| matches!(item.entity, Entity::Instance(..)));
    assert_eq!((instances.count(), all.more), (50, false));
    let instances = FeedQuery { kinds: vec![Fed::Instances], ..query(Some("acme"), 1_000_000) };
    assert_eq!(reader.feed(&instances, begun).unwrap().items.len(), 50);
    let place = reader.feed_scan(&query(None, 3), None).unwrap().next.unwrap();
    assert_eq!(FeedPlace::try_from(String::from(place.clone())), Ok(place));
    for wrong in ["", "0", "zz", "02ab"] {
        assert!(FeedPlace::try_from(wrong.to_owned()).is_err(), "{wrong}");
    }
}

#[test]
#[ignore = "a measurement: run it alone with --nocapture"]
fn what_the_feed_costs() {
    for (feed, group) in [(false, 1), (true, 1), (false, 100), (true, 100)] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { feed, max_bytes: 4 << 30, ..small() };
        let (mut writer, reader) = open(dir.path(), options).unwrap();
        let begun = std::time::Instant::now();
        for batch in 0..20_000 / group {
            let one = |n| apply(transition(&key("acme", &format!("order-{batch}-{n}")), 1));
            writer.commit(&(0..group).map(one).collect::<Vec<_>>(), at(5)).unwrap();
        }
        let (took, rows) = (begun.elapsed(), reader.stats().overlay_rows);
        let records = reader.stats().overlay_bytes - rows * 96;
        writer.flush().unwrap();
        let tables: u64 = reader.stats().tables.iter().map(|table| table.bytes).sum();
        println!(
            "feed {feed}, groups of {group}: {took:?}, records of {records} bytes, {rows} rows, tables of {tables} bytes"
        );
    }
}
