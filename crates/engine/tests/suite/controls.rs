//! Instructions about what is stuck, and who gave them.

use orlog_model::{Action, Control, Input, Status};
use orlog_program::{Reaction, Stimulus};

use crate::support::{Puppet, Stage, applied, by, control, event, step};

fn puppet() -> Puppet {
    Puppet::new(|stimulus| {
        Ok(match stimulus {
            Stimulus::Event(event) if event.kind.as_str() == "Begun" => applied(step(Status::Stuck)),
            Stimulus::Event(_) => applied(step(Status::Running)),
            Stimulus::Skip => applied(step(Status::Compensating)),
            Stimulus::ForceComplete => applied(step(Status::Failed)),
            _ => Reaction::Ignored("nothing".into()),
        })
    })
}

#[test]
fn what_is_stuck_can_be_skipped_or_completed_by_force() {
    let program = puppet();
    for (action, status) in [(Action::Skip, Status::Compensating), (Action::ForceComplete, Status::Failed)] {
        let mut stage = Stage::begun(&program);
        assert_eq!(stage.now_instance().status, Status::Stuck);
        let commit = stage.commit(&Input::Control(control(action)));
        assert_eq!(commit.instance.unwrap().status, status);
        assert_eq!(commit.history.unwrap().note, "stepped");
    }
}

#[test]
fn what_is_not_stuck_is_neither_skipped_nor_completed_by_force() {
    let program = puppet();
    let mut stage = Stage::begun(&program);
    stage.commit(&event("Paid", "p"));
    let refused = |stage: &Stage<'_>, action| stage.refused(&Input::Control(control(action)));
    let why = "the instance is running: only what made an instance stuck can be skipped";
    assert_eq!(refused(&stage, Action::Skip), why);
    let why = "the instance is running: only a stuck instance can be completed by force";
    assert_eq!(refused(&stage, Action::ForceComplete), why);
    stage.instance.as_mut().unwrap().paused = true;
    let why = "the instance is running and paused: resume it first";
    assert_eq!([refused(&stage, Action::Skip), refused(&stage, Action::ForceComplete)], [why, why]);
    let empty = Stage::empty(&program);
    assert_eq!(refused(&empty, Action::Skip), "there is no such saga instance");
}

#[test]
fn the_history_says_who_gave_an_instruction_and_why() {
    let program = puppet();
    let mut stage = Stage::begun(&program);
    let signed = Control {
        by: Some("alice".to_owned()),
        reason: Some("refunded by hand".to_owned()),
        ..control(Action::Skip)
    };
    let note = stage.commit(&Input::Control(signed)).history.unwrap().note;
    assert_eq!(note, "skip by alice: refunded by hand; stepped");
    let note = stage.commit(&by("bob", Action::Pause)).history.unwrap().note;
    assert_eq!(note, "paused by bob");
    let reason = Control { reason: Some("calm".to_owned()), ..control(Action::Resume) };
    assert_eq!(stage.commit(&Input::Control(reason)).history.unwrap().note, "resumed: calm");
}
