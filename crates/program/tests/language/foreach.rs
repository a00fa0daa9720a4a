//! Steps with `foreach`: one execution for each element of a list.

use orlog_model::{Status, Work};
use orlog_testkit::definition_suite::succeeded;
use serde_json::json;

use super::{diagnostics, fail, ok, saga, since, start_run, step_state};

pub(super) const LINES: &str = "vars: { items: =event.items }
steps:
  - { id: first, do: { effect: e.first }, undo: { effect: u.first } }
  - id: lines
    foreach: { in: =vars.items, as: item, max_concurrency: 2 }
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
fn foreach_limits_concurrency_and_matches_results_by_condition() {
    let saga = saga(LINES);
    let mut run = start_run(&saga, items());
    let from = run.work().len();
    ok(&mut run, "first");
    assert_eq!(since(&run, from), ["lines[0]", "lines[1]"]);
    let Some(Work::Command(command)) = run.work().last() else {
        panic!("a command")
    };
    assert_eq!(
        (command.aggregate_id.as_str(), &command.payload),
        ("b", &json!({ "n": 2, "at": 1 }))
    );
    assert_eq!(
        run.state_view()["vars"]["reservations"],
        json!([null, null, null])
    );
    let note = run
        .event("Reserved", json!({ "sku": "b", "id": "r2" }))
        .unwrap();
    assert_eq!(
        (note.as_str(), since(&run, from)[2]),
        ("lines[1]: ok", "lines[2]")
    );
    assert!(
        run.event("Reserved", json!({ "sku": "b", "id": "r2" }))
            .is_err(),
        "a duplicate has no effect"
    );
    assert_eq!(
        run.state_view()["vars"]["reservations"],
        json!([null, "r2", null])
    );
    assert_eq!(
        run.state_view()["steps"][1]["elements"][1]["state"],
        "completed"
    );
    run.event("Reserved", json!({ "sku": "c", "id": "r3" }))
        .unwrap();
    run.event("Reserved", json!({ "sku": "a", "id": "r1" }))
        .unwrap();
    assert_eq!(
        (
            step_state(&run, "lines").as_str(),
            step_state(&run, "last").as_str()
        ),
        ("completed", "running")
    );
    assert_eq!(
        run.state_view()["vars"]["reservations"],
        json!(["r1", "r2", "r3"])
    );
}

#[test]
fn compensation_runs_backward_over_elements_and_steps() {
    let saga = saga(LINES);
    let mut run = start_run(&saga, items());
    ok(&mut run, "first");
    for (sku, id) in [("b", "r2"), ("c", "r3"), ("a", "r1")] {
        run.event("Reserved", json!({ "sku": sku, "id": id }))
            .unwrap();
    }
    fail(&mut run, "last");
    let expected = [
        "compensate:lines[0]",
        "compensate:lines[2]",
        "compensate:lines[1]",
        "compensate:first",
    ];
    for tag in expected {
        assert_eq!(run.compensated().last().unwrap(), tag);
        ok(&mut run, tag);
    }
    let Some(Work::Command(release)) = run
        .work()
        .iter()
        .rev()
        .find(|w| matches!(w, Work::Command(_)))
    else {
        panic!("a command")
    };
    assert_eq!(
        (release.aggregate_id.as_str(), &release.payload),
        ("b", &json!({ "id": "r2" }))
    );
    assert_eq!(
        (run.status(), step_state(&run, "lines").as_str()),
        (Status::Failed, "compensated")
    );
}

