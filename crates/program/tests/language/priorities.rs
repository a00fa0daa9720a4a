//! Priorities of the work of steps: constants, expressions, and rejected values.

use orlog_model::{Priority, Status, Work};
use orlog_testkit::definition_suite::InstanceDriver;
use serde_json::json;

use super::{diagnostics, fail, ok, saga, start_run};

const RUSH: &str = "vars: { express: =event.express, items: =event.items }
steps:
  - { id: reserve, do: { command: stock.Reserve }, priority: low, ok: Reserved, undo: { command: stock.Release } }
  - { id: cut, do: { job: { type: sal, script: s } }, priority: '=vars.express ? \"high\" : \"low\"' }
  - { id: charge, do: { effect: e.charge }, undo: { effect: u.charge, priority: '=vars.express ? \"high\" : \"low\"' } }
  - { id: each, foreach: { in: =vars.items, as: item }, do: { effect: e.each }, priority: =item }
  - { id: end, do: { effect: e.end } }
";

/// Returns the tags and the priorities of the requested work.
fn priorities(run: &InstanceDriver<'_>) -> Vec<(String, Priority)> {
    let work = run
        .work()
        .iter()
        .filter(|work| matches!(work, Work::Command(_) | Work::Effect(_)));
    work.map(|work| (work.tag().unwrap().to_string(), work.priority()))
        .collect()
}

#[test]
fn priority_is_evaluated_with_each_request() {
    let saga = saga(RUSH);
    for (express, expected) in [(true, Priority::High), (false, Priority::Low)] {
        let mut run = start_run(
            &saga,
            json!({ "express": express, "items": ["low", "normal", "high"] }),
        );
        run.event("Reserved", json!({})).unwrap();
        ok(&mut run, "cut");
        ok(&mut run, "charge");
        fail(&mut run, "each[0]");
        let requested = priorities(&run);
        let of = |tag: &str| {
            requested
                .iter()
                .find(|(of, _)| of == tag)
                .map(|(_, priority)| *priority)
        };
        assert_eq!(of("reserve"), Some(Priority::Low));
        assert_eq!(of("cut"), Some(expected));
        assert_eq!(of("charge"), Some(Priority::Normal));
        assert_eq!(
            [0, 1, 2].map(|n| of(&format!("each[{n}]"))),
            [
                Some(Priority::Low),
                Some(Priority::Normal),
                Some(Priority::High)
            ]
        );
        assert_eq!(of("compensate:charge"), Some(expected), "{requested:?}");
    }
}

#[test]
fn value_that_is_no_priority_fails_the_step() {
    let saga = saga(
        "vars: { tier: =event.tier }\nsteps: [{ id: pay, do: { effect: e.pay }, priority: =vars.tier }]\n",
    );
    for (tier, expected) in [
        (
            json!("gold"),
            "\"gold\" is not a priority; priorities: high, normal, low",
        ),
        (
            json!(7),
            "a priority must be high, normal or low, but is a number",
        ),
    ] {
        let run = start_run(&saga, json!({ "tier": tier }));
        let failure = run.failure().expect("the step failed");
        assert_eq!(
            (run.status(), failure.code.as_str()),
            (Status::Failed, "expression_error")
        );
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
}

#[test]
fn invalid_priorities_are_reported_with_their_location() {
    let found = diagnostics(
        "steps: [{ id: a, do: { effect: e.a }, priority: urgent, undo: { effect: u.a, priority: =vars.x } }]",
    );
    assert!(
        found.contains("steps[0].priority: \"urgent\" is not a priority"),
        "{found}"
    );
    assert!(found.contains("steps[0].undo.priority: "), "{found}");
    let found = diagnostics("steps: [{ id: a, do: { wait: 1s }, priority: high }]");
    assert_eq!(
        found,
        "steps[0].priority: a wait does not wait for an upstream, so it has no `priority`"
    );
}
