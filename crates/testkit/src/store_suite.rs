//! Conformance suite of stores: the guarantees of `orlog-store` for every implementation.
//!
//! An implementation provides a [`StoreFixture`]. The macro [`store_suite!`](crate::store_suite!)
//! creates one test per case.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "these are tests: each case takes its fixture and panics if a result is wrong"
)]

mod dead_letters;
mod dedupe;
mod feed;
mod purging;
mod queries;
mod replacing;
mod samples;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use orlog_model::{
    Change, CheckpointKey, Commit, DefinitionRef, DeployedDefinition, Deployment, Destination,
    EventType, Fact, HistoryEntry, OutboxKey, SlotAssigner, Status, StreamPosition, Timestamp,
    Work, WorkKind,
};
use orlog_store::{Error, Options, Reader, TimerQuery, Writer};
use serde_json::json;
use uuid::Uuid;

pub use dead_letters::{
    dead_letter_copies_wait_for_publication, dead_letters_and_definitions_are_stored,
};
pub use dedupe::{
    dead_letter_has_no_dedupe_key, dedupe_window_excludes_downtime, dedupe_window_is_enforced,
};
pub use feed::{commits_wake_watchers, feed_returns_changes_after_an_offset};
pub use purging::{
    ended_instances_are_purged_incrementally, orphaned_tasks_are_purged,
    sweep_visits_every_row_once,
};
pub use queries::{
    inspection_reads_no_rows_of_other_tenants, instance_query_pages,
    pages_of_large_dead_letters_end_by_their_size, pages_of_large_rows_end_by_their_size,
    tables_are_inspectable,
};
pub use replacing::replacement_removes_all_previous_rows_but_dedupe_keys;
pub use tasks::{
    early_inputs_are_buffered_without_an_instance, task_query_pages,
    tasks_are_stored_with_their_events,
};

use samples::{
    apply, at, dead_letter, dedupe_key, destination, effect, empty, event, event_id, instance,
    item, key, saga, source, tenant, timer,
};

/// Dedupe window of the suite.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Tenant that is key-sharded over all slots.
pub const KEY_SHARDED: &str = "key-sharded";

/// Fixture under test: an empty store, and a function that runs after each commit (for example, a flush
/// of the memtable).
pub struct StoreFixture {
    /// Writer of the store.
    pub writer: Writer,
    /// Reader of the store.
    pub reader: Reader,
    /// Function that runs after each commit; it must not change any read result.
    pub after: fn(&mut Writer),
}

