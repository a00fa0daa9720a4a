//! Log of a real process: as JSON lines, at the collector, and with a filter that changes at run time.

use std::sync::Arc;

use orlog_testkit::otlp_collector::{OtlpCollector, ReceivedSpan};
use orlog_testkit::wait::until_blocking;
use serde_json::json;

use super::fixture::TRACE;
use crate::cli::node::{Node, run};

const DEFINITION: &str = "saga: order\nversion: 1\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    do: { effect: stock.reserve }\n";

fn event(id: &str, kind: &str) -> String {
    let event = json!({
        "specversion": "1.0", "id": id, "source": "test", "type": kind, "correlationid": "o-1",
        "traceparent": format!("00-{TRACE}-00f067aa0ba902b7-01"), "data": { "secret": "canary-1f" },
    });
    event.to_string()
}

fn level(node: &Node, args: &[&str]) -> serde_json::Value {
    node.query(&[&["log-level"], args].concat())
}

#[test]
fn logs_are_exported_with_instance_fields_and_levels_change_at_runtime() {
    let collector = Arc::new(OtlpCollector::new());
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("order.saga.yaml"), DEFINITION).unwrap();
    let environment = [
        ("ORLOG_TELEMETRY__OTLP_ENDPOINT", collector.url.as_str()),
        ("ORLOG_TELEMETRY__LOGS", "true"),
        ("ORLOG_NODE_NAME", "teller"),
    ];
    let node = Node::start_with(&dir.path().join("data"), dir.path(), &environment, &[]);
    let line = collector.line_when(|line| line.body == "serving HTTP");
    assert_eq!(
        (line.level.as_str(), line.resource["service.name"].as_str()),
        ("INFO", "orlog")
    );
    assert_eq!(line.resource["service.instance.id"], "teller");

    assert_eq!(level(&node, &[])["filter"], "info");
    let changed = level(&node, &["info,orlog_actors=debug"]);
    assert_eq!(
        (&changed["filter"], &changed["until"]),
        (&json!("info,orlog_actors=debug"), &json!(null))
    );
    assert!(
        node.feed(&["publish"], &event("e-1", "OrderPlaced"))
            .status
            .success()
    );
    // Published again under another id, a started instance ignores it.
    assert!(
        node.feed(&["publish"], &event("e-2", "OrderPlaced"))
            .status
            .success()
    );
    let line = collector.line_when(|line| line.body == "ignored");
    assert_eq!((line.trace.as_str(), line.level.as_str()), (TRACE, "DEBUG"));
    let of =
        ["tenant", "saga", "correlation", "trace_id"].map(|name| line.attributes[name].as_str());
    assert_eq!(of, ["", "order", "o-1", TRACE]);
    let spans = collector.spans_when(|spans| {
        let is_ignored = |span: &ReceivedSpan| span.attributes.contains_key("orlog.ignored_reason");
        spans.iter().any(is_ignored) && spans.iter().any(|span| span.name == "order succeeded")
    });
    let ignored = spans
        .iter()
        .find(|span| span.attributes.contains_key("orlog.ignored_reason"))
        .unwrap();
    let ingest = spans
        .iter()
        .find(|span| span.span == ignored.parent)
        .unwrap();
    assert_eq!(
        (ignored.name.as_str(), ingest.name.as_str()),
        ("order OrderPlaced", "ingest OrderPlaced")
    );
    assert_eq!(ingest.attributes["messaging.message.id"], "e-2");
    assert!(
        !format!("{line:?}{spans:?}").contains("canary"),
        "payloads are neither in lines nor in spans"
    );

    let temporary = level(&node, &["trace", "--for", "300ms"]);
    assert_eq!(
        (&temporary["filter"], temporary["until"].is_string()),
        (&json!("trace"), true)
    );
    let back = until_blocking("the configured filter is back", || {
        let now = level(&node, &[]);
        (now["filter"] == "info").then_some(now)
    });
    assert_eq!(
        (&back["configured"], &back["until"]),
        (&json!("info"), &json!(null))
    );
    level(&node, &["debug"]);
    assert_eq!(level(&node, &["--reset"])["filter"], "info");
    for (args, reason) in [
        (["log-level", "orlog=loud"], "is not a filter"),
        (["log-level", " "], "an empty filter logs nothing; use one"),
    ] {
        let rejected = run(&[&args[..], &["--url", &node.url]].concat());
        let errors = String::from_utf8_lossy(&rejected.stderr).into_owned();
        assert!(
            !rejected.status.success() && errors.contains(reason),
            "{errors}"
        );
    }
    // Changes of the log filter are recorded in the audit log.
    let trail = node.query(&["audit", "--all", "--route", "/admin/log"]);
    let records = trail["items"].as_array().unwrap();
    let recorded =
        |record: &serde_json::Value| format!("{} {}", record["route"], record["outcome"]);
    let recorded: Vec<String> = records.iter().map(recorded).collect();
    let [put, delete] = ["PUT", "DELETE"].map(|method| format!("\"{method} /admin/log\""));
    let expected = [
        format!("{put} \"rejected\""),
        format!("{put} \"rejected\""),
        format!("{delete} \"succeeded\""),
        format!("{put} \"succeeded\""),
        format!("{put} \"succeeded\""),
        format!("{put} \"succeeded\""),
    ];
    assert_eq!(recorded, expected);
    assert_eq!(node.end("TERM"), Some(0));
    drop(collector.line_when(|line| line.body == "stopped"));
}
