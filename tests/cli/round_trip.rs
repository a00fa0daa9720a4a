//! The real binary from the first start to a restart: publish, look, instruct, drain, and everything is still there.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::node::{Node, run, until};

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
    do: { command: payments.Charge, data: { orderId: =vars.orderId } }
    ok: PaymentReceived
    timeout: 1h
completed: { fact: OrderCompleted }
";

struct Place {
    _folder: tempfile::TempDir,
    data: PathBuf,
    definitions: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let definitions = folder.path().join("definitions");
    std::fs::create_dir(&definitions).unwrap();
    std::fs::write(definitions.join("order.saga.yaml"), DEFINITION).unwrap();
    Place { data: folder.path().join("data"), definitions, _folder: folder }
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
    let answer = node.ask(&[&["saga", "list", "--limit", "1000"], filter].concat());
    answer["items"].as_array().unwrap().clone()
}

fn await_timers(node: &Node, count: usize) {
    until("timers", || {
        let timers = node.ask(&["timers", "--limit", "1000"]);
        (timers["items"].as_array().unwrap().len() == count).then_some(())
    });
}

#[test]
fn what_was_published_is_there_after_a_drain_and_a_restart() {
    let place = place();
    let node = Node::start(&place.data, &place.definitions);
    let published = node.feed(&["publish", "--batch", "7"], &orders(40));
    assert!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
    await_timers(&node, 40);
    let again: Value = serde_json::from_slice(&node.feed(&["publish"], &orders(40)).stdout).unwrap();
    assert_eq!(again, serde_json::json!({ "accepted": 40, "duplicates": 40 }));
    node.ask(&["saga", "signal", "order", "o-1", "--type", "PaymentReceived"]);
    node.ask(&["saga", "cancel", "order", "o-2", "--reason", "test"]);
    node.ask(&["saga", "pause", "order", "o-3"]);
    assert_eq!(node.end("TERM"), Some(0));

    let node = Node::start(&place.data, &place.definitions);
    assert_eq!(listed(&node, &[]).len(), 40);
    assert_eq!(listed(&node, &["--status", "running"]).len(), 38);
    let filter = "vars.orderId in ['o-1', 'o-5', 'o-6'] && waits.exists(w, w.name == 'PaymentReceived')";
    assert_eq!(listed(&node, &["--filter", filter]).len(), 2);
    let completed = node.ask(&["saga", "show", "order", "o-1"]);
    assert_eq!(completed["status"], "completed");
    let table = run(&["saga", "show", "order", "o-4", "--url", &node.url]);
    let table = String::from_utf8(table.stdout).unwrap();
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["STEP", "STATE", "UNTIL"]), "{table}");
    assert!(rows.contains(&vec!["reserve", "done"]), "{table}");
    assert!(rows.iter().any(|row| row.starts_with(&["pay", "running"]) && row.len() == 3), "{table}");
    let cancelled = until("the cancellation", || {
        let instance = node.ask(&["saga", "show", "order", "o-2"]);
        (instance["status"] == "cancelled").then_some(instance)
    });
    assert!(cancelled["history"]["items"].as_array().unwrap().len() >= 4);
    assert_eq!(node.ask(&["saga", "show", "order", "o-3"])["paused"], true);
    assert_eq!(node.ask(&["saga", "resume", "order", "o-3"])["paused"], false);
    assert_eq!(node.ask(&["drain"])["drained"], true);
    let mut node = node;
    assert_eq!(node.wait(), Some(0));

    let rows = run(&["inspect", "saga", "--limit", "1000", "--data", place.data.to_str().unwrap()]);
    assert_eq!(String::from_utf8(rows.stdout).unwrap().lines().count(), 40);
}

#[test]
fn what_was_published_is_there_after_a_kill() {
    let place = place();
    let node = Node::start(&place.data, &place.definitions);
    assert!(node.feed(&["publish"], &orders(100)).status.success());
    assert_eq!(node.end("KILL"), None);
    let node = Node::start(&place.data, &place.definitions);
    await_timers(&node, 100);
    assert_eq!(listed(&node, &["--status", "running"]).len(), 100);
}

#[test]
fn exit_codes_tell_what_is_missing_from_what_is_refused() {
    let place = place();
    let node = Node::start(&place.data, &place.definitions);
    let code = |args: &[&str]| run(&[args, &["--url", &node.url]].concat()).status.code();
    assert_eq!(code(&["saga", "show", "order", "nobody"]), Some(3));
    assert_eq!(code(&["saga", "cancel", "order", "nobody"]), Some(3));
    assert_eq!(code(&["dlq", "discard", "01a1fc56-d3e6-7bb9-8a01-32f8ab2806cf"]), Some(3));
    assert_eq!(code(&["dlq", "redrive"]), Some(2));
    assert_eq!(code(&["dlq", "redrive", "--reason", "schema_mismatch", "--canary", "1"]), Some(0));
    assert!(node.feed(&["publish"], &orders(1)).status.success());
    await_timers(&node, 1);
    assert_eq!(code(&["saga", "pause", "order", "o-0", "--expected-version", "77"]), Some(4));
    assert_eq!(code(&["saga", "retry", "order", "o-0"]), Some(4));
}

#[test]
fn a_wrong_event_is_refused_with_the_number_of_its_line() {
    let place = place();
    let node = Node::start(&place.data, &place.definitions);
    let input = format!("{}\n{{\"specversion\": \"1.0\", \"id\": \"x\"}}\n", orders(2));
    let refused = node.feed(&["publish"], &input);
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("line 4: the attribute"), "{error}");
}

#[test]
fn a_table_of_rows_becomes_events() {
    let place = place();
    let node = Node::start(&place.data, &place.definitions);
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
    assert!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
    let count = until("both orders", || Some(listed(&node, &[]).len()).filter(|count| *count == 2));
    assert_eq!(count, 2);
}
