//! Steps that wait for several events.

use std::time::Duration;

use orlog_model::Status;
use orlog_program::compile_yaml;
use serde_json::json;

use super::start_again::send;
use super::{diagnostics, ok, saga, start_run, step_state};

pub(super) const THREE: &str = "steps:
  - id: readings
    do: { event: [Reading, Estimate], when: event.value > 0, count: 3 }
    fail: Broken
    timeout: 1d
    save: { total: '=events.map(e, e.value).sum()', last: =event.value, all: =events }
  - { id: bill, do: { effect: billing.charge, data: =vars.total } }
";

#[test]
fn step_completes_with_the_last_of_the_counted_events() {
    let saga = saga(THREE);
    let mut run = start_run(&saga, json!({}));
    assert_eq!(
        run.event("Reading", json!({ "value": 1 })).unwrap(),
        "readings: event 1 of 3"
    );
    assert_eq!(
        run.event("Estimate", json!({ "value": 2 })).unwrap(),
        "readings: event 2 of 3"
    );
    assert!(
        run.event("Reading", json!({ "value": 0 })).is_err(),
        "the condition selects the events that count"
    );
    assert_eq!(
        (
            step_state(&run, "readings").as_str(),
            &run.state_view()["steps"][0]["collected"]
        ),
        ("running", &json!(2))
    );
    run.event("Reading", json!({ "value": 4 })).unwrap();
    let vars = &run.state_view()["vars"];
    assert_eq!((&vars["total"], &vars["last"]), (&json!(7), &json!(4)));
    assert_eq!(
        vars["all"],
        json!([{ "value": 1 }, { "value": 2 }, { "value": 4 }])
    );
    assert_eq!(
        run.state_view()["steps"][0]["collected"],
        json!(null),
        "the events are no longer stored"
    );
    ok(&mut run, "bill");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn duplicate_event_counts_once() {
    let saga = saga(THREE);
    let mut run = start_run(&saga, json!({}));
    send(&mut run, "r-1", "Reading", json!({ "value": 1 })).unwrap();
    let reason = send(&mut run, "r-1", "Reading", json!({ "value": 1 })).unwrap_err();
    assert_eq!(reason, "the step has already counted this event");
    send(&mut run, "r-2", "Reading", json!({ "value": 1 })).unwrap();
    assert_eq!(step_state(&run, "readings"), "running");
    send(&mut run, "r-3", "Reading", json!({ "value": 1 })).unwrap();
    assert_eq!(step_state(&run, "readings"), "completed");
}

#[test]
fn failure_event_and_timeout_end_the_collection() {
    let saga = saga(THREE);
    for ends_by_event in [true, false] {
        let mut run = start_run(&saga, json!({}));
        run.event("Reading", json!({ "value": 1 })).unwrap();
        if ends_by_event {
            run.event("Broken", json!({})).unwrap();
        } else {
            run.advance(Duration::from_hours(24)).unwrap();
        }
        assert_eq!(run.status(), Status::Failed);
        assert_eq!(run.state_view()["steps"][0]["collected"], json!(null));
        assert!(
            run.event("Reading", json!({ "value": 1 })).is_err(),
            "a late event has no effect"
        );
    }
}

#[test]
fn condition_over_the_events_ends_the_wait() {
    let saga = saga(
        "vars: { due: =event.due }
steps:
  - id: paid
    do: { event: Payment, until: '=events.map(e, e.amount).sum() >= vars.due' }
    timeout: 30d
    save: { payments: =size(events) }
",
    );
    let mut run = start_run(&saga, json!({ "due": 100 }));
    for amount in [40, 59] {
        run.event("Payment", json!({ "amount": amount })).unwrap();
    }
    assert_eq!(run.status(), Status::Running);
    run.event("Payment", json!({ "amount": 1 })).unwrap();
    assert_eq!(
        (run.status(), &run.state_view()["vars"]["payments"]),
        (Status::Completed, &json!(3))
    );

    let mut run = start_run(&saga, json!({ "due": 100 }));
    run.event("Payment", json!({})).unwrap();
    assert_eq!(run.failure().unwrap().code, "expression_error");
}

#[test]
fn early_events_count_when_the_step_starts() {
    let saga = saga(
        "steps: [{ id: first, do: { effect: e.first } }, { id: twice, do: { event: X, count: 2 }, save: { all: =events } }]",
    );
    let mut run = start_run(&saga, json!({}));
    send(&mut run, "x-1", "X", json!(1)).unwrap();
    ok(&mut run, "first");
    assert_eq!(run.state_view()["steps"][1]["collected"], 1);
    assert!(
        send(&mut run, "x-1", "X", json!(1)).is_err(),
        "the early event counts once"
    );
    send(&mut run, "x-2", "X", json!(2)).unwrap();
    assert_eq!(
        (run.status(), &run.state_view()["vars"]["all"]),
        (Status::Completed, &json!([1, 2]))
    );
}

#[test]
fn each_round_and_each_element_collects_its_own_events() {
    let saga = saga(
        "vars: { more: true, items: [a, b] }
steps:
  - { id: two, do: { event: X, count: 2 }, save: { more: =event.more, seen: '=events.map(e, e.n)' } }
  - { id: loop, do: { repeat: two, while: =vars.more, max: 3 } }
  - { id: each, foreach: { in: =vars.items, as: item }, do: { event: Y, when: event.item == item, count: 2 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    for n in 0..4 {
        run.event("X", json!({ "n": n, "more": n < 3 })).unwrap();
    }
    assert_eq!(run.state_view()["vars"]["seen"], json!([2, 3]));
    for item in ["a", "b", "a"] {
        run.event("Y", json!({ "item": item })).unwrap();
    }
    assert_eq!(
        run.state_view()["steps"][2]["elements"][0]["state"],
        "completed"
    );
    assert_eq!(
        run.state_view()["steps"][2]["elements"][1]["state"],
        "running"
    );
    run.event("Y", json!({ "item": "b" })).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn step_that_is_blocked_past_the_pivot_keeps_its_events() {
    let saga = saga(
        "steps: [{ id: p, pivot: true, do: { effect: e.p } }, { id: two, do: { event: X, count: 2 }, timeout: 1h }]",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "p");
    run.event("X", json!({})).unwrap();
    run.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(run.status(), Status::Stuck);
    run.retry().unwrap();
    run.event("X", json!({})).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn collected_events_are_limited() {
    let saga = saga(
        "steps: [{ id: all, do: { event: X, until: '=event.last' }, save: { all: =events } }]",
    );
    let mut run = start_run(&saga, json!({}));
    for _ in 0..999 {
        run.event("X", json!({ "last": false })).unwrap();
    }
    assert_eq!(run.status(), Status::Running);
    run.event("X", json!({ "last": false })).unwrap();
    assert_eq!(run.failure().unwrap().code, "too_many_events");

    let mut run = start_run(&saga, json!({}));
    let large = json!({ "last": false, "text": "x".repeat(40_000) });
    run.event("X", large.clone()).unwrap();
    run.event("X", large).unwrap();
    assert_eq!(run.failure().unwrap().code, "events_too_large");
}

#[test]
fn payloads_that_no_expression_reads_are_not_stored() {
    let saga = saga("steps: [{ id: two, do: { event: X, count: 2 } }]");
    let mut run = start_run(&saga, json!({}));
    let before = run.state().len();
    run.event("X", json!({ "text": "x".repeat(10_000) }))
        .unwrap();
    assert!(
        run.state().len() < before + 100,
        "{} bytes",
        run.state().len()
    );
}

#[test]
fn migration_keeps_the_collected_events_of_a_renamed_step() {
    let saga = |version: u32, id: &str, rest: &str| {
        let text = format!(
            "saga: t\nversion: {version}\nstart: Go\n{rest}steps: [{{ id: {id}, do: {{ event: X, count: 2 }}, save: {{ all: =events }} }}]"
        );
        compile_yaml(&text, "t").unwrap()
    };
    let (old, new) = (
        saga(1, "a", ""),
        saga(2, "b", "migrations: [{ from: 1, steps: { a: b } }]\n"),
    );
    let mut run = start_run(&old, json!({}));
    send(&mut run, "x-1", "X", json!(1)).unwrap();
    run.migrate(&new).unwrap();
    assert!(send(&mut run, "x-1", "X", json!(1)).is_err());
    send(&mut run, "x-2", "X", json!(2)).unwrap();
    assert_eq!(
        (run.status(), &run.state_view()["vars"]["all"]),
        (Status::Completed, &json!([1, 2]))
    );
}

#[test]
fn invalid_collections_are_reported() {
    let of = |event: &str| {
        diagnostics(&format!(
            "steps: [{{ id: a, do: {{ event: X, {event} }} }}]"
        ))
    };
    assert_eq!(
        of("count: 1001"),
        "steps[0].do.count: the count must be 1 to 1000"
    );
    assert_eq!(
        of("count: 0"),
        "steps[0].do.count: the count must be 1 to 1000"
    );
    assert_eq!(
        of("count: 2, until: =true"),
        "steps[0].do.until: `count` already ends the wait"
    );
    assert!(of("until: =size(event) > vars.n").contains("steps[0].do.until: "));
    let found = diagnostics("steps: [{ id: a, do: { event: X }, save: { n: =size(events) } }]");
    assert!(
        found.contains("steps[0].save.n: ") && found.contains("events"),
        "{found}"
    );
    let found = diagnostics("steps: [{ id: a, do: { effect: e.a, count: 2 } }]");
    assert!(found.contains("has no `count`"), "{found}");
}

#[test]
fn condition_over_the_events_of_several_types_ends_the_wait() {
    let saga = saga(
        "steps:
  - { id: two, do: { event: X, count: 2 } }
  - { id: big, do: { event: [Y, Z], until: size(events) > 1 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    for kind in ["X", "X", "Y", "Z"] {
        run.event(kind, json!({})).unwrap();
    }
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn event_from_which_until_has_no_value_does_not_count() {
    let saga = saga(
        "vars: { total: 10 }
steps:
  - { id: paid, do: { event: Paid, until: '=events.map(e, e.amount).sum() >= vars.total' }, save: { n: =size(events) }, timeout: 1d }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Paid", json!({ "amount": 4 })).unwrap();
    let note = run.event("Paid", json!({ "sum": 3 })).unwrap();
    assert!(note.starts_with("paid: Paid does not match: "), "{note}");
    assert_eq!(run.failure().unwrap().code, "expression_error");
    assert_eq!(step_state(&run, "paid"), "running");
    run.event("Paid", json!({ "amount": 6 })).unwrap();
    assert_eq!(run.status(), Status::Completed);
    assert_eq!(run.state_view()["vars"]["n"], 2);
}
