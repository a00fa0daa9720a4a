//! Tests of the order saga in YAML: inputs, final status and requests of each case.

use std::time::Duration;

use orlog_model::{
    Event, EventId, EventType, Status, TenantId, TimerChange, Timestamp, WorkOutcome,
};
use orlog_program::{CompiledDefinition, Program, ProgramError, compile_yaml, load};
use orlog_testkit::definition_suite::{self, InstanceDriver, PayloadSamples, succeeded};
use serde_json::{Value, json};

const ORDER: &str = include_str!("order.saga.yaml");

fn order() -> CompiledDefinition {
    compile_yaml(ORDER, "order.saga.yaml").expect("the order saga is valid")
}

#[derive(Clone, Copy)]
enum OrderInput {
    Placed,
    Event(&'static str),
    Charged,
    Compensated(&'static str),
    Advance(u64),
}

/// Applies the inputs to an instance. Returns its status and all its requests, with timers in their order.
fn apply_inputs(saga: &CompiledDefinition, inputs: &[OrderInput]) -> (Status, Vec<String>) {
    let mut run = InstanceDriver::new(saga);
    let mut log = Vec::new();
    for step in inputs {
        let before = run.work().len();
        let result = match step {
            OrderInput::Placed => run.event(
                "OrderPlaced",
                json!({"orderId": "o1", "total": 125, "items": [], "customer": {"email": "a@b"}}),
            ),
            OrderInput::Event(kind) => run.event(kind, json!({ "orderId": "o1" })),
            OrderInput::Charged => run.outcome("charge", &succeeded(json!({ "paymentId": "p9" }))),
            OrderInput::Compensated("reserve") => {
                run.outcome("compensate:reserve", &WorkOutcome::Accepted)
            }
            OrderInput::Compensated(step) => {
                run.outcome(&format!("compensate:{step}"), &succeeded(Value::Null))
            }
            OrderInput::Advance(minutes) => run
                .advance(Duration::from_mins(*minutes))
                .map(|notes| notes.join("; ")),
        };
        result.unwrap_or_else(|reason| panic!("step {}: {reason}", log.len()));
        let quiet = matches!(step, OrderInput::Advance(_)) && run.work().len() == before;
        if !quiet {
            log.extend(run.labels()[before..].iter().cloned());
            log.extend(run.last_timers().iter().map(|change| match change {
                TimerChange::Arm { name, .. } => format!("timer {name}"),
                TimerChange::Cancel { name } => format!("cancel {name}"),
            }));
        }
    }
    (run.status(), log)
}

#[track_caller]
fn check(inputs: &[OrderInput], status: Status, work: &[&str]) {
    let (final_status, log) = apply_inputs(&order(), inputs);
    assert_eq!(
        (
            final_status,
            log.iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .as_slice()
        ),
        (status, work)
    );
}

use OrderInput::{Advance, Charged, Compensated, Placed};

#[test]
fn happy_path() {
    check(
        &[
            Placed,
            OrderInput::Event("StockReserved"),
            Charged,
            OrderInput::Event("Shipped"),
        ],
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
        &[Placed, OrderInput::Event("StockReserved"), Advance(29)],
        Status::Running,
        &["inventory.ReserveStock", "http.post", "timer charge"],
    );
}

#[test]
fn not_paid_in_30_minutes_then_cancelled() {
    check(
        &[
            Placed,
            OrderInput::Event("StockReserved"),
            Advance(31),
            Compensated("reserve"),
        ],
        Status::Failed,
        &[
            "inventory.ReserveStock",
            "http.post",
            "timer charge",
            "inventory.ReleaseStock",
            "OrderCancelled",
        ],
    );
}

#[test]
fn shipping_failure_compensates_in_reverse_order() {
    let inputs = [
        Placed,
        OrderInput::Event("StockReserved"),
        Charged,
        OrderInput::Event("ShippingFailed"),
        Compensated("charge"),
        Compensated("reserve"),
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
    check(&inputs, Status::Failed, &work);
}

#[test]
fn a_late_payment_after_the_cancellation_is_refunded() {
    let inputs = [
        Placed,
        OrderInput::Event("StockReserved"),
        Advance(31),
        Compensated("reserve"),
        Charged,
        Compensated("charge"),
    ];
    let work = [
        "inventory.ReserveStock",
        "http.post",
        "timer charge",
        "inventory.ReleaseStock",
        "OrderCancelled",
        "PaymentCharged",
        "http.post",
    ];
    check(&inputs, Status::Failed, &work);
}

#[test]
fn order_saga_passes_the_definition_suite() {
    let samples = PayloadSamples::of(order().definition()).starting(
        json!({"orderId": "o1", "total": 125, "items": [{"sku": "s"}], "customer": {"email": "a@b"}}),
    );
    let report = definition_suite::check_with(&order(), &samples);
    assert_eq!(report.runs, 13);
    assert_eq!(
        definition_suite::check(&order()).runs,
        13,
        "payloads derived from the expressions pass too"
    );
}

#[test]
fn definition_hash_covers_the_source() {
    let saga = order();
    let reloaded = load(saga.source(), "stored").unwrap();
    assert_eq!(reloaded.definition_ref(), saga.definition_ref());
    let changed = compile_yaml(&ORDER.replace("30m", "31m"), "x").unwrap();
    assert_ne!(changed.definition_ref().hash, saga.definition_ref().hash);
}

#[test]
fn built_definition_hash_covers_canonical_json() {
    let built = orlog_program::compile(order().definition().clone()).unwrap();
    let reloaded = load(built.source(), "stored").unwrap();
    assert_eq!(reloaded.definition_ref(), built.definition_ref());
    assert_eq!(reloaded.definition(), built.definition());
}

#[test]
fn manifest_lists_start_and_result_events() {
    let saga = order();
    let subscriptions: Vec<_> = saga
        .manifest()
        .subscriptions
        .iter()
        .map(|t| (t.kind.as_str(), t.starts))
        .collect();
    let expected = [
        ("OrderPlaced", true),
        ("Shipped", false),
        ("ShippingFailed", false),
        ("StockRejected", false),
        ("StockReserved", false),
    ];
    assert_eq!(subscriptions, expected);
    assert_eq!(saga.manifest().effects.len(), 1);
}

fn event(data: Value, correlation: Option<&str>) -> Event {
    Event {
        id: EventId::new("e1").expect("a valid name"),
        tenant: TenantId::default_tenant(),
        kind: EventType::new("OrderPlaced").expect("a valid name"),
        source: "urn:test".to_owned(),
        subject: None,
        time: Timestamp::from_millis(0),
        correlation: correlation.map(|c| c.parse().expect("a valid id")),
        causation: None,
        trace: None,
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    }
}

#[test]
fn correlates_by_field_then_envelope() {
    let saga = order();
    let id = |data, envelope| {
        saga.correlate(&event(data, envelope))
            .map(|id| id.to_string())
    };
    assert_eq!(id(json!({"orderId": "o1"}), Some("x")), Ok("o1".to_owned()));
    assert_eq!(id(json!({"orderId": 17}), None), Ok("17".to_owned()));
    assert_eq!(id(json!({}), Some("x")), Ok("x".to_owned()));
    let missing = "OrderPlaced has no correlation field `orderId`";
    assert_eq!(
        id(json!({}), None),
        Err(ProgramError::SchemaMismatch(missing.to_owned()))
    );
    let invalid = "`orderId` of OrderPlaced must be a text or a whole number, but is a list";
    assert_eq!(
        id(json!({"orderId": []}), Some("x")),
        Err(ProgramError::SchemaMismatch(invalid.to_owned()))
    );
    assert!(matches!(
        id(json!({"orderId": "a\u{0}b"}), None),
        Err(ProgramError::SchemaMismatch(_))
    ));
}

#[test]
fn definition_ref_has_the_saga_name() {
    let saga = order();
    let mut run = InstanceDriver::new(&saga);
    run.event(
        "OrderPlaced",
        json!({"orderId": "o1", "total": 1, "items": [], "customer": {"email": ""}}),
    )
    .unwrap();
    assert_eq!(run.reference(), Some(&"o1".into()));
}
