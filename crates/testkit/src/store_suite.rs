//! The conformance suite of stores: what the contract of `orlog-store` promises, whatever lies beneath.
//!
//! An implementation brings a [`Rig`]. The macro [`store_suite!`](crate::store_suite!) makes one test of each case.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "these are tests: each takes its rig and panics where an answer is wrong"
)]

mod dead_letters;
mod dedupe;
mod feed;
mod purging;
mod replacing;
mod samples;
mod tasks;

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{
    Change, Commit, Deployed, Deployment, EventType, Fact, Instance, InstanceKey, Lane, OutboxKey,
    ProgramRef, Record, Slots, Source, Status, StreamPosition, Timestamp, Work, WorkKind,
};
use orlog_store::{Error, InstanceQuery, Options, Reader, TimerQuery, Writer};
use serde_json::json;
use uuid::Uuid;

pub use dead_letters::{
    copies_of_letters_wait_until_they_are_published, dead_letters_and_definitions_are_kept,
};
pub use dedupe::{applied_events_are_remembered_for_a_window, no_time_passes_for_applied_events_in_a_rest};
pub use feed::{commits_wake_those_who_watch, what_changed_is_told_from_a_mark_on};
pub use purging::{
    tasks_of_an_instance_that_is_gone_are_forgotten, what_is_kept_long_enough_is_found_a_stretch_at_a_time,
    what_is_over_is_forgotten_bit_by_bit,
};
pub use replacing::a_replacement_takes_the_place_of_everything;
pub use tasks::{
    tasks_are_found_page_by_page, tasks_are_kept_with_what_happened,
    what_came_early_is_kept_without_an_instance,
};

use samples::{
    apply, at, effect, empty, event, event_id, instance, item, key, lane, letter, saga, source, tenant, timer,
};

/// The window of deduplication in the suite.
pub const WINDOW: Duration = Duration::from_secs(10);

/// The tenant whose instances are spread over all slots.
pub const SPREAD: &str = "spread";

/// What is tested: an empty store, and what happens to it after each commit (it is folded, say).
pub struct Rig {
    /// Commits.
    pub writer: Writer,
    /// Reads.
    pub reader: Reader,
    /// Done after each commit; it must not change any answer.
    pub after: fn(&mut Writer),
}

impl Rig {
    /// The options that the cases are made for.
    #[must_use]
    pub fn options() -> Options {
        Options {
            slots: Slots::spreading([tenant(SPREAD)]),
            dedupe_window: WINDOW,
            feed: true,
            max_bytes: 16 << 20,
            journal_segment_bytes: 64 << 10,
            ..Options::default()
        }
    }

    fn commit(&mut self, group: &[Change]) -> u64 {
        self.commit_at(group, at(1))
    }

    fn commit_at(&mut self, group: &[Change], now: Timestamp) -> u64 {
        let position = self.writer.commit(group, now).expect("the case fits into the store");
        assert_eq!(self.reader.position(), position, "a commit is visible when it returns");
        (self.after)(&mut self.writer);
        position
    }

    fn apply(&mut self, commit: Commit) -> u64 {
        self.commit(&[apply(commit)])
    }
}

