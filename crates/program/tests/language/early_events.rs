//! Early events: events that arrive before the step that awaits them has started.

use std::time::Duration;

use orlog_model::{Status, Work};
use serde_json::json;

use super::{fail, ok, saga, start_run, step_state};

const ORDER: &str = "steps:
  - { id: check, do: { effect: e.check } }
  - { id: paid, do: { event: Paid }, fail: Rejected, save: { amount: =event.amount } }
  - { id: ship, do: { effect: e.ship } }
";

#[test]
fn event_is_kept_until_its_step_starts() {
    let saga = saga(ORDER);
    let mut run = start_run(&saga, json!({}));
    assert_eq!(
        run.event("Paid", json!({ "amount": 7 })).unwrap(),
        "Paid kept until its step starts"
    );
    assert_eq!(run.state_view()["early_events"], json!(["Paid"]));
    assert_eq!(ok(&mut run, "check"), "check: ok, paid: ok");
    assert_eq!(run.state_view()["vars"]["amount"], 7);
    assert!(run.state_view().get("early_events").is_none());
    assert_eq!(
        run.event("Paid", json!({ "amount": 8 })).unwrap_err(),
        "the step is completed"
    );
    assert_eq!(ok(&mut run, "ship"), "ship: ok, completed");

    let mut run = start_run(&saga, json!({}));
    run.event("Rejected", json!({ "reason": "no money" }))
        .unwrap();
    ok(&mut run, "check");
    assert_eq!(
        (run.status(), run.failure().unwrap().message.as_str()),
        (Status::Failed, "no money")
    );
}

#[test]
fn events_are_applied_in_the_order_of_arrival() {
    let saga = saga(ORDER);
    let mut run = start_run(&saga, json!({}));
    run.event("Paid", json!({ "amount": 1 })).unwrap();
    run.event("Rejected", json!({})).unwrap();
    run.event("Paid", json!({ "amount": 2 })).unwrap();
    ok(&mut run, "check");
    assert_eq!(run.state_view()["vars"]["amount"], 1);
    assert_eq!(step_state(&run, "ship"), "running");
    assert!(
        run.state_view().get("early_events").is_none(),
        "the others are late"
    );
}

