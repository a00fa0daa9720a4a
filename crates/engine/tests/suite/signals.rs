//! Tests of signals: conditions, later times, and the tokens of waits.

use orlog_engine::Decision;
use orlog_model::{
    ControlAction, ControlRequest, Destination, Event, Failure, Input, OutboxKey, PendingWork,
    Priority, Status, Timer, TimerFired, Timestamp, Transition, Wait, WaitKind, WaitToken,
    WorkKind, WorkOutcome, WorkResult,
};
use orlog_program::{ProgramError, ProgramInput, ProgramOutput};
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    DecisionFixture, ScriptedProgram, applied, at, control, event, id, key, kind, name, step,
};

fn waiting(status: Status, kinds: &[(WaitKind, &str)]) -> ProgramOutput {
    let waits = kinds
        .iter()
        .map(|(kind, of)| Wait::new(*kind, name(of), None))
        .collect();
    applied(Transition {
        waits,
        ..step(status)
    })
}

/// Waits for `Paid` again and again. `Noted` changes nothing else, `Done` ends, `Broken` makes it stuck, and it ignores
/// `Unknown`.
#[expect(clippy::unnecessary_wraps, reason = "a program returns a result")]
fn respond(input: &ProgramInput<'_>) -> Result<ProgramOutput, ProgramError> {
    let paid = (WaitKind::Event, "Paid");
    Ok(match input {
        ProgramInput::Event(event) => match event.kind.as_str() {
            "Again" => {
                let wait = Wait {
                    is_new: true,
                    ..Wait::new(WaitKind::Event, name("Paid"), None)
                };
                applied(Transition {
                    waits: vec![wait],
                    ..step(Status::Running)
                })
            }
            "Unknown" => ProgramOutput::Ignored("no step awaits it".into()),
            "Done" => waiting(Status::Completed, &[]),
            "Broken" => {
                let failure = Failure {
                    code: "lost".to_owned(),
                    message: "no money".to_owned(),
                };
                let waits = vec![Wait::new(WaitKind::Operator, name("pay"), None)];
                applied(Transition {
                    waits,
                    failure: Some(failure.into()),
                    ..step(Status::Stuck)
                })
            }
            _ => waiting(Status::Running, &[paid]),
        },
        ProgramInput::Retry => waiting(Status::Stuck, &[(WaitKind::Operator, "pay")]),
        _ => waiting(Status::Running, &[paid]),
    })
}

fn program() -> ScriptedProgram {
    ScriptedProgram::new(respond)
}

fn token(fixture: &DecisionFixture<'_>) -> WaitToken {
    let instance = fixture.current_instance();
    instance.wait_token(&instance.waits[0])
}

fn signal(of: &str, number: &str, due_at: Option<Timestamp>) -> ControlRequest {
    let action = ControlAction::Signal {
        kind: kind(of),
        data: json!({ "n": number }),
        due_at,
    };
    ControlRequest {
        id: id(number),
        ..control(action)
    }
}

/// Returns a signal as the bus transports it.
fn delivered(of: &str, number: &str, due_at: Option<Timestamp>) -> ControlRequest {
    let Input::Event(event) = event(of, number) else {
        panic!("it is an event")
    };
    ControlRequest {
        id: id(number),
        ..control(ControlAction::Deliver {
            event: Box::new(event),
            due_at,
        })
    }
}

fn under(token: WaitToken, request: ControlRequest) -> Input {
    Input::Control(ControlRequest {
        wait_token: Some(token),
        ..request
    })
}

fn fired(timer: &Timer) -> Input {
    Input::Timer(TimerFired {
        name: timer.name.clone(),
        token: timer.token,
        due: timer.due,
    })
}

/// Requirements: E2, E3.
#[test]
fn wait_keeps_its_token_until_an_event_of_its_type_is_applied() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let first = token(&fixture);
    fixture.commit(&event("Noted", "n-1"));
    assert_eq!(token(&fixture), first);
    fixture.commit(&under(first, signal("Paid", "s-1", None)));
    let second = token(&fixture);
    assert_ne!(second, first);
    for request in [
        signal("Paid", "s-2", None),
        delivered("Paid", "s-3", None),
        control(ControlAction::Pause),
    ] {
        assert!(
            fixture
                .expect_rejection(&under(first, request))
                .contains(&format!("the wait {first} has ended"))
        );
    }
    fixture.commit(&under(second, delivered("Paid", "s-4", None)));
    assert!(token(&fixture) != second && token(&fixture) != first);
}

