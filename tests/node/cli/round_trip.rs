//! The real binary from first start to restart: publish, inspect, control, drain; all data survives the
//! restart.

use std::fmt::Write as _;
use std::path::PathBuf;

use orlog_testkit::wait::until_blocking;
use serde_json::Value;

use crate::cli::node::{Node, run};
use crate::harness::process::orlog;

const DEFINITION: &str = "
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId }
steps:
  - id: reserve
    do: { effect: stock.reserve, data: { orderId: =vars.orderId } }
    undo: { effect: stock.release, data: { orderId: =vars.orderId } }
  - id: pay
    do: { event: PaymentReceived }
    timeout: 1h
completed: { fact: OrderCompleted }
";

struct CliFixture {
    _dir: tempfile::TempDir,
    data: PathBuf,
    definitions: PathBuf,
}

fn fixture() -> CliFixture {
    let dir = tempfile::tempdir().unwrap();
    let definitions = dir.path().join("definitions");
    std::fs::create_dir(&definitions).unwrap();
    std::fs::write(definitions.join("order.saga.yaml"), DEFINITION).unwrap();
    CliFixture {
        data: dir.path().join("data"),
        definitions,
        _dir: dir,
    }
}

fn orders(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        let event = serde_json::json!({
            "specversion": "1.0", "id": format!("e-{n}"), "source": "test", "type": "OrderPlaced",
            "data": { "orderId": format!("o-{n}") },
        });
        writeln!(text, "{event}").unwrap();
        text
    })
}

fn listed(node: &Node, filter: &[&str]) -> Vec<Value> {
    let response = node.query(&[&["saga", "list", "--limit", "1000"], filter].concat());
    response["items"].as_array().unwrap().clone()
}

fn await_timers(node: &Node, count: usize) {
    until_blocking("timers", || {
        let timers = node.query(&["timers", "--limit", "1000"]);
        (timers["items"].as_array().unwrap().len() == count).then_some(())
    });
}

#[test]
fn published_events_survive_drain_and_restart() {
    let fixture = fixture();
    let node = Node::start(&fixture.data, &fixture.definitions);
    let published = node.feed(&["publish", "--batch", "7"], &orders(40));
    assert!(
        published.status.success(),
        "{}",
        String::from_utf8_lossy(&published.stderr)
    );
    await_timers(&node, 40);
    let repeated: Value =
        serde_json::from_slice(&node.feed(&["publish"], &orders(40)).stdout).unwrap();
    assert_eq!(
        repeated,
        serde_json::json!({ "accepted": 40, "duplicates": 40, "unmatched": 0 })
    );
    let misspelt = orlog(&["saga", "list", "--saga", "ordr", "--url", &node.url])
        .output()
        .unwrap();
    let expected = "no instances; the saga `ordr` has no definition; did you mean `order`?\n";
    assert_eq!(String::from_utf8_lossy(&misspelt.stdout), expected);
    node.query(&[
        "saga",
        "signal",
        "order",
        "o-1",
        "--type",
        "PaymentReceived",
    ]);
    node.query(&["saga", "cancel", "order", "o-2", "--reason", "test"]);
    node.query(&["saga", "pause", "order", "o-3"]);
    assert_eq!(node.end("TERM"), Some(0));

    let node = Node::start(&fixture.data, &fixture.definitions);
    assert_eq!(listed(&node, &[]).len(), 40);
    assert_eq!(listed(&node, &["--status", "running"]).len(), 38);
    let filter =
        "vars.orderId in ['o-1', 'o-5', 'o-6'] && waits.exists(w, w.name == 'PaymentReceived')";
    assert_eq!(listed(&node, &["--filter", filter]).len(), 2);
    let completed = node.query(&["saga", "show", "order", "o-1"]);
    assert_eq!(completed["status"], "completed");
    let table = run(&["saga", "show", "order", "o-4", "--url", &node.url]);
    let table = String::from_utf8(table.stdout).unwrap();
    let rows: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(rows.contains(&vec!["STEP", "STATE", "DEADLINE"]), "{table}");
    assert!(rows.contains(&vec!["reserve", "completed"]), "{table}");
    assert!(
        rows.iter()
            .any(|row| row.starts_with(&["pay", "running"]) && row.len() == 3),
        "{table}"
    );
    let cancelled = until_blocking("the cancellation", || {
        let instance = node.query(&["saga", "show", "order", "o-2"]);
        (instance["status"] == "cancelled").then_some(instance)
    });
    assert!(cancelled["history"]["items"].as_array().unwrap().len() >= 4);
    assert_eq!(
        node.query(&["saga", "show", "order", "o-3"])["paused"],
        true
    );
    assert_eq!(
        node.query(&["saga", "resume", "order", "o-3"])["paused"],
        false
    );
    assert_eq!(node.query(&["drain"])["drained"], true);
    let mut node = node;
    assert_eq!(node.wait(), Some(0));

    let rows = run(&[
        "inspect",
        "saga",
        "--limit",
        "1000",
        "--data-dir",
        fixture.data.to_str().unwrap(),
    ]);
    assert_eq!(String::from_utf8(rows.stdout).unwrap().lines().count(), 40);
}

