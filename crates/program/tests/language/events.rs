//! Events: consumers, handlers, payload versions, correlation.

use orlog_model::{Event, EventId, EventType, Status, TenantId, Timestamp, Work, WorkOutcome};
use orlog_program::{Program, ProgramError};
use orlog_testkit::definition_suite::{InstanceDriver, failed, succeeded};
use serde_json::{Value, json};

use super::{diagnostics, ok, saga, start_run, step_state};

#[test]
fn event_step_accepts_any_matching_event() {
    let saga = saga(
        "vars: { total: =event.total }
steps:
  - id: paid
    do: { event: [PaymentReceived, CashReceived], when: event.amount >= vars.total }
    fail: PaymentRejected
    timeout: 3d
    save: { amount: =event.amount }
",
    );
    let mut run = start_run(&saga, json!({ "total": 5 }));
    let kinds: Vec<_> = run.waits().iter().map(|(_, name)| name.clone()).collect();
    assert_eq!(
        kinds,
        ["PaymentReceived", "CashReceived", "PaymentRejected"]
    );
    assert!(
        run.event("CashReceived", json!({ "amount": 4 })).is_err(),
        "an insufficient amount has no effect"
    );
    assert_eq!(
        run.event("CashReceived", json!({ "amount": 5 })).unwrap(),
        "paid: ok, completed"
    );
    assert_eq!(run.state_view()["vars"]["amount"], 5);
    let mut run = start_run(&saga, json!({ "total": 5 }));
    run.event("PaymentRejected", json!({})).unwrap();
    assert_eq!(run.status(), Status::Failed);
    let mut run = start_run(&saga, json!({ "total": 5 }));
    run.advance(std::time::Duration::from_hours(72)).unwrap();
    assert_eq!(run.failure().unwrap().code, "timeout");
}

#[test]
fn malformed_event_is_recorded_and_the_step_waits_on() {
    let saga = saga("steps:\n  - { id: a, do: { event: Paid, when: event.amount > 1 } }");
    let mut run = start_run(&saga, json!({}));
    let note = run.event("Paid", json!({})).unwrap();
    assert_eq!(
        note,
        "a: Paid does not match: `event.amount > 1`: `amount` does not exist"
    );
    let failure = run.failure().unwrap();
    assert_eq!(failure.code, "expression_error");
    assert!(
        failure.message.contains("`amount` does not exist"),
        "{failure}"
    );
    assert_eq!(run.status(), Status::Running);
    assert_eq!(
        run.event("Paid", json!({ "amount": 2 })).unwrap(),
        "a: ok, completed"
    );
}

#[test]
fn condition_error_fails_the_command_that_the_event_answers() {
    let saga =
        saga("steps:\n  - { id: a, do: { command: x.A }, ok: { event: Done, when: event.n > 1 } }");
    let mut run = start_run(&saga, json!({}));
    run.event("Done", json!({})).unwrap();
    assert_eq!(run.failure().unwrap().code, "expression_error");
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn event_condition_selects_success_or_failure() {
    let saga = saga(
        "steps:
  - id: book
    do: { command: hotels.Book }
    ok: { event: Booked, when: event.nights == 3 }
    fail: [ Rejected, { event: Booked, when: event.nights < 3 } ]
",
    );
    for (nights, status) in [
        (3, Some(Status::Completed)),
        (2, Some(Status::Failed)),
        (4, None),
    ] {
        let mut run = start_run(&saga, json!({}));
        let result = run.event("Booked", json!({ "nights": nights }));
        assert_eq!(
            result.is_ok().then(|| run.status()),
            status,
            "{nights} nights: {result:?}"
        );
    }
}

#[test]
fn event_prefers_a_waiting_step_over_an_abandoned_one() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { command: x.A }, ok: { event: Done, when: event.n > 0 }, timeout: 1m, undo: { command: x.U } }
  - { id: b, after: [], do: { command: x.B }, ok: Other }
  - { id: end, after: { any: [a, b] }, do: { command: x.C }, ok: Done }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Other", json!({})).unwrap();
    assert_eq!(step_state(&run, "a"), "abandoned");
    assert_eq!(
        run.event("Done", json!({ "n": 1 })).unwrap(),
        "end: ok, completed"
    );
    assert_eq!(run.event("Done", json!({ "n": 1 })).unwrap(), "a: ok, late");
    run.outcome("compensate:a", &WorkOutcome::Accepted).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn ambiguous_event_requires_conditions() {
    let steps = |a: &str, b: &str| {
        format!(
            "steps:\n  - {{ id: a, after: [], do: {{ event: X{a} }} }}\n  - {{ id: b, after: [], do: {{ event: X{b} }} }}"
        )
    };
    assert!(
        diagnostics(&steps("", ", when: event.n == 1"))
            .contains("X is ambiguous: success of `a` and success of `b`")
    );
    let saga = saga(&steps(", when: event.n == 1", ""));
    let mut run = start_run(&saga, json!({}));
    assert_eq!(run.event("X", json!({ "n": 2 })).unwrap(), "b: ok");
    assert_eq!(
        run.event("X", json!({ "n": 1 })).unwrap(),
        "a: ok, completed"
    );
}

