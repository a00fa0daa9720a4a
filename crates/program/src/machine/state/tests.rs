//! States as they are stored.

use serde_json::json;

use super::*;

#[test]
fn a_state_of_three_steps_is_small_and_survives_storing() {
    let mut state = State::new(3);
    state.vars.insert("orderId".to_owned(), Value::from("o-1"));
    let bytes = state.encode().unwrap();
    assert!(bytes.len() < 30, "{} bytes", bytes.len());
    assert_eq!(State::decode(&bytes, 3).unwrap(), state);
}

#[test]
fn everything_there_is_to_remember_survives_storing() {
    let mut state = State::new(2);
    state.set_elements(1, vec![json!({ "sku": "a" }), json!(7)]);
    *state.slot_mut(At::element(1, 1)) =
        Slot { mark: Mark::Open, until: Some(Timestamp::from_millis(5)), again: 2 };
    state.steps[0] = Slot { mark: Mark::Pausing, until: Some(Timestamp::from_millis(-5)), again: 0 };
    state.done = vec![At::element(1, 0), At::step(0)];
    *state.slot_mut(At::element(1, 0)) = Slot { mark: Mark::AskingLate, until: None, again: 1 };
    state.undo = Some(At::element(1, 1));
    state.flags.set(Flags::PIVOTED);
    state.until = Some(Timestamp::MAX);
    let extra = state.extra_mut();
    extra.results.insert("probe".to_owned(), json!({ "frames": 3 }));
    extra.children.push((Name::new("child").unwrap(), CorrelationId::new("c1").unwrap()));
    extra.escalations.push((Name::new("ask").unwrap(), Timestamp::from_millis(9)));
    assert_eq!(State::decode(&state.encode().unwrap(), 2).unwrap(), state);
}

#[test]
fn a_state_of_another_definition_or_format_is_refused() {
    let bytes = State::new(3).encode().unwrap();
    assert!(matches!(State::decode(&bytes, 2), Err(Fault::State(_))));
    assert!(matches!(State::decode(b"junk", 3), Err(Fault::State(_))));
    let mut newer = bytes;
    newer[1] = 3;
    let refused = Fault::State("its format is 3, this program reads 1 and 2".to_owned());
    assert_eq!(State::decode(&newer, 3), Err(refused));
    let mut wild = State::new(1);
    wild.done.push(At::element(0, 4));
    assert!(matches!(State::decode(&wild.encode().unwrap(), 1), Err(Fault::State(_))));
}

#[test]
fn a_question_takes_one_byte() {
    let mut state = State::new(2);
    let before = state.encode().unwrap().len();
    state.steps = vec![Slot::of(Mark::Asking), Slot::of(Mark::AskingLate)];
    let bytes = state.encode().unwrap();
    assert_eq!(bytes.len(), before);
    assert_eq!(State::decode(&bytes, 2).unwrap(), state);
}

/// `[1, compensating, [[done, nil], [undoing, 5], [given up, nil]], [0], {"a": 1}, ["x", "y", "z"], true, false]`
#[test]
fn the_first_format_is_read() {
    let bytes = [
        0x98, 1, 1, 0x93, 0x92, 3, 0xc0, 0x92, 6, 5, 0x92, 5, 0xc0, 0x91, 0, 0x81, 0xa1, b'a', 1, 0x93, 0xa1,
        b'x', 0xa1, b'y', 0xa1, b'z', 0xc3, 0xc2,
    ];
    let state = State::decode(&bytes, 3).unwrap();
    assert_eq!(state.phase, Phase::Compensating);
    let marks: Vec<_> = state.steps.iter().map(|slot| slot.mark).collect();
    assert_eq!(marks, [Mark::Done, Mark::Undoing, Mark::GivenUp]);
    assert_eq!(state.steps[1].until, Some(Timestamp::from_millis(5)));
    assert_eq!((state.done.as_slice(), state.undo), ([At::step(0)].as_slice(), Some(At::step(1))));
    assert!(
        state.flags.has(Flags::CANCELLED) && state.flags.has(Flags::TURNED) && !state.flags.has(Flags::TOLD)
    );
    assert_eq!((&state.vars["a"], state.cause.map(|cause| cause.code)), (&json!(1), Some("x".to_owned())));
    assert_eq!(state.format, FORMAT, "it is written in the newest");
}
