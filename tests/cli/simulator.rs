//! Definitions without a node: `test`, `explore`, `simulate`, `graph`, and that the examples of docs/testing.md are true.

use std::path::Path;

use serde_json::Value;

use crate::node::{run, shown};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const ORDERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/orders");

fn examples(name: &str) -> String {
    format!("{ROOT}/examples/{name}")
}

fn json(args: &[&str]) -> Value {
    let output = run(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn the_tests_of_the_examples_pass() {
    let found = json(&["test", &examples(""), "--format", "json"]);
    assert!(found["passed"].as_u64().unwrap() >= 8, "{found:#}");
    assert_eq!(
        (&found["failed"], found["problems"].as_array().unwrap().len()),
        (&Value::from(0), 0),
        "{found:#}"
    );
}

#[test]
fn the_examples_are_sound() {
    for name in ["orders", "fines", "loan", "media", "onboarding", "trip"] {
        let found = shown(&["explore", &examples(name), "--runs", "60"]);
        assert!(found.starts_with("exit 0\n"), "{found}");
    }
}

#[test]
fn the_test_in_the_documentation_is_played_as_it_stands() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docs/testing.md")).unwrap();
    let example = text.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(format!("{ORDERS}/order.saga.yaml"), folder.path().join("order.saga.yaml")).unwrap();
    std::fs::write(folder.path().join("order.saga.test.yaml"), example).unwrap();
    let found = shown(&["test", folder.path().to_str().unwrap()]);
    assert!(found.starts_with("exit 0\n") && found.contains("1 passed, 0 failed"), "{found}");
}

#[test]
fn a_test_that_fails_shows_what_is_different_and_the_history() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(format!("{ORDERS}/order.saga.yaml"), folder.path().join("order.saga.yaml")).unwrap();
    let test = "saga: order.saga.yaml\ntests:\n  - name: wrong\n    given:\n      - OrderPlaced: { orderId: o1, customer: ann, items: [], total: 5, card: c, address: a }\n      - { ok: reserve }\n      - cancel: enough\n    expect:\n      status: failed\n      work: [command inventory.ReserveStock, effect payments.charge, { command: inventory.ReleaseStock, data: { orderId: o2 } }]\n";
    std::fs::write(folder.path().join("order.saga.test.yaml"), test).unwrap();
    let report = folder.path().join("junit.xml");
    let found = shown(&["test", folder.path().to_str().unwrap(), "--junit", report.to_str().unwrap()]);
    let found = found.replace(&folder.path().display().to_string(), "DIR");
    let found: Vec<_> = found.lines().map(|line| line.split(" (").next().unwrap_or(line)).collect();
    let found: Vec<_> = found.iter().map(|line| line.split(", in ").next().unwrap_or(line)).collect();
    insta::assert_snapshot!("test_that_fails", found.join("\n"));
    assert!(std::fs::read_to_string(report).unwrap().contains("<failure message=\"status: expected failed"));
}

#[test]
fn no_test_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let found = shown(&["test", folder.path().to_str().unwrap()]);
    assert!(found.starts_with("exit 1\n") && found.contains("there is no test in"), "{found}");
    let found = shown(&["test", ORDERS, "--filter", "no such test"]);
    assert!(found.contains("has \"no such test\" in its name"), "{found}");
}

#[test]
fn recorded_events_are_played_and_two_versions_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (name, days) in [("old", "30d"), ("new", "60d")] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        let text = format!(
            "saga: fine\nversion: 1\nstart: Notified\nsteps:\n  - {{ id: collect, do: {{ command: fines.Demand }}, ok: Paid, timeout: {days} }}\n"
        );
        std::fs::write(folder.path().join(name).join("fine.saga.yaml"), text).unwrap();
    }
    let events = "{\"type\":\"Paid\",\"time\":\"2025-02-10T00:00:00Z\",\"correlation\":\"a\"}\n{\"type\":\"Notified\",\"time\":\"2025-01-01T00:00:00Z\",\"correlation\":\"a\"}\n";
    std::fs::write(folder.path().join("events.jsonl"), events).unwrap();
    let (events, old, new) = (path("events.jsonl"), path("old"), path("new"));
    let args =
        ["simulate", "--events", &events, "--definitions", &old, "--against", &new, "--format", "json"];
    let found = json(&args);
    assert_eq!(found["report"]["statuses"]["fine"]["failed"], 1, "{found:#}");
    assert_eq!(found["report"]["timers_fired"]["collect"], 1);
    assert_eq!(found["differences"]["status_changed"]["failed → completed"], 1);
}

#[test]
fn the_log_of_the_police_office_gives_the_penalties_that_a_node_gives() {
    let log = Path::new(ROOT).join("../shared/data/roadtraffic100traces.csv");
    if !log.exists() {
        println!("skipped: the log is not here: {}", log.display());
        return;
    }
    let (log, definitions) = (log.display().to_string(), examples("fines"));
    let columns = ["--csv", "--type-column", "concept:name", "--correlation-column", "case:concept:name"];
    let mut args = vec![
        "simulate",
        "--events",
        &log,
        "--definitions",
        &definitions,
        "--then",
        "61d",
        "--format",
        "json",
    ];
    args.extend(columns);
    args.extend(["--time-column", "time:timestamp"]);
    let found = json(&args);
    assert_eq!(found["report"]["statuses"]["fine"]["failed"], 52, "{found:#}");
    assert_eq!(found["report"]["statuses"]["fine"]["completed"], 5);
    assert_eq!(found["report"]["work"]["command fines.AddPenalty"], 52);
    assert_eq!(found["report"]["dead_letters"], serde_json::json!({}));
}

#[test]
fn a_definition_is_drawn_with_the_place_of_an_instance() {
    let file = format!("{ORDERS}/order.saga.yaml");
    assert!(shown(&["graph", &file]).starts_with("exit 0\nflowchart TD\n"));
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    std::fs::write(&state, r#"{"state":{"phase":"running","steps":[{"id":"reserve","state":"done"}]}}"#)
        .unwrap();
    let drawn = shown(&["graph", &file, "--format", "svg", "--state", state.to_str().unwrap()]);
    assert!(drawn.contains("<g class=\"done\">") && drawn.contains("order version 1: running"), "{drawn}");
}
