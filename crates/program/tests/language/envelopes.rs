//! `envelope`: the attributes of an event in expressions.

use orlog_model::{Event, EventAttributes, EventId, Status};
use orlog_program::Program as _;
use orlog_testkit::definition_suite::InstanceDriver;
use serde_json::{Value, json};

use super::{diagnostics, saga, start_run};

/// Returns the event with a source, a subject and an extension.
fn from_region(event: Event, region: &str) -> Event {
    let extensions = [("region".to_owned(), region.to_owned())].into();
    let attributes = EventAttributes {
        data_schema: Some("urn:schema".to_owned()),
        extensions,
        content_type: None,
    };
    Event {
        id: EventId::new("e-7").unwrap(),
        source: "urn:shop".to_owned(),
        subject: Some("o-7".to_owned()),
        attributes: attributes.boxed(),
        ..event
    }
}

/// Requirements: R5.
#[test]
fn variables_read_the_envelope_of_the_start_event() {
    let saga = saga(
        "correlate: =envelope.subject
vars:
  all: =envelope
  age: =timestamp(envelope.time).getFullYear()
  region: =envelope.extensions.?region.orValue('none')
steps: [{ id: a, do: { effect: x.a } }]
",
    );
    let mut run = InstanceDriver::new(&saga);
    let event = from_region(run.new_event("Go", 1, json!({ "n": 1 })), "eu");
    assert_eq!(saga.correlate(&event).unwrap().as_str(), "o-7");
    run.deliver(&event).unwrap();
    let vars = run.state_view()["vars"].clone();
    let expected = json!({
        "id": "e-7", "source": "urn:shop", "type": "Go", "time": "2023-11-14T22:13:20.000Z", "subject": "o-7",
        "datacontenttype": "application/json", "dataschema": "urn:schema", "dataversion": 1,
        "correlationid": "o1", "causationid": null, "user": null, "extensions": { "region": "eu" },
    });
    assert_eq!(
        (&vars["all"], &vars["age"], &vars["region"]),
        (&expected, &json!(2023), &json!("eu"))
    );

    let mut plain = InstanceDriver::new(&saga);
    plain.event("Go", json!({})).unwrap();
    let vars = &plain.state_view()["vars"];
    assert_eq!(
        (&vars["region"], &vars["all"]["extensions"]),
        (&json!("none"), &json!({}))
    );
}

const WAITS: &str = "
on: [{ event: Moved, when: envelope.source == 'urn:shop', save: { moved: =envelope.id } }]
steps:
  - { id: first, do: { effect: x.first } }
  - { id: paid, do: { event: Paid, when: envelope.extensions.region == 'eu' }, save: { by: =envelope.id, amount: =event.amount } }
";

/// An early event has the same envelope as one that arrives in time.
///
/// Requirements: R5.
#[test]
fn conditions_handlers_and_early_events_read_the_envelope() {
    let saga = saga(WAITS);
    for is_early in [false, true] {
        let mut run = start_run(&saga, json!({}));
        let moved = from_region(run.new_event("Moved", 1, Value::Null), "eu");
        let other = Event {
            source: "urn:other".to_owned(),
            ..moved.clone()
        };
        assert!(run.deliver(&other).is_err(), "the source differs");
        run.deliver(&moved).unwrap();
        let paid = run.new_event("Paid", 1, json!({ "amount": 3 }));
        let (eu, us) = (from_region(paid.clone(), "eu"), from_region(paid, "us"));
        if is_early {
            assert_eq!(run.deliver(&us).unwrap(), "Paid kept until its step starts");
            run.deliver(&eu).unwrap();
            super::ok(&mut run, "first");
        } else {
            super::ok(&mut run, "first");
            assert!(run.deliver(&us).is_err(), "the region differs");
            run.deliver(&eu).unwrap();
        }
        assert_eq!(run.status(), Status::Completed);
        let vars = run.state_view()["vars"].clone();
        assert_eq!(vars, json!({ "moved": "e-7", "by": "e-7", "amount": 3 }));
    }
}

#[test]
fn upcast_event_keeps_its_envelope() {
    let saga = saga(
        "events: { Go: { accepts: [1, 2], upcast: { 1: { total: =event.old } } } }
vars: { total: =event.total, region: =envelope.extensions.region, version: =envelope.dataversion }
steps: [{ id: a, do: { effect: x.a } }]
",
    );
    let mut run = InstanceDriver::new(&saga);
    let event = from_region(run.new_event("Go", 1, json!({ "old": 5 })), "eu");
    run.deliver(&event).unwrap();
    assert_eq!(
        run.state_view()["vars"],
        json!({ "total": 5, "region": "eu", "version": 1 })
    );
}

#[test]
fn envelope_is_rejected_where_event_is_no_event() {
    let found = diagnostics(
        "vars: { a: =envelope.id, b: =envelope.tpye }
events: { Go: { accepts: [1, 2], upcast: { 1: =envelope } } }
steps:
  - { id: call, do: { effect: x.a, data: =envelope.id }, save: { c: =envelope.id } }
  - { id: again, do: { restart_as_new: Go } }
",
    );
    for expected in [
        "vars.a: `envelope` is not available: the step `again` restarts the saga without an event",
        "vars.b: `envelope.tpye` does not exist",
        "events.Go.upcast.1: unknown name `envelope`; available: `event`",
        "steps[0].do.data: unknown name `envelope`; available: `vars` and `key`",
        "steps[0].save.c: unknown name `envelope`; available: `vars`, `event` and `key`",
    ] {
        assert!(
            found.contains(expected),
            "{expected} is missing in\n{found}"
        );
    }
}
