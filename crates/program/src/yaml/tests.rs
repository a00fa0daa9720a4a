//! Tests of the decoder: the result of every notation and the diagnostic of every error.

use serde_json::{Value, json};

use super::{report, tree};
use crate::definition::Definition;

const HEAD: &str = "saga: t\nversion: 1\nstart: Go\n";

fn read(text: &str) -> Result<Definition, Vec<String>> {
    let root = tree::parse(text).expect("the text is valid YAML");
    let mut findings = Vec::new();
    let definition = Definition::decode_file(&root, &mut findings);
    let problems = report(findings, &root, "t");
    if problems.is_empty() {
        Ok(definition)
    } else {
        Err(problems.iter().map(ToString::to_string).collect())
    }
}

/// Asserts the part of the intermediate form at `pointer` of a definition with this text after the head.
#[track_caller]
fn check_valid(text: &str, pointer: &str, form: &Value) {
    let text = if text.starts_with("- ") {
        format!("steps:\n{text}")
    } else {
        format!("{text}\nsteps: []")
    };
    let definition =
        read(&format!("{HEAD}{text}")).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
    let json = serde_json::to_value(definition).expect("a definition is plain data");
    assert_eq!(json.pointer(pointer), Some(form), "{text}");
}

/// Asserts the only diagnostic of a definition; `text` starts in line 4, or in line 5 if it is a step.
#[track_caller]
fn check_invalid(text: &str, problem: &str) {
    let text = if text.starts_with("- ") {
        format!("steps:\n{text}")
    } else {
        format!("{text}\nsteps: []")
    };
    let problems = read(&format!("{HEAD}{text}")).expect_err("the definition is invalid");
    assert_eq!(problems, [format!("t:{problem}")], "{text}");
}

#[test]
fn decodes_the_saga() {
    check_valid("early_event_ttl: 0s", "/early_event_ttl/secs", &json!(0));
    check_valid(
        "correlate: order.id",
        "/correlate",
        &json!({ "field": "order.id" }),
    );
    check_valid(
        "correlate: =event.a + event.b",
        "/correlate",
        &json!({ "field": "=event.a + event.b" }),
    );
    check_valid(
        "correlate: { A: id, b.C: =event.x }",
        "/correlate/by_type",
        &json!({ "A": "id", "b.C": "=event.x" }),
    );
    check_valid(
        "events: { A: { accepts: 2 } }",
        "/events/A",
        &json!({ "accepts": [2], "upcast": {}, "on_unsupported": "dead_letter" }),
    );
    check_valid(
        "events: { A: { accepts: [1, 2], upcast: { 1: { v: =event.w } }, on_unsupported: compensate } }",
        "/events/A",
        &json!({ "accepts": [1, 2], "upcast": { "1": { "v": "=event.w" } }, "on_unsupported": "compensate" }),
    );
    check_valid(
        "env: { REGION: eu, N: 1 }",
        "/env",
        &json!({ "REGION": "eu", "N": 1 }),
    );
    check_valid(
        "migrations: { from: 1, steps: { pay: charge, old: null }, vars: { c: EUR } }",
        "/migrations",
        &json!([{ "from": [1], "steps": { "pay": "charge", "old": null }, "vars": { "c": "EUR" } }]),
    );
    check_valid(
        "completed: Done",
        "/completed",
        &json!({ "fact": "Done", "data": null }),
    );
    check_valid(
        "failed: { fact: Off, data: =failure }",
        "/failed",
        &json!({ "fact": "Off", "data": "=failure" }),
    );
}

#[test]
fn decodes_event_handlers() {
    check_valid(
        "on: { event: Off, do: { effect: m.n }, then: cancel }",
        "/on",
        &json!([{
            "event": ["Off"], "when": null, "save": {}, "then": "cancel",
            "actions": [{ "effect": { "name": "m.n", "data": null } }],
        }]),
    );
    check_valid("on: [{ event: [A, B] }]", "/on/0/event", &json!(["A", "B"]));
    check_valid("on: [{ event: A }]", "/on/0/then", &json!("continue"));
    check_valid(
        "on: [{ event: A, do: [{ effect: a.b }, { command: c.D }] }]",
        "/on/0/actions/1/command/name",
        &json!("D"),
    );
}

