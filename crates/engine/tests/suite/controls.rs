//! Control requests for stuck instances, and the users who send them.

use orlog_model::{ControlAction, ControlRequest, Input, Status};
use orlog_program::{ProgramInput, ProgramOutput};

use serde_json::Value;

use crate::support::{DecisionFixture, ScriptedProgram, applied, by, control, event, kind, step};

fn scripted_program() -> ScriptedProgram {
    ScriptedProgram::new(|input| {
        Ok(match input {
            ProgramInput::Event(event) if event.kind.as_str() == "Started" => {
                applied(step(Status::Stuck))
            }
            ProgramInput::Event(_) => applied(step(Status::Running)),
            ProgramInput::Skip => applied(step(Status::Compensating)),
            ProgramInput::ForceComplete => applied(step(Status::Failed)),
            _ => ProgramOutput::Ignored("nothing".into()),
        })
    })
}

#[test]
fn stuck_instance_can_be_skipped_or_force_completed() {
    let program = scripted_program();
    for (action, status) in [
        (ControlAction::Skip, Status::Compensating),
        (ControlAction::ForceComplete, Status::Failed),
    ] {
        let mut fixture = DecisionFixture::with_instance(&program);
        assert_eq!(fixture.current_instance().status, Status::Stuck);
        let commit = fixture.commit(&Input::Control(control(action)));
        assert_eq!(commit.instance.unwrap().status, status);
        assert_eq!(commit.history.unwrap().note, "stepped");
    }
}

#[test]
fn skip_and_force_complete_require_a_stuck_instance() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::with_instance(&program);
    fixture.commit(&event("Paid", "p"));
    let rejection = |fixture: &DecisionFixture<'_>, action| {
        fixture.expect_rejection(&Input::Control(control(action)))
    };
    let reason = "the instance is running: only a stuck instance can skip";
    assert_eq!(rejection(&fixture, ControlAction::Skip), reason);
    let reason = "the instance is running: only a stuck instance can be force-completed";
    assert_eq!(rejection(&fixture, ControlAction::ForceComplete), reason);
    fixture.instance.as_mut().unwrap().paused = true;
    let reason = "the instance is running and paused: resume it first";
    assert_eq!(
        [
            rejection(&fixture, ControlAction::Skip),
            rejection(&fixture, ControlAction::ForceComplete)
        ],
        [reason, reason]
    );
    let empty = DecisionFixture::empty(&program);
    assert_eq!(
        rejection(&empty, ControlAction::Skip),
        "saga instance not found"
    );
}

#[test]
fn history_records_user_and_reason() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let request = ControlRequest {
        user: Some("alice".to_owned()),
        reason: Some("refunded manually".to_owned()),
        ..control(ControlAction::Skip)
    };
    let note = fixture
        .commit(&Input::Control(request))
        .history
        .unwrap()
        .note;
    assert_eq!(note, "skip by alice: refunded manually; stepped");
    let note = fixture
        .commit(&by("bob", ControlAction::Pause))
        .history
        .unwrap()
        .note;
    assert_eq!(note, "paused by bob");
    let reason = ControlRequest {
        reason: Some("approved".to_owned()),
        ..control(ControlAction::Resume)
    };
    assert_eq!(
        fixture
            .commit(&Input::Control(reason))
            .history
            .unwrap()
            .note,
        "resumed: approved"
    );
}

#[test]
fn only_the_declared_signal_starts_an_instance() {
    let program = scripted_program()
        .with_manifest(|manifest| manifest.started_by_signal = Some(kind("Opened")));
    let signal = |of| {
        Input::Control(control(ControlAction::Signal {
            kind: kind(of),
            data: Value::Null,
            due_at: None,
        }))
    };
    let mut fixture = DecisionFixture::empty(&program);
    assert_eq!(
        fixture.expect_rejection(&signal("Paid")),
        "saga instance not found"
    );
    assert_eq!(
        fixture.expect_ignored(&event("Opened", "o")),
        "no instance waits for this event"
    );
    let commit = fixture.commit(&signal("Opened"));
    assert_eq!(commit.instance.unwrap().version, 1);
}

#[test]
fn history_limit_deletes_the_oldest_entry() {
    let program = scripted_program().with_manifest(|manifest| manifest.history_limit = Some(3));
    let mut fixture = DecisionFixture::with_instance(&program);
    let forgotten: Vec<_> = (2..7)
        .map(|number| fixture.commit(&event("Paid", &number.to_string())).forgets)
        .collect();
    assert_eq!(forgotten, [None, None, Some(1), Some(2), Some(3)]);
}
