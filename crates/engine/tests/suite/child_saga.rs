//! Tests of child sagas.

use orlog_engine::{Decision, decide_without_definition};
use orlog_model::{
    ChildResult, Commit, Fact, Failure, Input, MAX_CHILD_DEPTH, NotifyParent, ParentEndPolicy,
    ParentRef, StartChild, Status, Work, WorkKind, WorkOutcome, WorkflowAction, WorkflowCommand,
};
use orlog_program::{ProgramError, ProgramInput, ProgramOutput};
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    DecisionFixture, ScriptedProgram, applied, at, event, id, key, kind, name, named, step,
    with_work,
};

const WORK: Uuid = Uuid::from_u128(77);

fn scripted_program() -> ScriptedProgram {
    ScriptedProgram::new(|input| {
        let fact = || {
            vec![Work::Fact(Fact::new(
                kind("Fitted"),
                json!({ "laptop": 3 }),
            ))]
        };
        Ok(match input {
            ProgramInput::Event(event) => match event.kind.as_str() {
                "Started" | "Placed" if event.data == json!("bad") => {
                    return Err(ProgramError::SchemaMismatch("no laptop".to_owned()));
                }
                "Started" => applied(step(Status::Running)),
                "Placed" => with_work(Status::Running, vec![child()]),
                "Done" => with_work(Status::Completed, fact()),
                "Broke" => with_work(Status::Failed, fact()),
                _ => ProgramOutput::Ignored("unknown".into()),
            },
            ProgramInput::WorkResult { outcome, .. } => match outcome {
                WorkOutcome::Succeeded { event, payload, .. } => applied(orlog_model::Transition {
                    note: format!("{event:?} {payload}"),
                    ..step(Status::Running)
                }),
                WorkOutcome::Failed { failure, .. } => applied(orlog_model::Transition {
                    note: failure.code.clone(),
                    ..step(Status::Failed)
                }),
                WorkOutcome::Accepted | WorkOutcome::TimedOut { .. } => {
                    ProgramOutput::Ignored("no end".into())
                }
            },
            ProgramInput::Cancel { reason: "too late" } => {
                ProgramOutput::Rejected("the instance is past the pivot".into())
            }
            ProgramInput::Cancel { .. } => applied(step(Status::Cancelled)),
            _ => ProgramOutput::Ignored("nothing".into()),
        })
    })
}

fn child() -> Work {
    child_with(ParentEndPolicy::Stop)
}

fn child_with(on_parent_end: ParentEndPolicy) -> Work {
    let key = named("equipment", "e-1");
    Work::StartChild(StartChild {
        round: 0,
        tag: name("kit"),
        saga: key.saga,
        correlation: key.correlation,
        event: None,
        data: json!({}),
        on_parent_end,
    })
}

#[test]
fn abandoned_child_is_not_pending_work_after_the_end_of_its_parent() {
    let program = ScriptedProgram::new(|input| {
        let ProgramInput::Event(event) = input else {
            return Ok(applied(step(Status::Running)));
        };
        let start = |policy| with_work(Status::Running, vec![child_with(policy)]);
        Ok(match event.kind.as_str() {
            "Placed" => start(ParentEndPolicy::Stop),
            "Left" => start(ParentEndPolicy::Abandon),
            "Awaited" => start(ParentEndPolicy::Wait),
            _ => applied(step(Status::Completed)),
        })
    });
    for (kind, survives) in [("Placed", true), ("Left", false), ("Awaited", true)] {
        let mut fixture = DecisionFixture::with_instance(&program);
        fixture.commit(&event(kind, "1"));
        assert_eq!(fixture.current_instance().pending_work.len(), 1, "{kind}");
        fixture.commit(&event("Done", "2"));
        assert_eq!(
            fixture.current_instance().pending_work.len(),
            usize::from(survives),
            "{kind}"
        );
    }
}

fn workflow_command(number: &str, action: WorkflowAction) -> Input {
    Input::Workflow(WorkflowCommand {
        id: id(number),
        at: at(600),
        trace: None,
        action,
    })
}