#[test]
fn published_events_survive_kill() {
    let fixture = fixture();
    let node = Node::start(&fixture.data, &fixture.definitions);
    assert!(node.feed(&["publish"], &orders(100)).status.success());
    assert_eq!(node.end("KILL"), None);
    let node = Node::start(&fixture.data, &fixture.definitions);
    await_timers(&node, 100);
    assert_eq!(listed(&node, &["--status", "running"]).len(), 100);
}

#[test]
fn exit_codes_distinguish_not_found_from_rejected() {
    let fixture = fixture();
    let node = Node::start(&fixture.data, &fixture.definitions);
    let code = |args: &[&str]| run(&[args, &["--url", &node.url]].concat()).status.code();
    assert_eq!(code(&["saga", "show", "order", "unknown"]), Some(3));
    assert_eq!(code(&["saga", "cancel", "order", "unknown"]), Some(3));
    assert_eq!(
        code(&["dlq", "discard", "01a1fc56-d3e6-7bb9-8a01-32f8ab2806cf"]),
        Some(3)
    );
    assert_eq!(code(&["dlq", "redrive"]), Some(2));
    assert_eq!(
        code(&[
            "dlq",
            "redrive",
            "--reason",
            "schema_mismatch",
            "--canary",
            "1"
        ]),
        Some(0)
    );
    assert!(node.feed(&["publish"], &orders(1)).status.success());
    await_timers(&node, 1);
    assert_eq!(
        code(&["saga", "pause", "order", "o-0", "--expected-version", "77"]),
        Some(4)
    );
    assert_eq!(code(&["saga", "retry", "order", "o-0"]), Some(4));
}

