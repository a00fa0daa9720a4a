//! Start requests in every state of the instance, and signal with start.

use orlog_engine::DecisionContext;
use orlog_model::{
    Commit, ControlAction, ControlRequest, Event, Fact, Input, Instance, OnExisting, PendingWork,
    SagaResult, StartRequest, StartSignal, Status, Work, WorkKind,
};
use orlog_program::{ProgramError, ProgramInput, ProgramOutput};
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    DecisionFixture, ScriptedProgram, applied, at, by, control, event, id, kind, name, step,
    with_work,
};

/// Starts on `Started`, ends with a fact on `Paid`, and ignores or rejects other start events.
fn program() -> ScriptedProgram {
    ScriptedProgram::new(|input| {
        let fact =
            |name: &str, total: u64| Work::Fact(Fact::new(kind(name), json!({ "total": total })));
        match input {
            ProgramInput::Event(Event { kind, data, .. }) => match kind.as_str() {
                "Started" if data["bad"].is_boolean() => {
                    Err(ProgramError::Evaluation("no total".to_owned()))
                }
                "Started" => Ok(applied(step(Status::Running))),
                "Paid" => Ok(with_work(
                    Status::Completed,
                    vec![fact("Noted", 1), fact("Done", 7)],
                )),
                _ => Ok(ProgramOutput::Ignored("nothing waits for it".into())),
            },
            _ => Ok(applied(step(Status::Failed))),
        }
    })
}

fn request(on_existing: OnExisting) -> StartRequest {
    StartRequest {
        event: None,
        data: json!({ "total": 7 }),
        schema_version: 1,
        subject: None,
        on_existing,
        signal: None,
    }
}

fn with_signal(on_existing: OnExisting) -> StartRequest {
    let signal = Some(StartSignal {
        kind: kind("Paid"),
        data: json!({}),
        due_at: None,
    });
    StartRequest {
        signal,
        ..request(on_existing)
    }
}

fn input(number: &str, request: StartRequest) -> Input {
    let action = ControlAction::Start(Box::new(request));
    Input::Control(ControlRequest {
        id: id(number),
        ..control(action)
    })
}

fn pending() -> PendingWork {
    let (kind, tag) = (WorkKind::Effect, name("charge"));
    PendingWork {
        id: Uuid::nil(),
        kind,
        tag,
        requested_at: at(500),
        survives_end: true,
        dead_letter: None,
        abandoned: false,
    }
}

/// Returns the fixture with an instance in this state.
fn fixture_with(
    program: &ScriptedProgram,
    change: impl FnOnce(&mut Instance),
) -> DecisionFixture<'_> {
    let mut fixture = DecisionFixture::with_instance(program);
    change(fixture.instance.as_mut().unwrap());
    fixture
}

#[test]
fn start_request_starts_a_missing_instance() {
    let program = program();
    for policy in [OnExisting::Return, OnExisting::Fail, OnExisting::Restart] {
        let mut fixture = DecisionFixture::empty(&program);
        let by_alice = by("alice", ControlAction::Start(Box::new(request(policy))));
        let commit = fixture.commit(&by_alice);
        let instance = fixture.current_instance();
        assert_eq!((instance.status, instance.version), (Status::Running, 1));
        assert_eq!(
            instance.users.as_ref().unwrap().started_by.as_deref(),
            Some("alice")
        );
        assert_eq!(commit.dedupe_key, Some(by_alice.identity()));
        assert_eq!(commit.history.unwrap().note, "start by alice; stepped");
        assert_eq!(commit.buffer, None);
    }
}

#[test]
fn start_request_for_an_existing_instance_follows_its_policy() {
    type Case = (&'static str, fn(&mut Instance), &'static str);
    let program = program();
    let cases: [Case; 5] = [
        ("running", |_| (), "only an ended instance can be restarted"),
        (
            "stuck",
            |it| it.status = Status::Stuck,
            "only an ended instance can be restarted",
        ),
        (
            "running",
            |it| it.paused = true,
            "only an ended instance can be restarted",
        ),
        (
            "completed",
            |it| (it.status, it.paused) = (Status::Completed, true),
            "pending work",
        ),
        (
            "failed",
            |it| (it.status, it.pending_work) = (Status::Failed, vec![pending()]),
            "pending work",
        ),
    ];
    for (status, change, expected) in cases {
        let fixture = fixture_with(&program, change);
        assert_eq!(
            fixture.expect_ignored(&input("s", request(OnExisting::Return))),
            "the instance exists"
        );
        let reason = fixture.expect_rejection(&input("s", request(OnExisting::Fail)));
        assert_eq!(reason, format!("the instance exists and is {status}"));
        let reason = fixture.expect_rejection(&input("s", request(OnExisting::Restart)));
        assert!(reason.contains(expected), "{status}: {reason}");
    }
}