/// All parts of a commit are there afterwards, and none of another instance.
pub fn a_commit_is_stored_whole(mut rig: Rig) {
    let key = key("acme", "o-1");
    let history = Record {
        version: 1,
        at: at(1),
        input: event_id("e"),
        label: "OrderPlaced".to_owned(),
        note: "charge: asked".to_owned(),
        status: Status::Running,
        work: vec![("payments.charge".to_owned(), Uuid::from_u128(1))],
        origin: orlog_model::Origin::default(),
    };
    let position = rig.apply(Commit {
        instance: Some(instance(1, Status::Running)),
        work: vec![effect(&key, "payments.charge", 1)],
        arm: vec![timer(50, 1)],
        applied: Some(event_id("e")),
        hold: Some(event("later")),
        history: Some(history.clone()),
        dead_letter: Some(Box::new(letter("acme", 3))),
        ..empty(&key)
    });
    let read = &rig.reader;
    assert_eq!(position, 1);
    assert_eq!(read.instance(&key).unwrap(), Some(instance(1, Status::Running)));
    assert_eq!(read.history(&key, 0, 9).unwrap(), [history]);
    let work = read.outbox(&lane(WorkKind::Effect, "payments.charge"), 0, 9).unwrap();
    assert_eq!(
        work.iter().map(|(_, item)| item.clone()).collect::<Vec<_>>(),
        [effect(&key, "payments.charge", 1)]
    );
    assert_eq!(read.outbox_item(&work[0].0).unwrap(), Some(work[0].1.clone()));
    assert_eq!(read.timers_due(Timestamp::MAX, 9).unwrap(), [(key.clone(), timer(50, 1))]);
    assert!(read.applied(&key, &event_id("e"), at(1)).unwrap());
    assert_eq!(read.held(&key, 9).unwrap()[0].1, event("later"));
    assert_eq!(read.dead_letters(&tenant("acme"), None, 9).unwrap(), [letter("acme", 3)]);
    let other = self::key("acme", "o-10");
    assert_eq!(read.instance(&other).unwrap(), None);
    assert_eq!((read.history(&other, 0, 9).unwrap(), read.held(&other, 9).unwrap()), (vec![], vec![]));
    assert!(!read.applied(&other, &event_id("e"), at(1)).unwrap());
}

/// A group that cannot be stored leaves no trace, and the next one is stored.
pub fn a_group_is_stored_whole_or_not_at_all(mut rig: Rig) {
    let key = key("acme", "o-1");
    let good = apply(Commit { instance: Some(instance(1, Status::Running)), ..empty(&key) });
    let source = Source { stream: "s".repeat(3000), consumer: "*".to_owned() };
    let bad = Change::Checkpoint(source, StreamPosition::behind(Uuid::nil(), 1));
    let error = rig.writer.commit(&[good.clone(), bad], at(1)).unwrap_err();
    assert!(matches!(error, Error::KeyTooLong { table: "checkpoint", limit: 2022, .. }), "{error}");
    assert_eq!((rig.reader.position(), rig.reader.instance(&key).unwrap()), (0, None));
    assert_eq!(rig.commit(&[good]), 1);
    assert!(rig.reader.instance(&key).unwrap().is_some());
}

/// Each lane is offered in the order of commits, from any place on, and tells nothing of another.
pub fn lanes_are_ordered_and_separate(mut rig: Rig) {
    let key = key("acme", "o-1");
    for id in 1..=5 {
        let fact = Work::Fact(Fact { kind: EventType::new("Done").expect("valid"), data: json!(null) });
        let work = vec![effect(&key, "a", id), item(&key, fact, 100 + id), effect(&key, "a.b", 200 + id)];
        rig.apply(Commit { work, ..empty(&key) });
    }
    let (a, b, facts) =
        (lane(WorkKind::Effect, "a"), lane(WorkKind::Effect, "a.b"), lane(WorkKind::Fact, ""));
    assert_eq!(rig.reader.lanes().unwrap(), [a.clone(), b.clone(), facts.clone()]);
    let ids = |rig: &Rig, lane: &Lane, after| -> Vec<u128> {
        rig.reader.outbox(lane, after, 3).unwrap().iter().map(|(_, item)| item.id.as_u128()).collect()
    };
    assert_eq!((ids(&rig, &a, 0), ids(&rig, &b, 0)), (vec![1, 2, 3], vec![201, 202, 203]));
    let third = rig.reader.outbox(&facts, 0, 3).unwrap()[2].0.clone();
    assert_eq!(ids(&rig, &facts, third.sequence), [104, 105]);
    assert_eq!(rig.reader.outbox_depth().unwrap(), 15);
}

