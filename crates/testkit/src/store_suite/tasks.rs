//! The cases about tasks for people, and about what is kept for instances that do not exist.

use orlog_model::{
    Commit, Early, EventType, Input, Status, Task, TaskEntry, TaskEvent, TaskForm, TaskRow, TaskStatus,
    TaskStep,
};
use orlog_store::{Error, TaskQuery, merge_tasks};
use serde_json::Value;
use uuid::Uuid;

use super::samples::{apply, at, empty, event, instance, key, name, saga, tenant, timer};
use super::{Rig, SPREAD};

fn entry(of: &str, number: u64, step: TaskStep) -> TaskEntry {
    let form = TaskForm {
        tag: name("approve"),
        title: format!("task {number}"),
        roles: if number.is_multiple_of(2) { vec!["clerk".to_owned()] } else { vec![] },
        assignee: number.is_multiple_of(3).then(|| "alice".to_owned()),
        due: None,
        outcomes: vec![EventType::new("Approved").unwrap()],
        data: Value::Null,
    };
    let id = Uuid::from_u128(u128::from(number));
    let task = Task { id, form, claimed_by: None, opened_at: at(1) };
    let status = if step == TaskStep::Closed { TaskStatus::Closed } else { TaskStatus::Open };
    TaskEntry {
        row: TaskRow {
            instance: key(of, &format!("o-{number}")),
            task,
            status,
            updated_at: at(1),
            outcome: None,
        },
        event: TaskEvent { step, by: None, reason: None, at: at(1) },
    }
}

fn commit(rig: &mut Rig, entry: TaskEntry) {
    let of = empty(&entry.row.instance);
    rig.apply(Commit { tasks: vec![entry], ..of });
}

/// A task is kept as it stands last, with everything that happened to it, and never shown to another tenant.
pub fn tasks_are_kept_with_what_happened(mut rig: Rig) {
    for of in ["acme", SPREAD] {
        commit(&mut rig, entry(of, 7, TaskStep::Opened));
        commit(&mut rig, entry(of, 8, TaskStep::Opened));
        commit(&mut rig, entry(of, 7, TaskStep::Closed));
        let row = rig.reader.task(&tenant(of), Uuid::from_u128(7)).unwrap().unwrap();
        assert_eq!(row, entry(of, 7, TaskStep::Closed).row);
        let events = rig.reader.task_events(&row, 9).unwrap();
        let steps: Vec<_> = events.into_iter().map(|event| event.step).collect();
        assert_eq!(steps, [TaskStep::Opened, TaskStep::Closed]);
        assert_eq!(rig.reader.task_events(&row, 1).unwrap().len(), 1);
        assert_eq!(rig.reader.task(&tenant(of), Uuid::from_u128(9)).unwrap(), None);
    }
    assert_eq!(rig.reader.task(&tenant("zeta"), Uuid::from_u128(7)).unwrap(), None);
    assert_eq!(rig.reader.rows("task", Some(&tenant("acme")), 9).unwrap().len(), 2);
    assert_eq!(rig.reader.rows("task_event", None, 9).unwrap().len(), 6);
}

/// Queries filter and page in the order of ids, also where a tenant is spread, without gap or overlap.
pub fn tasks_are_found_page_by_page(mut rig: Rig) {
    for of in ["acme", "acme2", SPREAD] {
        let group = (1..=30).map(|number| {
            let step = if number % 5 == 0 { TaskStep::Closed } else { TaskStep::Opened };
            let entry = entry(of, number, step);
            apply(Commit { tasks: vec![entry.clone()], ..empty(&entry.row.instance) })
        });
        rig.commit(&group.collect::<Vec<_>>());
    }
    for of in ["acme", SPREAD] {
        let all = TaskQuery { tenant: tenant(of), limit: 7, ..TaskQuery::default() };
        assert_eq!(found(&rig, &all), (1..=30).collect::<Vec<_>>());
        assert_eq!(found(&rig, &TaskQuery { scan_limit: 2, ..all.clone() }).len(), 30);
        let open = TaskQuery { statuses: vec![TaskStatus::Open], ..all.clone() };
        assert_eq!(found(&rig, &open).len(), 24);
        let clerk = TaskQuery { role: Some("clerk".to_owned()), ..all.clone() };
        assert_eq!(found(&rig, &clerk).len(), 30, "those without roles are for clerks too");
        let driver = TaskQuery { role: Some("driver".to_owned()), ..all.clone() };
        assert_eq!(found(&rig, &driver), (1..=30).filter(|number| number % 2 == 1).collect::<Vec<_>>());
        let hers = TaskQuery { assignee: Some("alice".to_owned()), ..all.clone() };
        assert_eq!(found(&rig, &hers), (1..=30).filter(|number| number % 3 == 0).collect::<Vec<_>>());
        assert!(found(&rig, &TaskQuery { saga: Some(saga("other")), ..all.clone() }).is_empty());
        let one = TaskQuery { correlation: Some(key(of, "o-4").correlation), ..all };
        assert_eq!(found(&rig, &one), [4]);
    }
    let foreign = TaskQuery { cursor: Some("zz".to_owned()), ..TaskQuery::default() };
    assert!(matches!(rig.reader.tasks(&foreign), Err(Error::BadCursor { .. })));
}

/// All pages of a query.
fn found(rig: &Rig, query: &TaskQuery) -> Vec<u128> {
    let mut query = query.clone();
    let mut found = Vec::new();
    loop {
        // As for a caller that asks several shards.
        let page = merge_tasks(vec![rig.reader.tasks(&query).unwrap()], query.limit);
        for row in page.items {
            assert_eq!(row.instance.tenant, query.tenant);
            found.push(row.task.id.as_u128());
        }
        query.cursor = page.next;
        if query.cursor.is_none() {
            return found;
        }
    }
}

/// What came before its instance is kept with a timer and without an instance, listed, and goes with its release.
pub fn what_came_early_is_kept_without_an_instance(mut rig: Rig) {
    let (a, b) = (key("acme", "o-1"), key("acme", "o-2"));
    let early = |id: &str| Input::Early(Early { input: Box::new(event(id)), until: at(50) });
    rig.apply(Commit { hold: Some(early("x")), arm: vec![timer(50, 0)], ..empty(&a) });
    rig.apply(Commit { hold: Some(early("y")), ..empty(&a) });
    rig.apply(Commit { hold: Some(early("z")), ..empty(&b) });
    let held = rig.reader.held(&a, 9).unwrap();
    assert_eq!(held.iter().map(|(_, input)| input.clone()).collect::<Vec<_>>(), [early("x"), early("y")]);
    assert_eq!(rig.reader.instance(&a).unwrap(), None);
    assert_eq!(rig.reader.held_keys(None, 9).unwrap(), [a.clone(), b.clone()]);
    assert_eq!(rig.reader.held_keys(Some(&a), 9).unwrap(), std::slice::from_ref(&b));
    assert_eq!(rig.reader.held_keys(None, 1).unwrap(), std::slice::from_ref(&a));
    let numbers = held.iter().map(|(number, _)| *number).collect();
    let begun = Some(instance(1, Status::Running));
    rig.apply(Commit { instance: begun, release: numbers, disarm: vec![timer(50, 0)], ..empty(&a) });
    assert_eq!(
        (rig.reader.held(&a, 9).unwrap(), rig.reader.timers_due(at(i64::MAX), 9).unwrap()),
        (vec![], vec![])
    );
    assert_eq!(rig.reader.held_keys(None, 9).unwrap(), [b]);
}
