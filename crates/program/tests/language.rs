//! Tests of the saga language: the effect of each keyword on an instance.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use orlog_program::{CompiledDefinition, compile_yaml};
use orlog_testkit::definition_suite::{self, InstanceDriver, failed, succeeded};
use serde_json::{Value, json};

#[path = "language/attempts.rs"]
mod attempts;
#[path = "language/children.rs"]
mod children;
#[path = "language/collections.rs"]
mod collections;
#[path = "language/early_events.rs"]
mod early_events;
#[path = "language/envelopes.rs"]
mod envelopes;
#[path = "language/events.rs"]
mod events;
#[path = "language/failure_handlers.rs"]
mod failure_handlers;
#[path = "language/foreach.rs"]
mod foreach;
#[path = "language/in_doubt.rs"]
mod in_doubt;
#[path = "language/loops.rs"]
mod loops;
#[path = "language/migration.rs"]
mod migration;
#[path = "language/open_sagas.rs"]
mod open_sagas;
#[path = "language/payments_log.rs"]
mod payments_log;
#[path = "language/priorities.rs"]
mod priorities;
#[path = "language/races.rs"]
mod races;
#[path = "language/reminders.rs"]
mod reminders;
#[path = "language/restart.rs"]
mod restart;
#[path = "language/start_again.rs"]
mod start_again;
#[path = "language/stuck.rs"]
mod stuck;
#[path = "language/switches.rs"]
mod switches;
#[path = "language/time_limits.rs"]
mod time_limits;
#[path = "language/undo_values.rs"]
mod undo_values;
#[path = "language/unknown.rs"]
mod unknown;
#[path = "language/waits.rs"]
mod waits;

const HEAD: &str = "saga: t\nversion: 2\nstart: Go\n";
const FACTS: &str = "completed: { fact: Completed }\nfailed: { fact: Failed, data: =failure }\n";

/// Compiles a saga with these steps and other fields.
#[track_caller]
fn saga(rest: &str) -> CompiledDefinition {
    compile_yaml(&format!("{HEAD}{FACTS}{rest}"), "t.saga.yaml").unwrap_or_else(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

/// Returns the diagnostics of a saga.
#[track_caller]
fn diagnostics(rest: &str) -> String {
    let problems =
        compile_yaml(&format!("{HEAD}{rest}"), "t").expect_err("the definition is invalid");
    let lines: Vec<_> = problems
        .iter()
        .map(|p| format!("{}: {}", p.path, p.message))
        .collect();
    lines.join("\n")
}

#[track_caller]
fn start_run(saga: &CompiledDefinition, data: Value) -> InstanceDriver<'_> {
    let mut run = InstanceDriver::new(saga);
    run.event("Go", data).expect("the instance starts");
    run
}

#[track_caller]
fn ok(run: &mut InstanceDriver<'_>, tag: &str) -> String {
    run.outcome(tag, &succeeded(json!({})))
        .unwrap_or_else(|reason| panic!("{tag}: {reason}"))
}

#[track_caller]
fn fail(run: &mut InstanceDriver<'_>, tag: &str) -> String {
    run.outcome(tag, &failed("broken"))
        .unwrap_or_else(|reason| panic!("{tag}: {reason}"))
}

/// Returns the requests of the instance since index `from`.
fn since<'l>(run: &'l InstanceDriver<'_>, from: usize) -> Vec<&'l str> {
    run.work()[from..]
        .iter()
        .map(|work| {
            work.tag()
                .map_or("fact or cancel_child", |tag| tag.as_str())
        })
        .collect()
}

/// Returns the state of a step.
fn step_state(run: &InstanceDriver<'_>, id: &str) -> String {
    let view = run.state_view();
    let step = view["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|step| step["id"] == id)
        .unwrap();
    step["state"].as_str().unwrap().to_owned()
}

#[test]
fn every_saga_passes_the_definition_suite() {
    let sagas = [
        (races::RACE, json!({})),
        (races::QUORUM, json!({ "n": 3 })),
        (races::QUORUM, json!({ "n": 1 })),
        (switches::ROUTE, json!({ "total": 5 })),
        (switches::ROUTE, json!({ "total": 5000 })),
        (
            foreach::LINES,
            json!({ "items": [{ "sku": "a", "n": 1 }, { "sku": "b", "n": 2 }, { "sku": "c", "n": 3 }] }),
        ),
        (attempts::BOOKING, json!({})),
        (failure_handlers::SIGN_UP, json!({})),
        (failure_handlers::LINES, json!({ "items": [1, 2, 3] })),
        (loops::REVIEW, json!({})),
        (reminders::PAYMENT, json!({ "to": "ada" })),
        (stuck::PIVOT, json!({})),
        (stuck::COMPENSATION, json!({})),
        (events::EFFECT, json!({})),
        (waits::APPROVE, json!({ "customer": "ada", "branch": "n" })),
        (waits::CHILD, json!({})),
        (children::AWAITED, json!({})),
        (waits::FLOW, json!({ "url": "u" })),
        (collections::THREE, json!({})),
        (
            time_limits::LIMITED,
            json!({ "express": true, "limit": 60 }),
        ),
        (open_sagas::ACCOUNT, json!({})),
        (in_doubt::PAY, json!({ "total": 5 })),
        (in_doubt::EACH, json!({ "items": [1, 2, 3] })),
    ];
    let mut runs = 0;
    for (text, start) in sagas {
        let saga = saga(text);
        let samples = definition_suite::PayloadSamples::of(saga.definition())
            .starting(start)
            .answering("probe", json!({ "frames": 24 }));
        runs += definition_suite::check_with(&saga, &samples).runs;
    }
    assert!(runs > 80, "{runs} runs");
}
