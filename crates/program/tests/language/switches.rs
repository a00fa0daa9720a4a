//! Switches: the way that is taken, and the dead paths beside it.

use orlog_model::Status;
use serde_json::json;

use super::{begun, fail, ok, saga, stands, wrong};

pub(super) const ROUTE: &str = "vars: { total: =event.total }
steps:
  - { id: route, do: { switch: [ { when: =vars.total > 1000, then: [manual, log] }, { when: vars.total > 0, then: auto } ] } }
  - { id: manual, do: { effect: e.m }, undo: { effect: u.m } }
  - { id: sign, do: { effect: e.s } }
  - { id: auto, do: { effect: e.a } }
  - { id: log, do: { effect: e.l } }
  - { id: pay, after: [sign, auto], do: { effect: e.p } }
  - { id: report, after: [log], do: { effect: e.r } }
";

#[test]
fn a_switch_lets_the_steps_it_names_begin_and_bypasses_the_others_with_all_that_follows() {
    let saga = saga(ROUTE);
    let mut life = begun(&saga, json!({ "total": 5 }));
    assert_eq!(life.labels(), ["e.a"]);
    for step in ["manual", "sign", "log", "report"] {
        assert_eq!(stands(&life, step), "bypassed", "{step}");
    }
    assert_eq!(life.shown()["steps"][0]["then"], json!(["auto"]));
    ok(&mut life, "auto");
    ok(&mut life, "pay");
    assert_eq!(life.status(), Status::Completed);
}

#[test]
fn the_other_way_works_too_and_a_failure_on_it_undoes_it() {
    let saga = saga(ROUTE);
    let mut life = begun(&saga, json!({ "total": 5000 }));
    assert_eq!(life.labels(), ["e.m", "e.l"]);
    assert_eq!(stands(&life, "auto"), "bypassed");
    ok(&mut life, "manual");
    fail(&mut life, "sign");
    ok(&mut life, "undo:manual");
    assert_eq!(life.status(), Status::Failed);
}

#[test]
fn a_switch_without_a_way_that_fits_fails() {
    let saga = saga(ROUTE);
    let life = begun(&saga, json!({ "total": 0 }));
    assert_eq!((life.status(), life.failure().unwrap().code.as_str()), (Status::Failed, "no_case"));
}

#[test]
fn dead_paths_go_through_two_joins() {
    let saga = saga(
        "vars: { x: =event.x }
steps:
  - { id: one, do: { switch: [ { when: vars.x == 1, then: a }, { then: b } ] } }
  - { id: a, do: { effect: e.a } }
  - { id: a-all, after: [a], do: { effect: e.aa } }
  - { id: a-any, after: { any: [a, a-all] }, do: { effect: e.any } }
  - { id: b, do: { effect: e.b } }
  - { id: end, after: [a-any, b], do: { effect: e.end } }
",
    );
    let mut life = begun(&saga, json!({ "x": 2 }));
    for step in ["a", "a-all", "a-any"] {
        assert_eq!(stands(&life, step), "bypassed", "{step}");
    }
    ok(&mut life, "b");
    assert_eq!(stands(&life, "end"), "running");
}

#[test]
fn a_step_that_two_switches_name_begins_when_one_of_them_chooses_it() {
    let saga = saga(
        "vars: { x: =event.x }
steps:
  - { id: one, do: { switch: [ { when: vars.x == 1, then: target }, { then: two } ] } }
  - { id: two, do: { switch: [ { when: vars.x == 2, then: target }, { then: other } ] } }
  - { id: target, do: { effect: e.t } }
  - { id: other, do: { effect: e.o } }
",
    );
    for (x, expected) in [(1, "e.t"), (2, "e.t"), (3, "e.o")] {
        let life = begun(&saga, json!({ "x": x }));
        assert_eq!(life.labels(), [expected], "x = {x}");
    }
}

#[test]
fn skipped_is_not_bypassed() {
    let saga =
        saga("steps:\n  - { id: a, when: 'false', do: { effect: e.a } }\n  - { id: b, do: { effect: e.b } }");
    let life = begun(&saga, json!({}));
    assert_eq!((stands(&life, "a").as_str(), stands(&life, "b").as_str()), ("skipped", "running"));
}

#[test]
fn switches_that_cannot_be_are_refused() {
    let steps = "steps:
  - { id: early, do: { effect: e } }
  - { id: s, do: { switch: [ { then: s }, { when: 'true', then: [erly, early] } ] }, undo: { effect: u }, timeout: 1h }
";
    let found = wrong(steps);
    for expected in [
        "steps[1].do.switch[0].then: `s` cannot lead to itself",
        "steps[1].do.switch[1].then: there is no step `erly`",
        "steps[1].do.switch[0]: a way without `when` is taken always, so nothing after it ever is",
        "steps[1].undo: a switch has no `undo`",
        "steps[1].timeout: a switch has no `timeout`",
    ] {
        assert!(found.contains(expected), "{expected} is not in\n{found}");
    }
    let after = "steps:
  - { id: early, after: [], do: { effect: e } }
  - { id: s, do: { switch: [ { then: early } ] } }
";
    assert!(wrong(after).contains("steps[0].after: switch `s` names `early`, which does not come after it"));
}

#[test]
fn steps_on_different_ways_may_wait_for_the_same_event() {
    let steps = "vars: { x: =event.x }
steps:
  - { id: s, do: { switch: [ { when: vars.x == 1, then: a }, { then: b } ] } }
  - { id: a, do: { event: Paid } }
  - { id: b, do: { event: Paid } }
";
    let saga = saga(steps);
    let mut life = begun(&saga, json!({ "x": 2 }));
    assert_eq!(life.event("Paid", json!({})).unwrap(), "b: ok, completed");
}