/// A loop can await the same event again after another one.
///
/// Requirements: E2.
#[test]
fn wait_that_the_program_began_again_has_another_token() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let first = token(&fixture);
    let commit = fixture.commit(&event("Again", "a-1"));
    assert_ne!(token(&fixture), first);
    assert!(
        !commit.instance.unwrap().waits[0].is_new,
        "the mark is not stored"
    );
}

/// Requirements: E2.
#[test]
fn decision_with_the_token_of_an_earlier_stop_is_stale() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    fixture.commit(&event("Broken", "b-1"));
    let first = token(&fixture);
    fixture.commit(&under(first, control(ControlAction::Retry)));
    assert_eq!(fixture.current_instance().status, Status::Stuck);
    assert_ne!(token(&fixture), first);
    assert!(
        fixture
            .expect_rejection(&under(first, control(ControlAction::Skip)))
            .contains("has ended")
    );
}

/// A compensation that may have been executed keeps its work id when it is requested again.
///
/// Requirements: E2.
#[test]
fn decision_with_the_token_of_an_earlier_timeout_of_the_same_work_is_stale() {
    let program = ScriptedProgram::new(|input| {
        Ok(match input {
            ProgramInput::WorkResult { .. } => {
                waiting(Status::Stuck, &[(WaitKind::Operator, "pay")])
            }
            _ => waiting(Status::Compensating, &[]),
        })
    });
    let mut fixture = DecisionFixture::with_instance(&program);
    let mut time_out = |requested_at| {
        let (id, kind) = (Uuid::from_u128(7), WorkKind::Effect);
        let tag = name("compensate:pay");
        let open = PendingWork {
            id,
            kind,
            tag,
            requested_at,
            survives_end: true,
            dead_letter: None,
            abandoned: false,
        };
        fixture.instance.as_mut().unwrap().pending_work.push(open);
        let destination = Destination {
            kind,
            tenant: key().tenant,
            name: "pay.refund".into(),
            priority: Priority::Normal,
        };
        let failure = Failure {
            code: "lost".to_owned(),
            message: "no response".to_owned(),
        };
        fixture.commit(&Input::WorkResult(WorkResult {
            work_id: id,
            outbox_key: OutboxKey {
                destination,
                sequence: 1,
            },
            outcome: WorkOutcome::TimedOut { failure },
            requested_at,
            attempts: 1,
            at: requested_at,
            facts: Vec::new(),
            publishes: false,
            trace: None,
            attempt_log: None,
        }));
        let stopped = token(&fixture);
        fixture.commit(&under(stopped, control(ControlAction::Retry)));
        stopped
    };
    assert_ne!(time_out(at(2_000)), time_out(at(3_000)));
}

/// The tokens of another run of the same instance differ, and those of a repeated decision do not.
///
/// Requirements: E2.
#[test]
fn token_derives_from_the_run_and_the_input() {
    let program = program();
    let tokens = |start: &str, paid: &str| {
        let mut fixture = DecisionFixture::empty(&program);
        fixture.commit(&event("Started", start));
        let first = token(&fixture);
        fixture.commit(&event("Paid", paid));
        (first, token(&fixture))
    };
    assert_eq!(tokens("a", "p-1"), tokens("a", "p-1"));
    assert_eq!(tokens("a", "p-1").0, tokens("a", "p-2").0);
    assert_ne!(tokens("a", "p-1").1, tokens("a", "p-2").1);
    assert_ne!(tokens("a", "p-1").0, tokens("b", "p-1").0);
}