#[test]
fn failed_element_fails_the_step_and_compensates_the_others() {
    let saga = saga(LINES);
    let mut run = start_run(&saga, items());
    ok(&mut run, "first");
    run.event("Reserved", json!({ "sku": "a", "id": "r1" }))
        .unwrap();
    run.event("Short", json!({ "sku": "c", "reason": "none left" }))
        .unwrap();
    assert_eq!(
        (run.status(), run.compensated()),
        (Status::Compensating, vec!["compensate:lines[0]".to_owned()])
    );
    run.event("Reserved", json!({ "sku": "b", "id": "r2" }))
        .unwrap();
    ok(&mut run, "compensate:lines[0]");
    ok(&mut run, "compensate:lines[1]");
    ok(&mut run, "compensate:first");
    assert_eq!(
        run.status(),
        Status::Failed,
        "the late element is compensated too"
    );
    assert_eq!(run.state_view()["failure"]["message"], "none left");
}

#[test]
fn empty_list_completes_and_invalid_list_fails() {
    let saga = saga(LINES);
    let mut run = start_run(&saga, json!({ "items": [] }));
    assert_eq!(ok(&mut run, "first"), "first: ok, lines: all done");
    let mut run = start_run(&saga, json!({ "items": 7 }));
    ok(&mut run, "first");
    assert_eq!(run.failure().unwrap().code, "not_a_list");
    let mut run = start_run(&saga, json!({ "items": vec![0; 1001] }));
    ok(&mut run, "first");
    assert_eq!(run.failure().unwrap().code, "too_many_elements");
}

#[test]
fn elements_of_a_losing_branch_are_compensated() {
    let saga = saga(
        "vars: { n: =event.n }
steps:
  - { id: each, after: [], foreach: { in: =vars.n, as: x }, do: { effect: e.x, data: =x }, undo: { effect: u.x, data: =x } }
  - { id: other, after: [], do: { effect: e.o } }
  - { id: end, after: { any: [each, other] }, do: { effect: e.end } }
",
    );
    let mut run = start_run(&saga, json!({ "n": [1, 2, 3] }));
    ok(&mut run, "each[2]");
    ok(&mut run, "each[0]");
    ok(&mut run, "other");
    assert_eq!(run.compensated(), ["compensate:each[0]"]);
    ok(&mut run, "compensate:each[0]");
    ok(&mut run, "each[1]");
    ok(&mut run, "compensate:each[2]");
    ok(&mut run, "compensate:each[1]");
    ok(&mut run, "end");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn state_holds_a_thousand_elements() {
    let saga = saga(
        "vars: { n: =event.n }\nsteps:\n  - { id: each, foreach: { in: =vars.n, as: x, max_concurrency: 50 }, do: { effect: e.x }, undo: { effect: u.x } }",
    );
    let mut run = start_run(&saga, json!({ "n": (0..1000).collect::<Vec<_>>() }));
    for n in 0..1000 {
        assert_eq!(run.waits().len(), 50.min(1000 - n));
        run.outcome(&format!("each[{n}]"), &succeeded(json!({})))
            .unwrap();
    }
    assert_eq!(run.status(), Status::Completed);
    assert!(run.state().len() < 20_000, "{} bytes", run.state().len());
}

#[test]
fn invalid_foreach_lists_are_rejected() {
    let step = |foreach: &str, rest: &str| {
        format!("vars: {{ n: =event }}\nsteps:\n  - {{ id: a, foreach: {foreach}, {rest} }}")
    };
    let effect = "do: { effect: e }";
    assert!(diagnostics(&step("{ in: =vars.n, as: vars }", effect)).contains("`vars` is taken"));
    assert!(
        diagnostics(&step("{ in: =vars.n, as: a-b }", effect))
            .contains("`a-b` is not a valid element name")
    );
    assert!(
        diagnostics(&step(
            "{ in: =vars.n, as: x, max_concurrency: 1001 }",
            effect
        ))
        .contains("the concurrency must be 1 to 1000")
    );
    assert!(diagnostics(&step("{ in: =x, as: x }", effect)).contains("unknown name `x`"));
    let event = "do: { command: a.B }, ok: Done";
    assert!(
        diagnostics(&step("{ in: =vars.n, as: x }", event))
            .contains("Done does not identify the element of the list")
    );
    saga(&step("{ in: =vars.n, as: x, max_concurrency: 1 }", event));
}
