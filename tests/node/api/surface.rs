//! The complete API: routes and their description, uniform errors, health, metrics, serving.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::api::node::{Node, PANICS, placed};
use crate::harness::http::HttpResponse;

const ROUTES: [&str; 135] = [
    "DELETE /admin/backup/{id}",
    "DELETE /admin/log",
    "DELETE /v1/contexts/{tenant}",
    "DELETE /v1/dead-letters/{id}",
    "DELETE /v1/peers/{peer}",
    "DELETE /v1/runners/{name}",
    "DELETE /v1/schedules/{name}",
    "GET /",
    "GET /.well-known/orlog-node",
    "GET /admin/backup/{id}/files/{path}",
    "GET /admin/diagnostics",
    "GET /admin/log",
    "GET /auth/callback",
    "GET /auth/caller",
    "GET /auth/login",
    "GET /errors/{code}",
    "GET /health",
    "GET /info",
    "GET /metrics",
    "GET /openapi.json",
    "GET /ready",
    "GET /ui/views/{file}",
    "GET /ui/{file}",
    "GET /v1/actors",
    "GET /v1/actors/{actor}",
    "GET /v1/audit",
    "GET /v1/batches",
    "GET /v1/batches/{id}",
    "GET /v1/contexts",
    "GET /v1/contexts/{tenant}",
    "GET /v1/dead-letters",
    "GET /v1/dead-letters/causes",
    "GET /v1/dead-letters/{id}",
    "GET /v1/definitions",
    "GET /v1/definitions/{saga}",
    "GET /v1/definitions/{saga}/graph.svg",
    "GET /v1/export",
    "GET /v1/flows",
    "GET /v1/flows/{id}",
    "GET /v1/flows/{id}/lines",
    "GET /v1/inspect/{table}",
    "GET /v1/mailboxes",
    "GET /v1/messages",
    "GET /v1/messages/{id}",
    "GET /v1/overview",
    "GET /v1/peers",
    "GET /v1/peers/{peer}",
    "GET /v1/runners",
    "GET /v1/sagas",
    "GET /v1/sagas/{saga}/{correlation}",
    "GET /v1/sagas/{saga}/{correlation}/graph.svg",
    "GET /v1/sagas/{saga}/{correlation}/job-logs",
    "GET /v1/sagas/{saga}/{correlation}/result",
    "GET /v1/schedules",
    "GET /v1/schedules/{name}",
    "GET /v1/shadows",
    "GET /v1/shadows/{saga}",
    "GET /v1/tasks",
    "GET /v1/tasks/{id}",
    "GET /v1/timers",
    "GET /v1/work",
    "GET /v1/work/exchange",
    "GET /v1/work/waiting",
    "POST /admin/backup",
    "POST /admin/collect",
    "POST /admin/deploy",
    "POST /admin/drain",
    "POST /admin/reload",
    "POST /auth/logout",
    "POST /v1/actors",
    "POST /v1/actors/{actor}/enroll",
    "POST /v1/actors/{actor}/invitation",
    "POST /v1/actors/{actor}/keys",
    "POST /v1/actors/{actor}/keys/{key}/revoke",
    "POST /v1/batches",
    "POST /v1/batches/{id}/pause",
    "POST /v1/batches/{id}/resume",
    "POST /v1/batches/{id}/stop",
    "POST /v1/contexts/{tenant}/definitions",
    "POST /v1/contexts/{tenant}/definitions/collect",
    "POST /v1/dead-letters/redrive",
    "POST /v1/dead-letters/{id}/redrive",
    "POST /v1/definitions/{saga}/migrate",
    "POST /v1/events",
    "POST /v1/flows",
    "POST /v1/flows/{id}/cancel",
    "POST /v1/flows/{id}/jobs/{job}/rerun",
    "POST /v1/flows/{id}/retry",
    "POST /v1/messages",
    "POST /v1/messages/{id}/acknowledge",
    "POST /v1/messages/{id}/cancel",
    "POST /v1/messages/{id}/lines",
    "POST /v1/messages/{id}/process",
    "POST /v1/messages/{id}/reject",
    "POST /v1/node-documents",
    "POST /v1/peer/check",
    "POST /v1/peer/messages",
    "POST /v1/peers",
    "POST /v1/peers/{peer}/check",
    "POST /v1/peers/{peer}/keys",
    "POST /v1/peers/{peer}/keys/{key}/revoke",
    "POST /v1/peers/{peer}/refresh",
    "POST /v1/replays",
    "POST /v1/runners",
    "POST /v1/sagas/{saga}",
    "POST /v1/sagas/{saga}/{correlation}/cancel",
    "POST /v1/sagas/{saga}/{correlation}/drop",
    "POST /v1/sagas/{saga}/{correlation}/force-complete",
    "POST /v1/sagas/{saga}/{correlation}/pause",
    "POST /v1/sagas/{saga}/{correlation}/resume",
    "POST /v1/sagas/{saga}/{correlation}/signal",
    "POST /v1/sagas/{saga}/{correlation}/skip",
    "POST /v1/schedules/{name}/pause",
    "POST /v1/schedules/{name}/resume",
    "POST /v1/schedules/{name}/trigger",
    "POST /v1/shadows",
    "POST /v1/shadows/{saga}/promote",
    "POST /v1/shadows/{saga}/stop",
    "POST /v1/tasks/{id}/assign",
    "POST /v1/tasks/{id}/claim",
    "POST /v1/tasks/{id}/complete",
    "POST /v1/tasks/{id}/release",
    "POST /v1/webhooks/{name}",
    "POST /v1/work/claim",
    "POST /v1/work/exchange",
    "POST /v1/work/fetch",
    "POST /v1/work/jobs/{job}/claim",
    "POST /v1/work/jobs/{job}/heartbeat",
    "POST /v1/work/jobs/{job}/logs",
    "POST /v1/work/jobs/{job}/result",
    "PUT /admin/log",
    "PUT /v1/actors/{actor}",
    "PUT /v1/contexts/{tenant}",
    "PUT /v1/peers/{peer}",
    "PUT /v1/schedules/{name}",
];

