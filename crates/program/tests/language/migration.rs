//! Moving instances to a newer version of their saga.

use std::time::Duration;

use orlog_model::Status;
use orlog_program::{Compiled, compile_yaml};
use serde_json::json;

use super::{begun, fail, ok, stands, wrong};

fn version(number: u32, rest: &str) -> Compiled {
    compile_yaml(&format!("saga: t\nversion: {number}\nstart: Go\n{rest}"), "t").expect("it is well formed")
}

const OLD: &str = "timeout: 1d
vars: { amount: =event.amount }
steps:
  - { id: book, do: { effect: e.book }, undo: { effect: u.book } }
  - { id: note, do: { effect: e.note } }
  - { id: pay, do: { effect: e.pay }, timeout: 2h, undo: { effect: u.pay } }
  - { id: end, do: { effect: e.end } }
";

fn paying(saga: &Compiled) -> orlog_testkit::definition_suite::Life<'_> {
    let mut life = begun(saga, json!({ "amount": 7 }));
    ok(&mut life, "book");
    ok(&mut life, "note");
    life
}

#[test]
fn an_instance_whose_steps_are_all_there_is_safe() {
    let old = version(1, OLD);
    let new = version(2, &OLD.replace("e.end", "e.finish"));
    let mut life = paying(&old);
    let migration = life.migrate(&new).unwrap();
    assert!(!migration.mapped && migration.tags.is_empty() && migration.transition.work.is_empty());
    assert_eq!(migration.transition.note, "migrated from version 1 to 2");
    assert_eq!(life.timers(), ["pay", "saga"]);
    ok(&mut life, "pay");
    assert_eq!(life.labels().last().unwrap(), "e.finish");
}

#[test]
fn steps_are_renamed_and_dropped_and_variables_set_as_the_author_says() {
    let old = version(1, OLD);
    let new = version(
        2,
        "timeout: 1d
vars: { currency: =event.currency }
steps:
  - { id: reserve, do: { effect: e.reserve }, undo: { effect: u.reserve, data: =vars.total } }
  - { id: charge, do: { effect: e.charge }, timeout: 5h, undo: { effect: u.charge } }
  - { id: end, do: { effect: e.end } }
migrates:
  - { from: [1], steps: { book: reserve, note: null, pay: charge }, vars: { currency: EUR, total: =vars.amount } }
",
    );
    let mut life = paying(&old);
    let migration = life.migrate(&new).unwrap();
    assert!(migration.mapped);
    let renamed = migration.tags.iter().find(|(old, _)| old.as_str() == "pay").map(|(_, new)| new.as_str());
    assert_eq!(renamed, Some("charge"));
    assert_eq!(life.timers(), ["charge", "saga"]);
    assert_eq!((stands(&life, "reserve").as_str(), stands(&life, "charge").as_str()), ("done", "running"));
    assert_eq!(life.shown()["vars"]["currency"], "EUR");
    fail(&mut life, "charge");
    let Some(orlog_model::Work::Effect(undo)) = life.work().last() else { panic!("an effect") };
    assert_eq!((undo.name.as_str(), &undo.payload), ("u.reserve", &json!(7)));
    ok(&mut life, "undo:reserve");
    assert_eq!(life.status(), Status::Failed);
}

#[track_caller]
fn blocked(old: &str, lead: impl Fn(&mut orlog_testkit::definition_suite::Life<'_>), new: &str, why: &str) {
    let (old, new) = (version(1, old), version(2, new));
    let mut life = begun(&old, json!({ "amount": 7 }));
    lead(&mut life);
    let before = life.state().to_vec();
    assert_eq!(life.migrate(&new).unwrap_err(), [why]);
    assert_eq!(life.state(), before);
}

#[test]
fn an_instance_that_would_lose_something_is_blocked() {
    let to_pay = |life: &mut orlog_testkit::definition_suite::Life<'_>| {
        ok(life, "book");
        ok(life, "note");
    };
    let drop = |step: &str| {
        let kept: Vec<_> = OLD.lines().filter(|line| !line.contains(&format!("id: {step},"))).collect();
        format!("{}\nmigrates: [ {{ from: [1], steps: {{ {step}: null }} }} ]\n", kept.join("\n"))
    };
    blocked(OLD, to_pay, &drop("pay"), "step `pay` is under way and has no place");
    blocked(OLD, to_pay, &drop("book"), "step `book` is done, and nothing could undo it");
    let unsaid = drop("end").replace("migrates", "#");
    blocked(OLD, to_pay, &unsaid, "nothing says what becomes of step `end`");
    let waits = OLD.replace("do: { effect: e.pay }", "do: { command: x.Pay }");
    blocked(OLD, to_pay, &waits, "step `pay` is under way, and `pay` does something else");
    let forgets = OLD.replace(", undo: { effect: u.book }", "");
    blocked(OLD, to_pay, &forgets, "step `book` is done, and nothing would undo `book`");
    let ends = |life: &mut orlog_testkit::definition_suite::Life<'_>| drop_all(life);
    blocked(OLD, ends, OLD, "it has ended: failed");
}

fn drop_all(life: &mut orlog_testkit::definition_suite::Life<'_>) {
    fail(life, "book");
}

#[test]
fn a_pivot_that_is_past_must_stay_one() {
    let old =
        "steps:\n  - { id: p, pivot: true, do: { effect: e.p } }\n  - { id: end, do: { effect: e.end } }\n";
    let lead = |life: &mut orlog_testkit::definition_suite::Life<'_>| {
        ok(life, "p");
    };
    let why = "it is past a point of no return that is not there any more";
    blocked(old, lead, &old.replace("pivot: true, ", ""), why);
}

#[test]
fn elements_children_tasks_and_ways_move_along() {
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
    let new = format!("{new}migrates: [ {{ from: [1], steps: {{ each: lines, kid: kid2, ask: ask2 }} }} ]\n");
    let (old, new) = (version(1, old), version(2, &new));
    let mut life = begun(&old, json!({ "items": [1, 2, 3] }));
    ok(&mut life, "each[1]");
    life.migrate(&new).unwrap();
    assert_eq!(life.timers(), ["escalate:ask2"]);
    assert_eq!(stands(&life, "b"), "bypassed");
    life.advance(Duration::from_hours(24)).unwrap();
    assert_eq!(life.tasks()[0].roles, ["x"]);
    fail(&mut life, "kid2");
    let Some(orlog_model::Work::Effect(undo)) = life.work().last() else { panic!("an effect") };
    assert_eq!((undo.tag.as_str(), &undo.payload), ("undo:lines[1]", &json!(2)));
}

#[test]
fn migrations_that_cannot_be_are_refused() {
    let found = wrong(
        "steps:\n  - { id: pay, do: { effect: e } }\nmigrates:\n  - { from: [2], steps: { a: pey, b: pay, c: pay } }",
    );
    for expected in
        ["version 2 is not older than this one, 2", "there is no step `pey`", "two steps would become `pay`"]
    {
        assert!(found.contains(expected), "{expected} is not in\n{found}");
    }
}