/// Requirements: E3, E6.
#[test]
fn later_signal_is_a_timer_that_delivers_it_once() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let request = Input::Control(signal("Paid", "s-1", Some(at(5_000))));
    let before = token(&fixture);
    let commit = fixture.commit(&request);
    let [timer] = &commit.arm[..] else {
        panic!("{:?}", commit.arm)
    };
    assert_eq!((timer.name.as_str(), timer.due), ("signal:s-1", at(5_000)));
    assert_eq!(
        commit.history.unwrap().note,
        "Paid: scheduled for 1970-01-01T00:00:05.000Z"
    );
    assert_eq!(
        token(&fixture),
        before,
        "a signal that is not delivered ends no wait"
    );
    assert!(commit.dedupe_key.is_some());
    // After the dedupe window, the timer identifies the signal.
    assert_eq!(
        fixture.expect_ignored(&request),
        "the signal is already scheduled"
    );
    fixture.commit(&event("Noted", "n-1"));
    fixture.now = at(5_000);
    let fired = fired(timer);
    let commit = fixture.commit(&fired);
    assert_eq!(
        (commit.disarm, commit.instance.unwrap().timers.len()),
        (vec![timer.clone()], 0)
    );
    assert_ne!(token(&fixture), before);
    assert_eq!(fixture.expect_ignored(&fired), "the timer is stale");
    // A signal whose time has passed is delivered at once.
    let commit = fixture.commit(&Input::Control(signal("Paid", "s-2", Some(at(5_000)))));
    assert!(commit.arm.is_empty());
}

/// Requirements: E3.
#[test]
fn later_signal_whose_wait_has_ended_is_recorded_and_not_applied() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let commit = fixture.commit(&under(
        token(&fixture),
        signal("Paid", "s-1", Some(at(5_000))),
    ));
    fixture.commit(&event("Paid", "p-1"));
    let after = token(&fixture);
    fixture.now = at(5_000);
    let late = fixture.commit(&fired(&commit.arm[0]));
    assert_eq!(
        late.history.unwrap().note,
        "Paid: stale signal, its wait has ended"
    );
    assert_eq!(
        (late.instance.unwrap().timers.len(), token(&fixture)),
        (0, after)
    );
    let commit = fixture.commit(&Input::Control(signal("Unknown", "s-2", Some(at(9_000)))));
    fixture.now = at(9_000);
    let ignored = fixture.commit(&fired(&commit.arm[0]));
    assert_eq!(
        ignored.history.unwrap().note,
        "Unknown: ignored, no step awaits it"
    );
    assert!(ignored.instance.unwrap().timers.is_empty());
}

/// Requirements: E3, E6.
#[test]
fn end_of_the_instance_cancels_later_signals_and_a_stop_does_not() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let armed = fixture
        .commit(&Input::Control(signal("Paid", "s-1", Some(at(5_000)))))
        .arm;
    let stuck = fixture.commit(&event("Broken", "b-1"));
    assert_eq!(
        (stuck.disarm.len(), stuck.instance.unwrap().timers.len()),
        (0, 1)
    );
    let ended = fixture.commit(&event("Done", "d-1"));
    assert_eq!(
        (ended.disarm, ended.instance.unwrap().timers.len()),
        (armed.clone(), 0)
    );
    assert_eq!(
        fixture.expect_ignored(&fired(&armed[0])),
        "the timer is stale"
    );
    let later = Input::Control(signal("Paid", "s-2", Some(at(5_000))));
    assert_eq!(fixture.expect_ignored(&later), "the instance has ended");
}

#[test]
fn number_and_size_of_later_signals_are_limited() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    for number in 0..100 {
        fixture.commit(&Input::Control(signal(
            "Paid",
            &format!("s-{number}"),
            Some(at(5_000)),
        )));
    }
    let next = Input::Control(signal("Paid", "s-100", Some(at(5_000))));
    assert!(
        fixture
            .expect_rejection(&next)
            .contains("at most 100 signals")
    );
    let mut fixture = DecisionFixture::with_instance(&program);
    let large = "x".repeat(65 << 10);
    let action = ControlAction::Signal {
        kind: kind("Paid"),
        data: json!(large),
        due_at: Some(at(5_000)),
    };
    assert!(
        fixture
            .expect_rejection(&Input::Control(control(action)))
            .contains("64 KiB")
    );
    fixture.commit(&event("Noted", "n-1"));
}

