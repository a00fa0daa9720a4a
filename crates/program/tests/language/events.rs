//! Events: who takes one, handlers at any time, versions of payloads, correlation.

use orlog_model::{Event, EventId, EventType, Status, TenantId, Timestamp, Verdict, Work};
use orlog_program::{Fault, Program};
use orlog_testkit::definition_suite::{Life, failed, succeeded};
use serde_json::{Value, json};

use super::{begun, ok, saga, stands, wrong};

#[test]
fn an_event_step_takes_any_of_its_events_whose_condition_holds() {
    let saga = saga(
        "vars: { total: =event.total }
steps:
  - id: paid
    do: { event: [PaymentReceived, CashReceived], when: event.amount >= vars.total }
    fail: PaymentRefused
    timeout: 3d
    save: { amount: =event.amount }
",
    );
    let mut life = begun(&saga, json!({ "total": 5 }));
    let kinds: Vec<_> = life.waits().iter().map(|(_, name)| name.clone()).collect();
    assert_eq!(kinds, ["PaymentReceived", "CashReceived", "PaymentRefused"]);
    assert!(life.event("CashReceived", json!({ "amount": 4 })).is_err(), "too little is nothing");
    assert_eq!(life.event("CashReceived", json!({ "amount": 5 })).unwrap(), "paid: ok, completed");
    assert_eq!(life.shown()["vars"]["amount"], 5);
    let mut life = begun(&saga, json!({ "total": 5 }));
    life.event("PaymentRefused", json!({})).unwrap();
    assert_eq!(life.status(), Status::Failed);
    let mut life = begun(&saga, json!({ "total": 5 }));
    life.advance(std::time::Duration::from_hours(72)).unwrap();
    assert_eq!(life.failure().unwrap().code, "timeout");
}

#[test]
fn a_condition_without_a_value_fails_what_waits_for_the_event() {
    let saga = saga("steps:\n  - { id: a, do: { event: Paid, when: event.amount > 1 } }");
    let mut life = begun(&saga, json!({}));
    life.event("Paid", json!({})).unwrap();
    assert_eq!(life.failure().unwrap().code, "expression_error");
}

#[test]
fn one_event_can_mean_success_or_failure_by_what_it_says() {
    let saga = saga(
        "steps:
  - id: book
    do: { command: hotels.Book }
    ok: { event: Booked, when: event.nights == 3 }
    fail: [ Refused, { event: Booked, when: event.nights < 3 } ]
",
    );
    for (nights, status) in [(3, Some(Status::Completed)), (2, Some(Status::Failed)), (4, None)] {
        let mut life = begun(&saga, json!({}));
        let taken = life.event("Booked", json!({ "nights": nights }));
        assert_eq!(taken.is_ok().then(|| life.status()), status, "{nights} nights: {taken:?}");
    }
}

#[test]
fn an_event_goes_to_the_step_that_waits_and_only_then_to_one_that_gave_up() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { command: x.A }, ok: { event: Done, when: event.n > 0 }, timeout: 1m, undo: { command: x.U } }
  - { id: b, after: [], do: { command: x.B }, ok: Other }
  - { id: end, after: { any: [a, b] }, do: { command: x.C }, ok: Done }
",
    );
    let mut life = begun(&saga, json!({}));
    life.event("Other", json!({})).unwrap();
    assert_eq!(stands(&life, "a"), "given_up");
    assert_eq!(life.event("Done", json!({ "n": 1 })).unwrap(), "end: ok, completed");
    assert_eq!(life.event("Done", json!({ "n": 1 })).unwrap(), "a: ok, too late");
    life.outcome("undo:a", &Verdict::Accepted).unwrap();
    assert_eq!(life.status(), Status::Completed);
}

