//! The builder and the YAML produce the same intermediate form.

use std::time::Duration;

use orlog_model::{ExcludedUser, InDoubtPolicy, ParentEndPolicy, RetryPolicy};
use serde_json::json;

use super::{DefinitionBuilder, EventHandler, MigrationBuilder, StepAction};
use crate::definition::{AfterHandler, Definition};
use crate::steps::{Escalation, OnMaxRounds};
use crate::versions::{UnsupportedVersionPolicy, VersionSpec};
use crate::yaml::read;

const HOUR: Duration = Duration::from_hours(1);

fn new_builder() -> DefinitionBuilder {
    Definition::builder("t").start("Go")
}

#[track_caller]
fn same(builder: DefinitionBuilder, yaml: &str) {
    let yaml = if yaml.starts_with("- ") {
        format!("steps:\n{yaml}")
    } else {
        format!("{yaml}\nsteps: []")
    };
    let parsed = read(&format!("saga: t\nversion: 1\nstart: Go\n{yaml}"))
        .expect("the definition is readable");
    assert_eq!(
        builder.definition().expect("the names are valid"),
        parsed,
        "{yaml}"
    );
}

#[test]
fn builds_a_complete_saga() {
    same(
        new_builder().early_event_ttl(HOUR).env("A", json!(1)),
        "early_event_ttl: 1h\nenv: { A: 1 }",
    );
    same(
        new_builder()
            .accepts("E", &[1, 2])
            .upcast("E", 1, json!({ "x": "=event.y" }))
            .on_unsupported_version("E", UnsupportedVersionPolicy::Ignore),
        "events: { E: { accepts: [1, 2], upcast: { 1: { x: =event.y } }, on_unsupported: ignore } }",
    );
    same(
        new_builder().on(EventHandler::any_event(&["A", "B"])
            .when("event.x")
            .save("y", json!("=event.y"))
            .action(StepAction::command("mail.Notify"))
            .then(AfterHandler::Cancel)),
        "on: [{ event: [A, B], when: event.x, save: { y: =event.y }, do: { command: mail.Notify }, then: cancel }]",
    );
    same(
        new_builder()
            .keep_active()
            .saga_timeout("=vars.limit")
            .on(EventHandler::event("A")
                .action(StepAction::child_saga("c"))
                .then(AfterHandler::Complete)),
        "keep_active: true\ntimeout: =vars.limit\non: [{ event: A, do: { saga: c }, then: complete }]",
    );
    same(
        new_builder().migration(
            MigrationBuilder::from(&[1])
                .step("pay", "charge")
                .drop_step("old")
                .var("c", json!("EUR")),
        ),
        "migrations: [{ from: 1, steps: { pay: charge, old: null }, vars: { c: EUR } }]",
    );
}

#[test]
fn builds_every_kind_of_action() {
    let one = |action: StepAction, yaml: &str| {
        same(
            new_builder().step("a", action),
            &format!("- {{ id: a, do: {yaml} }}"),
        );
    };
    one(
        StepAction::command("s.Take")
            .id(json!("=vars.i"))
            .data(json!(1)),
        "{ command: s.Take, id: =vars.i, data: 1 }",
    );
    one(StepAction::effect("e.x"), "{ effect: e.x }");
    let responses = VersionSpec {
        accepts: vec![1, 2],
        upcast: [(1, json!("=event.y"))].into(),
        on_unsupported: UnsupportedVersionPolicy::Compensate,
    };
    one(
        StepAction::effect("e.x").version(2).responses(responses),
        "{ effect: e.x, version: 2, responses: { accepts: [1, 2], upcast: { 1: =event.y }, on_unsupported: compensate } }",
    );
    one(
        StepAction::wait(Duration::from_millis(500)),
        "{ wait: 500ms }",
    );
    one(
        StepAction::wait_for(json!("=vars.d")),
        "{ wait: { for: =vars.d } }",
    );
    one(
        StepAction::wait_until(json!("=vars.t")),
        "{ wait: { until: =vars.t } }",
    );
    one(
        StepAction::event("Paid").when("event.ok"),
        "{ event: Paid, when: event.ok }",
    );
    one(
        StepAction::child_saga("kit")
            .correlation(json!("=vars.i"))
            .start_event("Needed")
            .data(json!({}))
            .on_parent_end(ParentEndPolicy::Wait),
        "{ saga: kit, correlation: =vars.i, event: Needed, data: {}, on_parent_end: wait }",
    );
    let escalation = Escalation {
        after: Some(HOUR.into()),
        roles: vec![json!("head")],
        assignee: None,
    };
    one(
        StepAction::human_task("Look")
            .role("clerk")
            .not_by(ExcludedUser::Previous)
            .assignee("=vars.o")
            .due_at(json!("=vars.t"))
            .data(json!([]))
            .escalate(escalation),
        "{ human: { title: Look, roles: clerk, not_by: previous, assignee: =vars.o, due: { until: =vars.t }, data: [], escalate: { after: 1h, roles: head } } }",
    );
    one(
        StepAction::job("py", "x")
            .env("A", json!(1))
            .args(json!(2))
            .prerequisites(&["p"])
            .dependencies(&["d"]),
        "{ job: { type: py, script: x, env: { A: 1 }, args: 2, prerequisites: p, dependencies: d } }",
    );
    one(
        StepAction::switch()
            .case("vars.x", &["b"])
            .otherwise(&["c", "d"]),
        "{ switch: [{ when: vars.x, then: b }, { then: [c, d] }] }",
    );
    one(
        StepAction::repeat_while(&["b"], "vars.x", 5).on_max(OnMaxRounds::Continue),
        "{ repeat: b, while: vars.x, max: 5, on_max: continue }",
    );
    one(
        StepAction::restart_as_new("Go").data(json!({ "n": 1 })),
        "{ restart_as_new: Go, data: { n: 1 } }",
    );
    one(
        StepAction::repeat_until(&["b", "c"], "vars.x", 2),
        "{ repeat: [b, c], until: vars.x, max: 2 }",
    );
}