pub(super) const EFFECT: &str = "steps:
  - { id: a, do: { effect: e.a }, ok: [ { event: Big, when: event.n > 9 }, { event: Small, when: event.n > 0 } ], fail: [None] }
";

#[test]
fn unnamed_result_uses_the_first_match() {
    let saga = saga(EFFECT);
    for (n, emitted, status) in [
        (10, "Big", Status::Completed),
        (1, "Small", Status::Completed),
        (0, "None", Status::Failed),
    ] {
        let mut run = start_run(&saga, json!({}));
        run.outcome("a", &succeeded(json!({ "n": n }))).unwrap();
        assert_eq!(
            (run.status(), run.labels()[1].as_str()),
            (status, emitted),
            "{n}"
        );
        let Work::Fact(fact) = &run.work()[1] else {
            panic!("a fact")
        };
        assert_eq!(fact.data, json!({ "n": n }));
    }
}

#[test]
fn named_result_must_match_name_and_condition() {
    let saga = saga(EFFECT);
    for (name, n, code) in [
        ("Big", 10, None),
        ("Big", 1, Some("contract_violation")),
        ("None", 10, Some("None")),
        ("Else", 10, Some("contract_violation")),
    ] {
        let mut run = start_run(&saga, json!({}));
        let event = Some(EventType::new(name).unwrap());
        run.outcome("a", &WorkOutcome::succeeded(event, json!({ "n": n })))
            .unwrap();
        assert_eq!(
            run.failure().map(|failure| failure.code.as_str()),
            code,
            "{name} {n}"
        );
    }
}

#[test]
fn failed_result_is_reported_as_failure() {
    let saga = saga(EFFECT);
    let mut run = start_run(&saga, json!({}));
    run.outcome("a", &failed("http_500")).unwrap();
    assert_eq!(
        (
            run.labels()[1].as_str(),
            run.failure().unwrap().code.as_str()
        ),
        ("None", "http_500")
    );
}