#[test]
fn decodes_step_dependencies() {
    let after = |text: &str, form: &Value| {
        check_valid(
            &format!("- {{ id: a, do: {{ effect: e.x }}, after: {text} }}"),
            "/steps/0/after",
            form,
        );
    };
    after("b", &json!({ "steps": ["b"], "join": "all" }));
    after("[]", &json!({ "steps": [], "join": "all" }));
    after(
        "{ all: [b, c] }",
        &json!({ "steps": ["b", "c"], "join": "all" }),
    );
    after(
        "{ any: [b, c] }",
        &json!({ "steps": ["b", "c"], "join": { "at_least": 1 } }),
    );
    after(
        "{ count: 2, of: [b, c, d] }",
        &json!({ "steps": ["b", "c", "d"], "join": { "at_least": 2 } }),
    );
}

#[test]
fn decodes_every_kind_of_action() {
    let action = |text: &str, form: &Value| {
        check_valid(
            &format!("- {{ id: a, do: {text} }}"),
            "/steps/0/action",
            form,
        );
    };
    action(
        "{ command: b.c.D, id: =vars.x, data: [1] }",
        &json!({ "command": { "aggregate_type": "b.c", "name": "D", "id": "=vars.x", "data": [1] } }),
    );
    action(
        "{ effect: e.x }",
        &json!({ "effect": { "name": "e.x", "data": null } }),
    );
    action("{ wait: 30m }", &json!({ "wait": { "for": "30m" } }));
    action(
        "{ wait: =vars.delay }",
        &json!({ "wait": { "for": "=vars.delay" } }),
    );
    action(
        "{ wait: { for: =vars.delay } }",
        &json!({ "wait": { "for": "=vars.delay" } }),
    );
    action(
        "{ wait: { until: 1700000000000 } }",
        &json!({ "wait": { "until": 1_700_000_000_000_i64 } }),
    );
    action(
        "{ event: Paid }",
        &json!({ "event": { "events": ["Paid"], "when": null } }),
    );
    action(
        "{ event: [P, Q], when: true }",
        &json!({ "event": { "events": ["P", "Q"], "when": "true" } }),
    );
    action(
        "{ saga: kit, correlation: =vars.id, event: Needed, data: { n: 1 } }",
        &json!({ "saga": { "saga": "kit", "correlation": "=vars.id", "event": "Needed", "data": { "n": 1 } } }),
    );
    action(
        "{ human: { title: Look, roles: [clerk, =vars.b], not_by: [starter, previous], due: 2d, escalate: { after: 1d, roles: head } } }",
        &json!({ "human": {
            "title": "Look", "roles": ["clerk", "=vars.b"], "not_by": ["starter", "previous"], "assignee": null, "due": { "for": "2d" }, "data": null,
            "escalate": { "after": { "secs": 86400, "nanos": 0 }, "roles": ["head"], "assignee": null },
        } }),
    );
    action(
        "{ job: { type: python, script: 1, prerequisites: x, dependencies: [y] } }",
        &json!({ "job": {
            "type": "python", "script": "1", "env": {}, "args": null, "prerequisites": ["x"], "dependencies": ["y"],
        } }),
    );
    action(
        "{ switch: [{ when: =vars.x, then: b }, { then: [c, d] }] }",
        &json!({ "switch": [{ "when": "=vars.x", "then": ["b"] }, { "when": null, "then": ["c", "d"] }] }),
    );
}

