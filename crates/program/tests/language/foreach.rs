//! A step for each element of a list.

use orlog_model::{Status, Work};
use orlog_testkit::definition_suite::succeeded;
use serde_json::json;

use super::{begun, fail, ok, saga, since, stands, wrong};

pub(super) const LINES: &str = "vars: { items: =event.items }
steps:
  - { id: first, do: { effect: e.first }, undo: { effect: u.first } }
  - id: lines
    foreach: { in: =vars.items, as: item, limit: 2 }
    do: { command: stock.Reserve, id: =item.sku, data: { n: =item.n, at: =index } }
    ok: { event: Reserved, when: =event.sku == item.sku }
    fail: { event: Short, when: =event.sku == item.sku }
    save: { reservations: =event.id }
    undo: { command: stock.Release, id: =item.sku, data: { id: '=vars.reservations[index]' } }
  - { id: last, do: { effect: e.last }, undo: { effect: u.last } }
";

fn items() -> serde_json::Value {
    json!({ "items": [{ "sku": "a", "n": 1 }, { "sku": "b", "n": 2 }, { "sku": "c", "n": 3 }] })
}

#[test]
fn elements_are_under_way_up_to_the_limit_and_the_condition_picks_the_one_that_is_answered() {
    let saga = saga(LINES);
    let mut life = begun(&saga, items());
    let from = life.work().len();
    ok(&mut life, "first");
    assert_eq!(since(&life, from), ["lines[0]", "lines[1]"]);
    let Some(Work::Command(command)) = life.work().last() else { panic!("a command") };
    assert_eq!((command.aggregate_id.as_str(), &command.payload), ("b", &json!({ "n": 2, "at": 1 })));
    assert_eq!(life.shown()["vars"]["reservations"], json!([null, null, null]));
    let note = life.event("Reserved", json!({ "sku": "b", "id": "r2" })).unwrap();
    assert_eq!((note.as_str(), since(&life, from)[2]), ("lines[1]: ok", "lines[2]"));
    assert!(
        life.event("Reserved", json!({ "sku": "b", "id": "r2" })).is_err(),
        "a duplicate changes nothing"
    );
    assert_eq!(life.shown()["vars"]["reservations"], json!([null, "r2", null]));
    assert_eq!(life.shown()["steps"][1]["elements"][1]["state"], "done");
    life.event("Reserved", json!({ "sku": "c", "id": "r3" })).unwrap();
    life.event("Reserved", json!({ "sku": "a", "id": "r1" })).unwrap();
    assert_eq!((stands(&life, "lines").as_str(), stands(&life, "last").as_str()), ("done", "running"));
    assert_eq!(life.shown()["vars"]["reservations"], json!(["r1", "r2", "r3"]));
}

#[test]
fn the_undo_goes_backward_over_elements_and_steps() {
    let saga = saga(LINES);
    let mut life = begun(&saga, items());
    ok(&mut life, "first");
    for (sku, id) in [("b", "r2"), ("c", "r3"), ("a", "r1")] {
        life.event("Reserved", json!({ "sku": sku, "id": id })).unwrap();
    }
    fail(&mut life, "last");
    let expected = ["undo:lines[0]", "undo:lines[2]", "undo:lines[1]", "undo:first"];
    for tag in expected {
        assert_eq!(life.undone().last().unwrap(), tag);
        ok(&mut life, tag);
    }
    let Some(Work::Command(release)) = life.work().iter().rev().find(|w| matches!(w, Work::Command(_)))
    else {
        panic!("a command")
    };
    assert_eq!((release.aggregate_id.as_str(), &release.payload), ("b", &json!({ "id": "r2" })));
    assert_eq!((life.status(), stands(&life, "lines").as_str()), (Status::Failed, "undone"));
}

