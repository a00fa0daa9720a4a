//! Instances: single and in pages, visible to their tenant only.

use axum::body::Body;
use axum::http::Method;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::wait::until_ok;
use serde_json::{Value, json};

use crate::api::node::{Node, event, placed};

/// Returns the correlation ids of all pages.
async fn all(node: &Node, query: &str) -> Vec<String> {
    let (mut seen, mut path) = (Vec::new(), format!("/v1/sagas?{query}"));
    loop {
        let page = node.get(&path).await.ok();
        let ids = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["correlation"].as_str().unwrap().to_owned());
        seen.extend(ids);
        let Some(next) = page["next_cursor"].as_str() else {
            return seen;
        };
        path = format!("/v1/sagas?{query}&cursor={next}");
    }
}

/// Requirements: E2.
#[tokio::test(flavor = "multi_thread")]
async fn instance_detail_lists_all_waits() {
    let node = Node::start().await;
    let order = node.order("", "o-1", 5, "running").await;
    let history = order["history"]["items"].as_array().unwrap();
    assert_eq!(history[0]["work"][0]["label"], "test.charge");
    let labels: Vec<_> = history[1]["work"]
        .as_array()
        .unwrap()
        .iter()
        .map(|work| &work["label"])
        .collect();
    assert_eq!(labels, ["Charged", "shipping.Ship"]);
    assert_eq!(
        (&history[0]["kind"], &history[1]["kind"]),
        (&json!("event"), &json!("work_result"))
    );
    assert_eq!(history[1]["node"], order["node"]);
    assert!(
        history[0]["delay_ms"].as_u64().unwrap() > 1_000_000,
        "the event is of long ago: {}",
        history[0]
    );
    assert!(history[1]["delay_ms"].is_u64(), "{}", history[1]);
    assert_eq!(order["history"]["next"], Value::Null);
    assert_eq!(order["timers"].as_array().unwrap().len(), 1, "{order}");
    let state = &order["state"];
    assert_eq!(
        (&state["vars"]["orderId"], &state["phase"]),
        (&json!("o-1"), &json!("running"))
    );
    assert_eq!(
        state["steps"][0],
        json!({ "id": "charge", "state": "completed", "until": null })
    );
    let ship = json!({ "id": "ship", "state": "running", "until": order["timers"][0]["due"] });
    assert_eq!(state["steps"][1], ship);
    assert_eq!(order["outbox"]["complete"], true);
    assert_eq!(order["tenant"], "");
    let timers = node.get("/v1/timers").await.ok();
    assert_eq!(timers["items"][0]["correlation"], "o-1");
    assert_eq!(timers["items"][0]["due"], order["timers"][0]["due"]);
    let first = node.get("/v1/sagas/order/o-1?history_limit=1").await.ok();
    assert_eq!(
        (
            &first["history"]["next"],
            &first["history"]["items"][0]["version"]
        ),
        (&json!(1), &json!(1))
    );
    let second = node
        .get("/v1/sagas/order/o-1?history_limit=1&history_after=1")
        .await
        .ok();
    assert_eq!(
        (
            &second["history"]["next"],
            &second["history"]["items"][0]["version"]
        ),
        (&Value::Null, &json!(2))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_detail_lists_pending_work() {
    let node = Node::start().await;
    let order = event(
        "placed-o-1",
        "OrderPlaced",
        &json!({ "orderId": "o-1", "total": 5 }),
    );
    node.post("/v1/events", &order).await.ok();
    node.until("", "/v1/sagas/order/o-1", |order| {
        order["pending_work"][0]["tag"] == "ship"
    })
    .await;
}

/// Requirements: E2, T5.
#[tokio::test(flavor = "multi_thread")]
async fn failed_instance_shows_its_failure() {
    let node = Node::start().await;
    let order = node.order("", "o-1", 5000, "failed").await;
    assert_eq!(order["last_error"]["code"], "card_declined");
    assert_eq!(order["state"]["failure"]["step"], "charge");
    assert_eq!(order["state"]["steps"][0]["state"], "failed");
    assert_eq!(order["timers"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_pages_have_no_gaps_or_duplicates() {
    let node = Node::start_with(|config| {
        config.http.max_page_size = 7;
        config.http.scan_limit = 7;
    })
    .await;
    let batch: Vec<Value> = (0..30)
        .map(|n| placed(&format!("o-{n:02}"), if n % 3 == 0 { 5000 } else { 5 }))
        .collect();
    node.post("/v1/events", &json!(batch)).await.ok();
    for n in 0..30 {
        let status = if n % 3 == 0 { "failed" } else { "running" };
        node.until("", &format!("/v1/sagas/order/o-{n:02}"), |order| {
            order["status"] == status
        })
        .await;
    }
    let ids: Vec<String> = (0..30).map(|n| format!("o-{n:02}")).collect();
    assert_eq!(all(&node, "limit=4").await, ids);
    assert_eq!(all(&node, "limit=1000").await, ids);
    let failed: Vec<String> = (0..30).step_by(3).map(|n| format!("o-{n:02}")).collect();
    assert_eq!(all(&node, "status=failed&limit=3").await, failed);
    let running = ids.iter().filter(|id| !failed.contains(id));
    let by_status: Vec<String> = running.chain(&failed).cloned().collect();
    assert_eq!(all(&node, "status=failed,running&limit=1").await, by_status);
    assert_eq!(all(&node, "prefix=o-1").await, ids[10..20]);
    assert_eq!(
        all(&node, "saga=order&prefix=o-2&status=stuck").await,
        [""; 0]
    );
    assert_eq!(all(&node, "created_from=2026-01-02T03:04:05Z").await, ids);
    assert_eq!(
        all(&node, "created_until=2026-01-02T03:04:05Z").await,
        [""; 0]
    );
    let first = node.get("/v1/sagas?limit=4").await.ok();
    node.order("", "o-00a", 5, "running").await;
    let next = first["next_cursor"].as_str().unwrap();
    let second = node
        .get(&format!("/v1/sagas?limit=4&cursor={next}"))
        .await
        .ok();
    assert_eq!(second["items"][0]["correlation"], "o-04");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_span_all_shards() {
    let node = Node::start_with(|config| {
        config.shards = 3;
        config.tenants.key_sharded = vec![orlog_model::TenantId::default_tenant()];
    })
    .await;
    let batch: Vec<Value> = (0..20)
        .map(|n| placed(&format!("o-{n:02}"), 5000))
        .collect();
    node.post("/v1/events", &json!(batch)).await.ok();
    let mut seen = Vec::new();
    let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
    while seen.len() < 20 && std::time::Instant::now() < deadline {
        seen = all(&node, "limit=3&status=failed").await;
        tokio::task::yield_now().await;
    }
    seen.sort();
    assert_eq!(
        seen,
        (0..20).map(|n| format!("o-{n:02}")).collect::<Vec<_>>()
    );
}

/// Requirements: R3.
#[tokio::test(flavor = "multi_thread")]
async fn instances_are_isolated_by_tenant() {
    let node = Node::start().await;
    node.order("acme", "o-1", 5, "running").await;
    node.order("other", "o-2", 5, "running").await;
    let get = |tenant: &'static str, path: &'static str| {
        node.ask(Method::GET, tenant, path, Body::empty())
    };
    for tenant in ["", "other", "acm"] {
        get(tenant, "/v1/sagas/order/o-1").await.problem("OR0011");
        for verb in ["cancel", "pause", "resume", "retry"] {
            let path = format!("/v1/sagas/order/o-1/{verb}");
            node.ask(Method::POST, tenant, &path, Body::empty())
                .await
                .problem("OR0011");
        }
        let signal = json!({ "type": "Shipped", "data": { "orderId": "o-1" } }).to_string();
        node.ask(Method::POST, tenant, "/v1/sagas/order/o-1/signal", signal)
            .await
            .problem("OR0011");
        for list in [
            "/v1/sagas",
            "/v1/timers",
            "/v1/inspect/saga",
            "/v1/inspect/schedule",
            "/v1/inspect/history",
        ] {
            let response = get(tenant, list).await;
            assert!(
                response.status.is_success() && !response.text.contains("o-1"),
                "{tenant} {list}: {}",
                response.text
            );
        }
    }
    let cursor = get("acme", "/v1/sagas?limit=1").await.ok()["next_cursor"].clone();
    if let Some(cursor) = cursor.as_str() {
        let path = format!("/v1/sagas?cursor={cursor}");
        node.ask(Method::GET, "other", &path, Body::empty())
            .await
            .problem("OR0008");
    }
    assert_eq!(
        get("acme", "/v1/sagas/order/o-1").await.ok()["status"],
        "running"
    );
    assert_eq!(
        get("acme", "/v1/timers").await.ok()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let rows = get("acme", "/v1/inspect/saga").await.ok();
    assert_eq!(rows["rows"][0]["key"], "saga:acme:order:o-1");
}

/// Requirements: E11.
#[tokio::test(flavor = "multi_thread")]
async fn graph_highlights_the_instance_position() {
    let node = Node::start().await;
    node.order("", "o-1", 5, "running").await;
    let whole = node.get("/v1/definitions/order/graph.svg").await;
    assert_eq!(whole.headers["content-type"], "image/svg+xml");
    assert!(
        whole.text.starts_with("<svg ") && !whole.text.contains("<g class=\"completed\">"),
        "{}",
        whole.text
    );
    let placed = node.get("/v1/sagas/order/o-1/graph.svg").await;
    assert!(
        placed.headers["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("default-src 'none'")
    );
    assert!(
        placed.text.contains("<g class=\"completed\">")
            && placed.text.contains("<g class=\"running\">")
    );
    node.get("/v1/sagas/order/o-2/graph.svg")
        .await
        .problem("OR0011");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_instance_names_its_early_events() {
    let node = Node::start().await;
    for number in 0..11 {
        let shipped = event(
            &format!("s-{number}"),
            "Shipped",
            &json!({ "orderId": "o-9" }),
        );
        node.post("/v1/events", &shipped).await.ok();
        let expected = match number {
            0 => "no instance :order:o-9; early events wait for its start: Shipped\"",
            10 => "Shipped, and others\"",
            _ => continue,
        };
        let look = async || {
            let response = node.get("/v1/sagas/order/o-9").await;
            let found = response.status == 404 && response.text.contains(expected);
            if found { Ok(()) } else { Err(response.text) }
        };
        until_ok("the missing instance", look).await;
    }
}