#[test]
fn decodes_results_compensation_and_step_options() {
    let step = |text: &str, at: &str, form: &Value| {
        check_valid(
            &format!("- {{ id: a, do: {{ effect: e.x }}, {text} }}"),
            &format!("/steps/0/{at}"),
            form,
        );
    };
    step(
        "ok: Done",
        "ok",
        &json!([{ "event": "Done", "when": null }]),
    );
    step(
        "ok: { event: Done, when: =event.n > 1 }",
        "ok",
        &json!([{ "event": "Done", "when": "=event.n > 1" }]),
    );
    step(
        "fail: [A, { event: B, when: x }]",
        "fail",
        &json!([{ "event": "A", "when": null }, { "event": "B", "when": "x" }]),
    );
    step(
        "foreach: { in: =vars.l, as: item, max_concurrency: 5 }",
        "foreach",
        &json!({ "in": "=vars.l", "as": "item", "max_concurrency": 5 }),
    );
    step("pivot: true", "pivot", &json!(true));
    step(
        "remind: { every: 1d, max: 5, do: { effect: mail.remind } }",
        "remind",
        &json!({
            "every": { "secs": 86400, "nanos": 0 }, "max": 5,
            "action": { "effect": { "name": "mail.remind", "data": null } },
        }),
    );
    step(
        "retry: { max_attempts: 3, initial_backoff: 2s }",
        "retry",
        &json!({ "max_attempts": 3, "initial_backoff": { "secs": 2, "nanos": 0 } }),
    );
    step(
        "undo: { saga: kit, event: Back }",
        "compensate/action/saga/event",
        &json!("Back"),
    );
    step(
        "undo: { command: a.B, ok: [X], timeout: 1h }",
        "compensate/timeout/secs",
        &json!(3600),
    );
    step(
        "undo: { effect: e.y, retry: { max_attempts: 2 } }",
        "compensate/retry/max_attempts",
        &json!(2),
    );
}

#[test]
fn reports_invalid_saga_fields() {
    check_invalid(
        "early_event_ttl: soon",
        "4:18: early_event_ttl: `soon` is not a duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 such as PT30M",
    );
    check_invalid(
        "correlate: [a]",
        "4:12: correlate: this must be a path or a map of event types to paths, it is a list",
    );
    check_invalid(
        "correlate: { A: [b] }",
        "4:17: correlate.A: this must be a text, it is a list",
    );
    check_invalid(
        "events: [A]",
        "4:9: events: this must be a map of event types to their versions, it is a list",
    );
    check_invalid(
        "events: { A: { upcast: {} } }",
        "4:14: events.A: `accepts` is missing",
    );
    check_invalid(
        "events: { A: { accepts: [1, two] } }",
        "4:29: events.A.accepts[1]: this must be a whole number from 0, it is a text",
    );
    check_invalid(
        "events: { A: { accepts: 1.0 } }",
        "4:25: events.A.accepts: this must be a whole number from 0, it is a number with decimals",
    );
    check_invalid(
        "events: { A: { accepts: 1, upcast: { one: 1 } } }",
        "4:38: events.A.upcast.one: `one` is not a version; a version is a whole number",
    );
    check_invalid(
        "events: { A: { accepts: 1, on_unsupported: compenstate } }",
        "4:44: events.A.on_unsupported: invalid value `compenstate`; did you mean `compensate`?",
    );
    check_invalid(
        "env: EU",
        "4:6: env: this must be a map of names to templates, it is a text",
    );
    check_invalid(
        "migrations: [{ steps: {} }]",
        "4:14: migrations[0]: `from` is missing",
    );
    check_invalid(
        "migrations: [{ from: 1, steps: { a: [b] } }]",
        "4:37: migrations[0].steps.a: this must be a text, it is a list",
    );
    check_invalid(
        "on: [{ event: A, then: stop }]",
        "4:24: on[0].then: invalid value `stop`; valid: continue, cancel, fail, complete",
    );
    check_invalid("on: { when: true }", "4:5: on: `event` is missing");
    check_invalid(
        "on: [{ event: A, do: [mail] }]",
        "4:23: on[0].do[0]: this must be a map such as { effect: … }, it is a text",
    );
}

#[test]
fn reports_invalid_steps() {
    let step = |text: &str, problem: &str| {
        check_invalid(
            &format!("- {{ id: a, do: {{ effect: e.x }}, {text} }}"),
            problem,
        );
    };
    step(
        "after: { any: [b], all: [c] }",
        "5:40: steps[0].after: it must have exactly one of `all`, `any`, and `count` with `of`; for example { any: [a, b] } or { count: 2, of: [a, b, c] }",
    );
    step(
        "after: { of: [b] }",
        "5:40: steps[0].after: `count` is missing",
    );
    step(
        "after: { count: two, of: [b] }",
        "5:49: steps[0].after.count: this must be a whole number from 0, it is a text",
    );
    step(
        "foreach: =vars.items",
        "5:42: steps[0].foreach: this must be a map, it is a text",
    );
    step(
        "foreach: { in: =vars.items }",
        "5:42: steps[0].foreach: `as` is missing",
    );
    step(
        "pivot: yes",
        "5:40: steps[0].pivot: this must be true or false, it is a text",
    );
    step(
        "timeout: [30m]",
        "5:42: steps[0].timeout: this must be a duration such as 30m, it is a list",
    );
    step(
        "ok: [A, { event: B, wen: x }]",
        "5:53: steps[0].ok[1].wen: unknown field `wen`; did you mean `when`?",
    );
    step(
        "fail: { when: x }",
        "5:39: steps[0].fail: `event` is missing",
    );
    step(
        "retry: 3",
        "5:40: steps[0].retry: this must be a map, it is a number",
    );
    step(
        "undo: { effect: e.y, ok: X, data2: 1 }",
        "5:61: steps[0].undo.data2: unknown field `data2`; did you mean `data`?",
    );
    step(
        "pivto: true",
        "5:33: steps[0].pivto: unknown field `pivto`; did you mean `pivot`?",
    );
}