fn start_command(event: Option<&str>, depth: u16, data: serde_json::Value) -> Input {
    let parent = ParentRef {
        key: named("trip", "t-1"),
        work_id: WORK,
        depth,
    };
    workflow_command(
        "start",
        WorkflowAction::Start {
            parent,
            event: event.map(kind),
            data,
            user: Some("ada".to_owned()),
        },
    )
}

fn cancel(from: &str, reason: &str) -> Input {
    workflow_command(
        "cancel",
        WorkflowAction::Cancel {
            from: named("trip", from),
            reason: reason.to_owned(),
        },
    )
}

/// Returns the notification of the parent in a commit.
#[track_caller]
fn child_result(commit: &Commit) -> ChildResult {
    let results = commit.work.iter().filter_map(|item| match &item.work {
        Work::NotifyParent(NotifyParent { to, ended }) if *to == named("trip", "t-1") => {
            Some(ended.clone())
        }
        _ => None,
    });
    let results: Vec<_> = results.collect();
    let [ended] = &results[..] else {
        panic!("{:?}", commit.work)
    };
    ended.clone()
}

#[track_caller]
fn rejection(commit: &Commit) -> (String, String) {
    let Failure { code, message } = child_result(commit).failure.unwrap();
    (code, message)
}

#[test]
fn child_starts_with_the_named_or_first_start_event() {
    let program = scripted_program();
    for (named_event, label) in [(None, "start"), (Some("Placed"), "start")] {
        let mut fixture = DecisionFixture::empty(&program);
        let commit = fixture.commit(&start_command(named_event, 1, json!({})));
        let instance = fixture.current_instance();
        assert_eq!(instance.parent.as_ref().unwrap().work_id, WORK);
        assert_eq!(
            instance.users.as_ref().unwrap().started_by.as_deref(),
            Some("ada")
        );
        assert_eq!(
            (
                commit.dedupe_key,
                commit.history.unwrap().input_label.as_str()
            ),
            (start_command(named_event, 1, json!({})).dedupe_key(), label)
        );
        assert_eq!(
            instance.pending_work.len(),
            usize::from(named_event.is_some())
        );
    }
}

#[test]
fn duplicate_start_is_ignored_and_conflicting_start_fails() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    fixture.commit(&start_command(None, 1, json!({})));
    assert_eq!(
        fixture.expect_ignored(&start_command(None, 1, json!({}))),
        "already started by this command"
    );
    let mut fixture = DecisionFixture::with_instance(&program);
    let before = fixture.instance.clone();
    let commit = fixture.commit(&start_command(None, 1, json!({})));
    assert_eq!(rejection(&commit).0, "already_exists");
    assert_eq!(
        (commit.instance, commit.dedupe_key),
        (None, start_command(None, 1, json!({})).dedupe_key())
    );
    assert_eq!(fixture.instance, before);
}

#[test]
fn history_of_a_child_names_the_id_that_does_not_reach_it() {
    let program = scripted_program();
    let note = |fixture: &mut DecisionFixture<'_>| {
        fixture
            .commit(&start_command(None, 1, json!({})))
            .history
            .unwrap()
            .note
    };
    assert!(!note(&mut DecisionFixture::empty(&program)).contains("do not reach it"));
    let elsewhere = scripted_program().correlating_to("v-1");
    let note = note(&mut DecisionFixture::empty(&elsewhere));
    assert!(
        note.contains("its events with the correlation id v-1 do not reach it"),
        "{note}"
    );
}

