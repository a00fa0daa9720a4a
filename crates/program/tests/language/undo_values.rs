//! Compensations that read what a step saves: without the value, an operator decides.

use std::time::Duration;

use orlog_model::{DISCARDED_WITH_NULL, Failure, Status, WorkOutcome};
use orlog_testkit::definition_suite::{InstanceDriver, in_doubt, succeeded};
use serde_json::{Value, json};

use super::migration::version;
use super::{diagnostics, fail, ok, saga, since, start_run, step_state};

/// Saga whose charge saves a value, with these fields of its `undo` beside the effect.
fn charge(undo: &str) -> String {
    format!(
        "vars: {{ order: =event.order, note: =event.?note.orValue(null) }}
steps:
  - {{ id: reserve, do: {{ effect: e.reserve }}, undo: {{ effect: u.reserve }} }}
  - id: charge
    do: {{ effect: e.charge }}
    save: {{ charge_id: =event.id }}
    undo: {{ effect: u.charge, {undo} }}
  - {{ id: ship, do: {{ effect: e.ship }} }}
"
    )
}

const READS: &str = "data: { order: =vars.order, note: =vars.note, charge: [=vars.charge_id] }";

fn discarded_with_null() -> WorkOutcome {
    let failure = Failure {
        code: DISCARDED_WITH_NULL.to_owned(),
        message: "discarded".to_owned(),
    };
    WorkOutcome::TimedOut { failure }
}

fn until_charge(saga: &orlog_program::CompiledDefinition) -> InstanceDriver<'_> {
    let mut run = start_run(saga, json!({ "order": "o-1" }));
    ok(&mut run, "reserve");
    run
}

/// Returns the data of the last requested effect.
#[track_caller]
fn last_data(run: &InstanceDriver<'_>, name: &str) -> Value {
    let effect = run.work().last().and_then(|work| work.effect()).unwrap();
    assert_eq!(effect.name.as_str(), name);
    effect.payload.clone()
}

#[test]
fn undo_without_the_value_of_its_step_waits_for_an_operator() {
    let saga = saga(&charge(READS));
    let mut run = until_charge(&saga);
    let from = run.work().len();
    run.outcome("charge", &in_doubt()).unwrap();

    assert_eq!(run.status(), Status::Stuck);
    assert_eq!(since(&run, from), Vec::<&str>::new());
    let failure = run.failure().unwrap();
    assert_eq!(failure.code, "undo_without_value");
    for part in [
        "`charge`",
        "undo.data.charge[0]",
        "vars.charge_id",
        "retry",
        "skip",
    ] {
        assert!(
            failure.message.contains(part),
            "{part}: {}",
            failure.message
        );
    }
    assert_eq!(
        run.state_view()["stuck"],
        json!({ "step": "charge", "action": "compensate" })
    );

    // A retry changes nothing; a skip continues with the step before.
    run.retry().unwrap();
    assert_eq!(
        (run.status(), run.failure().unwrap().code.as_str()),
        (Status::Stuck, "undo_without_value")
    );
    run.skip().unwrap();
    assert_eq!(since(&run, from), ["compensate:reserve"]);
}

#[test]
fn completed_step_is_compensated_with_its_value() {
    let saga = saga(&charge(READS));
    let mut run = until_charge(&saga);
    run.outcome("charge", &succeeded(json!({ "id": "c-1" })))
        .unwrap();
    fail(&mut run, "ship");
    // What the start event lacks was optional from the beginning.
    assert_eq!(
        last_data(&run, "u.charge"),
        json!({ "order": "o-1", "note": null, "charge": ["c-1"] })
    );
}

#[test]
fn definition_allows_an_undo_without_the_value() {
    let null = json!({ "order": "o-1", "note": null, "charge": [null] });
    for undo in [
        format!("{READS}, allow_null: [charge_id]"),
        format!("{READS}, allow_null: charge_id"),
        READS.replace(
            "=vars.charge_id",
            "\"=vars.charge_id == null ? null : vars.charge_id\"",
        ),
    ] {
        let saga = saga(&charge(&undo));
        let mut run = until_charge(&saga);
        run.outcome("charge", &in_doubt()).unwrap();
        assert_eq!(last_data(&run, "u.charge"), null, "{undo}");
    }
}

