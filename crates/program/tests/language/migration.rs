//! Migration of instances to a newer version of their saga.

use std::time::Duration;

use orlog_model::Status;
use orlog_program::{CompiledDefinition, compile_yaml};
use serde_json::json;

use super::{diagnostics, fail, ok, start_run, step_state};

pub(super) fn version(number: u32, rest: &str) -> CompiledDefinition {
    compile_yaml(
        &format!("saga: t\nversion: {number}\nstart: Go\n{rest}"),
        "t",
    )
    .expect("the definition is valid")
}

const OLD: &str = "timeout: 1d
vars: { amount: =event.amount }
steps:
  - { id: book, do: { effect: e.book }, undo: { effect: u.book } }
  - { id: note, do: { effect: e.note } }
  - { id: pay, do: { effect: e.pay }, timeout: 2h, undo: { effect: u.pay } }
  - { id: end, do: { effect: e.end } }
";

fn paying(saga: &CompiledDefinition) -> orlog_testkit::definition_suite::InstanceDriver<'_> {
    let mut run = start_run(saga, json!({ "amount": 7 }));
    ok(&mut run, "book");
    ok(&mut run, "note");
    run
}

#[test]
fn instance_with_all_steps_present_migrates_safely() {
    let old = version(1, OLD);
    let new = version(2, &OLD.replace("e.end", "e.finish"));
    let mut run = paying(&old);
    let migration = run.migrate(&new).unwrap();
    assert!(
        !migration.is_mapped && migration.tags.is_empty() && migration.transition.work.is_empty()
    );
    assert_eq!(migration.transition.note, "migrated from version 1 to 2");
    assert_eq!(run.timers(), ["pay", "saga"]);
    ok(&mut run, "pay");
    assert_eq!(run.labels().last().unwrap(), "e.finish");
}

/// Requirements: E6.
#[test]
fn steps_that_swap_their_names_keep_both_timers() {
    let old = "steps:
  - { id: a, do: { event: A }, timeout: 1h }
  - { id: b, after: [], do: { event: B }, timeout: 2h }
";
    let new = "migrations: [{ from: 1, steps: { a: b, b: a } }]
steps:
  - { id: b, do: { event: A }, timeout: 1h }
  - { id: a, after: [], do: { event: B }, timeout: 2h }
";
    let (old, new) = (version(1, old), version(2, new));
    let mut run = start_run(&old, json!({}));
    assert_eq!(run.timers(), ["a", "b"]);
    run.migrate(&new).unwrap();
    let mut timers = run.timers();
    timers.sort_unstable();
    assert_eq!(timers, ["a", "b"]);
    run.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(
        step_state(&run, "b"),
        "abandoned",
        "the first step has the earlier timer"
    );
}

