//! Tests of transitions that begin a new run of their instance.

use orlog_model::{
    Effect, EffectName, Fact, Input, ParentRef, RunChange, Status, TimerChange, Transition, Work,
    WorkflowAction, WorkflowCommand,
};
use orlog_program::ProgramInput;
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    DecisionFixture, ScriptedProgram, applied, at, event, id, kind, name, named, step,
};

fn effect(tag: &str) -> Work {
    Work::Effect(Effect {
        tag: name(tag),
        round: 0,
        name: EffectName::new("e.run").unwrap(),
        payload: json!({}),
        timeout: None,
        retry: None,
        schema_version: 1,
        in_doubt: None,
        priority: orlog_model::Priority::Normal,
    })
}

fn fact() -> Work {
    Work::Fact(Fact {
        key: Some("note".into()),
        ..Fact::new(kind("Noted"), json!({}))
    })
}

fn program() -> ScriptedProgram {
    ScriptedProgram::new(|input| {
        let ProgramInput::Event(event) = input else {
            return Ok(applied(step(Status::Running)));
        };
        let timers = vec![
            TimerChange::Cancel { name: name("saga") },
            TimerChange::Arm {
                name: name("saga"),
                due: at(9_000),
            },
        ];
        Ok(applied(match event.kind.as_str() {
            "Again" => Transition {
                work: vec![fact(), effect("on:0"), fact(), effect("a")],
                run: RunChange {
                    begins_at: Some(2),
                    forgets: Some(1),
                },
                timers,
                ..step(Status::Running)
            },
            _ => Transition {
                work: vec![effect("a"), effect("b"), fact()],
                reference: Some("R-1".into()),
                timers: timers[1..].to_vec(),
                ..step(Status::Running)
            },
        }))
    })
}

#[test]
fn new_run_has_new_ids_and_keeps_versions_parent_and_users() {
    let program = program();
    let mut fixture = DecisionFixture::empty(&program);
    let parent = ParentRef {
        key: named("trip", "t-1"),
        work_id: Uuid::from_u128(7),
        depth: 1,
    };
    let start = WorkflowAction::Start {
        parent: parent.clone(),
        event: None,
        data: json!({}),
        user: Some("ada".to_owned()),
    };
    let command = WorkflowCommand {
        id: id("start"),
        at: at(600),
        trace: None,
        action: start,
    };
    let first = fixture.commit(&Input::Workflow(command));
    let old = fixture.current_instance().clone();

    let commit = fixture.commit(&event("Again", "2"));
    let new = fixture.current_instance();
    assert_ne!(new.run_id, old.run_id);
    assert_eq!(
        (new.version, new.parent.as_deref()),
        (old.version + 1, Some(&parent))
    );
    assert_eq!(
        new.users.as_ref().unwrap().started_by.as_deref(),
        Some("ada")
    );
    assert_eq!((&new.reference, commit.forgets), (&None, Some(1)));
    assert_eq!(commit.dedupe_key, event("Again", "2").dedupe_key());
    let pending: Vec<_> = new
        .pending_work
        .iter()
        .map(|work| work.tag.as_str())
        .collect();
    assert_eq!(
        pending,
        ["a"],
        "work of the old run is not pending in the new one"
    );
    assert_eq!(
        (new.timers.len(), commit.disarm.len(), commit.arm.len()),
        (1, 1, 1)
    );

    let ids = |commit: &orlog_model::Commit, index: usize| commit.work[index].id;
    assert_eq!(
        ids(&commit, 0),
        ids(&first, 2),
        "a fact before the new run belongs to the old one"
    );
    assert_ne!(ids(&commit, 2), ids(&first, 2));
    assert_ne!(
        ids(&commit, 3),
        ids(&first, 0),
        "the same tag has another idempotency key in each run"
    );
}

#[test]
fn each_restart_begins_another_run() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let mut runs = vec![fixture.current_instance().run_id];
    for number in 2..5 {
        fixture.commit(&event("Again", &number.to_string()));
        runs.push(fixture.current_instance().run_id);
    }
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 4);
}