#[test]
fn test_of_presence_allows_no_null() {
    for read in [
        "\"=has(vars.charge_id) ? vars.charge_id : ''\"",
        "\"=vars.?charge_id.orValue('')\"",
        "\"=vars.order == 'o-1' ? vars.charge_id : ''\"",
    ] {
        let saga = saga(&charge(&READS.replace("=vars.charge_id", read)));
        let mut run = until_charge(&saga);
        run.outcome("charge", &in_doubt()).unwrap();
        assert_eq!(run.status(), Status::Stuck, "{read}");
    }
}

#[test]
fn variable_of_a_later_step_is_not_required() {
    let text = charge("data: =vars.tracking").replace(
        "do: { effect: e.ship }",
        "do: { effect: e.ship }, save: { tracking: =event.id }",
    );
    let saga = saga(&text);
    let mut run = until_charge(&saga);
    ok_with(&mut run, json!({ "id": "c-1" }));
    fail(&mut run, "ship");
    assert_eq!(last_data(&run, "u.charge"), Value::Null);
}

/// Completes the charge.
fn ok_with(run: &mut InstanceDriver<'_>, data: Value) {
    run.outcome("charge", &succeeded(data)).unwrap();
}

#[test]
fn id_of_an_aggregate_is_required() {
    let text = charge(READS).replace(
        "undo: { effect: u.charge, data: { order: =vars.order, note: =vars.note, charge: [=vars.charge_id] } }",
        "undo: { command: charges.Refund, id: =vars.charge_id, retry: { max_attempts: 5 } }",
    );
    let saga = saga(&text);
    let mut run = until_charge(&saga);
    run.outcome("charge", &in_doubt()).unwrap();
    let failure = run.failure().unwrap();
    assert_eq!(failure.code, "undo_without_value");
    assert!(failure.message.contains("undo.id"), "{}", failure.message);
    assert_eq!(run.timers(), Vec::<&str>::new());
}

#[test]
fn cancelled_step_follows_the_same_rule() {
    let saga = saga(&charge(READS));
    let mut run = until_charge(&saga);
    run.cancel("test").unwrap();
    run.outcome("charge", &in_doubt()).unwrap();
    // The step before it is compensated at once.
    ok(&mut run, "compensate:reserve");
    assert_eq!(
        (run.status(), run.failure().unwrap().code.as_str()),
        (Status::Stuck, "undo_without_value")
    );
    run.skip().unwrap();
    assert_eq!(run.status(), Status::Cancelled);
}

#[test]
fn discard_of_the_result_allows_null_for_its_step() {
    let saga = saga(&charge(READS));
    let mut run = until_charge(&saga);
    run.outcome("charge", &discarded_with_null()).unwrap();
    assert_eq!(last_data(&run, "u.charge")["charge"], json!([null]));

    // A compensation that already waits for the value is requested.
    let mut run = until_charge(&saga);
    run.outcome("charge", &in_doubt()).unwrap();
    run.outcome("charge", &discarded_with_null()).unwrap();
    assert_eq!(run.status(), Status::Compensating);
    assert_eq!(last_data(&run, "u.charge")["charge"], json!([null]));

    // It stays allowed for a retry by an operator.
    fail(&mut run, "compensate:charge");
    assert_eq!(run.status(), Status::Stuck);
    run.retry().unwrap();
    assert_eq!(last_data(&run, "u.charge")["charge"], json!([null]));
}

