//! What was kept long enough and is forgotten.

use orlog_model::{
    Change, Commit, Instance, InstanceKey, OpenWork, Record, Status, Task, TaskEntry, TaskEvent, TaskForm,
    TaskRow, TaskStatus, TaskStep, WorkKind,
};
use orlog_store::{Bookmark, PURGED_AT_ONCE, Reader};
use serde_json::Value;
use uuid::Uuid;

use super::samples::{at, empty, event, event_id, instance, key, letter, name};
use super::{Rig, SPREAD};

fn record(version: u64) -> Record {
    Record {
        version,
        at: at(1),
        input: event_id("e"),
        label: "e".to_owned(),
        note: "n".to_owned(),
        status: Status::Running,
        work: Vec::new(),
        origin: orlog_model::Origin::default(),
    }
}

fn standing(rig: &mut Rig, key: &InstanceKey, instance: Instance) {
    let history = Some(record(instance.version));
    rig.apply(Commit { instance: Some(instance), history, ..empty(key) });
}

fn purge(rig: &mut Rig, key: &InstanceKey, version: u64) {
    rig.commit(&[Change::PurgeInstance { key: key.clone(), version }]);
}

/// A long history goes in several changes, the snapshot with the last of them; whatever is not over stays.
pub fn what_is_over_is_forgotten_bit_by_bit(mut rig: Rig) {
    let (long, next) = (key("acme", "o-1"), key("acme", "o-10"));
    let versions = u64::try_from(PURGED_AT_ONCE).unwrap() + 5;
    let history = |version| Commit { history: Some(record(version)), ..empty(&long) };
    let group: Vec<_> = (1..versions).map(|version| super::samples::apply(history(version))).collect();
    rig.commit(&group);
    standing(&mut rig, &long, instance(versions, Status::Completed));
    standing(&mut rig, &next, instance(1, Status::Completed));
    let left = |rig: &Rig, key| rig.reader.history(key, 0, usize::MAX).unwrap().len();
    purge(&mut rig, &long, versions - 1);
    assert_eq!(left(&rig, &long), PURGED_AT_ONCE + 5, "it has moved on: it stays");
    purge(&mut rig, &long, versions);
    assert_eq!(left(&rig, &long), 5);
    assert!(rig.reader.instance(&long).unwrap().is_some());
    purge(&mut rig, &long, versions);
    assert_eq!((left(&rig, &long), rig.reader.instance(&long).unwrap()), (0, None));
    assert_eq!((left(&rig, &next), rig.reader.instance(&next).unwrap().is_some()), (1, true));
    purge(&mut rig, &long, versions);

    let open = OpenWork { id: Uuid::nil(), kind: WorkKind::Saga, tag: name("child") };
    let kept = [
        instance(1, Status::Running),
        instance(1, Status::Stuck),
        Instance { paused: true, ..instance(1, Status::Completed) },
        Instance { open: vec![open], ..instance(1, Status::Failed) },
    ];
    for (number, instance) in kept.into_iter().enumerate() {
        let key = key(SPREAD, &format!("kept-{number}"));
        standing(&mut rig, &key, instance.clone());
        purge(&mut rig, &key, 1);
        assert_eq!(rig.reader.instance(&key).unwrap(), Some(instance));
    }
    let held = key(SPREAD, "held");
    standing(&mut rig, &held, instance(1, Status::Cancelled));
    rig.apply(Commit { hold: Some(event("later")), ..empty(&held) });
    purge(&mut rig, &held, 1);
    assert!(rig.reader.instance(&held).unwrap().is_some(), "what is kept for it is applied first");
    let number = rig.reader.held(&held, 1).unwrap()[0].0;
    rig.apply(Commit { release: vec![number], ..empty(&held) });
    purge(&mut rig, &held, 1);
    assert_eq!(rig.reader.instance(&held).unwrap(), None);
}