#[test]
fn migration_renames_drops_and_sets_vars() {
    let old = version(1, OLD);
    let new = version(
        2,
        "timeout: 1d
vars: { currency: =event.currency }
steps:
  - { id: reserve, do: { effect: e.reserve }, undo: { effect: u.reserve, data: =vars.total } }
  - { id: charge, do: { effect: e.charge }, timeout: 5h, undo: { effect: u.charge } }
  - { id: end, do: { effect: e.end } }
migrations:
  - { from: [1], steps: { book: reserve, note: null, pay: charge }, vars: { currency: EUR, total: =vars.amount } }
",
    );
    let mut run = paying(&old);
    let migration = run.migrate(&new).unwrap();
    assert!(migration.is_mapped);
    let renamed = migration
        .tags
        .iter()
        .find(|(old, _)| old.as_str() == "pay")
        .map(|(_, new)| new.as_str());
    assert_eq!(renamed, Some("charge"));
    assert_eq!(run.timers(), ["charge", "saga"]);
    assert_eq!(
        (
            step_state(&run, "reserve").as_str(),
            step_state(&run, "charge").as_str()
        ),
        ("completed", "running")
    );
    assert_eq!(run.state_view()["vars"]["currency"], "EUR");
    fail(&mut run, "charge");
    let Some(orlog_model::Work::Effect(compensation)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(
        (compensation.name.as_str(), &compensation.payload),
        ("u.reserve", &json!(7))
    );
    ok(&mut run, "compensate:reserve");
    assert_eq!(run.status(), Status::Failed);
}

#[track_caller]
fn blocked(
    old: &str,
    prepare: impl Fn(&mut orlog_testkit::definition_suite::InstanceDriver<'_>),
    new: &str,
    reason: &str,
) {
    let (old, new) = (version(1, old), version(2, new));
    let mut run = start_run(&old, json!({ "amount": 7 }));
    prepare(&mut run);
    let before = run.state().to_vec();
    assert_eq!(run.migrate(&new).unwrap_err(), [reason]);
    assert_eq!(run.state(), before);
}

#[test]
fn lossy_migration_is_blocked() {
    let to_pay = |run: &mut orlog_testkit::definition_suite::InstanceDriver<'_>| {
        ok(run, "book");
        ok(run, "note");
    };
    let drop = |step: &str| {
        let remaining: Vec<_> = OLD
            .lines()
            .filter(|line| !line.contains(&format!("id: {step},")))
            .collect();
        format!(
            "{}\nmigrations: [ {{ from: [1], steps: {{ {step}: null }} }} ]\n",
            remaining.join("\n")
        )
    };
    blocked(
        OLD,
        to_pay,
        &drop("pay"),
        "step `pay` is in progress and dropped",
    );
    blocked(
        OLD,
        to_pay,
        &drop("book"),
        "step `book` is completed and its compensation is dropped",
    );
    let unmapped = drop("end").replace("migrations", "#");
    blocked(OLD, to_pay, &unmapped, "step `end` has no mapping");
    let other_action = OLD.replace("do: { effect: e.pay }", "do: { command: x.Pay }");
    blocked(
        OLD,
        to_pay,
        &other_action,
        "step `pay` is in progress, and `pay` has another action",
    );
    let uncompensated = OLD.replace(", undo: { effect: u.book }", "");
    blocked(
        OLD,
        to_pay,
        &uncompensated,
        "step `book` is completed, and `book` has no compensation",
    );
    blocked(OLD, fail_book, OLD, "the instance has ended: failed");
}

fn fail_book(run: &mut orlog_testkit::definition_suite::InstanceDriver<'_>) {
    fail(run, "book");
}

#[test]
fn passed_pivot_must_stay_a_pivot() {
    let old = "steps:\n  - { id: p, pivot: true, do: { effect: e.p } }\n  - { id: end, do: { effect: e.end } }\n";
    let prepare = |run: &mut orlog_testkit::definition_suite::InstanceDriver<'_>| {
        ok(run, "p");
    };
    let reason = "the pivot that the instance passed does not exist any more";
    blocked(old, prepare, &old.replace("pivot: true, ", ""), reason);
}