#[test]
fn restart_begins_a_new_run_of_an_ended_instance() {
    let program = program();
    for status in [Status::Completed, Status::Failed, Status::Cancelled] {
        let mut fixture = fixture_with(&program, |it| {
            (it.status, it.version, it.reference) = (status, 5, Some("old".into()));
            it.result = Some(Box::new(SagaResult {
                event: kind("Done"),
                data: json!({}),
            }));
        });
        let old = fixture.current_instance().clone();
        fixture.now = at(9_000);
        let commit = fixture.commit(&input("s-2", request(OnExisting::Restart)));
        let new = fixture.current_instance();
        assert_eq!(
            (new.status, new.version, new.created_at),
            (Status::Running, 6, at(9_000))
        );
        assert_eq!(
            (&new.result, &new.reference),
            (&None, &None),
            "nothing of the old run remains"
        );
        assert_ne!(
            new.run_id, old.run_id,
            "results of the old run do not concern the new one"
        );
        assert_eq!(commit.history.unwrap().version, 6, "the history continues");
    }
}

#[test]
fn start_request_that_the_program_does_not_apply_is_rejected() {
    let program = program();
    let fixture = DecisionFixture::empty(&program);
    let named = |name: &str| StartRequest {
        event: Some(kind(name)),
        ..request(OnExisting::Return)
    };
    let reason = fixture.expect_rejection(&input("s", named("Paid")));
    assert_eq!(
        reason,
        "the instance was not started: \"Paid\" is not a start event of saga \"order\""
    );
    let reason = fixture.expect_rejection(&input("s", named("Placed")));
    assert_eq!(reason, "the instance was not started: nothing waits for it");
    let bad = StartRequest {
        data: json!({ "bad": true }),
        ..request(OnExisting::Return)
    };
    assert_eq!(
        fixture.expect_rejection(&input("s", bad)),
        "the instance was not started: no total",
        "no dead letter: the caller receives the reason"
    );
}

#[test]
fn signal_with_start_buffers_the_signal_in_the_commit_of_the_start() {
    let program = program();
    let mut fixture = DecisionFixture::empty(&program);
    let start = input("s", with_signal(OnExisting::Return));
    let Commit {
        buffer, dedupe_key, ..
    } = fixture.commit(&start);
    assert_eq!(
        (fixture.current_instance().status, dedupe_key),
        (Status::Running, Some(start.identity()))
    );
    let signal = *buffer.unwrap();
    assert_ne!(
        signal.identity(),
        start.identity(),
        "timers of both transitions have different tokens"
    );
    assert_eq!(signal.label(), "Paid");
    fixture.commit(&signal);
    assert_eq!(fixture.current_instance().status, Status::Completed);
}

#[test]
fn signal_with_start_delivers_the_signal_to_an_existing_instance() {
    let program = program();
    for policy in [OnExisting::Return, OnExisting::Restart] {
        let mut fixture = DecisionFixture::with_instance(&program);
        let run = fixture.current_instance().run_id;
        let commit = fixture.commit(&input("s", with_signal(policy)));
        assert_eq!(
            (fixture.current_instance().status, commit.buffer),
            (Status::Completed, None)
        );
        assert_eq!(fixture.current_instance().run_id, run);
    }
    let mut paused = fixture_with(&program, |it| it.paused = true);
    let start = input("s", with_signal(OnExisting::Return));
    assert_eq!(
        paused.commit(&start).buffer,
        Some(Box::new(start)),
        "a paused instance buffers it"
    );
    let mut ended = fixture_with(&program, |it| it.status = Status::Failed);
    let commit = ended.commit(&input("s", with_signal(OnExisting::Restart)));
    assert!(commit.buffer.is_some() && ended.current_instance().status == Status::Running);
}

#[test]
fn ended_instance_keeps_its_last_fact_as_the_result() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    assert_eq!(fixture.current_instance().result, None);
    fixture.commit(&event("Paid", "p"));
    let result = fixture.current_instance().result.as_deref().unwrap();
    assert_eq!(
        (result.event.as_str(), &result.data),
        ("Done", &json!({ "total": 7 }))
    );
    fixture.commit(&event("Started", "again"));
    assert!(
        fixture.current_instance().result.is_some(),
        "a later transition does not change the result"
    );
    let mut older = fixture_with(&program, |it| it.users = None);
    older.commit(&event("Paid", "p"));
    let ended = older.current_instance();
    assert!(
        ended.result.is_some() && ended.users.is_some(),
        "a stored result requires users"
    );
    let mut failed = DecisionFixture::with_instance(&program);
    failed.commit(&Input::Control(control(ControlAction::Cancel {
        reason: "test".to_owned(),
    })));
    assert_eq!(
        failed.current_instance().result,
        None,
        "it ended without a fact"
    );
}

#[test]
fn redelivered_start_request_decides_the_same_commit() {
    let program = program();
    let (fixture, key) = (DecisionFixture::empty(&program), crate::support::key());
    let context: DecisionContext<'_> = fixture.subject(&key);
    let start = input("s", with_signal(OnExisting::Return));
    assert_eq!(
        orlog_engine::decide(&context, &start),
        orlog_engine::decide(&context, &start)
    );
}
