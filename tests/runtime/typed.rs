//! Typed sagas: the mapping of handlers to steps is validated before the start.

#[path = "../../examples/typed/booking.rs"]
mod booking;

use std::sync::Arc;

use booking::{SeatMap, SeatRequested};
use orlog::typed::{Handlers, MappingErrors, Saga, event};
use orlog_effect::Policy;
use orlog_model::{EventId, Timestamp};
use orlog_program::{CompiledDefinition, Definition, Program, StepAction};
use orlog_testkit::definition_suite;
use serde_json::json;

fn seat_map() -> SeatMap {
    SeatMap::default()
}

fn misfits(handlers: &Handlers, sagas: &[Arc<CompiledDefinition>]) -> Vec<String> {
    let MappingErrors(misfits) = handlers.mapping(sagas).expect_err("something does not fit");
    misfits.iter().map(ToString::to_string).collect()
}

fn lone(step: &str, effect: &str, ok: &str) -> Arc<CompiledDefinition> {
    let saga = Definition::builder("lone").start("SeatWanted").step(step, StepAction::effect(effect)).ok(ok);
    Arc::new(saga.build().expect("it is well formed"))
}

/// Requirements: T2.
#[test]
fn mapping_lists_the_steps_of_each_handler() {
    let saga = booking::saga().expect("it is well formed");
    let mapping = booking::handlers(&seat_map()).mapping(&[saga]).expect("everything fits");
    let mapping: Vec<_> =
        mapping.iter().map(|(effect, (saga, steps))| format!("{effect}: {saga} {steps:?}")).collect();
    assert_eq!(
        mapping,
        [
            "bank.charge: booking [\"charge\"]",
            "bank.refund: booking [\"charge\"]",
            "house.release: booking [\"reserve\"]",
            "house.reserve: booking [\"reserve\"]",
            "mail.ticket: booking [\"send\"]",
        ]
    );
}

/// Requirements: T2.
#[test]
fn step_without_handler_is_rejected() {
    let saga = booking::saga().expect("it is well formed");
    let handlers = Handlers::new().handler(booking::Charge).handler(booking::Reserve(seat_map()));
    assert_eq!(
        misfits(&handlers, &[saga]),
        [
            "step `reserve` of booking uses effect house.release, which has no handler",
            "step `charge` of booking uses effect bank.refund, which has no handler",
            "step `send` of booking uses effect mail.ticket, which has no handler",
        ]
    );
}

/// Requirements: T2.
#[test]
fn handler_in_two_sagas_is_rejected() {
    let other = Saga::<SeatRequested>::new("other").step::<booking::Send>("tell", json!({})).build();
    let sagas = [booking::saga().expect("it is well formed"), other.expect("it is well formed")];
    assert_eq!(
        misfits(&booking::handlers(&seat_map()), &sagas),
        ["handler of mail.ticket is mapped to two sagas, booking and other"]
    );
}

/// Requirements: T4.
#[test]
fn event_type_mismatch_is_rejected() {
    assert_eq!(
        misfits(&booking::handlers(&seat_map()), &[lone("pay", "bank.charge", "Payed")]),
        [
            "step `pay` of lone expects Payed as `ok`, but the handler of bank.charge returns Paid",
            "step `pay` of lone expects nothing as `fail`, but the handler of bank.charge returns CardRejected",
        ]
    );
}

#[test]
fn compensation_cannot_serve_as_step_handler() {
    assert_eq!(
        misfits(&booking::handlers(&seat_map()), &[lone("give", "house.release", "Given")]),
        ["step `give` of lone uses house.release as its action, but its handler has another role"]
    );
}

/// Requirements: T1.
#[test]
fn trigger_sets_correlation_in_envelope_and_data() {
    let request = SeatRequested { booking: "b-1".to_owned(), seat: 7, card: "1".to_owned() };
    let id = EventId::new("e-1").expect("a short word");
    let mut event = event(&request, id, "urn:test", Timestamp::from_millis(0)).expect("a good identifier");
    let saga = booking::saga().expect("it is well formed");
    let correlation = event.correlation.take().expect("the envelope carries it");
    assert_eq!(saga.correlate(&event), Ok(correlation), "in its data too");
}

/// Requirements: T1.
#[test]
fn typed_saga_passes_the_definition_suite() {
    let saga = booking::saga().expect("it is well formed");
    let played = definition_suite::check(saga.as_ref());
    assert!(played.runs > 4, "{played:?}");
    assert!(booking::handlers(&seat_map()).overrides(vec![saga], Policy::default()).is_ok());
}