#[test]
fn builds_every_step_option() {
    let step = || new_builder().step("a", StepAction::effect("e.x"));
    let one = |builder: DefinitionBuilder, yaml: &str| {
        same(
            builder,
            &format!("- {{ id: a, do: {{ effect: e.x }}, {yaml} }}"),
        );
    };
    one(step().after(&["b", "c"]), "after: { all: [b, c] }");
    one(step().after_any(&["b", "c"]), "after: { any: [b, c] }");
    one(
        step().after_count(2, &["b", "c", "d"]),
        "after: { count: 2, of: [b, c, d] }",
    );
    one(step().when("vars.x").pivot(), "when: vars.x, pivot: true");
    one(
        step().foreach("vars.l", "item").max_concurrency(5),
        "foreach: { in: vars.l, as: item, max_concurrency: 5 }",
    );
    one(
        step()
            .ok("A")
            .ok_when("B", "event.x")
            .fail_when("C", "event.y")
            .fail("D"),
        "ok: [A, { event: B, when: event.x }], fail: [{ event: C, when: event.y }, D]",
    );
    let retry = RetryPolicy {
        max_attempts: Some(3),
        initial_backoff: Some(HOUR),
    };
    one(
        step()
            .timeout(HOUR)
            .retry(retry)
            .save("v", json!("=event.v")),
        "timeout: 1h, retry: { max_attempts: 3, initial_backoff: 1h }, save: { v: =event.v }",
    );
    one(
        step()
            .in_doubt(InDoubtPolicy::Ask)
            .undo(StepAction::effect("e.y").in_doubt(InDoubtPolicy::Fail)),
        "in_doubt: ask, undo: { effect: e.y, in_doubt: fail }",
    );
    one(
        step().undo(
            StepAction::command("s.Give")
                .ok("X")
                .fail("Y")
                .timeout(HOUR)
                .retry(retry),
        ),
        "undo: { command: s.Give, ok: X, fail: Y, timeout: 1h, retry: { max_attempts: 3, initial_backoff: 1h } }",
    );
}

#[test]
fn errors_name_the_path() {
    let errors = new_builder()
        .pivot()
        .step("a", StepAction::wait(HOUR).data(json!(1)))
        .on(EventHandler::event("").action(StepAction::command("NoDot")))
        .max_concurrency(3)
        .definition()
        .expect_err("the definition is invalid");
    let errors: Vec<_> = errors
        .iter()
        .map(|problem| format!("{}: {}", problem.path, problem.message))
        .collect();
    assert_eq!(
        errors,
        [
            "steps[0].pivot: `pivot` is set before the first step",
            "steps[0].do.data: this kind of action has no `data`",
            "on[0].event: event type must not be empty",
            "on[0].do[0]: `NoDot` is not a command",
            "steps[0].foreach.max_concurrency: `max_concurrency` requires a step with `foreach`",
        ]
    );
}
