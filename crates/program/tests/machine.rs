//! Tests of the step machine: one rule of its table per test.

use std::time::Duration;

use orlog_model::{Failure, Status, TimerChange, WaitKind, Work, WorkOutcome};
use orlog_program::{CompiledDefinition, Definition, compile_yaml, load};
use orlog_testkit::definition_suite::{InstanceDriver, failed, succeeded};
use serde_json::{Value, json};

/// Saga that reserves by command, charges by effect and ships by command; all steps but the last
/// have compensations.
const ORDER: &str = "\
saga: order
version: 1
start: OrderPlaced
correlate: orderId
vars: { orderId: =event.orderId, total: =event.total }
steps:
  - id: reserve
    do: { command: inventory.ReserveStock, data: { orderId: =vars.orderId } }
    ok: StockReserved
    fail: StockRejected
    undo: { command: inventory.ReleaseStock, data: { orderId: =vars.orderId } }
  - id: charge
    do: { effect: http.post, data: { amount: =vars.total } }
    ok: PaymentCharged
    fail: PaymentDeclined
    timeout: 30m
    save: { paymentId: =event.paymentId }
    undo: { effect: http.post, data: { payment: =vars.paymentId }, allow_null: paymentId }
  - id: ship
    when: vars.total > 0
    do: { command: shipping.Ship, data: { orderId: =vars.orderId } }
    ok: Shipped
    fail: ShippingFailed
completed: { fact: OrderCompleted, data: { orderId: =vars.orderId } }
failed: { fact: OrderCancelled, data: { orderId: =vars.orderId, reason: =failure } }
";

#[track_caller]
fn compiled(text: &str) -> CompiledDefinition {
    compile_yaml(text, "test.saga.yaml").expect("the definition is valid")
}

fn order() -> CompiledDefinition {
    compiled(ORDER)
}

fn placed(saga: &CompiledDefinition) -> InstanceDriver<'_> {
    let mut run = InstanceDriver::new(saga);
    run.event("OrderPlaced", json!({ "orderId": "o1", "total": 125 }))
        .expect("the input is applied");
    run
}

fn reserved(saga: &CompiledDefinition) -> InstanceDriver<'_> {
    let mut run = placed(saga);
    run.event("StockReserved", json!({ "orderId": "o1" }))
        .expect("the input is applied");
    run
}

fn charged(saga: &CompiledDefinition) -> InstanceDriver<'_> {
    let mut run = reserved(saga);
    run.outcome("charge", &succeeded(json!({ "paymentId": "p9" })))
        .expect("the input is applied");
    run
}

#[test]
fn runs_every_step_and_emits_the_completed_fact() {
    let saga = order();
    let mut run = charged(&saga);
    run.event("Shipped", json!({})).unwrap();
    assert_eq!(run.status(), Status::Completed);
    let expected = [
        "inventory.ReserveStock",
        "http.post",
        "PaymentCharged",
        "shipping.Ship",
        "OrderCompleted",
    ];
    assert_eq!(run.labels(), expected);
    assert!(run.timers().is_empty());
}

