//! Invalid and hostile input: a clear error with its location, and no effect.
//!
//! Size: tables of invalid inputs and their messages.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use crate::api::node::{Node, event, placed};

/// Asserts a rejection with this code and text, and that no event was published.
async fn check(node: &Node, request: Request<Body>, code: &str, text: &str) {
    let before = node.app.bus.last_sequence().await.unwrap();
    let label = format!("{} {}", request.method(), request.uri());
    let response = node.send(request).await;
    assert_eq!(
        response.headers["content-type"], "application/problem+json",
        "{label}: {response:?}"
    );
    assert!(
        response.text.contains(text),
        "{label}: {text:?} is not in {}",
        response.text
    );
    response.problem(code);
    assert_eq!(
        node.app.bus.last_sequence().await.unwrap(),
        before,
        "{label}"
    );
}

fn post(content_type: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post("/v1/events")
        .header("content-type", content_type)
        .body(body.into())
        .unwrap()
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_json_is_rejected_with_line_and_column() {
    let node = Node::start().await;
    for (body, text) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{\n \"id\": }", "line 2 column 8"),
        ("{} {}", "trailing characters at line 1 column 4"),
        ("\u{feff}{}", "line 1 column 1"),
        ("{'id': 1}", "line 1 column 2"),
    ] {
        check(&node, post("application/json", body), "OR0001", text).await;
        check(
            &node,
            post("application/cloudevents+json", body),
            "OR0001",
            text,
        )
        .await;
    }
    check(
        &node,
        post("application/json", vec![0xff, 0xfe]),
        "OR0001",
        "line 1",
    )
    .await;
    check(
        &node,
        post("application/json", "[".repeat(100_000)),
        "OR0001",
        "recursion limit",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_event_is_rejected_naming_the_attribute() {
    let node = Node::start().await;
    let with = |name: &str, value: Value| {
        let mut event = placed("o-1", 5);
        event[name] = value;
        post("application/json", event.to_string())
    };
    check(&node, with("id", json!(7)), "OR0003", "/id").await;
    check(&node, with("id", json!("")), "OR0003", "must not be empty").await;
    check(
        &node,
        with("id", json!("x".repeat(129))),
        "OR0003",
        "the limit is 128",
    )
    .await;
    check(
        &node,
        with("id", json!("a\u{0}b")),
        "OR0003",
        "control character",
    )
    .await;
    for name in [
        "id",
        "type",
        "source",
        "subject",
        "correlationid",
        "causationid",
    ] {
        check(
            &node,
            with(name, json!("o-\u{202e}1")),
            "OR0003",
            "bidirectional control",
        )
        .await;
    }
    check(&node, with("type", json!(null)), "OR0003", "/type").await;
    check(
        &node,
        with("type", json!("Order\nPlaced")),
        "OR0003",
        "control character",
    )
    .await;
    check(
        &node,
        with("source", json!(["urn:shop"])),
        "OR0003",
        "/source",
    )
    .await;
    check(
        &node,
        with("correlationid", json!("..")),
        "OR0003",
        "must not be",
    )
    .await;
    check(
        &node,
        with("correlationid", json!(".")),
        "OR0003",
        "no URL can contain it",
    )
    .await;
    check(
        &node,
        with("subject", json!("s".repeat(513))),
        "OR0003",
        "the limit is 512",
    )
    .await;
    check(
        &node,
        with("time", json!("2026-13-01T00:00:00Z")),
        "OR0003",
        "RFC 3339",
    )
    .await;
    check(
        &node,
        with("correlationid", json!("c".repeat(257))),
        "OR0003",
        "the limit is 256",
    )
    .await;
    check(
        &node,
        with("dataversion", json!("zero")),
        "OR0003",
        "/dataversion",
    )
    .await;
    check(
        &node,
        with("tenantid", json!("acme")),
        "OR0003",
        "but the subject has tenant",
    )
    .await;
    check(
        &node,
        with("specversion", json!("2.0")),
        "OR0003",
        "it must be \\\"1.0\\\"",
    )
    .await;
    check(
        &node,
        post("application/json", "7"),
        "OR0003",
        "is not a valid event",
    )
    .await;
    check(
        &node,
        post("application/json", "{}"),
        "OR0003",
        "specversion",
    )
    .await;
    check(&node, post("application/json", "[null]"), "OR0003", "/0").await;
    check(
        &node,
        post("application/cloudevents-batch+json", "{}"),
        "OR0002",
        "sequence",
    )
    .await;
    check(
        &node,
        post("application/cloudevents+json", "[]"),
        "OR0003",
        "JSON object",
    )
    .await;
    check(&node, post("text/csv", "a,b"), "OR0004", "text/csv").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_mode_events_are_validated() {
    let node = Node::start().await;
    let binary = |headers: &[(&str, &[u8])], body: &'static str| {
        let request = Request::post("/v1/events").header("content-type", "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.body(Body::from(body)).unwrap()
    };
    let whole: [(&str, &[u8]); 4] = [
        ("ce-specversion", b"1.0"),
        ("ce-id", b"1"),
        ("ce-type", b"OrderPlaced"),
        ("ce-source", b"urn:shop"),
    ];
    check(&node, binary(&whole[..3], "{}"), "OR0003", "ce-source").await;
    check(&node, binary(&whole, "{"), "OR0001", "line 1 column 1").await;
    let with = |name, value| [&whole[..], &[(name, value)]].concat();
    check(
        &node,
        binary(&with("ce-id", b"2"), "{}"),
        "OR0003",
        "duplicate",
    )
    .await;
    check(
        &node,
        binary(&with("ce-subject", b"a%00b"), "{}"),
        "OR0003",
        "control",
    )
    .await;
    check(
        &node,
        binary(&with("ce-subject", b"\xff"), "{}"),
        "OR0003",
        "not UTF-8",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_body_is_rejected_with_or_without_content_length() {
    let node = Node::start_with(|config| {
        config.http.max_body_size = 2_000;
        config.http.max_batch_size = 4_000;
    })
    .await;
    let large = |bytes: usize| event("e", "OrderPlaced", &json!("x".repeat(bytes))).to_string();
    check(
        &node,
        post("application/json", large(2_500)),
        "OR0005",
        "the limit is 2000",
    )
    .await;
    check(
        &node,
        post("application/cloudevents+json", large(2_500)),
        "OR0005",
        "the limit is 2000",
    )
    .await;
    check(
        &node,
        post("application/json", large(5_000)),
        "OR0005",
        "the limit is 4000",
    )
    .await;
    let chunks = streamed(&large(5_000));
    check(
        &node,
        post("application/json", chunks),
        "OR0005",
        "the limit is 4000",
    )
    .await;
    let mut announced = post("application/json", "{}");
    announced
        .headers_mut()
        .insert("content-length", "999999999999".parse().unwrap());
    check(
        &node,
        announced,
        "OR0005",
        "Content-Length is 999999999999 bytes",
    )
    .await;
    let batch = json!([
        event("a", "X", &json!("x".repeat(1_500))),
        event("b", "X", &json!("x".repeat(1_500)))
    ]);
    assert_eq!(
        node.post("/v1/events", &batch).await.status,
        StatusCode::ACCEPTED
    );
    let request =
        Request::post("/v1/sagas/order/o-1/cancel").header("content-type", "application/json");
    let request = request.body(Body::from("x".repeat(2_001))).unwrap();
    check(&node, request, "OR0005", "the limit is 2000").await;
}

/// Returns a body of unknown length.
fn streamed(text: &str) -> Body {
    let chunks: Vec<_> = text
        .as_bytes()
        .chunks(100)
        .map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec()))
        .collect();
    Body::from_stream(futures::stream::iter(chunks))
}

#[tokio::test(flavor = "multi_thread")]
async fn event_over_max_message_size_is_rejected() {
    let node = Node::start().await;
    let large = event("e", "OrderPlaced", &json!("x".repeat(1_200_000)));
    let request = post(
        "application/cloudevents-batch+json",
        json!([placed("o-1", 1), large]).to_string(),
    );
    check(&node, request, "OR0005", "the limit is").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_body_times_out() {
    let node = Node::start_with(|config| {
        config.http.request_timeout = std::time::Duration::from_millis(50);
    })
    .await;
    let pending_body =
        Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    check(
        &node,
        post("application/json", pending_body),
        "OR0023",
        "50ms",
    )
    .await;
    let broken = futures::stream::iter([Ok(b"{".to_vec()), Err(std::io::Error::other("cut"))]);
    check(
        &node,
        post("application/json", Body::from_stream(broken)),
        "OR0025",
        "after 1 bytes",
    )
    .await;
}

/// Requirements: R3.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_header_is_validated_on_every_route() {
    let node = Node::listing(&["acme"]).await;
    let routes = [
        (Method::POST, "/v1/events"),
        (Method::GET, "/v1/sagas"),
        (Method::GET, "/v1/sagas/order/o-1"),
        (Method::POST, "/v1/sagas/order/o-1/cancel"),
        (Method::GET, "/v1/dead-letters/causes"),
        (
            Method::POST,
            "/v1/dead-letters/00000000-0000-0000-0000-000000000000/redrive",
        ),
        (Method::GET, "/v1/timers"),
        (Method::GET, "/v1/definitions"),
        (Method::GET, "/v1/definitions/order"),
        (Method::GET, "/v1/inspect/saga"),
        (Method::GET, "/v1/mailboxes"),
    ];
    for (method, path) in routes {
        let request = |tenant: &[u8]| {
            let request = Request::builder()
                .method(&method)
                .uri(path)
                .header("x-tenant-id", tenant);
            request.body(Body::empty()).unwrap()
        };
        check(&node, request(b"stranger"), "OR0007", "stranger").await;
        check(&node, request(b"ACME"), "OR0007", "ACME").await;
        check(&node, request(b"acme*"), "OR0007", "acme*").await;
        check(&node, request(&[b'x'; 65]), "OR0006", "the limit is 64").await;
        check(&node, request(b"\xff"), "OR0006", "not UTF-8").await;
        check(&node, request(b"a\tb"), "OR0006", "control character").await;
        let mut twice = request(b"acme");
        twice
            .headers_mut()
            .append("x-tenant-id", "other".parse().unwrap());
        check(&node, twice, "OR0006", "duplicate").await;
    }
    assert_eq!(
        node.ask(Method::GET, "acme", "/v1/sagas", Body::empty())
            .await
            .status,
        StatusCode::OK
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_names_in_paths_and_queries_are_rejected() {
    let node = Node::start().await;
    let long = "c".repeat(257);
    for (path, text) in [
        ("/v1/sagas/order/a%00b".to_owned(), "control character"),
        ("/v1/sagas/order/a%0Ab".to_owned(), "control character"),
        ("/v1/sagas/order/%FF".to_owned(), "UTF-8"),
        ("/v1/flows/%FF".to_owned(), "UTF-8"),
        ("/v1/batches/%FF".to_owned(), "UTF-8"),
        ("/v1/schedules/%FF".to_owned(), "UTF-8"),
        ("/v1/shadows/%FF".to_owned(), "UTF-8"),
        ("/v1/messages/%FF".to_owned(), "UTF-8"),
        ("/v1/actors/%FF".to_owned(), "UTF-8"),
        ("/v1/peers/%FF".to_owned(), "UTF-8"),
        (format!("/v1/sagas/order/{long}"), "the limit is 256"),
        (
            format!("/v1/sagas/{}/o-1", "s".repeat(65)),
            "the limit is 64",
        ),
        ("/v1/sagas?saga=".to_owned(), "must not be empty"),
        (
            "/v1/sagas?status=sleeping".to_owned(),
            "statuses: running, compensating",
        ),
        (
            "/v1/sagas?updated_from=yesterday".to_owned(),
            "updated_from",
        ),
        ("/v1/sagas?limit=-1".to_owned(), "limit"),
        ("/v1/sagas?limit=many".to_owned(), "limit"),
        ("/v1/sagas?sort=age".to_owned(), "unknown field `sort`"),
        ("/v1/sagas?cursor=zz".to_owned(), "cursor"),
        ("/v1/sagas?cursor=0.zz".to_owned(), "cursor"),
        ("/v1/dead-letters/7".to_owned(), "not a dead letter id"),
        ("/v1/dead-letters?cursor=7".to_owned(), "cursor"),
        (format!("/v1/definitions/{long}"), "the limit is 64"),
    ] {
        check(&node, get(&path), "OR0008", text).await;
    }
    check(&node, get("/v1/inspect/passwords"), "OR0022", "outbox").await;
    check(
        &node,
        get("/v1/sagas/order/..%2f..%2fetc"),
        "OR0011",
        "no instance",
    )
    .await;
    check(&node, get("/v1/definitions/nothing"), "OR0016", "nothing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_valid_names_round_trip() {
    let node = Node::start().await;
    let names = [
        "a/b",
        "a.b.*.>",
        "tenant.x.aggregate",
        "ключ 🔑",
        "a%2Fb",
        "a b+c",
        "'; DROP TABLE",
        "../../x",
    ];
    for name in names {
        let encoded =
            percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC)
                .to_string();
        let mut placed = placed("x", 5);
        (placed["id"], placed["data"]["orderId"]) = (json!(format!("placed {name}")), json!(name));
        assert_eq!(
            node.post("/v1/events", &placed).await.status,
            StatusCode::ACCEPTED,
            "{name}"
        );
        let order = node
            .until("", &format!("/v1/sagas/order/{encoded}"), |_| true)
            .await;
        assert_eq!(order["correlation"], name);
        let found = node.get(&format!("/v1/sagas?prefix={encoded}")).await.ok();
        assert_eq!(found["items"][0]["correlation"], name, "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_control_request_is_rejected() {
    let node = Node::start().await;
    let instruct = |verb: &str, body: &str| {
        let request = Request::post(format!("/v1/sagas/order/o-1/{verb}"))
            .header("content-type", "application/json");
        request.body(Body::from(body.to_owned())).unwrap()
    };
    check(&node, instruct("cancel", "{"), "OR0001", "line 1 column 1").await;
    check(
        &node,
        instruct("cancel", r#"{"reasn":"x"}"#),
        "OR0002",
        "unknown field `reasn`",
    )
    .await;
    check(
        &node,
        instruct("pause", r#"{"expected_version":"3"}"#),
        "OR0002",
        "/expected_version",
    )
    .await;
    check(
        &node,
        instruct("retry", r#"{"id":"a\u0000"}"#),
        "OR0002",
        "control character",
    )
    .await;
    check(&node, instruct("signal", ""), "OR0001", "EOF").await;
    check(
        &node,
        instruct("signal", "{}"),
        "OR0002",
        "missing field `type`",
    )
    .await;
    check(
        &node,
        instruct("signal", r#"{"type":""}"#),
        "OR0002",
        "must not be empty",
    )
    .await;
    let mut form = instruct("cancel", "reason=x");
    form.headers_mut().insert(
        "content-type",
        "application/x-www-form-urlencoded".parse().unwrap(),
    );
    check(&node, form, "OR0004", "application/x-www-form-urlencoded").await;
    for verb in ["cancel", "pause", "resume", "retry"] {
        check(
            &node,
            instruct(verb, ""),
            "OR0011",
            "saga instance not found",
        )
        .await;
    }
    check(
        &node,
        instruct("signal", r#"{"type":"Shipped"}"#),
        "OR0011",
        "saga instance not found",
    )
    .await;
}
