//! Cases of human tasks, and of inputs buffered for instances that do not exist.

use std::sync::Arc;

use orlog_model::{
    Commit, EarlyInput, EventType, Input, Status, Task, TaskEvent, TaskEventKind, TaskRow,
    TaskSpec, TaskStatus, TaskUpdate,
};
use orlog_store::{Error, TaskQuery, merge_tasks};
use serde_json::Value;
use uuid::Uuid;

use super::samples::{apply, at, empty, event, instance, key, name, saga, tenant, timer};
use super::{KEY_SHARDED, StoreFixture};

fn entry(of: &str, number: u64, step: TaskEventKind) -> TaskUpdate {
    let spec = TaskSpec {
        not_by: Vec::new(),
        is_in_doubt: false,
        round: 0,
        tag: name("approve"),
        title: format!("task {number}"),
        roles: if number.is_multiple_of(2) {
            vec!["clerk".to_owned()]
        } else {
            vec![]
        },
        assignee: number.is_multiple_of(3).then(|| "alice".to_owned()),
        due: None,
        outcomes: vec![EventType::new("Approved").unwrap()],
        data: Value::Null,
    };
    let id = Uuid::from_u128(u128::from(number));
    let task = Task {
        id,
        spec,
        claimed_by: None,
        opened_at: at(1),
    };
    let status = if step == TaskEventKind::Closed {
        TaskStatus::Closed
    } else {
        TaskStatus::Open
    };
    TaskUpdate {
        row: TaskRow {
            instance: key(of, &format!("o-{number}")),
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

fn commit(fixture: &mut StoreFixture, entry: TaskUpdate) {
    let of = empty(&entry.row.instance);
    fixture.apply(Commit {
        tasks: vec![entry],
        ..of
    });
}

/// A task is stored in its last state with all its task events, and is never visible to another tenant.
pub fn tasks_are_stored_with_their_events(mut fixture: StoreFixture) {
    for of in ["acme", KEY_SHARDED] {
        commit(&mut fixture, entry(of, 7, TaskEventKind::Opened));
        commit(&mut fixture, entry(of, 8, TaskEventKind::Opened));
        commit(&mut fixture, entry(of, 7, TaskEventKind::Closed));
        let row = fixture
            .reader
            .task(&tenant(of), Uuid::from_u128(7))
            .unwrap()
            .unwrap();
        assert_eq!(row, entry(of, 7, TaskEventKind::Closed).row);
        let events = fixture.reader.task_events(&row, 9).unwrap();
        let steps: Vec<_> = events.into_iter().map(|event| event.kind).collect();
        assert_eq!(steps, [TaskEventKind::Opened, TaskEventKind::Closed]);
        assert_eq!(fixture.reader.task_events(&row, 1).unwrap().len(), 1);
        assert_eq!(
            fixture
                .reader
                .task(&tenant(of), Uuid::from_u128(9))
                .unwrap(),
            None
        );
    }
    assert_eq!(
        fixture
            .reader
            .task(&tenant("zeta"), Uuid::from_u128(7))
            .unwrap(),
        None
    );
    assert_eq!(
        fixture
            .reader
            .inspect_rows("task", Some(&tenant("acme")), 9)
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        fixture
            .reader
            .inspect_rows("task_event", None, 9)
            .unwrap()
            .len(),
        6
    );
}

/// Queries filter and page in the order of ids, also if a tenant is key-sharded, without gaps or
/// duplicates.
pub fn task_query_pages(mut fixture: StoreFixture) {
    for of in ["acme", "acme2", KEY_SHARDED] {
        let group = (1..=30).map(|number| {
            let step = if number % 5 == 0 {
                TaskEventKind::Closed
            } else {
                TaskEventKind::Opened
            };
            let entry = entry(of, number, step);
            apply(Commit {
                tasks: vec![entry.clone()],
                ..empty(&entry.row.instance)
            })
        });
        fixture.commit(&group.collect::<Vec<_>>());
    }
    for of in ["acme", KEY_SHARDED] {
        let all = TaskQuery {
            tenant: tenant(of),
            limit: 7,
            ..TaskQuery::default()
        };
        assert_eq!(found(&fixture, &all), (1..=30).collect::<Vec<_>>());
        assert_eq!(
            found(
                &fixture,
                &TaskQuery {
                    scan_limit: 2,
                    ..all.clone()
                }
            )
            .len(),
            30
        );
        let open = TaskQuery {
            statuses: vec![TaskStatus::Open],
            ..all.clone()
        };
        assert_eq!(found(&fixture, &open).len(), 24);
        let clerk = TaskQuery {
            role: Some("clerk".to_owned()),
            ..all.clone()
        };
        assert_eq!(
            found(&fixture, &clerk).len(),
            30,
            "tasks without roles are included"
        );
        let driver = TaskQuery {
            role: Some("driver".to_owned()),
            ..all.clone()
        };
        assert_eq!(
            found(&fixture, &driver),
            (1..=30)
                .filter(|number| number % 2 == 1)
                .collect::<Vec<_>>()
        );
        let assigned = TaskQuery {
            assignee: Some("alice".to_owned()),
            ..all.clone()
        };
        assert_eq!(
            found(&fixture, &assigned),
            (1..=30)
                .filter(|number| number % 3 == 0)
                .collect::<Vec<_>>()
        );
        assert!(
            found(
                &fixture,
                &TaskQuery {
                    saga: Some(saga("other")),
                    ..all.clone()
                }
            )
            .is_empty()
        );
        let one = TaskQuery {
            correlation: Some(key(of, "o-4").correlation),
            ..all
        };
        assert_eq!(found(&fixture, &one), [4]);
    }
    let foreign = TaskQuery {
        cursor: Some("zz".to_owned()),
        ..TaskQuery::default()
    };
    assert!(matches!(
        fixture.reader.tasks(&foreign),
        Err(Error::InvalidCursor { .. })
    ));
}

/// Returns all pages of a query.
fn found(fixture: &StoreFixture, query: &TaskQuery) -> Vec<u128> {
    let mut query = query.clone();
    let mut found = Vec::new();
    loop {
        // Same as for a caller that queries several shards.
        let page = merge_tasks(vec![fixture.reader.tasks(&query).unwrap()], query.limit);
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

/// Early inputs are stored with a timer and without an instance, listed, and removed on request.
pub fn early_inputs_are_buffered_without_an_instance(mut fixture: StoreFixture) {
    let (a, b) = (key("acme", "o-1"), key("acme", "o-2"));
    let early = |id: &str| {
        Input::Early(EarlyInput {
            input: Box::new(event(id)),
            expires_at: at(50),
        })
    };
    fixture.apply(Commit {
        buffer: Some(Box::new(early("x"))),
        arm: vec![timer(50, 0)],
        ..empty(&a)
    });
    fixture.apply(Commit {
        buffer: Some(Box::new(early("y"))),
        ..empty(&a)
    });
    fixture.apply(Commit {
        buffer: Some(Box::new(early("z"))),
        ..empty(&b)
    });
    let buffered = fixture.reader.buffered_inputs(&a, 9).unwrap();
    assert_eq!(
        buffered
            .iter()
            .map(|(_, input)| input.clone())
            .collect::<Vec<_>>(),
        [early("x"), early("y")]
    );
    assert_eq!(fixture.reader.instance(&a).unwrap(), None);
    assert_eq!(
        fixture.reader.buffered_keys(None, 9).unwrap(),
        [a.clone(), b.clone()]
    );
    assert_eq!(
        fixture.reader.buffered_keys(Some(&a), 9).unwrap(),
        std::slice::from_ref(&b)
    );
    assert_eq!(
        fixture.reader.buffered_keys(None, 1).unwrap(),
        std::slice::from_ref(&a)
    );
    let numbers = buffered.iter().map(|(number, _)| *number).collect();
    let started = Some(instance(1, Status::Running));
    fixture.apply(Commit {
        instance: started.map(Arc::new),
        unbuffer: numbers,
        disarm: vec![timer(50, 0)],
        ..empty(&a)
    });
    assert_eq!(
        (
            fixture.reader.buffered_inputs(&a, 9).unwrap(),
            fixture.reader.timers_due(at(i64::MAX), 9).unwrap()
        ),
        (vec![], vec![])
    );
    assert_eq!(fixture.reader.buffered_keys(None, 9).unwrap(), [b]);
}
