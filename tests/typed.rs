//! Typed sagas: the mapping of handlers to steps is checked before the start.

#[path = "../examples/typed/booking.rs"]
mod booking;

use std::sync::Arc;

use booking::{House, SeatWanted};
use orlog::typed::{Handlers, Misfits, Saga, event};
use orlog_effect::Policy;
use orlog_model::{EventId, Timestamp};
use orlog_program::{Compiled, Definition, Do, Program};
use orlog_testkit::definition_suite;
use serde_json::json;

fn house() -> House {
    House::default()
}

fn misfits(handlers: &Handlers, sagas: &[Arc<Compiled>]) -> Vec<String> {
    let Misfits(misfits) = handlers.mapping(sagas).expect_err("something does not fit");
    misfits.iter().map(ToString::to_string).collect()
}

fn lone(step: &str, effect: &str, ok: &str) -> Arc<Compiled> {
    let saga = Definition::builder("lone").start("SeatWanted").step(step, Do::effect(effect)).ok(ok);
    Arc::new(saga.build().expect("it is well formed"))
}

#[test]
fn the_mapping_tells_whom_each_handler_serves() {
    let saga = booking::saga().expect("it is well formed");
    let mapping = booking::handlers(&house()).mapping(&[saga]).expect("everything fits");
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

#[test]
fn a_step_without_handler_is_an_error() {
    let saga = booking::saga().expect("it is well formed");
    let handlers = Handlers::new().handler(booking::Charge).handler(booking::Reserve(house()));
    assert_eq!(
        misfits(&handlers, &[saga]),
        [
            "step `reserve` of booking asks for house.release, which no handler performs",
            "step `charge` of booking asks for bank.refund, which no handler performs",
            "step `send` of booking asks for mail.ticket, which no handler performs",
        ]
    );
}

#[test]
fn a_handler_in_two_sagas_is_an_error() {
    let other = Saga::<SeatWanted>::new("other").step::<booking::Send>("tell", json!({})).build();
    let sagas = [booking::saga().expect("it is well formed"), other.expect("it is well formed")];
    assert_eq!(
        misfits(&booking::handlers(&house()), &sagas),
        ["the handler of mail.ticket serves two sagas, booking and other"]
    );
}

#[test]
fn other_events_than_the_handlers_are_an_error() {
    assert_eq!(
        misfits(&booking::handlers(&house()), &[lone("pay", "bank.charge", "Payed")]),
        [
            "step `pay` of lone expects Payed as `ok`, the handler of bank.charge answers with Paid",
            "step `pay` of lone expects nothing as `fail`, the handler of bank.charge answers with CardRefused",
        ]
    );
}

#[test]
fn a_compensation_does_no_step() {
    assert_eq!(
        misfits(&booking::handlers(&house()), &[lone("give", "house.release", "Given")]),
        ["step `give` of lone uses house.release to do its work, for which it is not made"]
    );
}

#[test]
fn a_trigger_names_its_instance_twice() {
    let wanted = SeatWanted { booking: "b-1".to_owned(), seat: 7, card: "1".to_owned() };
    let id = EventId::new("e-1").expect("a short word");
    let mut event = event(&wanted, id, "urn:test", Timestamp::from_millis(0)).expect("a good identifier");
    let saga = booking::saga().expect("it is well formed");
    let told = event.correlation.take().expect("the envelope carries it");
    assert_eq!(saga.correlate(&event), Ok(told), "in its data too");
}

#[test]
fn the_typed_saga_stands_the_quartet() {
    let saga = booking::saga().expect("it is well formed");
    let played = definition_suite::check(saga.as_ref());
    assert!(played.lives > 4, "{played:?}");
    assert!(booking::handlers(&house()).seams(vec![saga], Policy::default()).is_ok());
}