#[test]
fn start_and_result_exit_with_the_result_of_the_instance() {
    let fixture = fixture();
    let node = Node::start(&fixture.data, &fixture.definitions);
    let code = |args: &[&str]| run(&[args, &["--url", &node.url]].concat()).status.code();
    let started = node.query(&["saga", "start", "order", "--data", r#"{"orderId":"o-1"}"#]);
    assert_eq!(
        (&started["correlation"], &started["existing"]),
        (&"o-1".into(), &false.into())
    );
    let file = fixture.data.with_file_name("order.json");
    std::fs::write(&file, r#"{"orderId":"o-2"}"#).unwrap();
    let data = format!("@{}", file.display());
    let waited = ["saga", "start", "order", "--data", &data, "--wait", "1ms"];
    assert_eq!(code(&waited), Some(5), "it has not ended");
    assert_eq!(
        code(&[
            "saga",
            "start",
            "order",
            "--data",
            &data,
            "--on-existing",
            "fail"
        ]),
        Some(4)
    );
    assert_eq!(code(&["saga", "start", "order", "--data", "{"]), Some(2));
    assert_eq!(code(&["saga", "result", "order", "none"]), Some(3));
    await_timers(&node, 2);
    let again = [
        "saga",
        "start",
        "order",
        "--data",
        r#"{"orderId":"o-3"}"#,
        "--idempotency-key",
        "k-1",
    ];
    assert_eq!(node.query(&again)["existing"], false);
    // A repetition of the request is accepted, although the instance exists.
    assert_eq!(
        code(&[&again[..], &["--on-existing", "fail"]].concat()),
        Some(0)
    );
    assert_eq!(
        code(&[
            "saga",
            "start",
            "order",
            "--data",
            r#"{"orderId":"o-3"}"#,
            "--on-existing",
            "fail"
        ]),
        Some(4)
    );
    node.query(&[
        "saga",
        "signal",
        "order",
        "o-1",
        "--type",
        "PaymentReceived",
    ]);
    let result = node.query(&["saga", "result", "order", "o-1", "--wait"]);
    assert_eq!(
        (&result["status"], &result["result"]["event"]),
        (&"completed".into(), &"OrderCompleted".into())
    );
    assert_eq!(
        node.query(&["saga", "show", "order", "o-1"])["result"],
        result["result"]
    );
    let shown = run(&["saga", "show", "order", "o-1", "--url", &node.url]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("result          OrderCompleted"), "{shown}");
    node.query(&["saga", "cancel", "order", "o-2"]);
    assert_eq!(
        code(&["saga", "result", "order", "o-2", "--wait", "90s"]),
        Some(1)
    );
}

#[test]
fn signal_starts_its_instance_with_the_given_data() {
    let fixture = fixture();
    let node = Node::start(&fixture.data, &fixture.definitions);
    let code = |args: &[&str]| run(&[args, &["--url", &node.url]].concat()).status.code();
    let signal = [
        "saga",
        "signal",
        "order",
        "o-9",
        "--type",
        "PaymentReceived",
    ];
    assert_eq!(code(&signal), Some(3), "the instance does not exist");
    let start = [
        "--start",
        r#"{"orderId":"o-9"}"#,
        "--start-event",
        "OrderPlaced",
        "--id",
        "s-1",
    ];
    node.query(&[&signal[..], &start].concat());
    let result = node.query(&["saga", "result", "order", "o-9", "--wait"]);
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(
        code(&[&signal[..], &start].concat()),
        Some(0),
        "the request is a duplicate"
    );
    assert_eq!(
        code(&[&signal[..], &["--on-existing", "restart"]].concat()),
        Some(2),
        "it requires --start"
    );
    assert_eq!(code(&[&signal[..], &["--start", "{"]].concat()), Some(2));
}

#[test]
fn invalid_event_is_rejected_with_its_line_number() {
    let fixture = fixture();
    let node = Node::start(&fixture.data, &fixture.definitions);
    let input = format!(
        "{}\n{{\"specversion\": \"1.0\", \"id\": \"x\"}}\n",
        orders(2)
    );
    let rejected = node.feed(&["publish"], &input);
    assert_eq!(rejected.status.code(), Some(1));
    let error = String::from_utf8(rejected.stderr).unwrap();
    assert!(
        error.contains("line 4: attribute type is missing"),
        "{error}"
    );
}

#[test]
fn csv_rows_become_events() {
    let fixture = fixture();
    let node = Node::start(&fixture.data, &fixture.definitions);
    let table = "orderId,when,amount\no-1,2026-11-21,35.0\no-2,2026-11-21 08:30:00,7\n";
    let args = [
        "publish",
        "--csv",
        "--type",
        "OrderPlaced",
        "--correlation-column",
        "orderId",
        "--time-column",
        "when",
    ];
    let columns = ["--data-columns", "orderId,amount"];
    let published = node.feed(&[&args[..], &columns].concat(), table);
    assert!(
        published.status.success(),
        "{}",
        String::from_utf8_lossy(&published.stderr)
    );
    let count = until_blocking("both orders", || {
        Some(listed(&node, &[]).len()).filter(|count| *count == 2)
    });
    assert_eq!(count, 2);
}