#[test]
fn elements_children_tasks_and_branches_migrate() {
    let old = "vars: { items: =event.items }
steps:
  - { id: route, do: { switch: [ { when: size(vars.items) > 5, then: b }, { then: [each, kid, ask] } ] } }
  - { id: each, foreach: { in: =vars.items, as: i }, do: { effect: e.each }, undo: { effect: u.each, data: =i } }
  - { id: kid, do: { saga: child } }
  - { id: ask, do: { human: { title: Ask, due: 1d, escalate: { roles: [x] } } } }
  - { id: b, do: { effect: e.b } }
";
    let new = old
        .replace(
            "[ { when: size(vars.items) > 5, then: b }, { then: [each, kid, ask] } ]",
            "[ { when: 'false', then: b }, { when: 'false', then: kid2 }, { then: [lines, kid2, ask2] } ]",
        )
        .replace("id: each", "id: lines")
        .replace("id: kid", "id: kid2")
        .replace("id: ask", "id: ask2");
    let new = format!(
        "{new}migrations: [ {{ from: [1], steps: {{ each: lines, kid: kid2, ask: ask2 }} }} ]\n"
    );
    let (old, new) = (version(1, old), version(2, &new));
    let mut run = start_run(&old, json!({ "items": [1, 2, 3] }));
    ok(&mut run, "each[1]");
    run.migrate(&new).unwrap();
    assert_eq!(run.timers(), ["escalate:ask2"]);
    assert_eq!(step_state(&run, "b"), "bypassed");
    run.advance(Duration::from_hours(24)).unwrap();
    assert_eq!(run.tasks()[0].roles, ["x"]);
    fail(&mut run, "kid2");
    let Some(orlog_model::Work::Effect(compensation)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(
        (compensation.tag.as_str(), &compensation.payload),
        ("compensate:lines[1]", &json!(2))
    );
}

#[test]
fn invalid_migrations_are_rejected() {
    let found = diagnostics(
        "steps:\n  - { id: pay, do: { effect: e } }\nmigrations:\n  - { from: [2], steps: { a: pey, b: pay, c: pay } }",
    );
    for expected in [
        "version 2 is not older than this one, 2",
        "there is no step `pey`",
        "two steps map to `pay`",
    ] {
        assert!(
            found.contains(expected),
            "{expected} is missing in\n{found}"
        );
    }
}

/// The next request of a repeated step has the key of its round, also after a migration.
#[test]
fn rounds_and_early_events_migrate() {
    let steps = |id: &str| {
        format!(
            "steps:\n  - {{ id: {id}, do: {{ command: x.Pay }}, ok: Done, fail: Not, retry: {{ max_attempts: 3, initial_backoff: 1m }} }}\n  - {{ id: paid, do: {{ event: Paid }} }}\n"
        )
    };
    let old = version(1, &steps("pay"));
    let new = version(
        2,
        &format!(
            "{}migrations:\n  - {{ from: [1], steps: {{ pay: charge }} }}\n",
            steps("charge")
        ),
    );
    let mut run = start_run(&old, json!({}));
    run.event("Paid", json!({})).unwrap();
    run.event("Not", json!({})).unwrap();
    run.migrate(&new).unwrap();
    run.advance(Duration::from_mins(1)).unwrap();
    let Some(orlog_model::Work::Command(command)) = run.work().last() else {
        panic!("a command")
    };
    assert_eq!((command.tag.as_str(), command.round), ("charge", 1));
    assert_eq!(
        run.event("Done", json!({})).unwrap(),
        "charge: ok, paid: ok, completed"
    );
}

#[test]
fn version_without_an_escalation_drops_its_timer() {
    let version = |number: u32, escalate: &str| {
        let text = format!(
            "saga: t\nversion: {number}\nstart: Go\nsteps:\n  - {{ id: ask, do: {{ human: {{ title: Ask{escalate} }} }}, ok: Yes, timeout: 9d }}\n"
        );
        compile_yaml(&text, "t").unwrap()
    };
    let old = version(1, ", escalate: { after: 2d, roles: head }");
    let new = version(2, "");
    let mut run = start_run(&old, json!({}));
    assert_eq!(run.timers().len(), 2);
    run.migrate(&new).unwrap();
    assert_eq!(run.timers(), ["ask"]);
    run.advance(std::time::Duration::from_hours(72)).unwrap();
    assert!(run.tasks()[0].roles.is_empty());
}

/// The steps after a handled failure would otherwise wait for the handler for ever.
#[test]
fn handled_failure_needs_the_same_handler() {
    let old = "steps:
  - { id: verify, do: { event: Verified }, timeout: 1d, on_timeout: { then: farewell } }
  - { id: card, do: { event: Card }, after: [] }
  - { id: farewell, do: { event: Farewell }, after: verify }
  - { id: reminder, do: { event: Reminded }, after: verify }
  - { id: end, do: { effect: e.end }, after: [card, farewell] }
";
    let time_out = |run: &mut orlog_testkit::definition_suite::InstanceDriver<'_>| {
        run.advance(Duration::from_hours(24)).unwrap();
        assert_eq!(step_state(run, "verify"), "abandoned");
    };
    blocked(
        old,
        time_out,
        &old.replace(", on_timeout: { then: farewell }", ""),
        "`on_timeout` of step `verify` handled its failure, and `verify` has no `on_timeout`",
    );
    for other in ["reminder", "[farewell, reminder]"] {
        blocked(
            old,
            time_out,
            &old.replace("then: farewell", &format!("then: {other}")),
            "`on_timeout` of step `verify` handled its failure, and that of `verify` leads to other steps",
        );
    }
    blocked(
        old,
        time_out,
        &old.replace("{ then: farewell }", "continue"),
        "`on_timeout` of step `verify` handled its failure, and that of `verify` leads to other steps",
    );

    // Without a failure, the handler can change.
    let from = version(1, old);
    let to = version(2, &old.replace("then: farewell", "then: reminder"));
    let mut run = start_run(&from, json!({}));
    run.migrate(&to).unwrap();

    // A renamed step has the same handler.
    let renamed = old.replace("farewell", "goodbye")
        + "migrations: [{ from: 1, steps: { farewell: goodbye } }]\n";
    let mut run = start_run(&from, json!({}));
    time_out(&mut run);
    let renamed = version(2, &renamed);
    run.migrate(&renamed).unwrap();
    run.event("Farewell", json!({})).unwrap();
}

/// A join of all would wait for the failed step for ever.
#[test]
fn tolerated_failure_needs_a_tolerant_join() {
    let old = "steps:
  - { id: a, do: { event: A }, timeout: 1h }
  - { id: b, do: { event: B }, after: [] }
  - { id: end, do: { effect: e.end }, after: { any: [a, b] } }
";
    let time_out = |run: &mut orlog_testkit::definition_suite::InstanceDriver<'_>| {
        run.advance(Duration::from_hours(1)).unwrap();
        assert_eq!(run.status(), Status::Running);
    };
    let strict = old.replace("{ any: [a, b] }", "[a, b]");
    blocked(
        old,
        time_out,
        &strict,
        "a join tolerated the failure of step `a`, and `end` requires all steps before it",
    );

    // A join that has started needs its branches no more.
    let from = version(1, old);
    let to = version(2, &strict);
    let mut run = start_run(&from, json!({}));
    time_out(&mut run);
    run.event("B", json!({})).unwrap();
    run.migrate(&to).unwrap();
}
