//! The builder and the YAML give the same form.

use std::time::Duration;

use orlog_model::{InDoubt, Retry};
use serde_json::json;

use super::{Builder, Do, Migrate, On};
use crate::definition::{Definition, Escalation, Otherwise, Then};
use crate::yaml::read;

const HOUR: Duration = Duration::from_hours(1);

fn begun() -> Builder {
    Definition::builder("t").start("Go")
}

#[track_caller]
fn same(builder: Builder, yaml: &str) {
    let yaml = if yaml.starts_with("- ") { format!("steps:\n{yaml}") } else { format!("{yaml}\nsteps: []") };
    let written = read(&format!("saga: t\nversion: 1\nstart: Go\n{yaml}")).expect("it can be read");
    assert_eq!(builder.form().expect("it is well formed"), written, "{yaml}");
}

#[test]
fn the_parts_of_a_saga() {
    same(begun().early(HOUR).env("A", json!(1)), "early: 1h\nenv: { A: 1 }");
    same(
        begun()
            .accepts("E", &[1, 2])
            .upcast("E", 1, json!({ "x": "=event.y" }))
            .otherwise("E", Otherwise::Ignore),
        "events: { E: { accepts: [1, 2], upcast: { 1: { x: =event.y } }, otherwise: ignore } }",
    );
    same(
        begun().on(On::any_event(&["A", "B"])
            .when("event.x")
            .save("y", json!("=event.y"))
            .ask(Do::command("mail.Notify"))
            .then(Then::Cancel)),
        "on: [{ event: [A, B], when: event.x, save: { y: =event.y }, do: { command: mail.Notify }, then: cancel }]",
    );
    same(
        begun().migrates(Migrate::from(&[1]).step("pay", "charge").without("old").var("c", json!("EUR"))),
        "migrates: [{ from: 1, steps: { pay: charge, old: null }, vars: { c: EUR } }]",
    );
}

#[test]
fn every_kind_of_action() {
    let one = |action: Do, yaml: &str| same(begun().step("a", action), &format!("- {{ id: a, do: {yaml} }}"));
    one(
        Do::command("s.Take").id(json!("=vars.i")).data(json!(1)),
        "{ command: s.Take, id: =vars.i, data: 1 }",
    );
    one(Do::effect("e.x"), "{ effect: e.x }");
    one(Do::wait(Duration::from_millis(500)), "{ wait: 500ms }");
    one(Do::wait_for(json!("=vars.d")), "{ wait: { for: =vars.d } }");
    one(Do::wait_until(json!("=vars.t")), "{ wait: { until: =vars.t } }");
    one(Do::event("Paid").when("event.ok"), "{ event: Paid, when: event.ok }");
    one(
        Do::saga("kit").correlation(json!("=vars.i")).begun_by("Needed").data(json!({})),
        "{ saga: kit, correlation: =vars.i, event: Needed, data: {} }",
    );
    let escalation = Escalation { after: Some(HOUR), roles: vec![json!("head")], assignee: None };
    one(
        Do::human("Look")
            .role("clerk")
            .assignee("=vars.o")
            .due_at(json!("=vars.t"))
            .data(json!([]))
            .escalate(escalation),
        "{ human: { title: Look, roles: clerk, assignee: =vars.o, due: { until: =vars.t }, data: [], escalate: { after: 1h, roles: head } } }",
    );
    one(
        Do::job("py", "x").env("A", json!(1)).args(json!(2)).prerequisites(&["p"]).dependencies(&["d"]),
        "{ job: { type: py, script: x, env: { A: 1 }, args: 2, prerequisites: p, dependencies: d } }",
    );
    one(
        Do::switch().case("vars.x", &["b"]).otherwise(&["c", "d"]),
        "{ switch: [{ when: vars.x, then: b }, { then: [c, d] }] }",
    );
}

#[test]
fn everything_about_a_step() {
    let step = || begun().step("a", Do::effect("e.x"));
    let one = |builder: Builder, yaml: &str| {
        same(builder, &format!("- {{ id: a, do: {{ effect: e.x }}, {yaml} }}"));
    };
    one(step().after(&["b", "c"]), "after: { all: [b, c] }");
    one(step().after_any(&["b", "c"]), "after: { any: [b, c] }");
    one(step().after_count(2, &["b", "c", "d"]), "after: { count: 2, of: [b, c, d] }");
    one(step().when("vars.x").pivot(), "when: vars.x, pivot: true");
    one(step().foreach("vars.l", "item").at_once(5), "foreach: { in: vars.l, as: item, limit: 5 }");
    one(
        step().ok("A").ok_when("B", "event.x").fail_when("C", "event.y").fail("D"),
        "ok: [A, { event: B, when: event.x }], fail: [{ event: C, when: event.y }, D]",
    );
    let retry = Retry { attempts: Some(3), backoff: Some(HOUR) };
    one(
        step().timeout(HOUR).retry(retry).save("v", json!("=event.v")),
        "timeout: 1h, retry: { attempts: 3, backoff: 1h }, save: { v: =event.v }",
    );
    one(
        step().in_doubt(InDoubt::Ask).undo(Do::effect("e.y").in_doubt(InDoubt::Fail)),
        "in_doubt: ask, undo: { effect: e.y, in_doubt: fail }",
    );
    one(
        step().undo(Do::command("s.Give").confirmed_by("X").refused_by("Y").within(HOUR).retry(retry)),
        "undo: { command: s.Give, ok: X, fail: Y, timeout: 1h, retry: { attempts: 3, backoff: 1h } }",
    );
}

#[test]
fn what_does_not_fit_is_reported_at_its_place() {
    let wrong = begun()
        .pivot()
        .step("a", Do::wait(HOUR).data(json!(1)))
        .on(On::event("").ask(Do::command("NoDot")))
        .at_once(3)
        .form()
        .expect_err("it is wrong");
    let wrong: Vec<_> =
        wrong.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
    assert_eq!(
        wrong,
        [
            "steps[0].pivot: `pivot` comes before the first step",
            "steps[0].do.data: this kind of action has no `data`",
            "on[0].event: event type is empty; give at least one character",
            "on[0].do[0]: `NoDot` is no command",
            "steps[0].foreach.limit: `at_once` is about a step with `foreach`",
        ]
    );
}