#[test]
fn failed_start_is_reported_to_the_parent() {
    let program = scripted_program();
    let fixture = || DecisionFixture::empty(&program);
    let commit = fixture().commit(&start_command(None, MAX_CHILD_DEPTH + 1, json!({})));
    let reason = "17 ancestor sagas exceed the limit of 16".to_owned();
    assert_eq!(rejection(&commit), ("too_deep".to_owned(), reason));
    assert!(commit.instance.is_none());
    let reason = "\"Paid\" is not a start event of saga \"order\"".to_owned();
    let commit_of_other_event = fixture().commit(&start_command(Some("Paid"), 1, json!({})));
    assert_eq!(
        rejection(&commit_of_other_event),
        ("no_start_event".to_owned(), reason)
    );
    let (code, message) = rejection(&fixture().commit(&start_command(None, 1, json!("bad"))));
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("start_rejected", "no laptop")
    );
    let repeated = fixture().commit(&start_command(None, MAX_CHILD_DEPTH + 1, json!({})));
    assert_eq!(
        repeated.work[0].id, commit.work[0].id,
        "the same rejection has the same id"
    );
    let decision =
        decide_without_definition(&key(), &[], &start_command(None, 1, json!({})), at(1)).unwrap();
    let Decision::Commit(commit) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(rejection(&commit).0, "unknown_saga");
}

#[test]
fn start_of_a_child_that_has_ended_repeats_its_end() {
    let program = scripted_program();
    for (kind, failure) in [("Done", None), ("Broke", Some("child_failed"))] {
        let mut fixture = DecisionFixture::empty(&program);
        fixture.commit(&start_command(None, 1, json!({})));
        let ended = child_result(&fixture.commit(&event(kind, "d")));
        let repeated = fixture.commit(&start_command(None, 1, json!({})));
        assert_eq!(child_result(&repeated), ended);
        assert_eq!(
            ended.failure.map(|failure| failure.code),
            failure.map(str::to_owned)
        );
        assert_eq!(
            (repeated.instance, repeated.history),
            (None, None),
            "the child itself does not change"
        );
    }
}

#[test]
fn ended_child_notifies_its_parent_once() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    fixture.commit(&start_command(None, 1, json!({})));
    let ended = child_result(&fixture.commit(&event("Done", "d")));
    let expected = ChildResult {
        work_id: WORK,
        failure: None,
        event: Some(kind("Fitted")),
        data: json!({ "laptop": 3 }),
    };
    assert_eq!(ended, expected);
    assert!(
        fixture
            .commit(&event("Broke", "x"))
            .work
            .iter()
            .all(|item| item.work.kind() != WorkKind::Saga)
    );
    let mut fixture = DecisionFixture::empty(&program);
    fixture.commit(&start_command(None, 1, json!({})));
    assert_eq!(
        child_result(&fixture.commit(&event("Broke", "x")))
            .failure
            .unwrap()
            .code,
        "child_failed"
    );
    let mut fixture = DecisionFixture::with_instance(&program);
    assert_eq!(
        fixture.commit(&event("Done", "d")).work.len(),
        1,
        "it has no parent"
    );
}

#[test]
fn child_end_completes_the_parents_work() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    let work_id = fixture.commit(&event("Placed", "p")).work[0].id;
    let end = |failure, work_id| {
        let ended = ChildResult {
            work_id,
            failure,
            event: Some(kind("Fitted")),
            data: json!(5),
        };
        workflow_command("ended", WorkflowAction::ChildEnded(ended))
    };
    assert_eq!(
        fixture.expect_ignored(&end(None, WORK)),
        "no pending work waits for the end of this saga"
    );
    assert_eq!(
        DecisionFixture::empty(&program).expect_ignored(&end(None, WORK)),
        "no pending work waits for the end of this saga"
    );
    fixture.instance.as_mut().unwrap().paused = true;
    assert_eq!(
        fixture.commit(&end(None, work_id)).buffer.as_deref(),
        Some(&end(None, work_id))
    );
    fixture.instance.as_mut().unwrap().paused = false;
    let commit = fixture.commit(&end(None, work_id));
    assert_eq!(commit.history.unwrap().note, "Some(\"Fitted\") 5");
    assert!(commit.instance.unwrap().pending_work.is_empty());
    assert_eq!(
        fixture.expect_ignored(&end(None, work_id)),
        "no pending work waits for the end of this saga"
    );
    let mut fixture = DecisionFixture::empty(&program);
    let work_id = fixture.commit(&event("Placed", "p")).work[0].id;
    let failure = Failure {
        code: "child_failed".to_owned(),
        message: "no".to_owned(),
    };
    let commit = fixture.commit(&end(Some(failure), work_id));
    assert_eq!(commit.history.unwrap().note, "child_failed");
}

