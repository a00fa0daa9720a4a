//! Messages that the bus rejects: they end, and hold up no other message.

use serde_json::{Value, json};

use crate::api::dead_letters::COUNT;
use crate::api::node::{Node, event};

/// Saga whose child and whose fact contain its text twice.
const ECHO: &str = r"
saga: echo
version: 1
start: EchoOpened
correlate: echoId
vars: { echoId: =event.echoId, text: =event.text }
steps:
  - id: child
    do: { saga: count, correlation: =vars.echoId, data: { countId: =vars.echoId, text: =vars.text + vars.text } }
failed: { fact: EchoFailed, data: { text: =vars.text + vars.text } }
";

const MAX_MESSAGE: u64 = 4096;

async fn start() -> Node {
    let node = Node::start_with(|config| config.bus.max_message_size = MAX_MESSAGE).await;
    std::fs::write(node.definitions().join("count.saga.yaml"), COUNT).unwrap();
    std::fs::write(node.definitions().join("echo.saga.yaml"), ECHO).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_messages_fail_the_step_or_become_dead_letters() {
    let node = start().await;
    let opened = |id: &str, length: usize| {
        event(
            id,
            "EchoOpened",
            &json!({ "echoId": id, "text": "x".repeat(length) }),
        )
    };
    node.post(
        "/v1/events",
        &json!([opened("large", 3000), opened("small", 3)]),
    )
    .await
    .ok();

    let large = node
        .until("", "/v1/sagas/echo/large", |echo| {
            echo["status"] == "failed"
        })
        .await;
    assert!(large.to_string().contains("bus_rejected"), "{large}");
    let small = node.until("", "/v1/sagas/count/small", |_| true).await;
    assert_eq!(small["status"], "running", "{small}");

    let is_there = |page: &Value| {
        page["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
    };
    let page = node.until("", "/v1/dead-letters", is_there).await;
    let fact = &page["items"][0];
    assert_eq!(
        (&fact["reason"], &fact["correlation"]),
        (&json!("bus_rejected"), &json!("large")),
        "{page}"
    );
    let is_empty = |page: &Value| page["rows"].as_array().is_some_and(Vec::is_empty);
    node.until("", "/v1/inspect/outbox", is_empty).await;

    let redrive = format!("/v1/dead-letters/{}/redrive", fact["id"].as_str().unwrap());
    let rejected = node.post(&redrive, &json!(null)).await.problem("OR0015");
    assert!(rejected.contains("4096"), "{rejected}");
    assert_eq!(
        node.get("/v1/dead-letters").await.ok()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}
