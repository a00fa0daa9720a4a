//! Node that exports its spans to a collector, and helpers to inspect a tree of spans.

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use orlog::Config;
use orlog::telemetry::{self, SpanExporter, TelemetryHandle};
use orlog_testkit::otlp_collector::{OtlpCollector, ReceivedSpan, format_spans};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::effects::node::{Dirs, Node};

/// Trace of the caller, and its span.
pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(crate) const CALLER: &str = "00f067aa0ba902b7";

/// Collector of the request spans of all nodes: `tracing` has one subscriber per process. The runtime exports them.
static REQUESTS: LazyLock<(OtlpCollector, Runtime)> = LazyLock::new(|| {
    let (collector, runtime) = (OtlpCollector::new(), Runtime::new().unwrap());
    let mut config = Config::default();
    config.telemetry.otlp_endpoint.clone_from(&collector.url);
    "off".clone_into(&mut config.log.filter);
    let guard = runtime.enter();
    telemetry::start(&config).unwrap();
    drop(guard);
    (collector, runtime)
});

/// Returns the caller's `traceparent`.
pub(crate) fn caller(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

/// Starts a node on these directories that exports its spans; `more` changes other settings of its
/// configuration.
pub(crate) async fn node(dirs: &Dirs, collector: &str, more: impl FnOnce(&mut Config)) -> Node {
    LazyLock::force(&REQUESTS);
    let builder = dirs.builder(|config| {
        "node-1".clone_into(&mut config.node_name);
        collector.clone_into(&mut config.telemetry.otlp_endpoint);
        more(config);
    });
    let spans = SpanExporter::start(&builder.config).unwrap();
    let telemetry = TelemetryHandle::from_config(spans);
    Node(
        builder
            .overrides(|overrides| overrides.telemetry = telemetry)
            .start()
            .await,
    )
}

/// Publishes an event with or without a trace of the caller.
pub(crate) async fn publish(node: &Node, kind: &str, order: &str, trace: Option<&str>) {
    let event = json!({
        "specversion": "1.0", "id": format!("{kind}-{order}"), "source": "urn:test", "type": kind,
        "data": { "orderId": order },
    });
    let mut request = Request::builder().method(Method::POST).uri("/v1/events");
    request = request
        .header("content-type", "application/json")
        .header("x-tenant-id", "acme");
    if let Some(trace) = trace {
        request = request.header("traceparent", trace);
    }
    let request = request.body(Body::from(event.to_string())).unwrap();
    assert_eq!(node.send(request).await.status, StatusCode::ACCEPTED);
}

/// Returns the spans with this name, in start order.
pub(crate) fn named<'a>(spans: &'a [ReceivedSpan], name: &str) -> Vec<&'a ReceivedSpan> {
    let mut found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    found.sort_by_key(|span| span.duration.0);
    found
}

#[track_caller]
pub(crate) fn one<'a>(spans: &'a [ReceivedSpan], name: &str) -> &'a ReceivedSpan {
    match named(spans, name)[..] {
        [span] => span,
        ref others => panic!(
            "{} spans are called {name:?}:\n{}",
            others.len(),
            format_spans(spans)
        ),
    }
}

/// Asserts that each span is the child of the previous one, all in one trace.
#[track_caller]
pub(crate) fn check_line(spans: &[ReceivedSpan], line: &[&ReceivedSpan]) {
    for pair in line.windows(2) {
        let [above, below] = pair else {
            unreachable!("windows of two")
        };
        let found = (&below.trace, &below.parent);
        assert_eq!(
            found,
            (&above.trace, &above.span),
            "{} under {}:\n{}",
            below.name,
            above.name,
            format_spans(spans)
        );
    }
}

/// Waits until spans with these names are received, and the spans of the requests that caused them.
pub(crate) async fn until(
    collector: &Arc<OtlpCollector>,
    names: &'static [&'static str],
) -> Vec<ReceivedSpan> {
    let collector = Arc::clone(collector);
    let there = |spans: &[ReceivedSpan], name: &&str| spans.iter().any(|span| span.name == *name);
    let waiting = move || {
        let mut spans = collector.spans_when(|spans| names.iter().all(|name| there(spans, name)));
        let is_ingest = |span: &&ReceivedSpan| span.name.starts_with("ingest ");
        let causes: Vec<String> = spans
            .iter()
            .filter(is_ingest)
            .map(|span| span.parent.clone())
            .collect();
        let requests = REQUESTS.0.spans_when(|requests| {
            causes
                .iter()
                .all(|cause| requests.iter().any(|request| request.span == *cause))
        });
        spans.extend(
            requests
                .into_iter()
                .filter(|request| causes.contains(&request.span)),
        );
        spans
    };
    tokio::task::spawn_blocking(waiting).await.unwrap()
}

/// Returns the value of an attribute.
pub(crate) fn attribute<'a>(span: &'a ReceivedSpan, name: &str) -> &'a str {
    span.attributes.get(name).map_or("", String::as_str)
}

/// Sends a request like a worker.
pub(crate) async fn post(node: &Node, path: &str, body: &Value) -> Value {
    let (status, response) = node.ask(Method::POST, "acme", path, body).await;
    assert!(status.is_success(), "{status} {response}");
    response
}
