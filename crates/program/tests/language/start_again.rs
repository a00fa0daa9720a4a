//! Event types that start an instance and matter to an instance that exists.

use orlog_model::{Event, EventId, EventType, Status, TenantId, Timestamp};
use orlog_program::{Program as _, ProgramInput};
use orlog_testkit::definition_suite::InstanceDriver;
use serde_json::{Value, json};

use super::{saga, start_run, step_state};

/// Event with an id of its own.
pub(super) fn event(id: &str, kind: &str, data: Value) -> Event {
    Event {
        id: EventId::new(id).unwrap(),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:test".to_owned(),
        subject: None,
        time: Timestamp::from_millis(0),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    }
}

pub(super) fn send(
    run: &mut InstanceDriver<'_>,
    id: &str,
    kind: &str,
    data: Value,
) -> Result<String, String> {
    run.take(&ProgramInput::Event(&event(id, kind, data)))
}

#[test]
fn start_event_completes_a_step_of_an_instance_that_exists() {
    let saga = saga(
        "vars: { n: =event.n }\nsteps: [{ id: again, do: { event: Go }, timeout: 1d, save: { n: =event.n } }]",
    );
    let mut run = start_run(&saga, json!({ "n": 1 }));
    assert_eq!(
        step_state(&run, "again"),
        "running",
        "the start event itself does not complete the step"
    );
    run.event("Go", json!({ "n": 2 })).unwrap();
    assert_eq!(
        (run.status(), &run.state_view()["vars"]["n"]),
        (Status::Completed, &json!(2))
    );
}

#[test]
fn start_event_is_kept_for_a_step_that_has_not_started() {
    let saga = saga("steps: [{ id: a, do: { effect: e.a } }, { id: again, do: { event: Go } }]");
    let mut run = start_run(&saga, json!({}));
    run.event("Go", json!({})).unwrap();
    assert_eq!(run.state_view()["early_events"], json!(["Go"]));
    super::ok(&mut run, "a");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn start_event_runs_the_handlers_of_an_instance_that_exists() {
    let saga = saga(
        "vars: { n: 0 }\non: { event: Go, save: { n: =vars.n + 1 } }\nsteps: [{ id: end, do: { event: End } }]",
    );
    let mut run = start_run(&saga, json!({}));
    assert_eq!(
        run.state_view()["vars"]["n"],
        0,
        "the start event itself runs no handler"
    );
    for n in 1..3 {
        run.event("Go", json!({})).unwrap();
        assert_eq!(run.state_view()["vars"]["n"], n);
    }
}

#[test]
fn either_of_two_types_starts_and_the_other_one_continues() {
    let text = "saga: t\nversion: 1\nstart: [Ordered, Paid]\nsteps:
  - { id: ordered, after: [], when: =vars.first != 'order', do: { event: Ordered }, timeout: 1d }
  - { id: paid, after: [], when: =vars.first != 'payment', do: { event: Paid }, timeout: 1d }
vars: { first: =event.first }\n";
    let saga = orlog_program::compile_yaml(text, "t").unwrap();
    for (first, second, data) in [("Ordered", "Paid", "order"), ("Paid", "Ordered", "payment")] {
        let mut run = InstanceDriver::new(&saga);
        run.event(first, json!({ "first": data })).unwrap();
        assert!(
            run.event(first, json!({})).is_err(),
            "no step awaits another {first}"
        );
        run.event(second, json!({})).unwrap();
        assert_eq!(run.status(), Status::Completed, "{first} before {second}");
    }
}

#[test]
fn redelivered_start_event_has_no_effect() {
    let saga = saga("steps: [{ id: again, do: { event: Go } }]");
    let mut run = InstanceDriver::new(&saga);
    send(&mut run, "e-1", "Go", json!({})).unwrap();
    let before = run.state().to_vec();
    let reason = send(&mut run, "e-1", "Go", json!({})).unwrap_err();
    assert_eq!(
        (reason.as_str(), run.state()),
        ("the instance has already started", &before[..])
    );
    send(&mut run, "e-2", "Go", json!({})).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn start_type_without_another_meaning_is_ignored_and_costs_no_state() {
    let saga = saga("steps: [{ id: a, do: { event: A } }]");
    let mut run = start_run(&saga, json!({}));
    assert_eq!(
        run.event("Go", json!({})).unwrap_err(),
        "the instance has already started"
    );
    assert!(saga.only_starts(&EventType::new("Go").unwrap()));
    let subscriptions: Vec<_> = saga
        .manifest()
        .subscriptions
        .iter()
        .map(|s| (s.kind.as_str(), s.starts))
        .collect();
    assert_eq!(subscriptions, [("A", false), ("Go", true)]);
}