#[test]
fn unnamed_success_is_accepted_when_only_failures_are_named() {
    let saga = saga(
        "steps:\n  - { id: a, do: { effect: e.a }, fail: [Bad, { event: Odd, when: event.n == 1 }] }",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a").clear();
    assert_eq!(
        run.status(),
        Status::Failed,
        "the condition of Odd has no value"
    );
    let mut run = start_run(&saga, json!({}));
    run.outcome("a", &succeeded(json!({ "n": 2 }))).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

fn handled(then: &str) -> orlog_program::CompiledDefinition {
    saga(&format!(
        "on:
  - {{ event: Note, save: {{ noted: =event.by }}, do: {{ command: mail.Notify, data: {{ by: =event.by }} }} }}
  - {{ event: [Stop, Note], when: has(event.stop), then: {then} }}
steps:
  - {{ id: a, do: {{ effect: e.a }}, undo: {{ effect: u.a }} }}
  - {{ id: b, do: {{ event: Note, when: has(event.b) }}, timeout: 1h }}
  - {{ id: c, do: {{ effect: e.c }} }}
"
    ))
}

#[test]
fn handler_runs_actions_saves_vars_and_passes_the_event_on() {
    let saga = handled("cancel");
    let mut run = start_run(&saga, json!({}));
    run.event("Note", json!({ "by": "me" })).unwrap();
    let Some(Work::Command(command)) = run.work().last() else {
        panic!("a command")
    };
    assert_eq!(
        (command.tag.as_str(), &command.payload),
        ("on:0", &json!({ "by": "me" }))
    );
    assert_eq!(run.state_view()["vars"]["noted"], "me");
    assert!(
        run.outcome("on:0", &WorkOutcome::Accepted).is_err(),
        "the result is not awaited"
    );
    ok(&mut run, "a");
    assert_eq!(
        run.event("Note", json!({ "by": "you", "b": 1 })).unwrap(),
        "Note, b: ok"
    );
    assert_eq!(step_state(&run, "c"), "running");
    assert!(
        run.event("Stop", json!({})).is_err(),
        "the condition is false"
    );
}

#[test]
fn a_handler_can_cancel_fail_or_complete() {
    for (then, expected) in [("cancel", Status::Cancelled), ("fail", Status::Failed)] {
        let saga = handled(then);
        let mut run = start_run(&saga, json!({}));
        ok(&mut run, "a");
        run.event("Stop", json!({ "stop": true, "reason": "enough" }))
            .unwrap();
        assert_eq!(
            (run.status(), run.timers().len()),
            (Status::Compensating, 0)
        );
        assert!(
            run.event("Note", json!({ "by": "x" })).is_err(),
            "handlers apply only while the saga runs forward"
        );
        ok(&mut run, "compensate:a");
        assert_eq!(run.status(), expected);
        let code = run.state_view()["failure"]["code"].clone();
        assert_eq!(code, if then == "fail" { "Stop" } else { "cancelled" });
    }
    let saga = handled("complete");
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    run.event("Stop", json!({ "stop": true })).unwrap();
    assert_eq!((run.status(), run.timers().len()), (Status::Completed, 0));
    assert_eq!(
        (
            step_state(&run, "a"),
            step_state(&run, "b"),
            step_state(&run, "c")
        ),
        ("completed".into(), "abandoned".into(), "skipped".into())
    );
}

#[test]
fn success_from_a_cancelling_event_is_compensated() {
    let saga = saga(
        "on: [ { event: Booked, when: event.late, then: cancel } ]
steps:
  - { id: a, do: { command: x.A }, ok: Booked, undo: { effect: u.a } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Booked", json!({ "late": true })).unwrap();
    assert_eq!(run.compensated(), ["compensate:a"]);
    ok(&mut run, "compensate:a");
    assert_eq!(run.status(), Status::Cancelled);
}

#[test]
fn handler_condition_error_rejects_the_event() {
    let saga = saga(
        "on: [ { event: X, when: event.n > 1, then: fail } ]\nsteps:\n  - { id: a, do: { effect: e } }",
    );
    let mut run = start_run(&saga, json!({}));
    assert_eq!(
        run.event("X", json!({})).unwrap_err(),
        "on[0]: `event.n > 1`: `n` does not exist"
    );
}

#[test]
fn invalid_handlers_are_rejected() {
    let found = diagnostics(
        "on:\n  - { event: X }\n  - { event: Y, do: { wait: 1h } }\nsteps:\n  - { id: a, do: { effect: e } }",
    );
    for expected in [
        "on[0]: this event has no handling",
        "a handler cannot await a wait",
    ] {
        assert!(
            found.contains(expected),
            "{expected} is missing in\n{found}"
        );
    }
}

fn versioned(policy: &str) -> orlog_program::CompiledDefinition {
    saga(&format!(
        "correlate: id
events:
  Paid: {{ accepts: [1, 2], upcast: {{ 1: {{ id: =event.old, amount: =event.total * 2 }} }}, on_unsupported: {policy} }}
  Go: {{ accepts: [1], on_unsupported: {policy} }}
steps:
  - {{ id: a, do: {{ effect: e.a }}, undo: {{ effect: u.a }} }}
  - {{ id: paid, do: {{ event: Paid }}, save: {{ amount: =event.amount }} }}
"
    ))
}

/// Requirements: R13.
#[test]
fn older_event_version_is_upcast() {
    let saga = versioned("dead_letter");
    let mut run = start_run(&saga, json!({ "id": "x" }));
    ok(&mut run, "a");
    run.event_of("Paid", 1, json!({ "old": "x", "total": 21 }))
        .unwrap();
    assert_eq!(run.state_view()["vars"]["amount"], 42);
    let mut run = start_run(&saga, json!({ "id": "x" }));
    ok(&mut run, "a");
    run.event_of("Paid", 2, json!({ "id": "x", "amount": 7 }))
        .unwrap();
    assert_eq!(run.state_view()["vars"]["amount"], 7);
    let mut run = start_run(&saga, json!({ "id": "x" }));
    let broken = run.event_of("Paid", 1, json!({ "old": "x" })).unwrap_err();
    assert_eq!(
        broken,
        "cannot upcast version 1 of Paid: `event.total * 2`: `total` does not exist"
    );
}

#[test]
fn unsupported_version_is_dead_lettered_ignored_or_compensates() {
    let mut run = InstanceDriver::new(&*Box::leak(Box::new(versioned("dead_letter"))));
    run.event("Go", json!({ "id": "x" })).unwrap();
    assert_eq!(
        run.event_of("Paid", 3, json!({})).unwrap_err(),
        "version 3 of Paid is not accepted; accepted versions: 1, 2"
    );
    let saga = versioned("ignore");
    let mut run = start_run(&saga, json!({ "id": "x" }));
    assert_eq!(
        run.event_of("Paid", 3, json!({})).unwrap_err(),
        "the event version is not accepted"
    );
    let saga = versioned("compensate");
    let mut run = start_run(&saga, json!({ "id": "x" }));
    ok(&mut run, "a");
    run.event_of("Paid", 3, json!({})).unwrap();
    assert_eq!(
        (run.status(), run.failure().unwrap().code.as_str()),
        (Status::Compensating, "schema_version")
    );
    let mut other = InstanceDriver::new(&saga);
    assert!(
        other
            .event_of("Go", 2, json!({}))
            .unwrap_err()
            .contains("version 2 of Go is not accepted")
    );
}

fn with_responses(policy: &str) -> orlog_program::CompiledDefinition {
    saga(&format!(
        "steps:
  - id: charge
    do:
      effect: pay.charge
      version: 3
      responses: {{ accepts: [1, 2], upcast: {{ 1: {{ receipt: =event.id }} }}, on_unsupported: {policy} }}
    ok: Charged
    save: {{ receipt: =event.receipt }}
    undo: {{ effect: pay.refund }}
"
    ))
}

fn response(version: u32, payload: Value) -> WorkOutcome {
    WorkOutcome::Succeeded {
        event: None,
        payload,
        schema_version: version,
    }
}

/// Requirements: R13.
#[test]
fn older_response_is_upcast_before_it_is_applied() {
    let saga = with_responses("dead_letter");
    for (version, payload) in [
        (1, json!({ "id": 7 })),
        (2, json!({ "receipt": 7 })),
        (0, json!({ "receipt": 7 })),
    ] {
        let mut run = start_run(&saga, json!({}));
        let Some(Work::Effect(effect)) = run.work().last() else {
            panic!("an effect")
        };
        assert_eq!(
            effect.schema_version, 3,
            "the command has the version of its data"
        );
        run.outcome("charge", &response(version, payload)).unwrap();
        assert_eq!(run.state_view()["vars"]["receipt"], 7, "version {version}");
        let Some(Work::Fact(fact)) = run.work().iter().find(|work| matches!(work, Work::Fact(_)))
        else {
            panic!("a fact")
        };
        assert_eq!(
            fact.data,
            json!({ "receipt": 7 }),
            "the event of the result has the newest version"
        );
    }
    let mut run = start_run(&saga, json!({}));
    let error = run.outcome("charge", &response(1, json!({}))).unwrap_err();
    assert_eq!(
        error,
        "cannot upcast version 1 of the response of charge: `event.id`: `id` does not exist"
    );
}

/// Requirements: R13.
#[test]
fn unsupported_response_is_dead_lettered_or_compensates_its_step() {
    let saga = with_responses("dead_letter");
    let mut run = start_run(&saga, json!({}));
    assert_eq!(
        run.outcome("charge", &response(3, json!({}))).unwrap_err(),
        "version 3 of the response of charge is not accepted; accepted versions: 1, 2"
    );
    let saga = with_responses("compensate");
    let mut run = start_run(&saga, json!({}));
    run.outcome("charge", &response(3, json!({}))).unwrap();
    assert_eq!(
        (run.status(), run.failure().unwrap().code.as_str()),
        (Status::Compensating, "schema_version")
    );
    assert!(run.work().iter().any(|work| {
        work.tag()
            .is_some_and(|tag| tag.as_str() == "compensate:charge")
    }));
}

#[test]
fn invalid_versions_are_rejected() {
    let found = diagnostics(
        "events:\n  Gone: { accepts: [] }\n  Go: { accepts: [2], upcast: { 1: =event } }\nsteps:\n  - { id: a, do: { effect: e, \
         responses: { accepts: [2], upcast: { 1: =event }, on_unsupported: ignore } } }",
    );
    for expected in [
        "steps[0].do.responses.upcast.1: version 1 is not accepted",
        "steps[0].do.responses.on_unsupported: a response cannot be ignored",
        "events.Gone: the saga does not consume the event Gone",
        "events.Gone.accepts: no version",
        "events.Go.upcast.1: version 1 is not accepted",
    ] {
        assert!(
            found.contains(expected),
            "{expected} is missing in\n{found}"
        );
    }
}

fn event(kind: &str, version: u32, data: Value) -> Event {
    Event {
        id: EventId::new("e1").unwrap(),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:test".to_owned(),
        subject: None,
        time: Timestamp::from_millis(0),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: version,
        data,
        user: None,
        attributes: None,
    }
}

#[test]
fn correlation_uses_the_upcast_event_and_allows_expressions() {
    let saga = versioned("dead_letter");
    let id = saga
        .correlate(&event("Paid", 1, json!({ "old": "o7", "total": 1 })))
        .unwrap();
    assert_eq!(id.as_str(), "o7");
    let saga = super::saga(
        "correlate: { Go: \"=event.a + '-' + event.b\", Paid: order.id }\nsteps:\n  - { id: a, do: { event: Paid } }",
    );
    assert_eq!(
        saga.correlate(&event("Go", 1, json!({ "a": "x", "b": "y" })))
            .unwrap()
            .as_str(),
        "x-y"
    );
    assert_eq!(
        saga.correlate(&event("Paid", 1, json!({ "order": { "id": 5 } })))
            .unwrap()
            .as_str(),
        "5"
    );
    assert!(matches!(
        saga.correlate(&event("Go", 1, json!({}))),
        Err(ProgramError::SchemaMismatch(_))
    ));
}

#[test]
fn manifest_lists_events_and_effects() {
    let saga = saga(
        "early_event_ttl: 2h
on: [ { event: Stop, do: { effect: mail.send }, then: cancel } ]
steps:
  - { id: a, do: { command: x.A }, ok: Done, undo: { saga: helper } }
  - { id: b, do: { event: [Paid, Gift] }, undo: { job: { type: python, script: s } } }
  - { id: c, do: { saga: child }, undo: { command: x.U, ok: Released } }
",
    );
    let manifest = saga.manifest();
    let subscriptions: Vec<_> = manifest
        .subscriptions
        .iter()
        .map(|t| t.kind.as_str())
        .collect();
    assert_eq!(
        subscriptions,
        ["Done", "Gift", "Go", "Paid", "Released", "Stop"]
    );
    assert_eq!(
        manifest
            .effects
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["job.python", "mail.send"]
    );
    assert_eq!(manifest.commands, ["x.A", "x.U"]);
    assert_eq!(
        manifest
            .sagas
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["child", "helper"]
    );
    assert_eq!(manifest.early_event_ttl, std::time::Duration::from_hours(2));
}
