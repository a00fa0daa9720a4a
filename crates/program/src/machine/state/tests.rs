//! Tests of the stored states.

use serde_json::json;

use super::*;

#[test]
fn state_of_three_steps_is_small_and_round_trips() {
    let mut state = State::new(3);
    state.vars.insert("orderId".to_owned(), Value::from("o-1"));
    let bytes = state.encode().unwrap();
    assert!(bytes.len() < 30, "{} bytes", bytes.len());
    assert_eq!(State::decode(&bytes, 3).unwrap(), state);
}

#[test]
fn full_state_round_trips() {
    let mut state = State::new(2);
    state.set_elements(1, vec![json!({ "sku": "a" }), json!(7)]);
    *state.entry_mut(StepIndex::element(1, 1)) = StepEntry {
        deadline: Some(Timestamp::from_millis(5)),
        retries: 2,
        ..StepEntry::of(StepState::Running)
    };
    state.steps[0] = StepEntry {
        deadline: Some(Timestamp::from_millis(-5)),
        ..StepEntry::of(StepState::Retrying)
    };
    state.done = vec![StepIndex::element(1, 0), StepIndex::step(0)];
    *state.entry_mut(StepIndex::element(1, 0)) = StepEntry {
        retries: 1,
        ..StepEntry::of(StepState::InDoubtAbandoned)
    };
    state.compensating_step = Some(StepIndex::element(1, 1));
    state.flags.set(Flags::PIVOTED);
    state.until = Some(Timestamp::MAX);
    let extra = state.extra_mut();
    extra
        .results
        .insert("probe".to_owned(), json!({ "frames": 3 }));
    extra.children.push((
        Name::new("child").unwrap(),
        CorrelationId::new("c1").unwrap(),
    ));
    extra
        .escalations
        .push((Name::new("ask").unwrap(), Timestamp::from_millis(9)));
    assert_eq!(State::decode(&state.encode().unwrap(), 2).unwrap(), state);
    let expires_at = Timestamp::from_millis(3);
    let kind = "Paid".parse().unwrap();
    state.extra_mut().early.push(EarlyEvent {
        kind,
        data: json!({ "amount": 1 }),
        expires_at,
        key: 0,
        envelope: None,
    });
    assert_eq!(State::decode(&state.encode().unwrap(), 2).unwrap(), state);
}

#[test]
fn state_of_another_definition_or_format_is_rejected() {
    let bytes = State::new(3).encode().unwrap();
    assert!(matches!(
        State::decode(&bytes, 2),
        Err(ProgramError::InvalidState(_))
    ));
    assert!(matches!(
        State::decode(b"junk", 3),
        Err(ProgramError::InvalidState(_))
    ));
    let mut newer = bytes;
    newer[1] = 3;
    let error =
        ProgramError::InvalidState("the state has format 3; this program reads 1 and 2".to_owned());
    assert_eq!(State::decode(&newer, 3), Err(error));
    let mut corrupt = State::new(1);
    corrupt.done.push(StepIndex::element(0, 4));
    assert!(matches!(
        State::decode(&corrupt.encode().unwrap(), 1),
        Err(ProgramError::InvalidState(_))
    ));
}

#[test]
fn only_states_with_reminders_contain_them() {
    let mut state = State::new(1);
    state.run.begin_first(2);
    let before = state.encode().unwrap();
    let reminders = |due| Reminders {
        tag: Name::new("paid").unwrap(),
        sent: 3,
        due,
    };
    for due in [Some(Timestamp::from_millis(9)), None] {
        state.run.events.reminders = vec![reminders(due)];
        let bytes = state.encode().unwrap();
        assert_eq!(State::decode(&bytes, 1).unwrap(), state);
        assert!(bytes.len() > before.len());
    }

    // A state of a release without reminders has the same bytes as one without reminders now.
    state.run.events.reminders.clear();
    assert_eq!(state.encode().unwrap(), before);
    assert_eq!(State::decode(&before, 1).unwrap(), state);
}

#[test]
fn in_doubt_state_takes_one_byte() {
    let mut state = State::new(2);
    let before = state.encode().unwrap().len();
    state.steps = vec![
        StepEntry::of(StepState::InDoubt),
        StepEntry::of(StepState::InDoubtAbandoned),
    ];
    let bytes = state.encode().unwrap();
    assert_eq!(bytes.len(), before);
    assert_eq!(State::decode(&bytes, 2).unwrap(), state);
}

/// `[1, compensating, [[completed, nil], [compensating, 5], [abandoned, nil]], [0], {"a": 1}, ["x",
/// "y", "z"], true, false]`
#[test]
fn format_1_is_decoded() {
    let bytes = [
        0x98, 1, 1, 0x93, 0x92, 3, 0xc0, 0x92, 6, 5, 0x92, 5, 0xc0, 0x91, 0, 0x81, 0xa1, b'a', 1,
        0x93, 0xa1, b'x', 0xa1, b'y', 0xa1, b'z', 0xc3, 0xc2,
    ];
    let state = State::decode(&bytes, 3).unwrap();
    assert_eq!(state.phase, Phase::Compensating);
    let states: Vec<_> = state.steps.iter().map(|entry| entry.state).collect();
    assert_eq!(
        states,
        [
            StepState::Completed,
            StepState::Compensating,
            StepState::Abandoned
        ]
    );
    assert_eq!(state.steps[1].deadline, Some(Timestamp::from_millis(5)));
    assert_eq!(
        (state.done.as_slice(), state.compensating_step),
        ([StepIndex::step(0)].as_slice(), Some(StepIndex::step(1)))
    );
    assert!(
        state.flags.has(Flags::CANCELLED)
            && state.flags.has(Flags::COMPENSATION_STARTED)
            && !state.flags.has(Flags::FACT_EMITTED)
    );
    assert_eq!(
        (&state.vars["a"], state.cause.map(|cause| cause.code)),
        (&json!(1), Some("x".to_owned()))
    );
    assert_eq!(
        state.format, FORMAT,
        "a decoded state has the current format"
    );
}