#[test]
fn only_the_parent_can_cancel_a_child() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    assert!(
        fixture
            .commit(&cancel("t-1", "no longer needed"))
            .buffer
            .is_some(),
        "it arrived before the start and is buffered"
    );
    fixture.commit(&start_command(None, 1, json!({})));
    assert_eq!(
        fixture.expect_ignored(&cancel("t-2", "x")),
        "the cancel command is not from its parent"
    );
    assert!(
        fixture
            .expect_rejection(&cancel("t-1", "too late"))
            .contains("past the pivot")
    );
    let commit = fixture.commit(&cancel("t-1", "no longer needed"));
    assert_eq!(
        (
            child_result(&commit).failure.unwrap().code.as_str(),
            commit.dedupe_key
        ),
        (
            "child_cancelled",
            cancel("t-1", "no longer needed").dedupe_key()
        )
    );
    assert_eq!(
        fixture.expect_ignored(&cancel("t-1", "no longer needed")),
        "it has ended"
    );
}

#[test]
fn ended_parent_receives_a_late_child_completion() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    fixture.commit(&event("Placed", "p"));
    let commit = fixture.commit(&event("Broke", "x"));
    assert_eq!(commit.instance.unwrap().pending_work.len(), 1);
}

#[test]
fn compensation_of_a_late_success_keeps_the_result_of_the_instance() {
    let program = ScriptedProgram::new(|input| {
        let fact = || {
            vec![Work::Fact(Fact::new(
                kind("OrderFailed"),
                json!({ "reason": "late" }),
            ))]
        };
        Ok(match input {
            ProgramInput::Event(event) => match event.kind.as_str() {
                "Started" => applied(step(Status::Running)),
                "Broke" => with_work(Status::Failed, fact()),
                "Late" => applied(step(Status::Compensating)),
                _ => applied(step(Status::Failed)),
            },
            _ => ProgramOutput::Ignored("nothing".into()),
        })
    });
    let mut fixture = DecisionFixture::with_instance(&program);
    let mut result = |kind, data| {
        let next = fixture.commit(&event(kind, data)).instance.unwrap();
        (
            next.status,
            next.result.as_ref().map(|result| result.event.to_string()),
        )
    };
    assert_eq!(
        result("Broke", "1"),
        (Status::Failed, Some("OrderFailed".to_owned()))
    );
    assert_eq!(
        result("Late", "2"),
        (Status::Compensating, Some("OrderFailed".to_owned()))
    );
    assert_eq!(
        result("Compensated", "3"),
        (Status::Failed, Some("OrderFailed".to_owned()))
    );
}

#[test]
fn result_that_is_a_dead_letter_is_awaited_after_the_end_only_if_it_came_later() {
    let program = scripted_program();
    let mark = |fixture: &mut DecisionFixture<'_>| {
        fixture.instance.as_mut().unwrap().pending_work[0].dead_letter = Some(WORK);
    };
    let pending = |commit: Commit| commit.instance.unwrap().pending_work.len();
    let mut fixture = DecisionFixture::empty(&program);
    fixture.commit(&event("Placed", "p"));
    mark(&mut fixture);
    assert_eq!(
        pending(fixture.commit(&event("Broke", "x"))),
        0,
        "the program saw it before the end"
    );
    let mut fixture = DecisionFixture::empty(&program);
    fixture.commit(&event("Placed", "p"));
    assert_eq!(pending(fixture.commit(&event("Broke", "x"))), 1);
    mark(&mut fixture);
    assert_eq!(
        pending(fixture.commit(&event("Broke", "y"))),
        1,
        "its late success must be compensated"
    );
}
