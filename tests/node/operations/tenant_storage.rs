//! Storage quotas: a tenant above one of them is rejected until it has less data, and other tenants are not affected.

use std::time::Duration;

use axum::http::Method;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::harness::http::HttpResponse;
use crate::harness::node::{Node, NodeBuilder};

/// Requires a total: an event without it becomes a dead letter.
const SAGA: &str = "
saga: order
version: 1
correlate: id
start: Placed
vars: { id: =event.id, total: =event.total }
steps:
  - { id: paid, do: { event: Paid } }
";

/// Quota of the dead letters of a tenant, in bytes.
const QUOTA: u64 = 20_000;

fn event(number: usize, data: &Value) -> Value {
    json!({
        "specversion": "1.0", "id": format!("e-{number}"), "source": "urn:test", "type": "Placed", "data": data
    })
}

async fn publish(node: &Node, tenant: &str, event: &Value) -> HttpResponse {
    node.ask(Method::POST, tenant, "/v1/events", event.to_string())
        .await
}

/// Publishes events that become dead letters, until the tenant is above its quota. Returns the detail of the rejection.
async fn until_rejected(node: &Node, tenant: &str) -> String {
    let mut number = 0;
    until("the rejection", || {
        number += 1;
        let data = json!({ "id": format!("o-{number}"), "note": "x".repeat(5_000) });
        let event = event(number, &data);
        async move {
            let response = publish(node, tenant, &event).await;
            (response.status.as_u16() == 507).then(|| response.problem("OR0065"))
        }
    })
    .await
}

async fn discard_all(node: &Node, tenant: &str) {
    let page = node
        .ask(Method::GET, tenant, "/v1/dead-letters?limit=1000", "")
        .await
        .ok();
    for letter in page["items"].as_array().unwrap() {
        let path = format!("/v1/dead-letters/{}", letter["id"].as_str().unwrap());
        let response = node.ask(Method::DELETE, tenant, &path, "").await;
        assert!(response.status.is_success(), "{response:?}");
    }
}

/// Returns the size of the dead letters of a tenant, as the metrics have it.
async fn stored_dead_letters(node: &Node, tenant: &str) -> u64 {
    let metrics = node.ask(Method::GET, "", "/metrics", "").await;
    let name = format!("orlog_tenant_stored_bytes{{tenant=\"{tenant}\",kind=\"dead_letters\"}} ");
    let mut lines = metrics.text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name.as_str()));
    let value = value.unwrap_or_else(|| panic!("{name} is not in\n{}", metrics.text));
    value.parse().unwrap()
}

/// Requirements: R3.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_above_its_quota_of_dead_letters_is_rejected_and_others_are_served() {
    let node = NodeBuilder::new()
        .definition("order", SAGA)
        .config(|config| {
            config.tenant_storage.dead_letters = Some(QUOTA);
            config.store.memtable_max_age = Duration::from_millis(10);
        })
        .start()
        .await;

    let detail = until_rejected(&node, "acme").await;
    assert!(
        detail.contains("dead letters") && detail.contains("tenant_storage.dead_letters"),
        "{detail}"
    );
    let start = json!({ "id": "started", "total": 1 });
    node.ask(Method::POST, "acme", "/v1/sagas/order", start.to_string())
        .await
        .problem("OR0065");

    assert!(stored_dead_letters(&node, "acme").await >= QUOTA);

    // An exchange adds no lines, and its results are not rejected: they end work.
    let id = "00000000-0000-4000-8000-000000000001";
    let exchange = json!({
        "logs": [{ "job": id, "claim": id, "log": ["a line"] }],
        "results": [{ "job": id, "claim": id, "result": "succeeded" }],
    });
    let acks = node
        .ask(
            Method::POST,
            "acme",
            "/v1/work/exchange",
            exchange.to_string(),
        )
        .await
        .ok();
    let line = &acks["logs"][0];
    assert_eq!(
        (&line["status"], &line["problem"]["code"]),
        (&json!("invalid"), &json!("OR0065")),
        "{acks}"
    );
    assert_eq!(acks["results"][0]["status"], "claim_lost", "{acks}");

    publish(&node, "other", &event(1, &start)).await.ok();
    let signal = node.ask(Method::GET, "acme", "/v1/sagas", "").await;
    assert!(signal.status.is_success(), "reads are served: {signal:?}");

    until("the end of the rejection", || async {
        discard_all(&node, "acme").await;
        let response = publish(&node, "acme", &event(0, &start)).await;
        response.status.is_success().then_some(())
    })
    .await;
    node.stop().await;
}
