//! Cases of retention and deletion.

use std::sync::Arc;

use orlog_model::{
    Change, Commit, HistoryEntry, Instance, InstanceKey, PendingWork, Status, Task, TaskEvent,
    TaskEventKind, TaskRow, TaskSpec, TaskStatus, TaskUpdate, WorkKind,
};
use orlog_store::{PURGE_BATCH, Reader, SweepCursor};
use serde_json::Value;
use uuid::Uuid;

use super::samples::{at, dead_letter, empty, event, event_id, instance, key, name};
use super::{KEY_SHARDED, StoreFixture};

fn record(version: u64) -> HistoryEntry {
    HistoryEntry {
        version,
        at: at(1),
        input_id: event_id("e"),
        input_label: "e".into(),
        note: "n".to_owned(),
        status: Status::Running,
        work: Vec::new(),
        origin: orlog_model::InputOrigin::default(),
        payloads: orlog_model::RecordedPayloads::default(),
        failure: None,
        input: None,
    }
}

fn store_instance(fixture: &mut StoreFixture, key: &InstanceKey, instance: Instance) {
    let history = Some(record(instance.version));
    fixture.apply(Commit {
        instance: Some(Arc::new(instance)),
        history,
        ..empty(key)
    });
}

fn purge(fixture: &mut StoreFixture, key: &InstanceKey, version: u64) {
    fixture.commit(&[Change::PurgeInstance {
        key: key.clone(),
        version,
    }]);
}

/// A long history is deleted in several changes, the snapshot with the last of them; instances that
/// have not ended are kept.
pub fn ended_instances_are_purged_incrementally(mut fixture: StoreFixture) {
    let (long, next) = (key("acme", "o-1"), key("acme", "o-10"));
    let versions = u64::try_from(PURGE_BATCH).unwrap() + 5;
    let history = |version| Commit {
        history: Some(record(version)),
        ..empty(&long)
    };
    let group: Vec<_> = (1..versions)
        .map(|version| super::samples::apply(history(version)))
        .collect();
    fixture.commit(&group);
    store_instance(&mut fixture, &long, instance(versions, Status::Completed));
    store_instance(&mut fixture, &next, instance(1, Status::Completed));
    let remaining =
        |fixture: &StoreFixture, key| fixture.reader.history(key, 0, usize::MAX).unwrap().len();
    purge(&mut fixture, &long, versions - 1);
    assert_eq!(
        remaining(&fixture, &long),
        PURGE_BATCH + 5,
        "another version is not purged"
    );
    purge(&mut fixture, &long, versions);
    assert_eq!(remaining(&fixture, &long), 5);
    assert!(fixture.reader.instance(&long).unwrap().is_some());
    purge(&mut fixture, &long, versions);
    assert_eq!(
        (
            remaining(&fixture, &long),
            fixture.reader.instance(&long).unwrap()
        ),
        (0, None)
    );
    assert_eq!(
        (
            remaining(&fixture, &next),
            fixture.reader.instance(&next).unwrap().is_some()
        ),
        (1, true)
    );
    purge(&mut fixture, &long, versions);

    let open = PendingWork {
        id: Uuid::nil(),
        kind: WorkKind::Saga,
        tag: name("child"),
        requested_at: at(1),
        survives_end: true,
        dead_letter: None,
        abandoned: false,
    };
    let retained = [
        instance(1, Status::Running),
        instance(1, Status::Stuck),
        Instance {
            paused: true,
            ..instance(1, Status::Completed)
        },
        Instance {
            pending_work: vec![open],
            ..instance(1, Status::Failed)
        },
    ];
    for (number, instance) in retained.into_iter().enumerate() {
        let key = key(KEY_SHARDED, &format!("retained-{number}"));
        store_instance(&mut fixture, &key, instance.clone());
        purge(&mut fixture, &key, 1);
        assert_eq!(fixture.reader.instance(&key).unwrap(), Some(instance));
    }
    let buffered = key(KEY_SHARDED, "buffered");
    store_instance(&mut fixture, &buffered, instance(1, Status::Cancelled));
    fixture.apply(Commit {
        buffer: Some(Box::new(event("later"))),
        ..empty(&buffered)
    });
    purge(&mut fixture, &buffered, 1);
    assert!(
        fixture.reader.instance(&buffered).unwrap().is_some(),
        "buffered inputs are applied first"
    );
    let number = fixture.reader.buffered_inputs(&buffered, 1).unwrap()[0].0;
    fixture.apply(Commit {
        unbuffer: vec![number],
        ..empty(&buffered)
    });
    purge(&mut fixture, &buffered, 1);
    assert_eq!(fixture.reader.instance(&buffered).unwrap(), None);
}

