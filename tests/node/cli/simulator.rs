//! Commands without a node: `test`, `explore`, `simulate`, `graph`; also checks the examples of
//! docs/testing.md.

use std::path::Path;

use serde_json::Value;

use crate::cli::node::{command_output, run};

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
fn example_tests_pass() {
    let found = json(&["test", &examples(""), "--format", "json"]);
    assert!(found["passed"].as_u64().unwrap() >= 8, "{found:#}");
    assert_eq!(
        (
            &found["failed"],
            found["problems"].as_array().unwrap().len()
        ),
        (&Value::from(0), 0),
        "{found:#}"
    );
}

#[test]
fn examples_have_no_counterexample() {
    for name in ["orders", "fines", "loan", "media", "onboarding", "trip"] {
        let found = command_output(&["explore", &examples(name), "--runs", "60"]);
        assert!(found.starts_with("exit 0\n"), "{found}");
    }
}

/// Requirements: T3, T4, E4, E6.
#[test]
fn examples_are_proved() {
    for name in ["orders", "fines", "billing", "sign-up"] {
        let found = command_output(&["prove", &examples(name)]);
        assert!(
            found.starts_with("exit 0\n") && found.contains(": proved for up to 1 disturbance: "),
            "{found}"
        );
    }
}

#[test]
fn counterexample_of_a_proof_is_a_failing_test() {
    let dir = tempfile::tempdir().unwrap();
    let source = std::fs::read_to_string(format!("{ORDERS}/order.saga.yaml")).unwrap();
    let broken = source.replace(
        "    undo: { effect: payments.refund",
        "    # undo: { effect: payments.refund",
    );
    assert_ne!(broken, source);
    std::fs::write(dir.path().join("order.saga.yaml"), broken).unwrap();
    let dir = dir.path().to_str().unwrap();
    let found = command_output(&["prove", dir]);
    assert!(found.starts_with("exit 1\n"), "{found}");
    assert!(
        found.contains("charge completed but has no compensation"),
        "{found}"
    );
    let test = found
        .split("as a test:\n")
        .nth(1)
        .unwrap()
        .split("\nerror: ")
        .next()
        .unwrap();
    std::fs::write(format!("{dir}/found.saga.test.yaml"), test).unwrap();
    let tested = command_output(&["test", dir]);
    assert!(
        tested.starts_with("exit 1\n") && tested.contains("invariant violated: "),
        "{tested}"
    );
}

#[test]
fn limit_of_a_proof_exits_with_6() {
    let found = command_output(&["prove", ORDERS, "--max-states", "30"]);
    assert!(found.starts_with("exit 6\n"), "{found}");
    assert!(
        found.contains("order: not proved: 30 states") && found.contains("--max-states"),
        "{found}"
    );
    let found = json(&["prove", ORDERS, "--max-states", "30", "--format", "json"]);
    assert_eq!(found[0]["outcome"], "not_proved");
}

#[test]
fn documented_test_file_passes() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docs/testing.md")).unwrap();
    let example = text
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(
        format!("{ORDERS}/order.saga.yaml"),
        dir.path().join("order.saga.yaml"),
    )
    .unwrap();
    std::fs::write(dir.path().join("order.saga.test.yaml"), example).unwrap();
    let found = command_output(&["test", dir.path().to_str().unwrap()]);
    assert!(
        found.starts_with("exit 0\n") && found.contains("1 passed, 0 failed"),
        "{found}"
    );
}

#[test]
fn failing_test_shows_diff_and_history() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(
        format!("{ORDERS}/order.saga.yaml"),
        dir.path().join("order.saga.yaml"),
    )
    .unwrap();
    let test = "saga: order.saga.yaml\ntests:\n  - name: wrong\n    given:\n      - OrderPlaced: { orderId: o1, customer: ann, items: [], total: 5, card: c, address: a }\n      - { ok: reserve }\n      - cancel: enough\n    expect:\n      status: failed\n      work: [command inventory.ReserveStock, effect payments.charge, { command: inventory.ReleaseStock, data: { orderId: o2 } }]\n";
    std::fs::write(dir.path().join("order.saga.test.yaml"), test).unwrap();
    let report = dir.path().join("junit.xml");
    let found = command_output(&[
        "test",
        dir.path().to_str().unwrap(),
        "--junit",
        report.to_str().unwrap(),
    ]);
    let found = found.replace(&dir.path().display().to_string(), "DIR");
    let found: Vec<_> = found
        .lines()
        .map(|line| line.split(" (").next().unwrap_or(line))
        .collect();
    let found: Vec<_> = found
        .iter()
        .map(|line| line.split(", in ").next().unwrap_or(line))
        .collect();
    insta::assert_snapshot!("failing_test", found.join("\n"));
    assert!(
        std::fs::read_to_string(report)
            .unwrap()
            .contains("<failure message=\"status: expected failed")
    );
}