/// The loss of commits can lead to this order: the event is read again before the earlier steps are repeated.
#[test]
fn confirmation_of_a_compensation_is_kept_until_it_starts() {
    let saga = saga(
        "steps:
  - { id: a, do: { command: x.A }, ok: Done, undo: { command: x.U, ok: Released } }
  - { id: b, do: { effect: e.b }, undo: { effect: u.b } }
  - { id: c, do: { effect: e.c } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Done", json!({})).unwrap();
    ok(&mut run, "b");
    fail(&mut run, "c");
    assert_eq!(
        run.event("Released", json!({})).unwrap(),
        "Released kept until its step starts"
    );
    ok(&mut run, "compensate:b");
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(step_state(&run, "a"), "compensated");
    assert!(matches!(run.work().last(), Some(Work::Fact(_))));
    assert!(
        run.labels().contains(&"x.U".to_owned()),
        "it can be older than what the step has changed: {:?}",
        run.labels()
    );
}

#[test]
fn compensation_whose_failure_arrived_before_is_not_sent() {
    let saga = saga(
        "steps:
  - { id: a, do: { command: x.A }, ok: Done, undo: { command: x.U, ok: Released, fail: Kept } }
  - { id: b, do: { effect: e.b } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Done", json!({})).unwrap();
    run.event("Kept", json!({})).unwrap();
    fail(&mut run, "b");
    assert_eq!(run.status(), Status::Stuck);
    assert!(run.compensated().is_empty());
    run.retry().unwrap();
    assert_eq!(run.compensated(), ["compensate:a"]);
    run.event("Released", json!({})).unwrap();
    assert_eq!(run.status(), Status::Failed);
}

const BOOKING: &str = "steps:
  - { id: check, do: { effect: e.check }, undo: { effect: u.check } }
  - { id: book, do: { command: air.Book }, ok: Booked, fail: Full, timeout: 1h, undo: { command: air.Cancel } }
  - { id: ship, do: { effect: e.ship } }
";

#[test]
fn early_event_that_no_condition_can_read_confirms_and_fails_nothing() {
    let saga = saga(
        "steps:
  - { id: check, do: { effect: e.check } }
  - { id: a, do: { command: x.A }, ok: { event: Done, when: event.n > 0 }, undo: { command: x.U, ok: { event: Released, when: event.n > 0 } } }
  - { id: b, do: { effect: e.b } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Done", json!({})).unwrap();
    run.event("Released", json!({})).unwrap();
    ok(&mut run, "check");
    assert_eq!(step_state(&run, "a"), "running");
    run.event("Done", json!({ "n": 1 })).unwrap();
    fail(&mut run, "b");
    assert_eq!(step_state(&run, "a"), "compensating");
    assert_eq!(run.labels(), ["e.check", "x.A", "e.b", "x.U"]);
}

#[test]
fn command_whose_confirmation_arrived_before_is_not_sent() {
    let saga = saga(BOOKING);
    let mut run = start_run(&saga, json!({}));
    run.event("Full", json!({})).unwrap();
    ok(&mut run, "check");
    assert_eq!(step_state(&run, "book"), "failed");
    assert_eq!(run.labels(), ["e.check", "u.check"]);
    assert_eq!(run.compensated(), ["compensate:check"]);
    assert!(run.timers().is_empty());

    let mut run = start_run(&saga, json!({}));
    run.event("Booked", json!({})).unwrap();
    ok(&mut run, "check");
    assert_eq!(run.labels(), ["e.check", "e.ship"]);
    fail(&mut run, "ship");
    assert_eq!(run.compensated(), ["compensate:book"], "it is booked");
}

#[test]
fn command_is_not_sent_if_its_saga_fails_as_it_starts() {
    let saga = saga(
        "steps:
  - { id: check, do: { effect: e.check } }
  - { id: hotel, after: [check], do: { command: hotels.Book }, ok: Reserved, undo: { command: hotels.Cancel } }
  - { id: car, after: [check], do: { effect: cars.rent }, undo: { effect: cars.return } }
  - { id: book, after: [check], do: { command: air.Book }, ok: Booked, fail: Full }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Full", json!({})).unwrap();
    ok(&mut run, "check");
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(run.labels(), ["e.check", "Failed"]);
}

#[test]
fn repeated_confirmation_does_not_confirm_the_command_of_the_next_round() {
    let text = |when: &str| {
        format!(
            "steps:
  - {{ id: charge, do: {{ command: bank.Charge }}, ok: {{ event: Charged{when} }}, timeout: 1h }}
  - {{ id: log, do: {{ effect: e.log }} }}
  - {{ id: months, do: {{ repeat: charge, while: round < 1, max: 2 }} }}
"
        )
    };
    let plain = saga(&text(""));
    let mut run = start_run(&plain, json!({}));
    run.event("Charged", json!({})).unwrap();
    assert!(run.event("Charged", json!({})).is_err());
    ok(&mut run, "log[0]");
    assert_eq!(step_state(&run, "charge"), "running");
    let charges = run
        .labels()
        .into_iter()
        .filter(|label| *label == "bank.Charge");
    assert_eq!(charges.count(), 2);

    // Lost commits can bring the confirmation of the next round first.
    let numbered = saga(&text(", when: event.round == round"));
    let mut run = start_run(&numbered, json!({}));
    run.event("Charged", json!({ "round": 0 })).unwrap();
    run.event("Charged", json!({ "round": 1 })).unwrap();
    ok(&mut run, "log[0]");
    assert_eq!(step_state(&run, "log"), "running");
}

#[test]
fn late_and_repeated_results_are_not_kept() {
    let saga = saga(
        "steps:
  - { id: a, do: { command: x.A }, ok: Done }
  - { id: b, do: { effect: e.b } }
  - { id: c, do: { command: x.C }, ok: Done }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Done", json!({})).unwrap();
    assert!(
        run.event("Done", json!({})).is_err(),
        "`a` would have consumed it"
    );
    ok(&mut run, "b");
    assert_eq!(step_state(&run, "c"), "running");
    assert_eq!(run.event("Done", json!({})).unwrap(), "c: ok, completed");
}

#[test]
fn each_event_counts_for_the_next_step_that_waits_for_it() {
    let saga = saga(
        "vars: { first: null, second: null }
steps:
  - { id: deposit, do: { event: Paid }, save: { first: =event.n } }
  - { id: log, do: { effect: e.log } }
  - { id: rest, do: { event: Paid }, save: { second: =event.n } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Paid", json!({ "n": 1 })).unwrap();
    assert_eq!(
        run.event("Paid", json!({ "n": 2 })).unwrap(),
        "Paid kept until its step starts"
    );
    run.event("Paid", json!({ "n": 3 })).unwrap();
    assert_eq!(
        ok(&mut run, "log"),
        "log: ok, rest: ok, completed, Paid dropped: no step can await it"
    );
    assert_eq!(run.state_view()["vars"], json!({ "first": 1, "second": 2 }));
}

#[test]
fn condition_selects_the_step_that_has_not_started() {
    let saga = saga(
        "steps:
  - { id: a, do: { command: x.A }, ok: { event: Done, when: event.n == 1 } }
  - { id: b, do: { effect: e.b } }
  - { id: c, do: { command: x.C }, ok: { event: Done, when: event.n == 2 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Done", json!({ "n": 2 })).unwrap();
    run.event("Done", json!({ "n": 1 })).unwrap();
    assert!(
        run.event("Done", json!({ "n": 1 })).is_err(),
        "it repeats the result of `a`"
    );
    run.event("Done", json!({ "n": 3 })).unwrap();
    assert_eq!(
        ok(&mut run, "b"),
        "b: ok, c: ok, completed, Done dropped: no step can await it"
    );
}

#[test]
fn element_that_has_not_started_keeps_its_event() {
    let saga = saga(
        "vars: { items: =event.items }
steps:
  - id: lines
    foreach: { in: =vars.items, as: item, max_concurrency: 1 }
    do: { command: stock.Reserve }
    ok: { event: Reserved, when: =event.sku == item }
",
    );
    let mut run = start_run(&saga, json!({ "items": ["a", "b"] }));
    run.event("Reserved", json!({ "sku": "b" })).unwrap();
    assert!(
        run.event("Reserved", json!({ "sku": "x" })).is_err(),
        "no element has this value"
    );
    run.event("Reserved", json!({ "sku": "a" })).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn events_expire_are_bounded_and_can_be_disabled() {
    let limited = saga(&format!("early_event_ttl: 1h\n{ORDER}"));
    let mut run = start_run(&limited, json!({}));
    for _ in 0..100 {
        run.event("Paid", json!({ "amount": 1 })).unwrap();
    }
    let rejected = run.event("Paid", json!({ "amount": 1 })).unwrap_err();
    assert!(
        rejected.contains("Paid: its step has not started, and 100 events are already kept"),
        "{rejected}"
    );
    run.advance(Duration::from_hours(1)).unwrap();
    ok(&mut run, "check");
    assert_eq!(step_state(&run, "paid"), "running");

    let disabled = saga(&format!("early_event_ttl: 0s\n{ORDER}"));
    let mut run = start_run(&disabled, json!({}));
    assert_eq!(
        run.event("Paid", json!({ "amount": 1 })).unwrap_err(),
        "the step has not started"
    );
}

#[test]
fn early_event_without_a_saved_value_fails_its_step() {
    let saga = saga(ORDER);
    let mut run = start_run(&saga, json!({}));
    run.event("Paid", json!({})).unwrap();
    ok(&mut run, "check");
    assert_eq!(
        (run.status(), run.failure().unwrap().code.as_str()),
        (Status::Failed, "expression_error")
    );
}

#[test]
fn event_of_a_bypassed_step_is_dropped() {
    let saga = saga(
        "steps:
  - { id: a, do: { effect: e.a } }
  - { id: paid, when: =vars.total > 9, do: { event: Paid } }
  - { id: end, do: { effect: e.end } }
vars: { total: =event.total }
",
    );
    let mut run = start_run(&saga, json!({ "total": 1 }));
    run.event("Paid", json!({})).unwrap();
    ok(&mut run, "a");
    assert!(run.state_view().get("early_events").is_none());
    assert_eq!(ok(&mut run, "end"), "end: ok, completed");
}

#[test]
fn forced_instance_applies_no_early_event() {
    let saga = saga(
        "steps:
  - { id: a, do: { effect: e.a }, pivot: true }
  - { id: b, do: { effect: e.b } }
  - { id: paid, do: { event: Paid }, save: { amount: =event.amount } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    run.event("Paid", json!({ "amount": 7 })).unwrap();
    fail(&mut run, "b");
    assert_eq!(run.status(), Status::Stuck);
    assert_eq!(run.state_view()["early_events"], json!(["Paid"]));
    run.force_complete().unwrap();
    assert!(run.status().is_final());
    assert!(run.state_view().get("early_events").is_none());
    assert_eq!(run.state_view()["vars"]["amount"], json!(null));
}