fn task(of: &InstanceKey, number: u128, status: TaskStatus, updated_at: i64) -> TaskEntry {
    let form = TaskForm {
        tag: name("approve"),
        title: "approve".to_owned(),
        roles: Vec::new(),
        assignee: None,
        due: None,
        outcomes: Vec::new(),
        data: Value::Null,
    };
    let task = Task { id: Uuid::from_u128(number), form, claimed_by: None, opened_at: at(1) };
    let row = TaskRow { instance: of.clone(), task, status, updated_at: at(updated_at), outcome: None };
    TaskEntry { row, event: TaskEvent { step: TaskStep::Opened, by: None, reason: None, at: at(1) } }
}

/// Tasks outlive their instance until they are looked for; those of an instance that has begun anew since are its own.
pub fn tasks_of_an_instance_that_is_gone_are_forgotten(mut rig: Rig) {
    let (gone, anew) = (key(SPREAD, "gone"), key("acme", "anew"));
    let tasks = vec![task(&gone, 1, TaskStatus::Completed, 2), task(&gone, 2, TaskStatus::Closed, 3)];
    rig.apply(Commit { tasks, ..empty(&gone) });
    let tasks = vec![task(&anew, 3, TaskStatus::Completed, 2), task(&anew, 4, TaskStatus::Completed, 9)];
    let begun = Instance { created_at: at(5), ..instance(1, Status::Running) };
    rig.apply(Commit { tasks, instance: Some(begun), ..empty(&anew) });
    let found = |reader: &Reader| -> Vec<u128> {
        let (mut found, mut from) = (Vec::new(), Some(Bookmark::default()));
        while let Some(at) = from {
            let stretch = reader.sweep_tasks(&at, 1).unwrap();
            found.extend(stretch.found.into_iter().map(|(_, id)| id.as_u128()));
            from = stretch.next;
        }
        found.sort_unstable();
        found
    };
    assert_eq!(found(&rig.reader), [1, 2, 3]);
    for of in [&gone, &anew] {
        let tasks = (1..=4).map(Uuid::from_u128).collect();
        rig.commit(&[Change::PurgeTasks { instance: of.clone(), tasks }]);
    }
    assert_eq!(found(&rig.reader), []);
    let rows = |table: &str| rig.reader.rows(table, None, 9).unwrap().len();
    assert_eq!((rows("task"), rows("task_event")), (1, 1));
}

/// Every row of every tenant is shown once, however short the stretches are.
pub fn what_is_kept_long_enough_is_found_a_stretch_at_a_time(mut rig: Rig) {
    let keys: Vec<_> = (0..20).map(|n| key(["acme", "", SPREAD][n % 3], &format!("o-{n}"))).collect();
    for (number, key) in keys.iter().enumerate() {
        let version = u64::try_from(number).unwrap() + 1;
        standing(&mut rig, key, instance(version, if number < 15 { Status::Failed } else { Status::Stuck }));
    }
    for bounds in [(1, 100), (100, 1), (3, 4), (100, 100)] {
        let (mut found, mut scanned, mut from) = (Vec::new(), 0, Some(Bookmark::default()));
        while let Some(at) = from {
            let stretch = rig.reader.sweep_instances(&at, bounds, |_, instance| instance.is_over()).unwrap();
            assert!(stretch.found.len() <= bounds.0 && stretch.scanned <= bounds.1);
            found.extend(stretch.found);
            scanned += stretch.scanned;
            from = stretch.next;
        }
        found.sort_by_key(|(_, version)| *version);
        let expected: Vec<_> = keys.iter().cloned().zip(1..=15).collect();
        assert_eq!((found, scanned), (expected, 20), "{bounds:?}");
    }
    rig.commit(&[1, 2, 3].map(|id| Change::PutDeadLetter(Box::new(letter("acme", id)))));
    let odd =
        rig.reader.sweep_dead_letters(&Bookmark::default(), (9, 9), |letter| letter.id.as_u128() % 2 == 1);
    let ids: Vec<_> = odd.unwrap().found.into_iter().map(|(_, id)| id.as_u128()).collect();
    assert_eq!(ids, [1, 3]);
}
