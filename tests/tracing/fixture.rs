//! A node that sends its spans to a collector, and how a tree of spans is looked at.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use orlog::telemetry::{Spans, Telemetry};
use orlog::{App, Config, Seams};
use orlog_testkit::otlp_collector::{Collector, Seen, listed};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::node::{Folders, Node};

/// The trace that the caller is in, and its span.
pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(crate) const CALLER: &str = "00f067aa0ba902b7";

/// The caller's `traceparent`.
pub(crate) fn caller(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

/// Starts a node on these folders that sends its spans; `more` changes the rest of its configuration.
pub(crate) async fn node(folders: &Folders, collector: &str, more: impl FnOnce(&mut Config)) -> Node {
    let mut config = Config {
        node: "node-1".to_owned(),
        data: folders.path("data"),
        definitions: Some(folders.path("definitions")),
        effects: Some(folders.path("effects")),
        ..Config::default()
    };
    config.telemetry.otlp_endpoint = collector.to_owned();
    more(&mut config);
    start(config, folders).await
}

pub(crate) async fn start(config: Config, folders: &Folders) -> Node {
    let spans = Spans::start(&config).unwrap();
    let seams = Seams { telemetry: Telemetry::of(spans), ..Seams::default() };
    let app = App::start_with(config, seams).await.unwrap();
    let router = orlog::api::router(Arc::clone(&app));
    Node { app, router, folder: Arc::clone(&folders.0) }
}

/// Publishes an event as somebody who is in a trace, or in none.
pub(crate) async fn publish(node: &Node, kind: &str, order: &str, trace: Option<&str>) {
    let event = json!({
        "specversion": "1.0", "id": format!("{kind}-{order}"), "source": "urn:test", "type": kind,
        "data": { "orderId": order },
    });
    let mut request = Request::builder().method(Method::POST).uri("/v1/events");
    request = request.header("content-type", "application/json").header("x-tenant-id", "acme");
    if let Some(trace) = trace {
        request = request.header("traceparent", trace);
    }
    let request = request.body(Body::from(event.to_string())).unwrap();
    let answer = node.router.clone().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
}

/// The spans of a name, in the order in which they began.
pub(crate) fn named<'a>(spans: &'a [Seen], name: &str) -> Vec<&'a Seen> {
    let mut found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    found.sort_by_key(|span| span.lasted.0);
    found
}

#[track_caller]
pub(crate) fn one<'a>(spans: &'a [Seen], name: &str) -> &'a Seen {
    match named(spans, name)[..] {
        [span] => span,
        ref others => panic!("{} spans are called {name:?}:\n{}", others.len(), listed(spans)),
    }
}

/// Each is the child of the one before, all of them in one trace.
#[track_caller]
pub(crate) fn check_line(spans: &[Seen], line: &[&Seen]) {
    for pair in line.windows(2) {
        let [above, below] = pair else { unreachable!("windows of two") };
        let found = (&below.trace, &below.parent);
        assert_eq!(
            found,
            (&above.trace, &above.span),
            "{} under {}:\n{}",
            below.name,
            above.name,
            listed(spans)
        );
    }
}

/// Waits until spans of these names have come.
pub(crate) async fn until(collector: &Arc<Collector>, names: &'static [&'static str]) -> Vec<Seen> {
    let collector = Arc::clone(collector);
    let there = |spans: &[Seen], name: &&str| spans.iter().any(|span| span.name == *name);
    let waiting = move || collector.spans_when(|spans| names.iter().all(|name| there(spans, name)));
    tokio::task::spawn_blocking(waiting).await.unwrap()
}

/// The value of an attribute.
pub(crate) fn attribute<'a>(span: &'a Seen, name: &str) -> &'a str {
    span.attributes.get(name).map_or("", String::as_str)
}

/// Asks as a worker does.
pub(crate) async fn say(node: &Node, path: &str, body: &Value) -> Value {
    let (status, answer) = node.ask(Method::POST, "acme", path, body).await;
    assert!(status.is_success(), "{status} {answer}");
    answer
}
