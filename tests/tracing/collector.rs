//! Export of a real process: environment variables of OpenTelemetry, and a collector that does not respond.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use orlog_testkit::otlp_collector::OtlpCollector;
use orlog_testkit::wait::until_blocking;
use serde_json::json;

use super::fixture::{TRACE, attribute, caller};
use crate::cli::node::Node;

const DEFINITION: &str = "saga: order\nversion: 1\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    do: { effect: stock.reserve }\n";

fn start(dir: &Path, environment: &[(&str, &str)]) -> Node {
    std::fs::write(dir.join("order.saga.yaml"), DEFINITION).unwrap();
    Node::start_with(&dir.join("data"), dir, environment, &[])
}

/// Publishes an event over HTTP in the trace of a caller.
async fn publish(node: &Node) {
    let event = json!({
        "specversion": "1.0", "id": "e-1", "source": "test", "type": "OrderPlaced", "correlationid": "o-1", "data": {},
    });
    let request = orlog_effect::http::client()
        .build()
        .unwrap()
        .post(format!("{}/v1/events", node.url));
    let request = request
        .header("traceparent", caller("01"))
        .header("tracestate", "vendor=abc,other=1")
        .json(&event);
    request.send().await.unwrap().error_for_status().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn export_follows_the_environment_of_opentelemetry() {
    let (collector, dir) = (OtlpCollector::new(), tempfile::tempdir().unwrap());
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20abc%3D,x-scope=1",
        ),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test",
        ),
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("ORLOG_TELEMETRY__LOGS", "true"),
        ("ORLOG_LOG__FILTER", "debug"),
    ];
    let node = start(dir.path(), &environment);
    publish(&node).await;
    let spans =
        collector.spans_when(|spans| spans.iter().any(|span| span.name == "order succeeded"));
    let request = spans
        .iter()
        .find(|span| span.name == "POST /v1/events")
        .unwrap();
    assert_eq!((request.trace.as_str(), request.kind), (TRACE, 2));
    assert_eq!(request.trace_state, "vendor=abc,other=1");
    assert_eq!(attribute(request, "http.response.status_code"), "202");
    assert!(
        spans
            .iter()
            .all(|span| span.trace == TRACE || span.name == "commit"),
        "others are not sampled"
    );

    let line = collector.line_when(|line| line.body == "request completed" && line.trace == TRACE);
    assert_eq!(
        (line.span.as_str(), line.attributes["route"].as_str()),
        (request.span.as_str(), "/v1/events")
    );
    let resource = [
        "service.name",
        "deployment.environment.name",
        "telemetry.sdk.language",
    ];
    assert_eq!(
        resource.map(|name| line.resource[name].as_str()),
        ["shop", "test", "rust"]
    );
    for headers in collector.headers() {
        let sent =
            ["authorization", "x-scope", "content-encoding"].map(|name| headers[name].as_str());
        assert_eq!(sent, ["Bearer abc=", "1", "gzip"]);
    }
    assert_eq!(node.end("TERM"), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_collector_delays_neither_a_saga_nor_the_stop() {
    // It accepts connections and never responds.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, dir) = (
        format!("http://{}", listener.local_addr().unwrap()),
        tempfile::tempdir().unwrap(),
    );
    let environment = [
        ("ORLOG_TELEMETRY__OTLP_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "300"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "3"),
    ];
    let node = start(dir.path(), &environment);
    publish(&node).await;
    until_blocking("the saga ends", || {
        let instance = node.query(&["saga", "show", "order", "o-1"]);
        (instance["status"] == "completed").then_some(())
    });
    let metrics = orlog_effect::http::client()
        .build()
        .unwrap()
        .get(format!("{}/metrics", node.url));
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    assert!(
        metrics.contains("orlog_telemetry_spans_sent_total 0"),
        "{metrics}"
    );
    assert!(
        !metrics.contains("orlog_telemetry_spans_dropped_total 0"),
        "{metrics}"
    );
    let stopped = Instant::now();
    assert_eq!(node.end("TERM"), Some(0));
    assert!(
        stopped.elapsed() < Duration::from_secs(30),
        "{:?}",
        stopped.elapsed()
    );
}