#[test]
fn late_event_supplies_the_value() {
    let text = "steps:
  - { id: book, do: { command: air.Book }, ok: Booked, timeout: 1h, save: { seat: =event.seat }, undo: { command: air.Cancel, data: { seat: =vars.seat } } }
  - { id: end, do: { effect: e.end } }
";
    let saga = saga(text);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(
        (run.status(), run.failure().unwrap().code.as_str()),
        (Status::Stuck, "undo_without_value")
    );

    // An event without the value is a dead letter, and the instance still waits.
    run.event("Booked", json!({})).unwrap_err();
    assert_eq!(run.status(), Status::Stuck);

    let from = run.work().len();
    let note = run.event("Booked", json!({ "seat": "7A" })).unwrap();
    assert!(note.contains("book: ok, late"), "{note}");
    assert_eq!(since(&run, from), ["compensate:book"]);
    let orlog_model::Work::Command(cancel) = run.work().last().unwrap() else {
        panic!("a command")
    };
    assert_eq!(cancel.payload, json!({ "seat": "7A" }));
    ok(&mut run, "compensate:book");
    assert_eq!(run.status(), Status::Failed);

    // A second event changes nothing.
    run.event("Booked", json!({ "seat": "8B" })).unwrap_err();
}

#[test]
fn event_confirms_no_compensation_that_was_not_requested() {
    let text = "steps:
  - { id: book, do: { effect: air.book }, save: { seat: =event.seat }, undo: { command: air.Cancel, data: { seat: =vars.seat }, ok: Cancelled } }
";
    let saga = saga(text);
    let mut run = start_run(&saga, json!({}));
    run.outcome("book", &in_doubt()).unwrap();
    assert_eq!(run.status(), Status::Stuck);
    let reason = run.event("Cancelled", json!({})).unwrap_err();
    assert_eq!(reason, "the compensation of the step lacks a value");
    assert_eq!(run.status(), Status::Stuck);
}

#[test]
fn redriven_result_supplies_the_value() {
    let saga = saga(&charge(READS));
    let mut run = until_charge(&saga);
    run.outcome("charge", &in_doubt()).unwrap();
    run.outcome("charge", &succeeded(json!({ "id": "c-1" })))
        .unwrap();
    assert_eq!(run.status(), Status::Compensating);
    assert_eq!(last_data(&run, "u.charge")["charge"], json!(["c-1"]));
}

#[test]
fn undo_of_an_element_requires_the_value_of_this_element() {
    let text = "vars: { items: =event.items }
steps:
  - id: pay
    foreach: { in: =vars.items, as: item, max_concurrency: 1 }
    do: { effect: e.pay }
    save: { ids: =event.id }
    undo: { effect: u.pay, data: { id: '=vars.ids[index]' } }
  - { id: end, do: { effect: e.end } }
";
    let saga = saga(text);
    let mut run = start_run(&saga, json!({ "items": [1, 2] }));
    run.outcome("pay[0]", &succeeded(json!({ "id": null })))
        .unwrap();
    run.outcome("pay[1]", &succeeded(json!({ "id": "b" })))
        .unwrap();
    fail(&mut run, "end");
    assert_eq!(last_data(&run, "u.pay"), json!({ "id": "b" }));
    ok(&mut run, "compensate:pay[1]");
    assert_eq!(
        (run.status(), run.failure().unwrap().code.as_str()),
        (Status::Stuck, "undo_without_value")
    );
}

#[test]
fn migrated_instance_is_compensated_by_the_new_definition() {
    let old = saga(&charge(READS));
    let mut run = until_charge(&old);
    run.outcome("charge", &in_doubt()).unwrap();
    assert_eq!(run.status(), Status::Stuck);

    let allowed = charge(&format!("{READS}, allow_null: [charge_id]"));
    let new = version(3, &allowed);
    run.migrate(&new).unwrap();
    assert_eq!(step_state(&run, "charge"), "compensation_failed");
    run.retry().unwrap();
    assert_eq!(last_data(&run, "u.charge")["charge"], json!([null]));
}

#[test]
fn allow_null_names_variables_of_steps() {
    assert_eq!(
        diagnostics(&charge(&format!(
            "{READS}, allow_null: [charge_id, charg_id, order]"
        ))),
        "steps[1].undo.allow_null[1]: no step saves `charg_id`, so its value is not required\n\
         steps[1].undo.allow_null[2]: no step saves `order`, so its value is not required"
    );
}