#[test]
fn the_same_event_for_two_open_steps_needs_conditions_on_all_but_the_last() {
    let steps = |a: &str, b: &str| {
        format!(
            "steps:\n  - {{ id: a, after: [], do: {{ event: X{a} }} }}\n  - {{ id: b, after: [], do: {{ event: X{b} }} }}"
        )
    };
    assert!(
        wrong(&steps("", ", when: event.n == 1"))
            .contains("X could mean two things: success of `a` and success of `b`")
    );
    let saga = saga(&steps(", when: event.n == 1", ""));
    let mut life = begun(&saga, json!({}));
    assert_eq!(life.event("X", json!({ "n": 2 })).unwrap(), "b: ok");
    assert_eq!(life.event("X", json!({ "n": 1 })).unwrap(), "a: ok, completed");
}

pub(super) const EFFECT: &str = "steps:
  - { id: a, do: { effect: e.a }, ok: [ { event: Big, when: event.n > 9 }, { event: Small, when: event.n > 0 } ], fail: [None] }
";

#[test]
fn an_outcome_without_a_name_takes_the_first_that_fits_and_its_name_is_told() {
    let saga = saga(EFFECT);
    for (n, told, status) in
        [(10, "Big", Status::Completed), (1, "Small", Status::Completed), (0, "None", Status::Failed)]
    {
        let mut life = begun(&saga, json!({}));
        life.outcome("a", &succeeded(json!({ "n": n }))).unwrap();
        assert_eq!((life.status(), life.labels()[1].as_str()), (status, told), "{n}");
        let Work::Fact(fact) = &life.work()[1] else { panic!("a fact") };
        assert_eq!(fact.data, json!({ "n": n }));
    }
}

#[test]
fn a_named_outcome_must_be_one_of_the_names_and_say_what_its_condition_wants() {
    let saga = saga(EFFECT);
    for (name, n, code) in [
        ("Big", 10, None),
        ("Big", 1, Some("contract_violation")),
        ("None", 10, Some("None")),
        ("Else", 10, Some("contract_violation")),
    ] {
        let mut life = begun(&saga, json!({}));
        let event = Some(EventType::new(name).unwrap());
        life.outcome("a", &Verdict::Succeeded { event, payload: json!({ "n": n }) }).unwrap();
        assert_eq!(life.failure().map(|failure| failure.code.as_str()), code, "{name} {n}");
    }
}

#[test]
fn a_failed_outcome_is_a_failure_and_goes_by_the_name_of_failure() {
    let saga = saga(EFFECT);
    let mut life = begun(&saga, json!({}));
    life.outcome("a", &failed("http_500")).unwrap();
    assert_eq!((life.labels()[1].as_str(), life.failure().unwrap().code.as_str()), ("None", "http_500"));
}

#[test]
fn a_success_without_a_name_where_only_failures_are_named_is_a_success() {
    let saga =
        saga("steps:\n  - { id: a, do: { effect: e.a }, fail: [Bad, { event: Odd, when: event.n == 1 }] }");
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a").clear();
    assert_eq!(life.status(), Status::Failed, "the condition of Odd has no value");
    let mut life = begun(&saga, json!({}));
    life.outcome("a", &succeeded(json!({ "n": 2 }))).unwrap();
    assert_eq!(life.status(), Status::Completed);
}

