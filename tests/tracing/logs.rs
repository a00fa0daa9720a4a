//! The log of a real process: as lines for programs, at the collector, and with levels that change while it runs.

use std::sync::Arc;

use orlog_testkit::otlp_collector::{Collector, Seen};
use serde_json::json;

use crate::fixture::TRACE;
use crate::process::{Node, run, until};

const DEFINITION: &str = "saga: order\nversion: 1\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    do: { effect: stock.reserve }\n";

fn event(id: &str, kind: &str) -> String {
    let event = json!({
        "specversion": "1.0", "id": id, "source": "test", "type": kind, "correlationid": "o-1",
        "traceparent": format!("00-{TRACE}-00f067aa0ba902b7-01"), "data": { "secret": "canary-1f" },
    });
    event.to_string()
}

fn level(node: &Node, args: &[&str]) -> serde_json::Value {
    node.ask(&[&["log-level"], args].concat())
}

#[test]
fn lines_go_to_the_collector_with_their_instance_and_levels_change_while_it_runs() {
    let collector = Arc::new(Collector::new());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("order.saga.yaml"), DEFINITION).unwrap();
    let environment = [
        ("ORLOG_TELEMETRY__OTLP_ENDPOINT", collector.url.as_str()),
        ("ORLOG_TELEMETRY__LOGS", "true"),
        ("ORLOG_NODE", "teller"),
    ];
    let node = Node::start_with(&folder.path().join("data"), folder.path(), &environment);
    let line = collector.line_when(|line| line.body == "serving HTTP");
    assert_eq!((line.level.as_str(), line.resource["service.name"].as_str()), ("INFO", "orlog"));
    assert_eq!(line.resource["service.instance.id"], "teller");

    assert_eq!(level(&node, &[])["filter"], "info");
    let changed = level(&node, &["info,orlog_actors=debug"]);
    assert_eq!((&changed["filter"], &changed["until"]), (&json!("info,orlog_actors=debug"), &json!(null)));
    assert!(node.feed(&["publish"], &event("e-1", "OrderPlaced")).status.success());
    // Published once more under another id, it means nothing to an instance that has begun.
    assert!(node.feed(&["publish"], &event("e-2", "OrderPlaced")).status.success());
    let line = collector.line_when(|line| line.body == "ignored");
    assert_eq!((line.trace.as_str(), line.level.as_str()), (TRACE, "DEBUG"));
    let of = ["tenant", "saga", "correlation", "trace_id"].map(|name| line.attributes[name].as_str());
    assert_eq!(of, ["", "order", "o-1", TRACE]);
    let spans = collector.spans_when(|spans| {
        let is_ignored = |span: &Seen| span.attributes.contains_key("orlog.ignored");
        spans.iter().any(is_ignored) && spans.iter().any(|span| span.name == "order succeeded")
    });
    let ignored = spans.iter().find(|span| span.attributes.contains_key("orlog.ignored")).unwrap();
    let ingest = spans.iter().find(|span| span.span == ignored.parent).unwrap();
    assert_eq!((ignored.name.as_str(), ingest.name.as_str()), ("order OrderPlaced", "ingest OrderPlaced"));
    assert_eq!(ingest.attributes["messaging.message.id"], "e-2");
    assert!(!format!("{line:?}{spans:?}").contains("canary"), "payloads are neither in lines nor in spans");

    let passing = level(&node, &["trace", "--for", "300ms"]);
    assert_eq!((&passing["filter"], passing["until"].is_string()), (&json!("trace"), true));
    let back = until("the configured filter is back", || {
        let now = level(&node, &[]);
        (now["filter"] == "info").then_some(now)
    });
    assert_eq!((&back["configured"], &back["until"]), (&json!("info"), &json!(null)));
    level(&node, &["debug"]);
    assert_eq!(level(&node, &["--reset"])["filter"], "info");
    for (args, why) in [(["log-level", "orlog=loud"], "no filter"), (["log-level", " "], "an empty filter")] {
        let refused = run(&[&args[..], &["--url", &node.url]].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
    // Who changes what is logged stands in the audit trail.
    let trail = node.ask(&["audit", "--all", "--route", "/admin/log"]);
    let records = trail["items"].as_array().unwrap();
    let told = |record: &serde_json::Value| format!("{} {}", record["route"], record["outcome"]);
    let told: Vec<String> = records.iter().map(told).collect();
    let [put, delete] = ["PUT", "DELETE"].map(|method| format!("\"{method} /admin/log\""));
    let expected = [
        format!("{put} \"refused\""),
        format!("{put} \"refused\""),
        format!("{delete} \"done\""),
        format!("{put} \"done\""),
        format!("{put} \"done\""),
        format!("{put} \"done\""),
    ];
    assert_eq!(told, expected);
    assert_eq!(node.end("TERM"), Some(0));
    drop(collector.line_when(|line| line.body == "stopped"));
}
