//! The step machine: one rule of its table a test.

use std::time::Duration;

use orlog_model::{Failure, Status, TimerChange, Verdict, WaitKind, Work};
use orlog_program::{Compiled, Definition, Do};
use orlog_testkit::definition_suite::{Life, failed, succeeded};
use serde_json::{Value, json};

/// Reserve by command, charge by effect, ship by command; all can be undone.
fn order() -> Compiled {
    Definition::builder("order")
        .start("OrderPlaced")
        .correlate("orderId")
        .var("orderId", json!("=event.orderId"))
        .var("total", json!("=event.total"))
        .step("reserve", Do::command("inventory.ReserveStock").data(json!({ "orderId": "=vars.orderId" })))
        .ok("StockReserved")
        .fail("StockRejected")
        .undo(Do::command("inventory.ReleaseStock").data(json!({ "orderId": "=vars.orderId" })))
        .step("charge", Do::effect("http.post").data(json!({ "amount": "=vars.total" })))
        .ok("PaymentCharged")
        .fail("PaymentDeclined")
        .timeout(Duration::from_mins(30))
        .save("paymentId", json!("=event.paymentId"))
        .undo(Do::effect("http.post").data(json!({ "payment": "=vars.paymentId" })))
        .step("ship", Do::command("shipping.Ship").data(json!({ "orderId": "=vars.orderId" })))
        .when("vars.total > 0")
        .ok("Shipped")
        .fail("ShippingFailed")
        .completed("OrderCompleted", json!({ "orderId": "=vars.orderId" }))
        .failed("OrderCancelled", json!({ "orderId": "=vars.orderId", "reason": "=failure" }))
        .build()
        .expect("the order saga is well formed")
}

fn placed(saga: &Compiled) -> Life<'_> {
    let mut life = Life::new(saga);
    life.event("OrderPlaced", json!({ "orderId": "o1", "total": 125 })).expect("it is taken");
    life
}

fn reserved(saga: &Compiled) -> Life<'_> {
    let mut life = placed(saga);
    life.event("StockReserved", json!({ "orderId": "o1" })).expect("it is taken");
    life
}

fn charged(saga: &Compiled) -> Life<'_> {
    let mut life = reserved(saga);
    life.outcome("charge", &succeeded(json!({ "paymentId": "p9" }))).expect("it is taken");
    life
}

#[test]
fn goes_through_every_step_and_tells_that_it_is_completed() {
    let saga = order();
    let mut life = charged(&saga);
    life.event("Shipped", json!({})).unwrap();
    assert_eq!(life.status(), Status::Completed);
    let expected =
        ["inventory.ReserveStock", "http.post", "PaymentCharged", "shipping.Ship", "OrderCompleted"];
    assert_eq!(life.labels(), expected);
    assert!(life.timers().is_empty());
}

#[test]
fn asks_with_templates_filled_in() {
    let saga = order();
    let life = reserved(&saga);
    let Some(Work::Effect(effect)) = life.work().last() else { panic!("an effect") };
    assert_eq!(effect.payload, json!({ "amount": 125 }));
    assert_eq!(effect.timeout, Some(Duration::from_mins(30)));
    assert_eq!(effect.tag.as_str(), "charge");
}

#[test]
fn skips_a_step_whose_condition_is_false() {
    let saga = order();
    let mut life = Life::new(&saga);
    life.event("OrderPlaced", json!({ "orderId": "o1", "total": 0 })).unwrap();
    life.event("StockReserved", json!({})).unwrap();
    let note = life.outcome("charge", &succeeded(json!({ "paymentId": "p9" }))).unwrap();
    assert_eq!(note, "charge: ok, ship: skipped, completed");
    assert_eq!(life.status(), Status::Completed);
}

#[test]
fn compensates_backwards_one_after_another_when_a_step_fails() {
    let saga = order();
    let mut life = charged(&saga);
    life.event("ShippingFailed", json!({ "reason": "no van" })).unwrap();
    assert_eq!(life.status(), Status::Compensating);
    assert_eq!(life.labels().last().unwrap(), "http.post");
    let Some(Work::Effect(refund)) = life.work().last() else { panic!("an effect") };
    assert_eq!((refund.tag.as_str(), &refund.payload), ("undo:charge", &json!({ "payment": "p9" })));

    life.outcome("undo:charge", &succeeded(Value::Null)).unwrap();
    assert_eq!(life.labels().last().unwrap(), "inventory.ReleaseStock");
    assert_eq!(life.status(), Status::Compensating);

    life.outcome("undo:reserve", &Verdict::Accepted).unwrap();
    assert_eq!(life.status(), Status::Failed);
    let Some(Work::Fact(fact)) = life.work().last() else { panic!("a fact") };
    let reason = json!({ "code": "ShippingFailed", "message": "no van", "step": "ship" });
    assert_eq!(fact.data, json!({ "orderId": "o1", "reason": reason }));
}