/// Requirements: E3.
#[test]
fn paused_instance_buffers_a_signal_with_a_token_and_rejects_one_with_a_version() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let first = token(&fixture);
    fixture.commit(&Input::Control(control(ControlAction::Pause)));
    let buffered = fixture
        .commit(&under(first, signal("Paid", "s-1", None)))
        .buffer
        .unwrap();
    let request = signal("Paid", "s-2", None);
    let expected_version = Some(fixture.current_instance().version);
    let versioned = Input::Control(ControlRequest {
        expected_version,
        ..request
    });
    assert!(
        fixture
            .expect_rejection(&versioned)
            .contains("resume it first")
    );
    fixture.commit(&Input::Control(control(ControlAction::Resume)));
    fixture.commit(&event("Paid", "p-1"));
    assert!(
        fixture.expect_rejection(&buffered).contains("has ended"),
        "an earlier input ended the wait"
    );
}

/// Requirements: E3.
#[test]
fn signal_of_the_bus_meets_a_missing_instance_like_an_event() {
    let program = program();
    let fixture = DecisionFixture::empty(&program);
    let commit = |request| match fixture.decide(&Input::Control(request)) {
        Decision::Commit(commit) => commit,
        other => panic!("{other:?}"),
    };
    let conditional = |request| ControlRequest {
        expected_version: Some(3),
        ..request
    };
    assert!(
        commit(delivered("Paid", "s-1", Some(at(5_000))))
            .buffer
            .is_some()
    );
    assert!(
        commit(delivered("Started", "s-2", Some(at(500))))
            .instance
            .is_some()
    );
    for rejected in [
        delivered("Started", "s-3", Some(at(5_000))),
        conditional(delivered("Paid", "s-4", None)),
        conditional(delivered("Started", "s-5", None)),
        signal("Paid", "s-6", Some(at(5_000))),
    ] {
        assert_eq!(
            fixture.expect_rejection(&Input::Control(rejected)),
            "saga instance not found"
        );
    }
}

/// A replay can arm the timer of the same input for another time.
///
/// Requirements: E6.
#[test]
fn fired_timer_with_another_due_time_is_stale() {
    let program = program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let armed = fixture
        .commit(&Input::Control(signal("Paid", "s-1", Some(at(5_000)))))
        .arm;
    let old = Timer {
        due: at(4_000),
        ..armed[0].clone()
    };
    assert_eq!(fixture.expect_ignored(&fired(&old)), "the timer is stale");
    fixture.commit(&fired(&armed[0]));
}

/// Requirements: E2.
#[test]
fn later_failure_keeps_the_cause_of_the_compensation() {
    #[expect(clippy::unnecessary_wraps, reason = "a program returns a result")]
    fn failing(input: &ProgramInput<'_>) -> Result<ProgramOutput, ProgramError> {
        let fail = |code: &str, status| {
            let failure = Failure {
                code: code.to_owned(),
                message: "no".to_owned(),
            };
            applied(Transition {
                failure: Some(failure.into()),
                ..step(status)
            })
        };
        let ProgramInput::Event(Event { kind, .. }) = input else {
            return Ok(applied(step(Status::Running)));
        };
        Ok(match kind.as_str() {
            "Declined" => fail("declined", Status::Compensating),
            "Lost" => fail("lost", Status::Stuck),
            "Gone" => fail("gone", Status::Stuck),
            "Late" => fail("late", Status::Running),
            _ => applied(step(Status::Running)),
        })
    }
    let program = ScriptedProgram::new(failing);
    let mut fixture = DecisionFixture::with_instance(&program);
    let codes = |fixture: &DecisionFixture<'_>| {
        let error = fixture.current_instance().last_error.as_ref().unwrap();
        (
            error.code.clone(),
            error.cause.as_ref().map(|cause| cause.code.clone()),
        )
    };
    fixture.commit(&event("Late", "1"));
    fixture.commit(&event("Noted", "n-1"));
    assert_eq!(codes(&fixture), ("late".to_owned(), None));
    fixture.now = at(2_000);
    fixture.commit(&event("Declined", "2"));
    assert_eq!(
        codes(&fixture),
        ("declined".to_owned(), None),
        "the saga ran on after the first failure"
    );
    fixture.now = at(3_000);
    for (of, number) in [("Lost", "3"), ("Gone", "4")] {
        fixture.commit(&event(of, number));
        assert_eq!(
            codes(&fixture),
            (of.to_lowercase(), Some("declined".to_owned()))
        );
    }
    let error = fixture.current_instance().last_error.as_ref().unwrap();
    assert_eq!(
        (error.at, error.cause.as_ref().unwrap().at),
        (Some(at(3_000)), Some(at(2_000)))
    );
}