/// Settling removes one row once, however often it is asked for, and lanes without work are not named.
pub fn settled_work_is_gone_and_counted_once(mut rig: Rig) {
    let key = key("acme", "o-1");
    rig.apply(Commit { work: vec![effect(&key, "a", 1), effect(&key, "b", 2)], ..empty(&key) });
    let place =
        |rig: &Rig, name: &str| rig.reader.outbox(&lane(WorkKind::Effect, name), 0, 1).unwrap().remove(0).0;
    let (first, second) = (place(&rig, "a"), place(&rig, "b"));
    rig.apply(Commit { settles: Some(first.clone()), ..empty(&key) });
    assert_eq!(rig.reader.outbox_item(&first).unwrap(), None);
    assert_eq!(
        (rig.reader.outbox_depth().unwrap(), rig.reader.lanes().unwrap()),
        (1, vec![second.lane.clone()])
    );
    let never = OutboxKey { lane: lane(WorkKind::Command, "none"), sequence: 1 };
    rig.commit(&[first, second.clone(), second, never].map(Change::Settle));
    assert_eq!((rig.reader.outbox_depth().unwrap(), rig.reader.lanes().unwrap()), (0, vec![]));
    let last = rig.reader.position();
    rig.apply(Commit { work: vec![effect(&key, "a", 3)], ..empty(&key) });
    assert!(place(&rig, "a").sequence > 2, "sequences are not used again");
    assert_eq!((rig.reader.outbox_depth().unwrap(), rig.reader.position()), (1, last + 1));
}