#[test]
fn gives_a_step_up_when_its_time_is_over() {
    let saga = order();
    let mut life = reserved(&saga);
    assert_eq!(life.timers(), ["charge"]);
    life.advance(Duration::from_mins(29)).unwrap();
    assert_eq!(life.status(), Status::Running);
    life.advance(Duration::from_mins(2)).unwrap();
    assert_eq!(life.status(), Status::Compensating);
    assert_eq!(life.labels().last().unwrap(), "inventory.ReleaseStock");
}

#[test]
fn undoes_a_success_that_comes_after_the_end_without_telling_twice() {
    let saga = order();
    let mut life = reserved(&saga);
    life.advance(Duration::from_mins(31)).unwrap();
    life.outcome("undo:reserve", &Verdict::Accepted).unwrap();
    assert_eq!(life.status(), Status::Failed);

    life.outcome("charge", &succeeded(json!({ "paymentId": "p9" }))).unwrap();
    assert_eq!(life.status(), Status::Compensating);
    let Some(Work::Effect(refund)) = life.work().last() else { panic!("an effect") };
    assert_eq!(refund.payload, json!({ "payment": "p9" }));

    life.outcome("undo:charge", &succeeded(Value::Null)).unwrap();
    assert_eq!(life.status(), Status::Failed);
    assert_eq!(life.labels().iter().filter(|label| *label == "OrderCancelled").count(), 1);
}

#[test]
fn is_stuck_when_an_undo_fails_and_goes_on_when_it_is_retried() {
    let saga = order();
    let mut life = charged(&saga);
    life.event("ShippingFailed", json!({})).unwrap();
    life.outcome("undo:charge", &failed("http_500")).unwrap();
    assert_eq!(life.status(), Status::Stuck);
    assert_eq!(life.waits(), [(WaitKind::Operator, "undo:charge".to_owned())]);

    life.retry().unwrap();
    assert_eq!(life.status(), Status::Compensating);
    life.outcome("undo:charge", &succeeded(Value::Null)).unwrap();
    life.outcome("undo:reserve", &Verdict::Accepted).unwrap();
    assert_eq!(life.status(), Status::Failed);
}

#[test]
fn cancels_without_a_failed_fact() {
    let saga = order();
    let mut life = reserved(&saga);
    life.cancel("changed my mind").unwrap();
    assert_eq!(life.status(), Status::Compensating);
    assert!(life.timers().is_empty(), "the timer of the step is cancelled");
    life.outcome("undo:reserve", &Verdict::Accepted).unwrap();
    assert_eq!(life.status(), Status::Cancelled);
    assert_eq!(life.labels().last().unwrap(), "inventory.ReleaseStock");
    assert!(life.cancel("again").is_err());
}

#[test]
fn ignores_duplicates_and_what_it_does_not_know() {
    let saga = order();
    let mut life = reserved(&saga);
    for event in ["OrderPlaced", "StockReserved", "PaymentCharged", "Unheard"] {
        assert!(life.event(event, json!({})).is_err(), "{event} changes nothing");
    }
    assert!(life.outcome("reserve", &Verdict::Accepted).is_err());
    assert!(life.outcome("nobody", &Verdict::Accepted).is_err());
    assert!(life.retry().is_err());
}

#[test]
fn a_refused_command_fails_its_step() {
    let saga = order();
    let mut life = placed(&saga);
    let note = life.outcome("reserve", &failed("http_400")).unwrap();
    assert_eq!(note, "reserve: http_400, failed");
    assert_eq!(life.status(), Status::Failed);
}

#[test]
fn an_answer_outside_the_contract_fails_the_step_and_says_so() {
    let saga = order();
    let mut life = reserved(&saga);
    let event = Some("Surprise".parse().unwrap());
    let note = life.outcome("charge", &Verdict::Succeeded { event, payload: json!({}) }).unwrap();
    assert_eq!(note, "charge: contract_violation");
    assert_eq!(
        life.failure(),
        Some(&Failure {
            code: "contract_violation".to_owned(),
            message: "charge answered Surprise, which is none of PaymentCharged, PaymentDeclined".to_owned(),
        })
    );
}

