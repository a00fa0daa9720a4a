//! The saga language, sentence by sentence: what each word means for an instance.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use orlog_program::{Compiled, compile_yaml};
use orlog_testkit::definition_suite::{self, Life, failed, succeeded};
use serde_json::{Value, json};

#[path = "language/attempts.rs"]
mod attempts;
#[path = "language/events.rs"]
mod events;
#[path = "language/foreach.rs"]
mod foreach;
#[path = "language/in_doubt.rs"]
mod in_doubt;
#[path = "language/migration.rs"]
mod migration;
#[path = "language/races.rs"]
mod races;
#[path = "language/stuck.rs"]
mod stuck;
#[path = "language/switches.rs"]
mod switches;
#[path = "language/waits.rs"]
mod waits;

const HEAD: &str = "saga: t\nversion: 2\nstart: Go\n";
const FACTS: &str = "completed: { fact: Completed }\nfailed: { fact: Failed, data: =failure }\n";

/// A saga with these steps, and whatever else is said.
#[track_caller]
fn saga(rest: &str) -> Compiled {
    compile_yaml(&format!("{HEAD}{FACTS}{rest}"), "t.saga.yaml").unwrap_or_else(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

/// What is wrong with a saga.
#[track_caller]
fn wrong(rest: &str) -> String {
    let problems = compile_yaml(&format!("{HEAD}{rest}"), "t").expect_err("it is wrong");
    let lines: Vec<_> = problems.iter().map(|p| format!("{}: {}", p.path, p.message)).collect();
    lines.join("\n")
}

#[track_caller]
fn begun(saga: &Compiled, data: Value) -> Life<'_> {
    let mut life = Life::new(saga);
    life.event("Go", data).expect("it begins");
    life
}

#[track_caller]
fn ok(life: &mut Life<'_>, tag: &str) -> String {
    life.outcome(tag, &succeeded(json!({}))).unwrap_or_else(|why| panic!("{tag}: {why}"))
}

#[track_caller]
fn fail(life: &mut Life<'_>, tag: &str) -> String {
    life.outcome(tag, &failed("broken")).unwrap_or_else(|why| panic!("{tag}: {why}"))
}

/// What the instance was asked for since `from`.
fn since<'l>(life: &'l Life<'_>, from: usize) -> Vec<&'l str> {
    life.work()[from..].iter().map(|work| work.tag().map_or("fact or stop", |tag| tag.as_str())).collect()
}

/// Where a step stands.
fn stands(life: &Life<'_>, id: &str) -> String {
    let shown = life.shown();
    let step = shown["steps"].as_array().unwrap().iter().find(|step| step["id"] == id).unwrap();
    step["state"].as_str().unwrap().to_owned()
}

#[test]
fn every_saga_here_stands_the_quartet() {
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
        (attempts::BOOK, json!({})),
        (stuck::PIVOT, json!({})),
        (stuck::UNDO, json!({})),
        (events::EFFECT, json!({})),
        (waits::APPROVE, json!({ "who": "ada", "branch": "n" })),
        (waits::CHILD, json!({})),
        (waits::FLOW, json!({ "url": "u" })),
        (in_doubt::PAY, json!({ "total": 5 })),
        (in_doubt::EACH, json!({ "items": [1, 2, 3] })),
    ];
    let mut lives = 0;
    for (text, start) in sagas {
        let saga = saga(text);
        let samples = definition_suite::Samples::of(saga.definition())
            .starting(start)
            .answering("probe", json!({ "frames": 24 }));
        lives += definition_suite::check_with(&saga, &samples).lives;
    }
    assert!(lives > 80, "{lives} lives");
}