/// Timers come in the order in which they fall due, and not before.
pub fn timers_fall_due_in_order(mut rig: Rig) {
    let (a, b) = (key("acme", "o-1"), key("zeta", "o-2"));
    rig.apply(Commit { arm: vec![timer(30, 1), timer(-10, 2)], ..empty(&a) });
    rig.apply(Commit { arm: vec![timer(20, 1), timer(40, 2)], ..empty(&b) });
    let due = |rig: &Rig, until, limit| -> Vec<i64> {
        rig.reader.timers_due(until, limit).unwrap().iter().map(|(_, timer)| timer.due.millis()).collect()
    };
    assert_eq!(rig.reader.next_timer().unwrap(), Some(at(-10)));
    assert_eq!((due(&rig, at(30), 9), due(&rig, at(29), 9)), (vec![-10, 20, 30], vec![-10, 20]));
    assert_eq!((due(&rig, Timestamp::MAX, 2), due(&rig, at(-11), 9)), (vec![-10, 20], vec![]));
    rig.apply(Commit { disarm: vec![timer(-10, 2), timer(7, 7)], arm: vec![timer(25, 3)], ..empty(&a) });
    assert_eq!((rig.reader.next_timer().unwrap(), due(&rig, at(30), 9)), (Some(at(20)), vec![20, 25, 30]));
    let zeta = |cursor: Option<String>, limit, scan_limit| {
        let page =
            rig.reader.timers(&TimerQuery { tenant: tenant("zeta"), cursor, limit, scan_limit }).unwrap();
        (page.items.iter().map(|found| found.timer.due.millis()).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(zeta(None, 9, 9), (vec![20, 40], None));
    let (first, next) = zeta(None, 1, 9);
    assert_eq!((first, zeta(next, 1, 9)), (vec![20], (vec![40], None)));
    // The page ends among those of another tenant.
    let (first, next) = zeta(None, 9, 2);
    assert_eq!((first, zeta(next, 9, 2)), (vec![20], (vec![40], None)));
    let bad = TimerQuery { cursor: Some("xyz".to_owned()), ..TimerQuery::default() };
    assert!(matches!(rig.reader.timers(&bad), Err(Error::BadCursor { .. })));
}

/// A checkpoint grows within a stream, also within a group, and begins anew with another stream.
pub fn checkpoints_never_go_back(mut rig: Rig) {
    let set = |stream, sequence| {
        Change::Checkpoint(source(), StreamPosition::behind(Uuid::from_u128(stream), sequence))
    };
    let stored =
        |rig: &Rig| rig.reader.checkpoint(&source()).unwrap().map(|p| (p.stream_id.as_u128(), p.sequence));
    assert_eq!(stored(&rig), None);
    rig.commit(&[set(1, 7), set(1, 9), set(1, 8)]);
    assert_eq!(stored(&rig), Some((1, 9)));
    rig.commit(&[set(1, 3)]);
    assert_eq!(stored(&rig), Some((1, 9)));
    rig.commit(&[set(2, 1)]);
    assert_eq!((stored(&rig), rig.reader.checkpoints().unwrap().len()), (Some((2, 1)), 1));
}

/// Kept inputs keep their order and go one by one.
pub fn held_inputs_keep_their_order(mut rig: Rig) {
    let key = key("acme", "o-1");
    for id in ["a", "b", "c"] {
        rig.apply(Commit { hold: Some(event(id)), ..empty(&key) });
    }
    let held = rig.reader.held(&key, 9).unwrap();
    assert_eq!(held.iter().map(|(_, input)| input.id()).collect::<Vec<_>>(), ["a", "b", "c"].map(event_id));
    rig.apply(Commit { release: vec![held[0].0], hold: Some(event("d")), ..empty(&key) });
    let left = rig.reader.held(&key, 2).unwrap();
    assert_eq!(left.iter().map(|(_, input)| input.id()).collect::<Vec<_>>(), ["b", "c"].map(event_id));
}

/// The last deployment is kept, and a definition that is dropped is gone.
pub fn a_deployment_replaces_the_one_before(mut rig: Rig) {
    let program = ProgramRef { saga: saga("order"), version: 3, hash: [9; 16] };
    let deployment = |number| {
        let (at, by, file) = (at(1), "alice".to_owned(), "order.saga.yaml".to_owned());
        let program = program.clone();
        let definition = Deployed { program, file, at, by: by.clone(), retired_at: None };
        Deployment { number, at, by, folder: Some([1; 16]), definitions: vec![definition] }
    };
    assert_eq!(rig.reader.deployment().unwrap(), None);
    for number in [1, 2] {
        rig.commit(&[Change::Deploy(Box::new(deployment(number)))]);
    }
    assert_eq!(rig.reader.deployment().unwrap(), Some(deployment(2)));
    let rows = rig.reader.rows("meta", None, 99).unwrap();
    let shown = rows.iter().find(|row| row.key == "meta:deployment").unwrap();
    assert_eq!(shown.value["definitions"][0]["file"], "order.saga.yaml");
    rig.commit(&[Change::PutDefinition { program, source: "saga: order".into() }]);
    rig.commit(&[Change::DropDefinition { hash: [8; 16] }]);
    assert_eq!(rig.reader.definitions().unwrap().len(), 1);
    rig.commit(&[Change::DropDefinition { hash: [9; 16] }]);
    assert_eq!(rig.reader.definitions().unwrap(), []);
}

/// Queries filter, page without gap or overlap, and never show another tenant's instances.
pub fn instances_are_found_page_by_page(mut rig: Rig) {
    for of in ["acme", "acme2", SPREAD] {
        let group = (1..=40u64).map(|number| {
            let status = if number % 4 == 0 { Status::Failed } else { Status::Running };
            let key = key(of, &format!("{}-{number:02}", if number % 2 == 0 { "even" } else { "odd" }));
            apply(Commit { instance: Some(instance(number, status)), ..empty(&key) })
        });
        rig.commit(&group.collect::<Vec<_>>());
    }
    for of in ["acme", SPREAD] {
        let all = InstanceQuery { tenant: tenant(of), limit: 7, ..InstanceQuery::default() };
        assert_eq!(found(&rig, &all).len(), 40);
        assert_eq!(found(&rig, &InstanceQuery { scan_limit: 3, ..all.clone() }).len(), 40);
        let failed = InstanceQuery { statuses: vec![Status::Failed, Status::Stuck], ..all.clone() };
        assert_eq!(found(&rig, &failed).len(), 10);
        let odd = InstanceQuery { saga: Some(saga("order")), prefix: Some("odd-".to_owned()), ..all.clone() };
        assert_eq!(found(&rig, &odd).len(), 20);
        assert_eq!(found(&rig, &InstanceQuery { saga: None, ..odd }).len(), 20);
        let recent = InstanceQuery { updated_from: Some(at(31)), updated_until: Some(at(36)), ..all.clone() };
        assert_eq!(found(&rig, &recent).len(), 5);
        assert!(found(&rig, &InstanceQuery { created_until: Some(at(0)), ..all.clone() }).is_empty());
        assert!(found(&rig, &InstanceQuery { saga: Some(saga("other")), ..all }).is_empty());
    }
    let counts =
        BTreeMap::from([((saga("order"), Status::Running), 30), ((saga("order"), Status::Failed), 10)]);
    assert_eq!(rig.reader.count(&tenant(SPREAD)).unwrap(), counts);
    let page =
        rig.reader.instances(&InstanceQuery { tenant: tenant("acme"), limit: 1, ..InstanceQuery::default() });
    for cursor in [page.unwrap().next.unwrap(), "zz".to_owned(), "00".to_owned(), "ä".to_owned()] {
        let foreign =
            InstanceQuery { tenant: tenant("acme2"), cursor: Some(cursor), ..InstanceQuery::default() };
        assert!(matches!(rig.reader.instances(&foreign), Err(Error::BadCursor { .. })));
    }
}

/// All pages of a query; each instance once, all of its tenant.
fn found(rig: &Rig, query: &InstanceQuery) -> BTreeMap<InstanceKey, Instance> {
    let mut query = query.clone();
    let mut found = BTreeMap::new();
    loop {
        let page = rig.reader.instances(&query).unwrap();
        for (key, instance) in page.items {
            assert_eq!(key.tenant, query.tenant);
            assert!(found.insert(key, instance).is_none(), "an instance was found twice");
        }
        query.cursor = page.next;
        if query.cursor.is_none() {
            return found;
        }
    }
}

/// Operators see each keyspace in the notation they know, of one tenant or of all.
pub fn tables_can_be_inspected(mut rig: Rig) {
    let key = key("acme", "o-1");
    rig.commit(&[
        apply(Commit {
            instance: Some(Instance { state: b"{\"step\":2}".to_vec(), ..instance(1, Status::Running) }),
            work: vec![effect(&key, "payments.charge", 1)],
            arm: vec![timer(50, 1)],
            applied: Some(event_id("e")),
            dead_letter: Some(Box::new(letter("zeta", 3))),
            ..empty(&key)
        }),
        Change::Checkpoint(source(), StreamPosition::behind(Uuid::nil(), 1)),
    ]);
    let acme = tenant("acme");
    let only = |table| rig.reader.rows(table, None, 9).unwrap().remove(0);
    assert_eq!(
        (only("saga").key.as_str(), &only("saga").value["state"]["step"]),
        ("saga:acme:order:o-1", &json!(2))
    );
    assert_eq!(only("outbox").key, "outbox:acme:effect:payments.charge:1");
    assert_eq!(only("schedule").key, "schedule:acme:order:o-1:1970-01-01T00:00:00.050Z:patience");
    assert_eq!(
        (only("dedupe").key.as_str(), only("checkpoint").key.as_str()),
        ("dedupe:acme:order:o-1:e", "checkpoint:events:*")
    );
    assert_eq!(rig.reader.rows("deadletter", Some(&acme), 9).unwrap(), []);
    assert_eq!(rig.reader.rows("saga", Some(&acme), 9).unwrap().len(), 1);
    assert!(matches!(rig.reader.rows("users", None, 9), Err(Error::NoSuchTable { .. })));
}

/// Makes a test of each case of the suite. Its argument makes a fresh [`Rig`] and a guard that is kept until the end, if it can.
#[macro_export]
macro_rules! store_suite {
    ($rig:expr) => {
        $crate::store_suite!($rig;
            a_commit_is_stored_whole, a_group_is_stored_whole_or_not_at_all, lanes_are_ordered_and_separate,
            settled_work_is_gone_and_counted_once, timers_fall_due_in_order,
            applied_events_are_remembered_for_a_window, no_time_passes_for_applied_events_in_a_rest, checkpoints_never_go_back, held_inputs_keep_their_order,
            dead_letters_and_definitions_are_kept, copies_of_letters_wait_until_they_are_published, a_replacement_takes_the_place_of_everything,
            a_deployment_replaces_the_one_before, instances_are_found_page_by_page, tables_can_be_inspected,
            tasks_are_kept_with_what_happened, tasks_are_found_page_by_page, what_came_early_is_kept_without_an_instance,
            commits_wake_those_who_watch, what_is_over_is_forgotten_bit_by_bit,
            tasks_of_an_instance_that_is_gone_are_forgotten, what_is_kept_long_enough_is_found_a_stretch_at_a_time,
            what_changed_is_told_from_a_mark_on,
        );
    };
    ($rig:expr; $($case:ident),+ $(,)?) => {
        $(
            #[test]
            fn $case() {
                if let Some((rig, _guard)) = $rig {
                    $crate::store_suite::$case(rig);
                }
            }
        )+
    };
}