#[test]
fn reports_invalid_actions() {
    let action =
        |text: &str, problem: &str| check_invalid(&format!("- {{ id: a, do: {text} }}"), problem);
    action(
        "[x]",
        "5:16: steps[0].do: this must be a map such as { effect: … }, it is a list",
    );
    action(
        "{ effect: e.x, saga: k }",
        "5:31: steps[0].do.saga: `effect` is already present; an action has one kind",
    );
    action(
        "{ event: A, data: {} }",
        "5:28: steps[0].do.data: an event has no `data`",
    );
    action(
        "{ effect: e.x, when: true }",
        "5:31: steps[0].do.when: an effect has no `when`",
    );
    action(
        "{ saga: k, corelation: x }",
        "5:27: steps[0].do.corelation: unknown field `corelation`; did you mean `correlation`?",
    );
    action(
        "{ wait: soon }",
        "5:24: steps[0].do.wait: `soon` is not a duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 such as PT30M",
    );
    action(
        "{ wait: [30m] }",
        "5:24: steps[0].do.wait: this must be a duration such as 30m, it is a list",
    );
    action(
        "{ wait: { for: 30 } }",
        "5:31: steps[0].do.wait.for: `30` is not a duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 such as PT30M",
    );
    action(
        "{ wait: {} }",
        "5:24: steps[0].do.wait: it must have exactly one of `for` and `until`; for example { for: 30m } or { until: =vars.dueAt }",
    );
    action(
        "{ human: { title: T, not_by: [starter, previos] } }",
        "5:55: steps[0].do.human.not_by[1]: invalid value `previos`; did you mean `previous`?",
    );
    action(
        "{ human: { roles: [clerk] } }",
        "5:25: steps[0].do.human: `title` is missing",
    );
    action(
        "{ human: { title: T, escalate: { afer: 2d } } }",
        "5:49: steps[0].do.human.escalate.afer: unknown field `afer`; did you mean `after`?",
    );
    action(
        "{ human: { title: T, roles: [[x]] } }",
        "5:45: steps[0].do.human.roles[0]: this must be a text, it is a list",
    );
    action(
        "{ job: { script: x } }",
        "5:23: steps[0].do.job: `type` is missing",
    );
    action(
        "{ job: { type: t, script: [x] } }",
        "5:42: steps[0].do.job.script: this must be a text, it is a list",
    );
    action(
        "{ switch: { then: b } }",
        "5:26: steps[0].do.switch: this must be a list of cases such as { when: …, then: step }, it is a map",
    );
    action(
        "{ switch: [{ when: true }] }",
        "5:27: steps[0].do.switch[0]: `then` is missing",
    );
}

#[test]
fn short_notation_keeps_locations() {
    let text = "ok: { event: A, when: x }\nfact: Done\nlist: [{ a.b: 1 }]";
    let root = tree::parse(text).expect("the text is valid YAML");
    let position = |path: &str| {
        let spot = super::locate::locate(&root, path);
        (spot.node.at.line, spot.node.at.column, spot.exact)
    };
    assert_eq!(position("ok[0].when"), (1, 23, true));
    assert_eq!(position("fact.fact"), (2, 7, true));
    assert_eq!(position("list[0].a.b"), (3, 15, true));
    assert_eq!(position("list[1].a"), (3, 7, false));
    assert_eq!(position("nothing.here"), (1, 1, false));
}
