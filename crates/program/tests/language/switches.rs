//! Switches: the selected branch and the skipped branches.

use orlog_model::Status;
use serde_json::json;

use super::{diagnostics, fail, ok, saga, start_run, step_state};

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
fn switch_starts_the_selected_branch_and_bypasses_the_others() {
    let saga = saga(ROUTE);
    let mut run = start_run(&saga, json!({ "total": 5 }));
    assert_eq!(run.labels(), ["e.a"]);
    for step in ["manual", "sign", "log", "report"] {
        assert_eq!(step_state(&run, step), "bypassed", "{step}");
    }
    assert_eq!(run.state_view()["steps"][0]["then"], json!(["auto"]));
    ok(&mut run, "auto");
    ok(&mut run, "pay");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn failure_on_the_other_branch_compensates_it() {
    let saga = saga(ROUTE);
    let mut run = start_run(&saga, json!({ "total": 5000 }));
    assert_eq!(run.labels(), ["e.m", "e.l"]);
    assert_eq!(step_state(&run, "auto"), "bypassed");
    ok(&mut run, "manual");
    fail(&mut run, "sign");
    ok(&mut run, "compensate:manual");
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn switch_without_a_matching_case_fails() {
    let saga = saga(ROUTE);
    let run = start_run(&saga, json!({ "total": 0 }));
    assert_eq!(
        (run.status(), run.failure().unwrap().code.as_str()),
        (Status::Failed, "no_matching_case")
    );
}

#[test]
fn dead_paths_propagate_through_joins() {
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
    let mut run = start_run(&saga, json!({ "x": 2 }));
    for step in ["a", "a-all", "a-any"] {
        assert_eq!(step_state(&run, step), "bypassed", "{step}");
    }
    ok(&mut run, "b");
    assert_eq!(step_state(&run, "end"), "running");
}

#[test]
fn step_of_two_switches_starts_when_either_selects_it() {
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
        let run = start_run(&saga, json!({ "x": x }));
        assert_eq!(run.labels(), [expected], "x = {x}");
    }
}

#[test]
fn skipped_is_not_bypassed() {
    let saga = saga(
        "steps:\n  - { id: a, when: 'false', do: { effect: e.a } }\n  - { id: b, do: { effect: e.b } }",
    );
    let run = start_run(&saga, json!({}));
    assert_eq!(
        (
            step_state(&run, "a").as_str(),
            step_state(&run, "b").as_str()
        ),
        ("skipped", "running")
    );
}

#[test]
fn invalid_switches_are_rejected() {
    let steps = "steps:
  - { id: early, do: { effect: e } }
  - { id: s, do: { switch: [ { then: s }, { when: 'true', then: [erly, early] } ] }, undo: { effect: u }, timeout: 1h }
";
    let found = diagnostics(steps);
    for expected in [
        "steps[1].do.switch[0].then: `s` cannot depend on itself",
        "steps[1].do.switch[1].then: there is no step `erly`",
        "steps[1].do.switch[0]: a case without `when` always matches, so later cases are unreachable",
        "steps[1].undo: a switch has no `undo`",
        "steps[1].timeout: a switch has no `timeout`",
    ] {
        assert!(
            found.contains(expected),
            "{expected} is missing in\n{found}"
        );
    }
    let after = "steps:
  - { id: early, after: [], do: { effect: e } }
  - { id: s, do: { switch: [ { then: early } ] } }
";
    assert!(
        diagnostics(after)
            .contains("steps[0].after: switch `s` selects `early`, which does not come after it")
    );
}

#[test]
fn exclusive_branches_may_await_the_same_event() {
    let steps = "vars: { x: =event.x }
steps:
  - { id: s, do: { switch: [ { when: vars.x == 1, then: a }, { then: b } ] } }
  - { id: a, do: { event: Paid } }
  - { id: b, do: { event: Paid } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({ "x": 2 }));
    assert_eq!(run.event("Paid", json!({})).unwrap(), "b: ok, completed");
}
