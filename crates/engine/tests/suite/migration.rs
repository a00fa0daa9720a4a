//! Tests of migration to another definition.

use orlog_engine::{Decision, MigrationPlan, decide_migration, plan_migration};
use orlog_model::{
    ArmedTimer, Commit, ControlAction, Input, PendingWork, Status, Timer, TimerChange, Transition,
    WorkKind,
};
use orlog_program::{Migration, ProgramInput, ProgramOutput};
use uuid::Uuid;

use crate::support::{
    DecisionFixture, ScriptedProgram, applied, at, by, control, event, key, name, step,
};

fn scripted_program() -> ScriptedProgram {
    ScriptedProgram::new(|input| {
        Ok(match input {
            ProgramInput::Event(event) if event.kind.as_str() == "Done" => {
                applied(step(Status::Completed))
            }
            ProgramInput::Event(_) => applied(step(Status::Running)),
            _ => ProgramOutput::Ignored("nothing".into()),
        })
    })
}

/// Returns a program that renames `pay` to `charge` and rearms its timer.
fn newer() -> ScriptedProgram {
    let timers = vec![TimerChange::Arm {
        name: name("charge"),
        due: at(9_000),
    }];
    let transition = Transition {
        state: b"migrated".to_vec(),
        timers,
        ..step(Status::Running)
    };
    let migration = Migration {
        transition,
        tags: vec![(name("pay"), name("charge"))],
        is_mapped: true,
    };
    scripted_program().with_version(3).migrating(migration)
}

fn fixture_with_work(program: &ScriptedProgram) -> DecisionFixture<'_> {
    let mut fixture = DecisionFixture::with_instance(program);
    let instance = fixture.instance.as_mut().unwrap();
    instance.timers = vec![ArmedTimer {
        name: name("pay"),
        token: 1,
        due: at(8_000),
        trace: None,
        signal: None,
    }];
    instance.pending_work = vec![PendingWork {
        id: Uuid::from_u128(1),
        kind: WorkKind::Effect,
        tag: name("pay"),
        requested_at: at(1_000),
        survives_end: true,
        dead_letter: None,
        abandoned: false,
    }];
    fixture
}

fn migrate(fixture: &DecisionFixture<'_>, to: &ScriptedProgram) -> Decision {
    let input = by("alice", ControlAction::Migrate { to: [3; 16] });
    let Input::Control(request) = &input else {
        panic!("it is a control request")
    };
    decide_migration(&fixture.subject(&key()), to, &input, request)
}

#[track_caller]
fn migrated(fixture: &DecisionFixture<'_>, to: &ScriptedProgram) -> Commit {
    match migrate(fixture, to) {
        Decision::Commit(commit) => *commit,
        other => panic!("expected a commit, got {other:?}"),
    }
}

#[test]
fn migrated_instance_keeps_timers_and_tags() {
    let (old, new) = (scripted_program().with_version(2), newer());
    let fixture = fixture_with_work(&old);
    let commit = migrated(&fixture, &new);
    let instance = commit.instance.unwrap();
    assert_eq!(
        (
            instance.definition.version,
            &instance.state[..],
            instance.version
        ),
        (3, &b"migrated"[..], 2)
    );
    assert_eq!(instance.pending_work[0].tag, name("charge"));
    assert_eq!(
        instance
            .timers
            .iter()
            .map(|timer| (timer.name.clone(), timer.due))
            .collect::<Vec<_>>(),
        [(name("charge"), at(9_000))]
    );
    assert_eq!(
        commit.disarm,
        [Timer {
            due: at(8_000),
            name: name("pay"),
            token: 1
        }]
    );
    assert_eq!(
        commit.history.unwrap().note,
        "migrate by alice; migrated from 2 to 3"
    );
    assert!(commit.work.is_empty() && commit.dedupe_key.is_some());
}

#[test]
fn migration_plan_has_no_side_effects() {
    let (old, new) = (scripted_program().with_version(2), newer());
    let fixture = fixture_with_work(&old);
    assert_eq!(
        plan_migration(&fixture.subject(&key()), &new),
        MigrationPlan::Mapped
    );
    let mut same = newer();
    same.migration.as_mut().unwrap().is_mapped = false;
    assert_eq!(
        plan_migration(&fixture.subject(&key()), &same),
        MigrationPlan::Safe
    );
    let blocked = scripted_program().with_version(3);
    assert_eq!(
        plan_migration(&fixture.subject(&key()), &blocked),
        MigrationPlan::Blocked(vec!["no migration rule".to_owned()])
    );
}

#[test]
fn blocked_ended_or_unknown_instances_are_rejected_with_reasons() {
    let old = scripted_program().with_version(2);
    let mut fixture = fixture_with_work(&old);
    let rejection_text = |decision| match decision {
        Decision::Reject(rejection) => rejection.to_string(),
        other => panic!("expected a rejection, got {other:?}"),
    };
    let reason = "instance cannot be migrated: no migration rule";
    assert_eq!(
        rejection_text(migrate(&fixture, &scripted_program().with_version(3))),
        reason
    );
    let unknown = Input::Control(control(ControlAction::Migrate { to: [9; 16] }));
    assert!(
        fixture
            .expect_rejection(&unknown)
            .contains("no definition has this hash")
    );
    let same = scripted_program().with_version(2);
    assert!(matches!(migrate(&fixture, &same), Decision::Ignore { .. }));
    fixture.commit(&event("Done", "d"));
    assert!(
        rejection_text(migrate(&fixture, &newer()))
            .contains("the instance has ended with the status completed")
    );
}