#[test]
fn missing_tests_fail_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let found = command_output(&["test", dir.path().to_str().unwrap()]);
    assert!(
        found.starts_with("exit 1\n") && found.contains("no test found in"),
        "{found}"
    );
    let found = command_output(&["test", ORDERS, "--filter", "no such test"]);
    assert!(
        found.contains("has a name that contains \"no such test\""),
        "{found}"
    );
}

#[test]
fn simulate_compares_two_versions() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    for (name, days) in [("old", "30d"), ("new", "60d")] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        let text = format!(
            "saga: fine\nversion: 1\nstart: Notified\nsteps:\n  - {{ id: collect, do: {{ command: fines.Demand }}, ok: Paid, timeout: {days} }}\n"
        );
        std::fs::write(dir.path().join(name).join("fine.saga.yaml"), text).unwrap();
    }
    let events = "{\"type\":\"Paid\",\"time\":\"2025-02-10T00:00:00Z\",\"correlation\":\"a\"}\n{\"type\":\"Notified\",\"time\":\"2025-01-01T00:00:00Z\",\"correlation\":\"a\"}\n";
    std::fs::write(dir.path().join("events.jsonl"), events).unwrap();
    let (events, old, new) = (path("events.jsonl"), path("old"), path("new"));
    let args = [
        "simulate",
        "--events",
        &events,
        "--definitions",
        &old,
        "--against",
        &new,
        "--format",
        "json",
    ];
    let found = json(&args);
    assert_eq!(
        found["report"]["statuses"]["fine"]["failed"], 1,
        "{found:#}"
    );
    assert_eq!(found["report"]["timers_fired"]["collect"], 1);
    assert_eq!(
        found["differences"]["status_changed"]["failed → completed"],
        1
    );
}

#[test]
fn simulate_matches_the_recorded_fines() {
    let log = Path::new(ROOT).join("../shared/data/roadtraffic100traces.csv");
    if !log.exists() {
        println!("skipped: the log is not here: {}", log.display());
        return;
    }
    let (log, definitions) = (log.display().to_string(), examples("fines"));
    let columns = [
        "--csv",
        "--type-column",
        "concept:name",
        "--correlation-column",
        "case:concept:name",
    ];
    let mut args = vec![
        "simulate",
        "--events",
        &log,
        "--definitions",
        &definitions,
        "--run-on",
        "61d",
        "--format",
        "json",
    ];
    args.extend(columns);
    args.extend(["--time-column", "time:timestamp"]);
    let found = json(&args);
    assert_eq!(
        found["report"]["statuses"]["fine"]["failed"], 52,
        "{found:#}"
    );
    assert_eq!(found["report"]["statuses"]["fine"]["completed"], 5);
    assert_eq!(found["report"]["work"]["command fines.AddPenalty"], 52);
    assert_eq!(found["report"]["dead_letters"], serde_json::json!({}));
}

#[test]
fn graph_highlights_the_instance_position() {
    let file = format!("{ORDERS}/order.saga.yaml");
    assert!(command_output(&["graph", &file]).starts_with("exit 0\nflowchart TD\n"));
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state.json");
    std::fs::write(
        &state,
        r#"{"state":{"phase":"running","steps":[{"id":"reserve","state":"completed"}]}}"#,
    )
    .unwrap();
    let drawn = command_output(&[
        "graph",
        &file,
        "--format",
        "svg",
        "--state",
        state.to_str().unwrap(),
    ]);
    assert!(
        drawn.contains("<g class=\"completed\">") && drawn.contains("order version 1: running"),
        "{drawn}"
    );
}
