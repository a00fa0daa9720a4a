//! The order saga in YAML, case by case: what comes in, where it ends, what it asked for.

use std::time::Duration;

use orlog_model::{Event, EventId, EventType, Status, TenantId, TimerChange, Timestamp, Verdict};
use orlog_program::{Compiled, Fault, Program, compile_yaml, load};
use orlog_testkit::definition_suite::{self, Life, Samples, succeeded};
use serde_json::{Value, json};

const ORDER: &str = include_str!("order.saga.yaml");

fn order() -> Compiled {
    compile_yaml(ORDER, "order.saga.yaml").expect("the order saga is well formed")
}

#[derive(Clone, Copy)]
enum Given {
    Placed,
    Event(&'static str),
    Charged,
    Undone(&'static str),
    Advance(u64),
}

/// Leads an instance through `given`; returns where it stands and everything it asked for, timers in their place.
fn lead(saga: &Compiled, given: &[Given]) -> (Status, Vec<String>) {
    let mut life = Life::new(saga);
    let mut log = Vec::new();
    for step in given {
        let before = life.work().len();
        let result = match step {
            Given::Placed => life.event(
                "OrderPlaced",
                json!({"orderId": "o1", "total": 125, "items": [], "customer": {"email": "a@b"}}),
            ),
            Given::Event(kind) => life.event(kind, json!({ "orderId": "o1" })),
            Given::Charged => life.outcome("charge", &succeeded(json!({ "paymentId": "p9" }))),
            Given::Undone("reserve") => life.outcome("undo:reserve", &Verdict::Accepted),
            Given::Undone(step) => life.outcome(&format!("undo:{step}"), &succeeded(Value::Null)),
            Given::Advance(minutes) => {
                life.advance(Duration::from_mins(*minutes)).map(|notes| notes.join("; "))
            }
        };
        result.unwrap_or_else(|why| panic!("step {}: {why}", log.len()));
        let quiet = matches!(step, Given::Advance(_)) && life.work().len() == before;
        if !quiet {
            log.extend(life.labels()[before..].iter().cloned());
            log.extend(life.last_timers().iter().map(|change| match change {
                TimerChange::Arm { name, .. } => format!("timer {name}"),
                TimerChange::Cancel { name } => format!("cancel {name}"),
            }));
        }
    }
    (life.status(), log)
}

#[track_caller]
fn check(given: &[Given], status: Status, work: &[&str]) {
    let (ends, log) = lead(&order(), given);
    assert_eq!((ends, log.iter().map(String::as_str).collect::<Vec<_>>().as_slice()), (status, work));
}

use Given::{Advance, Charged, Placed, Undone};

#[test]
fn happy_path() {
    check(
        &[Placed, Given::Event("StockReserved"), Charged, Given::Event("Shipped")],
        Status::Completed,
        &[
            "inventory.ReserveStock",
            "http.post",
            "timer charge",
            "PaymentCharged",
            "shipping.Ship",
            "cancel charge",
            "OrderCompleted",
        ],
    );
}

#[test]
fn not_paid_within_29_minutes() {
    check(
        &[Placed, Given::Event("StockReserved"), Advance(29)],
        Status::Running,
        &["inventory.ReserveStock", "http.post", "timer charge"],
    );
}

#[test]
fn not_paid_in_30_minutes_then_cancelled() {
    check(
        &[Placed, Given::Event("StockReserved"), Advance(31), Undone("reserve")],
        Status::Failed,
        &["inventory.ReserveStock", "http.post", "timer charge", "inventory.ReleaseStock", "OrderCancelled"],
    );
}

#[test]
fn shipping_fails_and_all_is_undone_in_reverse_order() {
    let given = [
        Placed,
        Given::Event("StockReserved"),
        Charged,
        Given::Event("ShippingFailed"),
        Undone("charge"),
        Undone("reserve"),
    ];
    let work = [
        "inventory.ReserveStock",
        "http.post",
        "timer charge",
        "PaymentCharged",
        "shipping.Ship",
        "cancel charge",
        "http.post",
        "inventory.ReleaseStock",
        "OrderCancelled",
    ];
    check(&given, Status::Failed, &work);
}

#[test]
fn a_late_payment_after_the_cancellation_is_refunded() {
    let given =
        [Placed, Given::Event("StockReserved"), Advance(31), Undone("reserve"), Charged, Undone("charge")];
    let work = [
        "inventory.ReserveStock",
        "http.post",
        "timer charge",
        "inventory.ReleaseStock",
        "OrderCancelled",
        "PaymentCharged",
        "http.post",
    ];
    check(&given, Status::Failed, &work);
}

#[test]
fn the_order_saga_stands_the_quartet() {
    let samples = Samples::of(order().definition()).starting(
        json!({"orderId": "o1", "total": 125, "items": [{"sku": "s"}], "customer": {"email": "a@b"}}),
    );
    let played = definition_suite::check_with(&order(), &samples);
    assert_eq!(played.lives, 13);
    assert_eq!(definition_suite::check(&order()).lives, 13, "payloads made from the expressions do too");
}

#[test]
fn a_definition_is_known_by_its_text() {
    let saga = order();
    let again = load(saga.source(), "stored").unwrap();
    assert_eq!(again.reference(), saga.reference());
    let changed = compile_yaml(&ORDER.replace("30m", "31m"), "x").unwrap();
    assert_ne!(changed.reference().hash, saga.reference().hash);
}

#[test]
fn a_built_definition_is_known_by_its_canonical_json() {
    let built = orlog_program::compile(order().definition().clone()).unwrap();
    let again = load(built.source(), "stored").unwrap();
    assert_eq!(again.reference(), built.reference());
    assert_eq!(again.definition(), built.definition());
}

#[test]
fn the_manifest_names_what_starts_and_what_answers_commands() {
    let saga = order();
    let triggers: Vec<_> = saga.manifest().triggers.iter().map(|t| (t.kind.as_str(), t.starts)).collect();
    let expected = [
        ("OrderPlaced", true),
        ("Shipped", false),
        ("ShippingFailed", false),
        ("StockRejected", false),
        ("StockReserved", false),
    ];
    assert_eq!(triggers, expected);
    assert_eq!(saga.manifest().effects.len(), 1);
}

fn event(data: Value, correlation: Option<&str>) -> Event {
    Event {
        id: EventId::new("e1").expect("a short word"),
        tenant: TenantId::default_tenant(),
        kind: EventType::new("OrderPlaced").expect("a short word"),
        source: "urn:test".to_owned(),
        subject: None,
        time: Timestamp::from_millis(0),
        correlation: correlation.map(|c| c.parse().expect("a good id")),
        causation: None,
        trace: None,
        schema_version: 1,
        data,
    }
}

#[test]
fn correlates_by_the_field_then_by_the_envelope() {
    let saga = order();
    let id = |data, envelope| saga.correlate(&event(data, envelope)).map(|id| id.to_string());
    assert_eq!(id(json!({"orderId": "o1"}), Some("x")), Ok("o1".to_owned()));
    assert_eq!(id(json!({"orderId": 17}), None), Ok("17".to_owned()));
    assert_eq!(id(json!({}), Some("x")), Ok("x".to_owned()));
    let missing = "OrderPlaced has no `orderId`, which says to which instance it belongs";
    assert_eq!(id(json!({}), None), Err(Fault::Schema(missing.to_owned())));
    let wrong = "`orderId` of OrderPlaced must be a text or a whole number, it is a list";
    assert_eq!(id(json!({"orderId": []}), Some("x")), Err(Fault::Schema(wrong.to_owned())));
    assert!(matches!(id(json!({"orderId": "a\u{0}b"}), None), Err(Fault::Schema(_))));
}

#[test]
fn the_reference_is_what_the_business_calls_it() {
    let saga = order();
    let mut life = Life::new(&saga);
    life.event("OrderPlaced", json!({"orderId": "o1", "total": 1, "items": [], "customer": {"email": ""}}))
        .unwrap();
    assert_eq!(life.reference(), Some("o1"));
}