impl StoreFixture {
    /// Returns the options that the cases require.
    #[must_use]
    pub fn options() -> Options {
        Options {
            slots: SlotAssigner::with_key_sharded([tenant(KEY_SHARDED)]),
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
        let position = self
            .writer
            .commit(group, now)
            .expect("the commit is accepted");
        assert_eq!(
            self.reader.position(),
            position,
            "a commit is visible when it returns"
        );
        (self.after)(&mut self.writer);
        position
    }

    fn apply(&mut self, commit: Commit) -> u64 {
        self.commit(&[apply(commit)])
    }
}

/// All parts of a commit are stored, and no part of another instance changes.
pub fn commit_is_atomic(mut fixture: StoreFixture) {
    let key = key("acme", "o-1");
    let history = HistoryEntry {
        version: 1,
        at: at(1),
        input_id: event_id("e"),
        input_label: "OrderPlaced".into(),
        note: "charge: requested".to_owned(),
        status: Status::Running,
        work: vec![("payments.charge".into(), Uuid::from_u128(1))],
        origin: orlog_model::InputOrigin::default(),
        payloads: orlog_model::RecordedPayloads::default(),
        failure: None,
        input: None,
    };
    let position = fixture.apply(Commit {
        instance: Some(Arc::new(instance(1, Status::Running))),
        work: vec![effect(&key, "payments.charge", 1)],
        arm: vec![timer(50, 1)],
        dedupe_key: Some(dedupe_key("e")),
        buffer: Some(Box::new(event("later"))),
        history: Some(history.clone()),
        dead_letter: Some(Box::new(dead_letter("acme", 3))),
        ..empty(&key)
    });
    let read = &fixture.reader;
    assert_eq!(position, 1);
    assert_eq!(
        read.instance(&key).unwrap(),
        Some(instance(1, Status::Running))
    );
    assert_eq!(read.history(&key, 0, 9).unwrap(), [history]);
    let work = read
        .outbox(&destination(WorkKind::Effect, "payments.charge"), 0, 9)
        .unwrap();
    assert_eq!(
        work.iter()
            .map(|(_, item)| item.clone())
            .collect::<Vec<_>>(),
        [effect(&key, "payments.charge", 1)]
    );
    assert_eq!(
        read.outbox_item(&work[0].0).unwrap(),
        Some(work[0].1.clone())
    );
    assert_eq!(
        read.timers_due(Timestamp::MAX, 9).unwrap(),
        [(key.clone(), timer(50, 1))]
    );
    assert!(read.is_duplicate(&key, dedupe_key("e"), at(1)).unwrap());
    assert_eq!(read.buffered_inputs(&key, 9).unwrap()[0].1, event("later"));
    assert_eq!(
        read.dead_letters(&tenant("acme"), None, 9).unwrap(),
        [dead_letter("acme", 3)]
    );
    let other = self::key("acme", "o-10");
    assert_eq!(read.instance(&other).unwrap(), None);
    assert_eq!(
        (
            read.history(&other, 0, 9).unwrap(),
            read.buffered_inputs(&other, 9).unwrap()
        ),
        (vec![], vec![])
    );
    assert!(!read.is_duplicate(&other, dedupe_key("e"), at(1)).unwrap());
}

/// A group that cannot be stored leaves no trace, and the next group is stored.
pub fn group_is_all_or_nothing(mut fixture: StoreFixture) {
    let key = key("acme", "o-1");
    let valid = apply(Commit {
        instance: Some(Arc::new(instance(1, Status::Running))),
        ..empty(&key)
    });
    let source = CheckpointKey {
        stream: "s".repeat(3000),
        consumer: "*".to_owned(),
    };
    let invalid = Change::Checkpoint(source, StreamPosition::after(Uuid::nil(), 1));
    let error = fixture
        .writer
        .commit(&[valid.clone(), invalid], at(1))
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::KeyTooLong {
                table: "checkpoint",
                limit: 2022,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        (
            fixture.reader.position(),
            fixture.reader.instance(&key).unwrap()
        ),
        (0, None)
    );
    assert_eq!(fixture.commit(&[valid]), 1);
    assert!(fixture.reader.instance(&key).unwrap().is_some());
}

/// Each destination is dispatched in commit order, from any position, and independently of other
/// destinations.
pub fn destinations_are_ordered_and_independent(mut fixture: StoreFixture) {
    let key = key("acme", "o-1");
    for id in 1..=5 {
        let fact = Work::Fact(Fact::new(
            EventType::new("Done").expect("valid"),
            json!(null),
        ));
        let work = vec![
            effect(&key, "a", id),
            item(&key, fact, 100 + id),
            effect(&key, "a.b", 200 + id),
        ];
        fixture.apply(Commit {
            work,
            ..empty(&key)
        });
    }
    let (a, b, facts) = (
        destination(WorkKind::Effect, "a"),
        destination(WorkKind::Effect, "a.b"),
        destination(WorkKind::Fact, ""),
    );
    assert_eq!(
        fixture.reader.outbox_destinations().unwrap(),
        [a.clone(), b.clone(), facts.clone()]
    );
    let ids = |fixture: &StoreFixture, destination: &Destination, after| -> Vec<u128> {
        fixture
            .reader
            .outbox(destination, after, 3)
            .unwrap()
            .iter()
            .map(|(_, item)| item.id.as_u128())
            .collect()
    };
    assert_eq!(
        (ids(&fixture, &a, 0), ids(&fixture, &b, 0)),
        (vec![1, 2, 3], vec![201, 202, 203])
    );
    let third = fixture.reader.outbox(&facts, 0, 3).unwrap()[2].0.clone();
    assert_eq!(ids(&fixture, &facts, third.sequence), [104, 105]);
    assert_eq!(fixture.reader.outbox_depth().unwrap(), 15);
}

/// Completing work removes one row once, also if repeated. Destinations without work are not listed.
pub fn settled_work_is_removed_once(mut fixture: StoreFixture) {
    let key = key("acme", "o-1");
    fixture.apply(Commit {
        work: vec![effect(&key, "a", 1), effect(&key, "b", 2)],
        ..empty(&key)
    });
    let outbox_key = |fixture: &StoreFixture, name: &str| {
        fixture
            .reader
            .outbox(&destination(WorkKind::Effect, name), 0, 1)
            .unwrap()
            .remove(0)
            .0
    };
    let (first, second) = (outbox_key(&fixture, "a"), outbox_key(&fixture, "b"));
    fixture.apply(Commit {
        settles: Some(first.clone()),
        ..empty(&key)
    });
    assert_eq!(fixture.reader.outbox_item(&first).unwrap(), None);
    assert_eq!(
        (
            fixture.reader.outbox_depth().unwrap(),
            fixture.reader.outbox_destinations().unwrap()
        ),
        (1, vec![second.destination.clone()])
    );
    let never = OutboxKey {
        destination: destination(WorkKind::Command, "none"),
        sequence: 1,
    };
    fixture.commit(&[first, second.clone(), second, never].map(Change::Settle));
    assert_eq!(
        (
            fixture.reader.outbox_depth().unwrap(),
            fixture.reader.outbox_destinations().unwrap()
        ),
        (0, vec![])
    );
    let last = fixture.reader.position();
    fixture.apply(Commit {
        work: vec![effect(&key, "a", 3)],
        ..empty(&key)
    });
    assert!(
        outbox_key(&fixture, "a").sequence > 2,
        "sequences are not reused"
    );
    assert_eq!(
        (
            fixture.reader.outbox_depth().unwrap(),
            fixture.reader.position()
        ),
        (1, last + 1)
    );
}

/// Timers are returned in the order of their due times, and not before they are due.
pub fn timers_are_returned_by_due_time(mut fixture: StoreFixture) {
    let (a, b) = (key("acme", "o-1"), key("zeta", "o-2"));
    fixture.apply(Commit {
        arm: vec![timer(30, 1), timer(-10, 2)],
        ..empty(&a)
    });
    fixture.apply(Commit {
        arm: vec![timer(20, 1), timer(40, 2)],
        ..empty(&b)
    });
    let due = |fixture: &StoreFixture, until, limit| -> Vec<i64> {
        fixture
            .reader
            .timers_due(until, limit)
            .unwrap()
            .iter()
            .map(|(_, timer)| timer.due.as_millis())
            .collect()
    };
    assert_eq!(fixture.reader.next_timer().unwrap(), Some(at(-10)));
    assert_eq!(
        (due(&fixture, at(30), 9), due(&fixture, at(29), 9)),
        (vec![-10, 20, 30], vec![-10, 20])
    );
    assert_eq!(
        (due(&fixture, Timestamp::MAX, 2), due(&fixture, at(-11), 9)),
        (vec![-10, 20], vec![])
    );
    fixture.apply(Commit {
        disarm: vec![timer(-10, 2), timer(7, 7)],
        arm: vec![timer(25, 3)],
        ..empty(&a)
    });
    assert_eq!(
        (
            fixture.reader.next_timer().unwrap(),
            due(&fixture, at(30), 9)
        ),
        (Some(at(20)), vec![20, 25, 30])
    );
    let zeta = |cursor: Option<String>, limit, scan_limit| {
        let page = fixture
            .reader
            .timers(&TimerQuery {
                tenant: tenant("zeta"),
                cursor,
                limit,
                scan_limit,
            })
            .unwrap();
        (
            page.items
                .iter()
                .map(|found| found.timer.due.as_millis())
                .collect::<Vec<_>>(),
            page.next,
        )
    };
    assert_eq!(zeta(None, 9, 9), (vec![20, 40], None));
    let (first, next) = zeta(None, 1, 9);
    assert_eq!((first, zeta(next, 1, 9)), (vec![20], (vec![40], None)));
    // The page ends among the timers of another tenant.
    let (first, next) = zeta(None, 9, 2);
    assert_eq!((first, zeta(next, 9, 2)), (vec![20], (vec![40], None)));
    let invalid = TimerQuery {
        cursor: Some("xyz".to_owned()),
        ..TimerQuery::default()
    };
    assert!(matches!(
        fixture.reader.timers(&invalid),
        Err(Error::InvalidCursor { .. })
    ));
}

/// A checkpoint is set to the last position, also within a group and of another stream.
pub fn last_checkpoint_is_stored(mut fixture: StoreFixture) {
    let set = |stream, sequence| {
        Change::Checkpoint(
            source(),
            StreamPosition::after(Uuid::from_u128(stream), sequence),
        )
    };
    let stored = |fixture: &StoreFixture| {
        fixture
            .reader
            .checkpoint(&source())
            .unwrap()
            .map(|p| (p.stream_id.as_u128(), p.sequence))
    };
    assert_eq!(stored(&fixture), None);
    fixture.commit(&[set(1, 7), set(1, 9), set(1, 8)]);
    assert_eq!(stored(&fixture), Some((1, 8)));
    fixture.commit(&[set(1, 3)]);
    assert_eq!(stored(&fixture), Some((1, 3)));
    fixture.commit(&[set(2, 1)]);
    assert_eq!(
        (
            stored(&fixture),
            fixture.reader.checkpoints().unwrap().len()
        ),
        (Some((2, 1)), 1)
    );
}

/// Buffered inputs keep their order and are removed one by one.
pub fn buffered_inputs_keep_their_order(mut fixture: StoreFixture) {
    let key = key("acme", "o-1");
    for id in ["a", "b", "c"] {
        fixture.apply(Commit {
            buffer: Some(Box::new(event(id))),
            ..empty(&key)
        });
    }
    let buffered = fixture.reader.buffered_inputs(&key, 9).unwrap();
    assert_eq!(
        buffered
            .iter()
            .map(|(_, input)| input.id())
            .collect::<Vec<_>>(),
        ["a", "b", "c"].map(event_id)
    );
    fixture.apply(Commit {
        unbuffer: vec![buffered[0].0],
        buffer: Some(Box::new(event("d"))),
        ..empty(&key)
    });
    let remaining = fixture.reader.buffered_inputs(&key, 2).unwrap();
    assert_eq!(
        remaining
            .iter()
            .map(|(_, input)| input.id())
            .collect::<Vec<_>>(),
        ["b", "c"].map(event_id)
    );
}

/// The last deployment is stored, and a dropped definition is removed.
pub fn deployment_replaces_the_previous_one(mut fixture: StoreFixture) {
    let program = DefinitionRef {
        saga: saga("order"),
        version: 3,
        hash: [9; 16],
    };
    let deployment = |number| {
        let (at, by, file) = (at(1), "alice".to_owned(), "order.saga.yaml".to_owned());
        let program = program.clone();
        let (retired_at, events) = (None, Vec::new());
        let definition = DeployedDefinition {
            program,
            file,
            at,
            deployed_by: by.clone(),
            retired_at,
            events,
        };
        Deployment {
            schedules: Vec::new(),
            number,
            at,
            deployed_by: by,
            definitions_digest: Some([1; 16]),
            definitions: vec![definition],
            context: None,
        }
    };
    assert_eq!(fixture.reader.deployment().unwrap(), None);
    for number in [1, 2] {
        fixture.commit(&[Change::Deploy(Box::new(deployment(number)))]);
    }
    assert_eq!(fixture.reader.deployment().unwrap(), Some(deployment(2)));
    let rows = fixture.reader.inspect_rows("meta", None, 99).unwrap();
    let printed = rows
        .iter()
        .find(|row| row.key == "meta:deployment")
        .unwrap();
    assert_eq!(printed.value["definitions"][0]["file"], "order.saga.yaml");
    // Each context has its own deployment.
    let of = |tenant: &str, number| {
        let mut deployment = Deployment {
            context: Some(self::tenant(tenant)),
            ..deployment(number)
        };
        deployment.definitions[0].events = vec![EventType::new("Placed").unwrap()];
        deployment
    };
    for deployment in [of("beta", 1), of("acme", 1), of("acme", 2)] {
        fixture.commit(&[Change::Deploy(Box::new(deployment))]);
    }
    assert_eq!(
        fixture.reader.context_deployments().unwrap(),
        [of("acme", 2), of("beta", 1)]
    );
    assert_eq!(
        fixture.reader.deployment_of(Some(&tenant("acme"))).unwrap(),
        Some(of("acme", 2))
    );
    assert_eq!(
        fixture
            .reader
            .deployment_of(Some(&tenant("gamma")))
            .unwrap(),
        None
    );
    assert_eq!(
        fixture.reader.deployment_of(None).unwrap(),
        Some(deployment(2))
    );
    let rows = fixture
        .reader
        .inspect_rows("meta", Some(&tenant("acme")), 99)
        .unwrap();
    let keys: Vec<_> = rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(
        keys,
        ["meta:deployment:acme"],
        "a tenant reads its own deployment only"
    );
    fixture.commit(&[Change::PutDefinition {
        program,
        source: "saga: order".into(),
    }]);
    fixture.commit(&[Change::DropDefinition { hash: [8; 16] }]);
    assert_eq!(fixture.reader.definitions().unwrap().len(), 1);
    fixture.commit(&[Change::DropDefinition { hash: [9; 16] }]);
    assert_eq!(fixture.reader.definitions().unwrap(), []);
}

/// Creates a test for each case of the suite. The argument creates a new [`StoreFixture`] and a guard
/// that lives until the end; it may return `None`.
#[macro_export]
macro_rules! store_suite {
    ($fixture:expr) => {
        $crate::store_suite!($fixture;
            commit_is_atomic, group_is_all_or_nothing, destinations_are_ordered_and_independent,
            settled_work_is_removed_once, timers_are_returned_by_due_time,
            dead_letter_has_no_dedupe_key, dedupe_window_is_enforced, dedupe_window_excludes_downtime, last_checkpoint_is_stored, buffered_inputs_keep_their_order,
            dead_letters_and_definitions_are_stored, dead_letter_copies_wait_for_publication, replacement_removes_all_previous_rows_but_dedupe_keys,
            deployment_replaces_the_previous_one, inspection_reads_no_rows_of_other_tenants, instance_query_pages,
            pages_of_large_rows_end_by_their_size, pages_of_large_dead_letters_end_by_their_size, tables_are_inspectable,
            tasks_are_stored_with_their_events, task_query_pages, early_inputs_are_buffered_without_an_instance,
            commits_wake_watchers, ended_instances_are_purged_incrementally,
            orphaned_tasks_are_purged, sweep_visits_every_row_once,
            feed_returns_changes_after_an_offset,
        );
    };
    ($fixture:expr; $($case:ident),+ $(,)?) => {
        $(
            #[test]
            fn $case() {
                if let Some((fixture, _guard)) = $fixture {
                    $crate::store_suite::$case(fixture);
                }
            }
        )+
    };
}
