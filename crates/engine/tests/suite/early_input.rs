//! Tests of early inputs.

use orlog_engine::{BufferedInputRef, Decision, MAX_EARLY_INPUTS, decide_without_definition};
use orlog_model::{EarlyInput, Input, Status, Timer, TimerFired};
use orlog_program::{ProgramInput, ProgramOutput};

use crate::support::{DecisionFixture, ScriptedProgram, applied, at, event, key, name, step};

const HOUR: i64 = 3_600_000;

fn scripted_program() -> ScriptedProgram {
    ScriptedProgram::new(|input| {
        Ok(match input {
            ProgramInput::Event(_) => applied(step(Status::Running)),
            _ => ProgramOutput::Ignored("nothing".into()),
        })
    })
}

fn row(due: i64) -> Timer {
    Timer {
        due: at(due),
        name: name("early"),
        token: 0,
    }
}

fn fired(due: i64) -> Input {
    Input::Timer(TimerFired {
        name: name("early"),
        token: 0,
        due: at(due),
    })
}

fn buffered_ref(number: u64, until: i64) -> BufferedInputRef {
    BufferedInputRef {
        number,
        key: event("Paid", &format!("e-{number}")).identity(),
        expires_at: at(until),
    }
}

#[test]
fn early_event_is_buffered_with_an_expiry_timer() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    let commit = fixture.commit(&event("Paid", "e-1"));
    let early = EarlyInput {
        input: Box::new(event("Paid", "e-1")),
        expires_at: at(1_000 + HOUR),
    };
    assert_eq!(commit.buffer.as_deref(), Some(&Input::Early(early)));
    assert_eq!(commit.arm, [row(1_000 + HOUR)]);
    assert!(commit.instance.is_none() && commit.dedupe_key.is_none() && commit.history.is_none());
    fixture.early.push(buffered_ref(1, 1_000 + HOUR));
    assert!(
        fixture.commit(&event("Paid", "e-2")).arm.is_empty(),
        "one timer is enough"
    );
}

#[test]
fn early_event_is_buffered_once_and_bounded() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    fixture.early = (1..=MAX_EARLY_INPUTS as u64)
        .map(|number| buffered_ref(number, 9_000))
        .collect();
    assert_eq!(
        fixture.expect_ignored(&event("Paid", "e-7")),
        "already buffered until its instance starts"
    );
    let commit = fixture.commit(&event("Paid", "e-101"));
    let dead_letter = commit.dead_letter.unwrap();
    assert_eq!(dead_letter.reason.as_str(), "early_buffer_full");
    assert!(
        dead_letter
            .message
            .contains("100 inputs are already buffered"),
        "{}",
        dead_letter.message
    );
    assert!(commit.buffer.is_none());
}

#[test]
fn unsubscribed_events_are_not_buffered() {
    let program = scripted_program();
    assert_eq!(
        DecisionFixture::empty(&program).expect_ignored(&event("Unknown", "e")),
        "no instance waits for this event"
    );
    let program = scripted_program().without_early_buffer();
    assert_eq!(
        DecisionFixture::empty(&program).expect_ignored(&event("Paid", "e")),
        "no instance waits for this event"
    );
}

#[test]
fn first_transition_disarms_the_expiry_timer() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    assert!(fixture.commit(&event("Placed", "s")).disarm.is_empty());
    let mut fixture = DecisionFixture::empty(&program);
    fixture.early = vec![buffered_ref(1, 5_000), buffered_ref(2, 6_000)];
    let commit = fixture.commit(&event("Placed", "s"));
    assert_eq!(commit.disarm, [row(5_000)]);
    fixture.early.clear();
    let commit = fixture.commit(&Input::Early(EarlyInput {
        input: Box::new(event("Paid", "e-1")),
        expires_at: at(5_000),
    }));
    assert_eq!(
        (commit.instance.unwrap().version, commit.dedupe_key),
        (2, event("Paid", "e-1").dedupe_key())
    );
}

#[test]
fn expiry_timer_drops_expired_inputs_and_rearms() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    fixture.early = vec![
        buffered_ref(4, 5_000),
        buffered_ref(5, 5_000),
        buffered_ref(6, 7_000),
    ];
    fixture.now = at(5_500);
    let commit = fixture.commit(&fired(5_000));
    assert_eq!(commit.unbuffer, [4, 5]);
    assert_eq!(
        (commit.disarm, commit.arm),
        (vec![row(5_000)], vec![row(7_000)])
    );
    fixture.early = vec![buffered_ref(6, 7_000)];
    assert_eq!(fixture.expect_ignored(&fired(5_000)), "the timer is stale");
    fixture.now = at(7_000);
    let commit = fixture.commit(&fired(7_000));
    assert_eq!((commit.unbuffer, commit.arm), (vec![6], vec![]));
}

#[test]
fn buffered_inputs_expire_without_a_definition() {
    let early = [buffered_ref(4, 5_000)];
    let decision = decide_without_definition(&key(), &early, &fired(5_000), at(5_000)).unwrap();
    let Decision::Commit(commit) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(commit.unbuffer, [4]);
    assert!(decide_without_definition(&key(), &early, &event("Paid", "e"), at(1)).is_none());
}