#[test]
fn requests_fill_templates() {
    let saga = order();
    let run = reserved(&saga);
    let Some(Work::Effect(effect)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(effect.payload, json!({ "amount": 125 }));
    assert_eq!(effect.timeout, Some(Duration::from_mins(30)));
    assert_eq!(effect.tag.as_str(), "charge");
}

#[test]
fn false_condition_skips_the_step() {
    let saga = order();
    let mut run = InstanceDriver::new(&saga);
    run.event("OrderPlaced", json!({ "orderId": "o1", "total": 0 }))
        .unwrap();
    run.event("StockReserved", json!({})).unwrap();
    let note = run
        .outcome("charge", &succeeded(json!({ "paymentId": "p9" })))
        .unwrap();
    assert_eq!(note, "charge: ok, ship: skipped, completed");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn failure_compensates_in_reverse_order() {
    let saga = order();
    let mut run = charged(&saga);
    run.event("ShippingFailed", json!({ "reason": "no van" }))
        .unwrap();
    assert_eq!(run.status(), Status::Compensating);
    assert_eq!(run.labels().last().unwrap(), "http.post");
    let Some(Work::Effect(refund)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(
        (refund.tag.as_str(), &refund.payload),
        ("compensate:charge", &json!({ "payment": "p9" }))
    );

    run.outcome("compensate:charge", &succeeded(Value::Null))
        .unwrap();
    assert_eq!(run.labels().last().unwrap(), "inventory.ReleaseStock");
    assert_eq!(run.status(), Status::Compensating);

    run.outcome("compensate:reserve", &WorkOutcome::Accepted)
        .unwrap();
    assert_eq!(run.status(), Status::Failed);
    let Some(Work::Fact(fact)) = run.work().last() else {
        panic!("a fact")
    };
    let reason = json!({ "code": "ShippingFailed", "message": "no van", "step": "ship" });
    assert_eq!(fact.data, json!({ "orderId": "o1", "reason": reason }));
}

#[test]
fn timeout_abandons_the_step() {
    let saga = order();
    let mut run = reserved(&saga);
    assert_eq!(run.timers(), ["charge"]);
    run.advance(Duration::from_mins(29)).unwrap();
    assert_eq!(run.status(), Status::Running);
    run.advance(Duration::from_mins(2)).unwrap();
    assert_eq!(run.status(), Status::Compensating);
    assert_eq!(run.labels().last().unwrap(), "inventory.ReleaseStock");
}

#[test]
fn late_success_is_compensated_without_a_second_final_fact() {
    let saga = order();
    let mut run = reserved(&saga);
    run.advance(Duration::from_mins(31)).unwrap();
    run.outcome("compensate:reserve", &WorkOutcome::Accepted)
        .unwrap();
    assert_eq!(run.status(), Status::Failed);

    run.outcome("charge", &succeeded(json!({ "paymentId": "p9" })))
        .unwrap();
    assert_eq!(run.status(), Status::Compensating);
    let Some(Work::Effect(refund)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(refund.payload, json!({ "payment": "p9" }));

    run.outcome("compensate:charge", &succeeded(Value::Null))
        .unwrap();
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(
        run.labels()
            .iter()
            .filter(|label| *label == "OrderCancelled")
            .count(),
        1
    );
}

#[test]
fn failed_compensation_is_stuck_until_retried() {
    let saga = order();
    let mut run = charged(&saga);
    run.event("ShippingFailed", json!({})).unwrap();
    run.outcome("compensate:charge", &failed("http_500"))
        .unwrap();
    assert_eq!(run.status(), Status::Stuck);
    assert_eq!(
        run.waits(),
        [(WaitKind::Operator, "compensate:charge".to_owned())]
    );

    run.retry().unwrap();
    assert_eq!(run.status(), Status::Compensating);
    run.outcome("compensate:charge", &succeeded(Value::Null))
        .unwrap();
    run.outcome("compensate:reserve", &WorkOutcome::Accepted)
        .unwrap();
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn cancellation_emits_no_failed_fact() {
    let saga = order();
    let mut run = reserved(&saga);
    run.cancel("changed my mind").unwrap();
    assert_eq!(run.status(), Status::Compensating);
    assert!(
        run.timers().is_empty(),
        "the timer of the step is cancelled"
    );
    run.outcome("compensate:reserve", &WorkOutcome::Accepted)
        .unwrap();
    assert_eq!(run.status(), Status::Cancelled);
    assert_eq!(run.labels().last().unwrap(), "inventory.ReleaseStock");
    assert!(run.cancel("again").is_err());
}

#[test]
fn ignores_duplicates_and_unknown_events() {
    let saga = order();
    let mut run = reserved(&saga);
    for event in ["OrderPlaced", "StockReserved", "PaymentCharged", "Unknown"] {
        assert!(
            run.event(event, json!({})).is_err(),
            "{event} has no effect"
        );
    }
    assert!(run.outcome("reserve", &WorkOutcome::Accepted).is_err());
    assert!(run.outcome("unknown", &WorkOutcome::Accepted).is_err());
    assert!(run.retry().is_err());
}

#[test]
fn rejected_command_fails_its_step() {
    let saga = order();
    let mut run = placed(&saga);
    let note = run.outcome("reserve", &failed("http_400")).unwrap();
    assert_eq!(note, "reserve: http_400, failed");
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn invalid_result_fails_the_step() {
    let saga = order();
    let mut run = reserved(&saga);
    let event = Some("Surprise".parse().unwrap());
    let note = run
        .outcome("charge", &WorkOutcome::succeeded(event, json!({})))
        .unwrap();
    assert_eq!(
        note,
        "charge: contract_violation, charge: may have been executed"
    );
    assert_eq!(
        run.failure(),
        Some(&Failure {
            code: "contract_violation".to_owned(),
            message: "charge returned Surprise, which is none of PaymentCharged, PaymentDeclined"
                .to_owned(),
        })
    );
}

#[test]
fn expression_error_fails_the_step_and_compensates() {
    let saga = compiled(
        "\
saga: s
version: 1
start: Go
vars: { items: =event.items }
steps:
  - { id: one, do: { command: a.One }, ok: OneDone, undo: { command: a.UndoOne } }
  - { id: two, do: { effect: e.two, data: { first: '=vars.items[0]' } } }
",
    );
    let mut run = InstanceDriver::new(&saga);
    run.event("Go", json!({ "items": [] })).unwrap();
    let note = run.event("OneDone", json!({})).unwrap();
    assert_eq!(note, "one: ok, two: expression_error");
    assert_eq!(run.labels().last().unwrap(), "a.UndoOne");
    assert_eq!(
        run.failure().unwrap().message,
        "`vars.items[0]`: the index is out of bounds"
    );
}

#[test]
fn start_event_without_required_vars_is_a_schema_mismatch() {
    let saga = order();
    let mut run = InstanceDriver::new(&saga);
    let error = run.event("OrderPlaced", json!({ "total": 1 })).unwrap_err();
    assert_eq!(
        error,
        "cannot set vars.orderId: `event.orderId`: `orderId` does not exist"
    );
}

#[test]
fn saga_timeout_compensates() {
    let saga = compiled(
        "\
saga: s
version: 1
start: Go
timeout: 1h
steps: [{ id: one, do: { command: a.One }, ok: OneDone }]
",
    );
    let mut run = InstanceDriver::new(&saga);
    run.event("Go", json!({})).unwrap();
    assert_eq!(run.timers(), ["saga"]);
    run.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(run.failure().unwrap().code, "saga_timeout");
    assert!(
        !run.last_timers()
            .iter()
            .any(|t| matches!(t, TimerChange::Cancel { .. })),
        "the timer itself fired"
    );
}

/// Saga with a, then b and c in parallel, then d.
const DIAMOND: &str = "\
saga: diamond
version: 1
start: Go
steps:
  - { id: a, do: { effect: e.a }, undo: { effect: e.undo-a } }
  - { id: b, after: [a], do: { effect: e.b }, timeout: 1m, undo: { effect: e.undo-b } }
  - { id: c, after: [a], do: { effect: e.c }, timeout: 1m, undo: { effect: e.undo-c } }
  - { id: d, after: [b, c], do: { effect: e.d } }
";

fn diamond() -> CompiledDefinition {
    compiled(DIAMOND)
}

#[test]
fn a_join_waits_for_all_its_branches() {
    let saga = diamond();
    let mut run = InstanceDriver::new(&saga);
    run.event("Go", json!({})).unwrap();
    run.outcome("a", &succeeded(Value::Null)).unwrap();
    assert_eq!(run.labels(), ["e.a", "e.b", "e.c"]);
    run.outcome("c", &succeeded(Value::Null)).unwrap();
    assert_eq!(run.labels().len(), 3);
    run.outcome("b", &succeeded(Value::Null)).unwrap();
    assert_eq!(run.labels().last().unwrap(), "e.d");
}

#[test]
fn late_parallel_success_is_compensated_newest_first() {
    let saga = diamond();
    let mut run = InstanceDriver::new(&saga);
    run.event("Go", json!({})).unwrap();
    run.outcome("a", &succeeded(Value::Null)).unwrap();
    run.outcome("b", &failed("no")).unwrap();
    assert_eq!(run.labels().last().unwrap(), "e.undo-a");
    assert!(run.timers().is_empty());
    run.outcome("c", &succeeded(Value::Null)).unwrap();
    assert_eq!(
        run.labels().last().unwrap(),
        "e.undo-a",
        "one compensation at a time"
    );
    run.outcome("compensate:a", &succeeded(Value::Null))
        .unwrap();
    assert_eq!(run.labels().last().unwrap(), "e.undo-c");
    run.outcome("compensate:c", &succeeded(Value::Null))
        .unwrap();
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn canonical_json_round_trips() {
    let saga = order();
    let json = serde_json::to_string(saga.definition()).unwrap();

    let loaded = load(&json, "order").unwrap();
    assert_eq!(loaded.definition(), saga.definition());

    let decoded: Definition = serde_json::from_str(CompiledDefinition::source(&loaded)).unwrap();
    assert_eq!(&decoded, saga.definition());
}

#[test]
fn every_saga_passes_the_definition_suite() {
    let report = orlog_testkit::definition_suite::check(&order());
    assert_eq!(
        report.runs,
        1 + 2 * 6,
        "one success, six failures, compensated once and twice"
    );
    orlog_testkit::definition_suite::check(&diamond());
}