/// Returns the routes of the description, as `METHOD path`.
fn described(description: &Value) -> Vec<String> {
    let paths = description["paths"].as_object().unwrap().iter();
    let mut routes: Vec<String> = paths
        .flat_map(|(path, item)| {
            let methods = item
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| !["parameters", "summary"].contains(&key.as_str()));
            methods
                .map(move |method| format!("{} {path}", method.to_uppercase()))
                .collect::<Vec<_>>()
        })
        .collect();
    routes.sort();
    routes
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_document_covers_every_route() {
    let node = Node::start().await;
    let description = node.get("/openapi.json").await.ok();
    assert_eq!(description["openapi"], "3.1.0");
    let mut routes: Vec<String> = ROUTES.map(str::to_owned).into();
    routes.push("POST /v1/sagas/{saga}/{correlation}/retry".to_owned());
    routes.sort();
    assert_eq!(described(&description), routes);
    assert_eq!(
        description,
        serde_json::to_value(orlog::api::openapi()).unwrap()
    );
    for (path, item) in description["paths"].as_object().unwrap() {
        let filled = path
            .replace("{saga}", "order")
            .replace("{correlation}", "c")
            .replace("{id}", "1")
            .replace("{name}", "s")
            .replace("{tenant}", "acme")
            .replace("{actor}", "robo")
            .replace("{peer}", "b")
            .replace("{key}", "k")
            .replace("{table}", "saga");
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ] {
            let name = method.as_str().to_lowercase();
            if path == "/admin/drain" {
                continue;
            }
            let response = node.ask(method, "", &filled, Body::empty()).await;
            let takes_it = response.status != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(
                takes_it,
                item.get(&name).is_some(),
                "{name} {path}: {response:?}"
            );
            if !takes_it {
                response.problem("OR0010");
                assert!(response.headers.contains_key("allow"), "{name} {path}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_rejects_unknown_query_parameters() {
    let node = Node::start().await;
    let description = node.get("/openapi.json").await.ok();
    // Others choose their parameters.
    let open = ["/", "/auth/callback", "/v1/webhooks/{name}"];
    for (path, item) in description["paths"].as_object().unwrap() {
        let filled = path.replace(['{', '}'], "");
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let uri = format!("{filled}?not_a_parameter=1");
            let response = node.ask(method.clone(), "", &uri, Body::empty()).await;
            let names_it = response.text.contains("unknown field `not_a_parameter`");
            assert_eq!(
                names_it,
                !open.contains(&path.as_str()) && !is_forbidden(&response),
                "{method} {path}: {response:?}"
            );
        }
    }
}

/// Returns whether the node rejects a request before it reads the query: those of peers need a
/// signature.
fn is_forbidden(response: &HttpResponse) -> bool {
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&response.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_belongs_to_its_list() {
    let node = Node::start().await;
    for id in ["o-1", "o-2"] {
        node.order("", id, 5, "running").await;
    }
    let page = node.get("/v1/sagas?limit=1").await.ok();
    let cursor = page["next_cursor"].as_str().unwrap();
    let next = node
        .get(&format!("/v1/sagas?limit=1&cursor={cursor}"))
        .await;
    assert_eq!(next.ok()["items"][0]["correlation"], "o-2");
    for list in [
        "flows",
        "batches",
        "schedules",
        "shadows",
        "messages",
        "timers",
    ] {
        let other = node.get(&format!("/v1/{list}?cursor={cursor}")).await;
        other.problem("OR0008");
        assert!(
            other.text.contains("not a cursor of this list"),
            "{other:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_documents_errors_and_tenant_header() {
    let description = serde_json::to_value(orlog::api::openapi()).unwrap();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let default = &operation["responses"]["default"]["$ref"];
            assert_eq!(default, "#/components/responses/Problem", "{method} {path}");
            assert!(operation["summary"].is_string(), "{method} {path}");
            let parameters = operation["parameters"].to_string();
            // The configuration determines the tenant of a webhook, the path that of a context. Actors and peers have none.
            let without = [
                "/v1/webhooks/",
                "/v1/contexts",
                "/v1/actors",
                "/v1/peer",
                "/v1/node-documents",
            ];
            let has_tenant =
                path.starts_with("/v1/") && !without.iter().any(|start| path.starts_with(start));
            assert_eq!(
                parameters.contains("x-tenant-id"),
                has_tenant,
                "{method} {path}"
            );
        }
    }
    let text = description.to_string();
    let schemas = description["components"]["schemas"].as_object().unwrap();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(
            schemas.contains_key(name),
            "{name} is named and not described"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_path_returns_a_problem() {
    let node = Node::start().await;
    for path in [
        "/nothing",
        "/v1",
        "/v1/sagas/order/",
        "/v1/sagas/a/b/c/d",
        "/errors/OR9999",
    ] {
        let response = node.get(path).await;
        assert_eq!(response.status, StatusCode::NOT_FOUND, "{path}");
        response.problem("OR0009");
    }
    let page = node.get("/errors/OR0009").await;
    assert!(
        page.text.starts_with("# OR0009 · Route not found"),
        "{page:?}"
    );
    assert!(
        node.get("/").await.ok()["links"]
            .to_string()
            .contains("/openapi.json")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn request_id_is_preserved() {
    let node = Node::start().await;
    let request = Request::get("/v1/sagas")
        .header("x-request-id", "abc-1")
        .body(Body::empty())
        .unwrap();
    assert_eq!(node.send(request).await.headers["x-request-id"], "abc-1");
    let (first, second) = (node.get("/v1/sagas").await, node.get("/v1/sagas").await);
    assert_ne!(
        first.headers["x-request-id"],
        second.headers["x-request-id"]
    );
}

/// Requirements: R16.
#[tokio::test(flavor = "multi_thread")]
async fn health_info_and_metrics_report_node_state() {
    let node = Node::start().await;
    node.order("acme", "o-1", 5, "running").await;
    let health = node.get("/health").await.ok();
    for part in ["store", "bus", "shards"] {
        assert_eq!(health[part]["status"], "ok", "{health}");
    }
    let info = node.get("/info").await.ok();
    assert_eq!(info["sagas"][0]["name"], "order");
    assert_eq!(info["effects"]["test.charge"], "bank");
    let request = Request::builder()
        .uri("/metrics")
        .header("accept", "application/openmetrics-text");
    let metrics = node.send(request.body(Body::empty()).unwrap()).await;
    assert!(
        metrics.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    for line in [
        "orlog_events_ingested_total ",
        "orlog_outbox_depth{shard=\"0\",kind=\"effect\"} ",
        "orlog_breaker_state{upstream=\"gateway\"} 0\n",
        "orlog_node_accepting 1\n",
        "orlog_http_requests_total{route=\"/v1/events\",method=\"POST\",status=\"202\"} 1\n",
        "orlog_http_request_seconds_count{route=\"/health\"} 1\n",
    ] {
        assert!(
            metrics.text.contains(line),
            "{line} is not in\n{}",
            metrics.text
        );
    }
    assert_eq!(metrics.text.matches("# EOF").count(), 1);
    assert!(metrics.text.ends_with("# EOF\n"));
    let types: Vec<&str> = metrics
        .text
        .lines()
        .filter(|line| line.starts_with("# TYPE"))
        .collect();
    let unique: std::collections::BTreeSet<_> = types.iter().collect();
    assert_eq!(types.len(), unique.len(), "a metric is declared twice");
    assert_eq!(
        node.get("/v1/mailboxes").await.ok(),
        json!({ "items": [], "next_cursor": null })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_handler_returns_a_problem_without_details() {
    let node = Node::start().await;
    PANICS.set(true);
    let response = node.post("/v1/events", &placed("o-1", 5)).await;
    PANICS.set(false);
    assert_eq!(response.status, StatusCode::INTERNAL_SERVER_ERROR);
    response.problem("OR0021");
    assert!(
        !response.text.contains("the clock is broken"),
        "{response:?}"
    );
    node.post("/v1/events", &placed("o-1", 5)).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_completes_in_flight_requests() {
    let node = Node::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async { stopped.await.unwrap_or(()) };
    let server = tokio::spawn(orlog::api::serve(Arc::clone(&node.app), listener, shutdown));
    let body = placed("o-1", 5).to_string();
    let (first, rest) = body.split_at(20);
    let header = format!(
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{header}{first}").as_bytes())
        .await
        .unwrap();
    let mut other = TcpStream::connect(address).await.unwrap();
    other
        .write_all(b"GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    assert!(read(&mut other).await.starts_with("HTTP/1.1 200"));
    stop.send(()).unwrap();
    stream.write_all(rest.as_bytes()).await.unwrap();
    assert!(read(&mut stream).await.starts_with("HTTP/1.1 202"));
    tokio::time::timeout(WAIT_TIMEOUT, server)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn non_http_connection_is_closed() {
    let node = Node::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async { stopped.await.unwrap_or(()) };
    let server = tokio::spawn(orlog::api::serve(Arc::clone(&node.app), listener, shutdown));
    for (bytes, response) in [
        (b"\x16\x03\x01 hello\r\n\r\n".to_vec(), "HTTP/1.1 400"),
        (
            format!(
                "GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
                "y".repeat(2_000_000)
            )
            .into_bytes(),
            "HTTP/1.1 431",
        ),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        drop(stream.write_all(&bytes).await);
        let text = read(&mut stream).await;
        assert!(
            text.is_empty() || text.starts_with(response),
            "{response}: {text}"
        );
    }
    stop.send(()).unwrap();
    tokio::time::timeout(WAIT_TIMEOUT, server)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

/// Reads until the server closes the connection; ignores connection resets.
async fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let closed = tokio::time::timeout(WAIT_TIMEOUT, stream.read_to_end(&mut bytes)).await;
    assert!(
        closed.is_ok(),
        "still open after {:?}",
        String::from_utf8_lossy(&bytes)
    );
    String::from_utf8_lossy(&bytes).into_owned()
}