#[test]
fn an_element_that_fails_fails_the_step_and_the_others_are_given_up_or_undone() {
    let saga = saga(LINES);
    let mut life = begun(&saga, items());
    ok(&mut life, "first");
    life.event("Reserved", json!({ "sku": "a", "id": "r1" })).unwrap();
    life.event("Short", json!({ "sku": "c", "reason": "none left" })).unwrap();
    assert_eq!((life.status(), life.undone()), (Status::Compensating, vec!["undo:lines[0]".to_owned()]));
    life.event("Reserved", json!({ "sku": "b", "id": "r2" })).unwrap();
    ok(&mut life, "undo:lines[0]");
    ok(&mut life, "undo:lines[1]");
    ok(&mut life, "undo:first");
    assert_eq!(life.status(), Status::Failed, "the late element was undone too");
    assert_eq!(life.shown()["failure"]["message"], "none left");
}

#[test]
fn an_empty_list_is_done_at_once_and_what_is_no_list_or_too_long_fails() {
    let saga = saga(LINES);
    let mut life = begun(&saga, json!({ "items": [] }));
    assert_eq!(ok(&mut life, "first"), "first: ok, lines: all done");
    let mut life = begun(&saga, json!({ "items": 7 }));
    ok(&mut life, "first");
    assert_eq!(life.failure().unwrap().code, "no_list");
    let mut life = begun(&saga, json!({ "items": vec![0; 1001] }));
    ok(&mut life, "first");
    assert_eq!(life.failure().unwrap().code, "too_many_elements");
}

#[test]
fn elements_lost_in_a_race_are_undone() {
    let saga = saga(
        "vars: { n: =event.n }
steps:
  - { id: each, after: [], foreach: { in: =vars.n, as: x }, do: { effect: e.x, data: =x }, undo: { effect: u.x, data: =x } }
  - { id: other, after: [], do: { effect: e.o } }
  - { id: end, after: { any: [each, other] }, do: { effect: e.end } }
",
    );
    let mut life = begun(&saga, json!({ "n": [1, 2, 3] }));
    ok(&mut life, "each[2]");
    ok(&mut life, "each[0]");
    ok(&mut life, "other");
    assert_eq!(life.undone(), ["undo:each[0]"]);
    ok(&mut life, "undo:each[0]");
    ok(&mut life, "each[1]");
    ok(&mut life, "undo:each[2]");
    ok(&mut life, "undo:each[1]");
    ok(&mut life, "end");
    assert_eq!(life.status(), Status::Completed);
}

#[test]
fn a_thousand_elements_fit_into_a_state() {
    let saga = saga(
        "vars: { n: =event.n }\nsteps:\n  - { id: each, foreach: { in: =vars.n, as: x, limit: 50 }, do: { effect: e.x }, undo: { effect: u.x } }",
    );
    let mut life = begun(&saga, json!({ "n": (0..1000).collect::<Vec<_>>() }));
    for n in 0..1000 {
        assert_eq!(life.waits().len(), 50.min(1000 - n));
        life.outcome(&format!("each[{n}]"), &succeeded(json!({}))).unwrap();
    }
    assert_eq!(life.status(), Status::Completed);
    assert!(life.state().len() < 20_000, "{} bytes", life.state().len());
}

#[test]
fn lists_that_cannot_be_gone_through_are_refused() {
    let step = |foreach: &str, rest: &str| {
        format!("vars: {{ n: =event }}\nsteps:\n  - {{ id: a, foreach: {foreach}, {rest} }}")
    };
    let effect = "do: { effect: e }";
    assert!(wrong(&step("{ in: =vars.n, as: vars }", effect)).contains("`vars` is taken"));
    assert!(wrong(&step("{ in: =vars.n, as: a-b }", effect)).contains("`a-b` is no name for an element"));
    assert!(
        wrong(&step("{ in: =vars.n, as: x, limit: 1001 }", effect)).contains("so many at once: 1 to 1000")
    );
    assert!(wrong(&step("{ in: =x, as: x }", effect)).contains("`x` is not known here"));
    let event = "do: { command: a.B }, ok: Done";
    assert!(
        wrong(&step("{ in: =vars.n, as: x }", event)).contains("nothing says which element Done answers")
    );
    saga(&step("{ in: =vars.n, as: x, limit: 1 }", event));
}
