//! From one definition to another.

use orlog_engine::{Decision, Plan, migrate, plan};
use orlog_model::{
    Action, ArmedTimer, Commit, Input, OpenWork, Status, Timer, TimerChange, Transition, WorkKind,
};
use orlog_program::{Migration, Reaction, Stimulus};
use uuid::Uuid;

use crate::support::{Puppet, Stage, applied, at, by, control, event, key, name, step};

fn puppet() -> Puppet {
    Puppet::new(|stimulus| {
        Ok(match stimulus {
            Stimulus::Event(event) if event.kind.as_str() == "Done" => applied(step(Status::Completed)),
            Stimulus::Event(_) => applied(step(Status::Running)),
            _ => Reaction::Ignored("nothing".into()),
        })
    })
}

/// Renames `pay` to `charge`; its timer is armed anew.
fn newer() -> Puppet {
    let timers = vec![TimerChange::Arm { name: name("charge"), due: at(9_000) }];
    let transition = Transition { state: b"moved".to_vec(), timers, ..step(Status::Running) };
    let migration = Migration { transition, tags: vec![(name("pay"), name("charge"))], mapped: true };
    puppet().numbered(3).migrating(migration)
}

fn staged(program: &Puppet) -> Stage<'_> {
    let mut stage = Stage::begun(program);
    let instance = stage.instance.as_mut().unwrap();
    instance.timers = vec![ArmedTimer { name: name("pay"), token: 1, due: at(8_000), trace: None }];
    instance.open = vec![OpenWork { id: Uuid::from_u128(1), kind: WorkKind::Effect, tag: name("pay") }];
    stage
}

fn told(stage: &Stage<'_>, to: &Puppet) -> Decision {
    let input = by("alice", Action::Migrate { to: [3; 16] });
    let Input::Control(instruction) = &input else { panic!("it is an instruction") };
    migrate(&stage.subject(&key()), to, &input, instruction)
}

#[track_caller]
fn moved(stage: &Stage<'_>, to: &Puppet) -> Commit {
    match told(stage, to) {
        Decision::Commit(commit) => *commit,
        other => panic!("expected a commit, got {other:?}"),
    }
}

#[test]
fn an_instance_goes_on_with_the_new_program_its_timers_and_tags() {
    let (old, new) = (puppet().numbered(2), newer());
    let stage = staged(&old);
    let commit = moved(&stage, &new);
    let instance = commit.instance.unwrap();
    assert_eq!((instance.program.version, &instance.state[..], instance.version), (3, &b"moved"[..], 2));
    assert_eq!(instance.open[0].tag, name("charge"));
    assert_eq!(instance.timers, [ArmedTimer { name: name("charge"), token: 2, due: at(9_000), trace: None }]);
    assert_eq!(commit.disarm, [Timer { due: at(8_000), name: name("pay"), token: 1 }]);
    assert_eq!(commit.history.unwrap().note, "migrate by alice; migrated from 2 to 3");
    assert!(commit.work.is_empty() && commit.applied.is_some());
}

#[test]
fn a_plan_says_what_would_come_of_it_and_changes_nothing() {
    let (old, new) = (puppet().numbered(2), newer());
    let stage = staged(&old);
    assert_eq!(plan(&stage.subject(&key()), &new), Plan::Mapped);
    let mut same = newer();
    same.migration.as_mut().unwrap().mapped = false;
    assert_eq!(plan(&stage.subject(&key()), &same), Plan::Safe);
    let blocked = puppet().numbered(3);
    assert_eq!(plan(&stage.subject(&key()), &blocked), Plan::Blocked(vec!["nobody said how".to_owned()]));
}

#[test]
fn what_is_blocked_ended_or_unknown_is_refused_with_the_reasons() {
    let old = puppet().numbered(2);
    let mut stage = staged(&old);
    let refused = |decision| match decision {
        Decision::Refuse(refusal) => refusal.to_string(),
        other => panic!("expected a refusal, got {other:?}"),
    };
    let why = "it must stay with its definition: nobody said how";
    assert_eq!(refused(told(&stage, &puppet().numbered(3))), why);
    let unknown = Input::Control(control(Action::Migrate { to: [9; 16] }));
    assert!(stage.refused(&unknown).contains("no definition with this hash"));
    let same = puppet().numbered(2);
    assert!(matches!(told(&stage, &same), Decision::Ignore { .. }));
    stage.commit(&event("Done", "d"));
    assert!(refused(told(&stage, &newer())).contains("it has ended"));
}
