//! Cases of the replacement of an instance by another snapshot.

use std::sync::Arc;

use orlog_model::{
    ArmedTimer, Change, Commit, HistoryEntry, Instance, InstanceReplacement, Status, WorkKind,
};

use super::StoreFixture;
use super::samples::{
    at, dedupe_key, destination, effect, empty, event, event_id, instance, key, timer,
};

/// A replaced instance keeps only its dedupe keys, and no row of another instance changes.
pub fn replacement_removes_all_previous_rows_but_dedupe_keys(mut fixture: StoreFixture) {
    let (key, other) = (key("acme", "o-1"), key("acme", "o-10"));
    for of in [&key, &other] {
        for version in 1..=3 {
            fixture.apply(Commit {
                instance: Some(Arc::new(armed(version))),
                history: Some(record(version)),
                arm: vec![timer(30, version)],
                disarm: vec![timer(30, version - 1)],
                work: vec![effect(of, "a", u128::from(version))],
                dedupe_key: Some(dedupe_key(&format!("e-{version}"))),
                buffer: Some(Box::new(event("buffered"))),
                ..empty(of)
            });
        }
    }
    let rows = fixture
        .reader
        .outbox(&destination(WorkKind::Effect, "a"), 0, 9)
        .unwrap();
    let replacement = InstanceReplacement {
        key: key.clone(),
        instance: armed(2),
        history: vec![record(1), record(2)],
        dedupe_keys: vec![dedupe_key("new")],
        tasks: Vec::new(),
        work: vec![effect(&key, "b", 9)],
        removed_work: vec![rows[0].0.clone(), rows[1].0.clone(), rows[1].0.clone()],
    };
    fixture.commit(&[Change::Replace(Box::new(replacement))]);
    let versions = |of| -> Vec<u64> {
        fixture
            .reader
            .history(of, 0, 9)
            .unwrap()
            .iter()
            .map(|record| record.version)
            .collect()
    };
    assert_eq!(
        (versions(&key), versions(&other)),
        (vec![1, 2], vec![1, 2, 3])
    );
    assert_eq!(fixture.reader.instance(&key).unwrap(), Some(armed(2)));
    let buffered = |of| fixture.reader.buffered_inputs(of, 9).unwrap().len();
    assert_eq!((buffered(&key), buffered(&other)), (0, 3));
    let timers = fixture.reader.timers_due(at(i64::MAX), 9).unwrap();
    let tokens: Vec<_> = timers
        .iter()
        .map(|(of, timer)| (of == &key, timer.token))
        .collect();
    assert_eq!(tokens, [(true, 2), (false, 3)]);
    assert_eq!(fixture.reader.outbox_depth().unwrap(), 5);
    for id in ["e-1", "e-3", "new"] {
        assert!(
            fixture
                .reader
                .is_duplicate(&key, dedupe_key(id), at(0))
                .unwrap(),
            "{id}"
        );
    }
}

/// Returns an instance with the timer that its last transition armed.
fn armed(version: u64) -> Instance {
    let timer = timer(30, version);
    let timers = vec![ArmedTimer {
        name: timer.name,
        token: timer.token,
        due: timer.due,
        trace: None,
        signal: None,
    }];
    Instance {
        timers,
        ..instance(version, Status::Running)
    }
}

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
