//! Instances that another snapshot takes the place of.

use orlog_model::{ArmedTimer, Change, Commit, Instance, Record, Replacement, Status, WorkKind};

use super::Rig;
use super::samples::{at, effect, empty, event, event_id, instance, key, lane, timer};

/// An instance that is replaced leaves nothing of its old self but the markers, and not a row of others is touched.
pub fn a_replacement_takes_the_place_of_everything(mut rig: Rig) {
    let (key, other) = (key("acme", "o-1"), key("acme", "o-10"));
    for of in [&key, &other] {
        for version in 1..=3 {
            rig.apply(Commit {
                instance: Some(armed(version)),
                history: Some(record(version)),
                arm: vec![timer(30, version)],
                disarm: vec![timer(30, version - 1)],
                work: vec![effect(of, "a", u128::from(version))],
                applied: Some(event_id(&format!("e-{version}"))),
                hold: Some(event("held")),
                ..empty(of)
            });
        }
    }
    let rows = rig.reader.outbox(&lane(WorkKind::Effect, "a"), 0, 9).unwrap();
    let replacement = Replacement {
        key: key.clone(),
        instance: armed(2),
        history: vec![record(1), record(2)],
        applied: vec![event_id("new")],
        tasks: Vec::new(),
        work: vec![effect(&key, "b", 9)],
        dropped: vec![rows[0].0.clone(), rows[1].0.clone(), rows[1].0.clone()],
    };
    rig.commit(&[Change::Replace(Box::new(replacement))]);
    let versions = |of| -> Vec<u64> {
        rig.reader.history(of, 0, 9).unwrap().iter().map(|record| record.version).collect()
    };
    assert_eq!((versions(&key), versions(&other)), (vec![1, 2], vec![1, 2, 3]));
    assert_eq!(rig.reader.instance(&key).unwrap(), Some(armed(2)));
    let held = |of| rig.reader.held(of, 9).unwrap().len();
    assert_eq!((held(&key), held(&other)), (0, 3));
    let timers = rig.reader.timers_due(at(i64::MAX), 9).unwrap();
    let tokens: Vec<_> = timers.iter().map(|(of, timer)| (of == &key, timer.token)).collect();
    assert_eq!(tokens, [(true, 2), (false, 3)]);
    assert_eq!(rig.reader.outbox_depth().unwrap(), 5);
    for id in ["e-1", "e-3", "new"] {
        assert!(rig.reader.applied(&key, &event_id(id), at(0)).unwrap(), "{id}");
    }
}

/// With the timer that its last transition armed.
fn armed(version: u64) -> Instance {
    let timer = timer(30, version);
    let timers = vec![ArmedTimer { name: timer.name, token: timer.token, due: timer.due, trace: None }];
    Instance { timers, ..instance(version, Status::Running) }
}

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