#[test]
fn an_expression_without_a_value_fails_its_step_so_that_the_rest_is_undone() {
    let saga = Definition::builder("s")
        .start("Go")
        .var("items", json!("=event.items"))
        .step("one", Do::command("a.One"))
        .ok("OneDone")
        .undo(Do::command("a.UndoOne"))
        .step("two", Do::effect("e.two").data(json!({ "first": "=vars.items[0]" })))
        .build()
        .unwrap();
    let mut life = Life::new(&saga);
    life.event("Go", json!({ "items": [] })).unwrap();
    let note = life.event("OneDone", json!({})).unwrap();
    assert_eq!(note, "one: ok, two: expression_error");
    assert_eq!(life.labels().last().unwrap(), "a.UndoOne");
    assert_eq!(life.failure().unwrap().message, "`vars.items[0]`: the index is outside the list");
}

#[test]
fn a_start_event_without_what_vars_need_is_a_schema_fault() {
    let saga = order();
    let mut life = Life::new(&saga);
    let error = life.event("OrderPlaced", json!({ "total": 1 })).unwrap_err();
    assert_eq!(error, "cannot set vars.orderId: `event.orderId`: there is no `orderId`");
}

#[test]
fn the_saga_timeout_turns_everything_back() {
    let saga = Definition::builder("s")
        .start("Go")
        .saga_timeout(Duration::from_hours(1))
        .step("one", Do::command("a.One"))
        .ok("OneDone")
        .build()
        .unwrap();
    let mut life = Life::new(&saga);
    life.event("Go", json!({})).unwrap();
    assert_eq!(life.timers(), ["saga"]);
    life.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(life.status(), Status::Failed);
    assert_eq!(life.failure().unwrap().code, "saga_timeout");
    assert!(!life.last_timers().iter().any(|t| matches!(t, TimerChange::Cancel { .. })), "it fired itself");
}

/// a, then b and c side by side, then d.
fn diamond() -> Compiled {
    Definition::builder("diamond")
        .start("Go")
        .step("a", Do::effect("e.a"))
        .undo(Do::effect("e.undo-a"))
        .step("b", Do::effect("e.b"))
        .after(&["a"])
        .timeout(Duration::from_mins(1))
        .undo(Do::effect("e.undo-b"))
        .step("c", Do::effect("e.c"))
        .after(&["a"])
        .timeout(Duration::from_mins(1))
        .undo(Do::effect("e.undo-c"))
        .step("d", Do::effect("e.d"))
        .after(&["b", "c"])
        .build()
        .expect("it is well formed")
}

#[test]
fn a_join_waits_for_all_its_branches() {
    let saga = diamond();
    let mut life = Life::new(&saga);
    life.event("Go", json!({})).unwrap();
    life.outcome("a", &succeeded(Value::Null)).unwrap();
    assert_eq!(life.labels(), ["e.a", "e.b", "e.c"]);
    life.outcome("c", &succeeded(Value::Null)).unwrap();
    assert_eq!(life.labels().len(), 3);
    life.outcome("b", &succeeded(Value::Null)).unwrap();
    assert_eq!(life.labels().last().unwrap(), "e.d");
}

#[test]
fn a_failure_beside_a_branch_under_way_undoes_what_still_succeeds_newest_first() {
    let saga = diamond();
    let mut life = Life::new(&saga);
    life.event("Go", json!({})).unwrap();
    life.outcome("a", &succeeded(Value::Null)).unwrap();
    life.outcome("b", &failed("no")).unwrap();
    assert_eq!(life.labels().last().unwrap(), "e.undo-a");
    assert!(life.timers().is_empty());
    life.outcome("c", &succeeded(Value::Null)).unwrap();
    assert_eq!(life.labels().last().unwrap(), "e.undo-a", "one undo at a time");
    life.outcome("undo:a", &succeeded(Value::Null)).unwrap();
    assert_eq!(life.labels().last().unwrap(), "e.undo-c");
    life.outcome("undo:c", &succeeded(Value::Null)).unwrap();
    assert_eq!(life.status(), Status::Failed);
}

#[test]
fn a_definition_reads_itself_from_its_canonical_json() {
    let saga = order();
    let again: Definition = serde_json::from_str(orlog_program::Compiled::source(&saga)).unwrap();
    assert_eq!(&again, saga.definition());
}

#[test]
fn every_saga_here_stands_the_quartet() {
    let played = orlog_testkit::definition_suite::check(&order());
    assert_eq!(played.lives, 1 + 2 * 6, "one way to succeed, six to fail, undone once and twice");
    orlog_testkit::definition_suite::check(&diamond());
}