fn handled(then: &str) -> orlog_program::Compiled {
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
fn handlers_act_and_remember_and_the_event_goes_on_to_the_steps() {
    let saga = handled("cancel");
    let mut life = begun(&saga, json!({}));
    life.event("Note", json!({ "by": "me" })).unwrap();
    let Some(Work::Command(command)) = life.work().last() else { panic!("a command") };
    assert_eq!((command.tag.as_str(), &command.payload), ("on:0", &json!({ "by": "me" })));
    assert_eq!(life.shown()["vars"]["noted"], "me");
    assert!(life.outcome("on:0", &Verdict::Accepted).is_err(), "nobody waits for it");
    ok(&mut life, "a");
    assert_eq!(life.event("Note", json!({ "by": "you", "b": 1 })).unwrap(), "Note, b: ok");
    assert_eq!(stands(&life, "c"), "running");
    assert!(life.event("Stop", json!({})).is_err(), "its condition does not hold");
}

#[test]
fn a_handler_can_cancel_fail_or_complete() {
    for (then, ends) in [("cancel", Status::Cancelled), ("fail", Status::Failed)] {
        let saga = handled(then);
        let mut life = begun(&saga, json!({}));
        ok(&mut life, "a");
        life.event("Stop", json!({ "stop": true, "reason": "enough" })).unwrap();
        assert_eq!((life.status(), life.timers().len()), (Status::Compensating, 0));
        assert!(life.event("Note", json!({ "by": "x" })).is_err(), "handlers are for sagas that go forward");
        ok(&mut life, "undo:a");
        assert_eq!(life.status(), ends);
        let code = life.shown()["failure"]["code"].clone();
        assert_eq!(code, if then == "fail" { "Stop" } else { "cancelled" });
    }
    let saga = handled("complete");
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a");
    life.event("Stop", json!({ "stop": true })).unwrap();
    assert_eq!((life.status(), life.timers().len()), (Status::Completed, 0));
    assert_eq!(
        (stands(&life, "a"), stands(&life, "b"), stands(&life, "c")),
        ("done".into(), "given_up".into(), "skipped".into())
    );
}

#[test]
fn an_event_that_turns_back_and_answers_a_step_too_has_its_success_undone() {
    let saga = saga(
        "on: [ { event: Booked, when: event.late, then: cancel } ]
steps:
  - { id: a, do: { command: x.A }, ok: Booked, undo: { effect: u.a } }
",
    );
    let mut life = begun(&saga, json!({}));
    life.event("Booked", json!({ "late": true })).unwrap();
    assert_eq!(life.undone(), ["undo:a"]);
    ok(&mut life, "undo:a");
    assert_eq!(life.status(), Status::Cancelled);
}

#[test]
fn a_handler_whose_condition_has_no_value_refuses_the_event() {
    let saga =
        saga("on: [ { event: X, when: event.n > 1, then: fail } ]\nsteps:\n  - { id: a, do: { effect: e } }");
    let mut life = begun(&saga, json!({}));
    assert_eq!(life.event("X", json!({})).unwrap_err(), "on[0]: `event.n > 1`: there is no `n`");
}

#[test]
fn handlers_that_cannot_be_are_refused() {
    let found = wrong(
        "on:\n  - { event: Go, then: cancel }\n  - { event: X }\n  - { event: Y, do: { wait: 1h } }\nsteps:\n  - { id: a, do: { effect: e } }",
    );
    for expected in
        ["on[0].event: Go starts the saga", "on[1]: nothing happens on this event", "a wait is waited for"]
    {
        assert!(found.contains(expected), "{expected} is not in\n{found}");
    }
}

fn versioned(otherwise: &str) -> orlog_program::Compiled {
    saga(&format!(
        "correlate: id
events:
  Paid: {{ accepts: [1, 2], upcast: {{ 1: {{ id: =event.old, amount: =event.total * 2 }} }}, otherwise: {otherwise} }}
  Go: {{ accepts: [1], otherwise: {otherwise} }}
steps:
  - {{ id: a, do: {{ effect: e.a }}, undo: {{ effect: u.a }} }}
  - {{ id: paid, do: {{ event: Paid }}, save: {{ amount: =event.amount }} }}
"
    ))
}

#[test]
fn an_older_version_of_an_event_is_read_as_the_newest() {
    let saga = versioned("dead_letter");
    let mut life = begun(&saga, json!({ "id": "x" }));
    ok(&mut life, "a");
    life.event_of("Paid", 1, json!({ "old": "x", "total": 21 })).unwrap();
    assert_eq!(life.shown()["vars"]["amount"], 42);
    let mut life = begun(&saga, json!({ "id": "x" }));
    ok(&mut life, "a");
    life.event_of("Paid", 2, json!({ "id": "x", "amount": 7 })).unwrap();
    assert_eq!(life.shown()["vars"]["amount"], 7);
    let mut life = begun(&saga, json!({ "id": "x" }));
    let broken = life.event_of("Paid", 1, json!({ "old": "x" })).unwrap_err();
    assert_eq!(broken, "version 1 of Paid cannot be read: `event.total * 2`: there is no `total`");
}

#[test]
fn other_versions_are_dead_letters_or_nothing_or_turn_back() {
    let mut life = Life::new(&*Box::leak(Box::new(versioned("dead_letter"))));
    life.event("Go", json!({ "id": "x" })).unwrap();
    assert_eq!(
        life.event_of("Paid", 3, json!({})).unwrap_err(),
        "version 3 of Paid is not accepted, only 1, 2"
    );
    let saga = versioned("ignore");
    let mut life = begun(&saga, json!({ "id": "x" }));
    assert_eq!(life.event_of("Paid", 3, json!({})).unwrap_err(), "its version is not accepted");
    let saga = versioned("compensate");
    let mut life = begun(&saga, json!({ "id": "x" }));
    ok(&mut life, "a");
    life.event_of("Paid", 3, json!({})).unwrap();
    assert_eq!(
        (life.status(), life.failure().unwrap().code.as_str()),
        (Status::Compensating, "schema_version")
    );
    let mut other = Life::new(&saga);
    assert!(other.event_of("Go", 2, json!({})).unwrap_err().contains("version 2 of Go is not accepted"));
}

#[test]
fn versions_that_cannot_be_are_refused() {
    let found = wrong(
        "events:\n  Gone: { accepts: [] }\n  Go: { accepts: [2], upcast: { 1: =event } }\nsteps:\n  - { id: a, do: { effect: e } }",
    );
    for expected in [
        "events.Gone: the saga takes no event Gone",
        "events.Gone.accepts: no version",
        "events.Go.upcast.1: version 1 is not accepted",
    ] {
        assert!(found.contains(expected), "{expected} is not in\n{found}");
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
    }
}

#[test]
fn correlation_reads_the_newest_version_and_may_be_an_expression() {
    let saga = versioned("dead_letter");
    let id = saga.correlate(&event("Paid", 1, json!({ "old": "o7", "total": 1 }))).unwrap();
    assert_eq!(id.as_str(), "o7");
    let saga = super::saga(
        "correlate: { Go: \"=event.a + '-' + event.b\", Paid: order.id }\nsteps:\n  - { id: a, do: { event: Paid } }",
    );
    assert_eq!(saga.correlate(&event("Go", 1, json!({ "a": "x", "b": "y" }))).unwrap().as_str(), "x-y");
    assert_eq!(saga.correlate(&event("Paid", 1, json!({ "order": { "id": 5 } }))).unwrap().as_str(), "5");
    assert!(matches!(saga.correlate(&event("Go", 1, json!({}))), Err(Fault::Schema(_))));
}

#[test]
fn the_manifest_names_everything_a_saga_takes_and_asks_for() {
    let saga = saga(
        "early: 2h
on: [ { event: Stop, do: { effect: mail.send }, then: cancel } ]
steps:
  - { id: a, do: { command: x.A }, ok: Done, undo: { saga: helper } }
  - { id: b, do: { event: [Paid, Gift] }, undo: { job: { type: python, script: s } } }
  - { id: c, do: { saga: child }, undo: { command: x.U, ok: Undone } }
",
    );
    let manifest = saga.manifest();
    let triggers: Vec<_> = manifest.triggers.iter().map(|t| t.kind.as_str()).collect();
    assert_eq!(triggers, ["Done", "Gift", "Go", "Paid", "Stop", "Undone"]);
    assert_eq!(
        manifest.effects.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["job.python", "mail.send"]
    );
    assert_eq!(manifest.commands, ["x.A", "x.U"]);
    assert_eq!(manifest.sagas.iter().map(ToString::to_string).collect::<Vec<_>>(), ["child", "helper"]);
    assert_eq!(manifest.early, std::time::Duration::from_hours(2));
}