fn task(of: &InstanceKey, number: u128, status: TaskStatus, updated_at: i64) -> TaskUpdate {
    let spec = TaskSpec {
        not_by: Vec::new(),
        is_in_doubt: false,
        round: 0,
        tag: name("approve"),
        title: "approve".to_owned(),
        roles: Vec::new(),
        assignee: None,
        due: None,
        outcomes: Vec::new(),
        data: Value::Null,
    };
    let task = Task {
        id: Uuid::from_u128(number),
        spec,
        claimed_by: None,
        opened_at: at(1),
    };
    let row = TaskRow {
        instance: of.clone(),
        task,
        status,
        updated_at: at(updated_at),
        outcome: None,
    };
    TaskUpdate {
        row,
        event: TaskEvent {
            kind: TaskEventKind::Opened,
            user: None,
            reason: None,
            at: at(1),
        },
    }
}

/// Tasks outlive their instance until the next purge, also open tasks of a dropped instance. Tasks
/// of an instance that has started again since are kept.
pub fn orphaned_tasks_are_purged(mut fixture: StoreFixture) {
    let (missing, restarted) = (key(KEY_SHARDED, "missing"), key("acme", "restarted"));
    let tasks = vec![
        task(&missing, 1, TaskStatus::Completed, 2),
        task(&missing, 2, TaskStatus::Closed, 3),
        task(&missing, 5, TaskStatus::Claimed, 3),
    ];
    fixture.apply(Commit {
        tasks,
        ..empty(&missing)
    });
    let tasks = vec![
        task(&restarted, 3, TaskStatus::Completed, 2),
        task(&restarted, 4, TaskStatus::Completed, 9),
        task(&restarted, 6, TaskStatus::Open, 9),
        task(&restarted, 7, TaskStatus::Open, 2),
    ];
    // The clock was set back before task 7 was opened.
    let open = tasks[3].row.task.clone();
    let started = Instance {
        created_at: at(5),
        tasks: vec![open],
        ..instance(1, Status::Running)
    };
    fixture.apply(Commit {
        tasks,
        instance: Some(Arc::new(started)),
        ..empty(&restarted)
    });
    let found = |reader: &Reader| -> Vec<u128> {
        let (mut found, mut from) = (Vec::new(), Some(SweepCursor::default()));
        while let Some(at) = from {
            let page = reader.sweep_tasks(&at, 1).unwrap();
            found.extend(page.found.into_iter().map(|(_, id)| id.as_u128()));
            from = page.next;
        }
        found.sort_unstable();
        found
    };
    assert_eq!(found(&fixture.reader), [1, 2, 3, 5, 6]);
    for of in [&missing, &restarted] {
        let tasks = (1..=7).map(Uuid::from_u128).collect();
        fixture.commit(&[Change::PurgeTasks {
            instance: of.clone(),
            tasks,
        }]);
    }
    assert_eq!(found(&fixture.reader), []);
    let rows = |table: &str| fixture.reader.inspect_rows(table, None, 9).unwrap().len();
    assert_eq!((rows("task"), rows("task_event")), (2, 2));
}

/// Every ended instance and every dead letter is returned once, regardless of the page size.
pub fn sweep_visits_every_row_once(mut fixture: StoreFixture) {
    let keys: Vec<_> = (0..20)
        .map(|n| key(["acme", "", KEY_SHARDED][n % 3], &format!("o-{n}")))
        .collect();
    for (number, key) in keys.iter().enumerate() {
        let version = u64::try_from(number).unwrap() + 1;
        store_instance(
            &mut fixture,
            key,
            instance(
                version,
                if number < 15 {
                    Status::Failed
                } else {
                    Status::Stuck
                },
            ),
        );
    }
    fixture.writer.flush().unwrap();
    for (most_found, most_scanned) in [(1, 100), (100, 1), (3, 4), (100, 100)] {
        let (mut found, mut scanned, mut from) = (Vec::new(), 0, Some(SweepCursor::default()));
        while let Some(from_here) = from {
            // The instance with version 15 changed too late.
            let ended_before = |_: &_, _: &_| Some(at(15));
            let page = fixture
                .reader
                .sweep_ended(&from_here, most_found, most_scanned, ended_before)
                .unwrap();
            assert!(page.found.len() <= most_found && page.scanned <= most_scanned);
            found.extend(page.found);
            scanned += page.scanned;
            from = page.next;
        }
        found.sort_by_key(|(_, version)| *version);
        let expected: Vec<_> = keys.iter().cloned().zip(1..=14).collect();
        assert_eq!(
            (found, scanned),
            (expected, 14),
            "{most_found}, {most_scanned}"
        );
    }
    fixture.commit(&[1, 2, 3].map(|id| Change::PutDeadLetter(Box::new(dead_letter("acme", id)))));
    let odd_ids = fixture
        .reader
        .sweep_dead_letters(&SweepCursor::default(), 9, 9, |dead_letter| {
            dead_letter.id.as_u128() % 2 == 1
        });
    let ids: Vec<_> = odd_ids
        .unwrap()
        .found
        .into_iter()
        .map(|(_, id)| id.as_u128())
        .collect();
    assert_eq!(ids, [1, 3]);
}
