//! Quarantine: a damaged row of one instance stops no other instance, and can be repaired or dropped.

use std::path::Path;

use serde_json::{Value, json};

use crate::api::dead_letters::COUNT;
use crate::api::node::{Node, event};

/// Number of events for the damaged instance: more than its mailbox accepts.
const FLOOD: usize = 600;

/// Starts a node with the instances `damaged` and `intact`, and damages the stored row of the first one.
async fn start() -> Node {
    start_with(std::future::ready).await
}

/// Starts a node as [`start`], and prepares it before its row is damaged.
async fn start_with<F: Future<Output = Node>>(prepare: impl FnOnce(Node) -> F) -> Node {
    let node = Node::start().await;
    std::fs::write(node.definitions().join("count.saga.yaml"), COUNT).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    for id in ["damaged", "intact"] {
        node.post(
            "/v1/events",
            &event(
                &format!("open-{id}"),
                "CountOpened",
                &json!({ "countId": id }),
            ),
        )
        .await
        .ok();
        node.until("", &format!("/v1/sagas/count/{id}"), |_| true)
            .await;
    }
    let node = prepare(node).await;
    let node = node
        .restart(|data| {
            let tables = data.join("shard-0/tables/mdbx.dat");
            damage_instance(&tables, "count", "countId", "damaged");
        })
        .await;
    node.get("/v1/sagas/count/damaged").await.problem("OR0062");
    node
}

/// Overwrites the first byte of the snapshot of an instance. A snapshot starts with the name of its saga, and its state
/// contains the variable with the id of the instance.
pub(crate) fn damage_instance(tables: &Path, saga: &str, variable: &str, id: &str) {
    let mut bytes = std::fs::read(tables).unwrap();
    let length = u8::try_from(saga.len()).unwrap();
    let start = [&[0x93, 0xa0 | length], saga.as_bytes()].concat();
    let starts = positions(&bytes, &start);
    let variables = positions(&bytes, variable.as_bytes()).into_iter();
    let is_damaged = |at: &usize| {
        let after = &bytes[*at..(at + variable.len() + 13).min(bytes.len())];
        !positions(after, id.as_bytes()).is_empty()
    };
    let snapshots: Vec<usize> = variables
        .filter(is_damaged)
        .filter_map(|id| {
            starts
                .iter()
                .rev()
                .find(|start| **start < id && id - **start < 300)
                .copied()
        })
        .collect();
    assert!(!snapshots.is_empty(), "the snapshot is not in the tables");
    for at in snapshots {
        // No MessagePack value starts with this byte.
        bytes[at] = 0xc1;
    }
    std::fs::write(tables, bytes).unwrap();
}

fn positions(bytes: &[u8], needle: &[u8]) -> Vec<usize> {
    (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(needle))
        .collect()
}

fn counted(name: &str, id: &str) -> Value {
    event(name, "Counted", &json!({ "countId": id, "n": 1 }))
}

fn unreadable(dead_letters: &Value) -> usize {
    let items = dead_letters["items"].as_array().unwrap();
    items
        .iter()
        .filter(|item| item["reason"] == "instance_unreadable" && item["correlation"] == "damaged")
        .count()
}

async fn quarantined(node: &Node) -> bool {
    node.get("/metrics")
        .await
        .text
        .contains("orlog_instances_quarantined 1\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_instance_is_quarantined_and_others_continue() {
    let node = start().await;
    let events: Vec<Value> = (0..FLOOD)
        .map(|index| counted(&format!("d-{index}"), "damaged"))
        .collect();
    for events in events.chunks(100) {
        node.post("/v1/events", &json!(events)).await.ok();
    }
    node.post("/v1/events", &counted("i-1", "intact"))
        .await
        .ok();
    let intact = node
        .until("", "/v1/sagas/count/intact", |count| {
            count["state"]["vars"]["total"] == 1
        })
        .await;
    assert_eq!(intact["status"], "running");
    node.until("", "/v1/dead-letters?limit=1000", |dead_letters| {
        unreadable(dead_letters) == FLOOD
    })
    .await;
    let rejected = node
        .post("/v1/sagas/count/damaged/pause", &json!({}))
        .await
        .problem("OR0060");
    assert!(rejected.contains("replay or drop it"), "{rejected}");
    assert!(quarantined(&node).await);
    let listed = node.get("/v1/sagas?saga=count").await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    node.post("/v1/sagas/count/intact/drop", &json!({}))
        .await
        .problem("OR0013");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_instance_starts_again_and_applies_its_dead_letters() {
    let node = start().await;
    node.post("/v1/events", &counted("d-1", "damaged"))
        .await
        .ok();
    node.until("", "/v1/dead-letters", |dead_letters| {
        unreadable(dead_letters) == 1
    })
    .await;
    node.post(
        "/v1/sagas/count/damaged/drop",
        &json!({ "reason": "damaged disk" }),
    )
    .await
    .ok();
    node.get("/v1/sagas/count/damaged").await.problem("OR0011");
    assert!(!quarantined(&node).await);
    node.post(
        "/v1/events",
        &event(
            "open-again",
            "CountOpened",
            &json!({ "countId": "damaged" }),
        ),
    )
    .await
    .ok();
    node.until("", "/v1/sagas/count/damaged", |count| count["version"] == 1)
        .await;
    let redriven = node
        .post(
            "/v1/dead-letters/redrive",
            &json!({ "reason": "instance_unreadable" }),
        )
        .await
        .ok();
    assert_eq!(redriven["applied"], 1, "{redriven}");
    let count = node.get("/v1/sagas/count/damaged").await.ok();
    assert_eq!(count["state"]["vars"]["total"], 1, "{count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_repairs_a_damaged_instance_and_applies_its_events_once() {
    let node = start().await;
    node.post("/v1/events", &counted("d-1", "damaged"))
        .await
        .ok();
    node.until("", "/v1/dead-letters", |dead_letters| {
        unreadable(dead_letters) == 1
    })
    .await;
    let order = json!({ "saga": "count", "from": "2020-01-01T00:00:00Z", "work": "suppress", "user": "ann" });
    let replayed = node.post("/v1/replays", &order).await.ok();
    let count = node.until("", "/v1/sagas/count/damaged", |_| true).await;
    assert_eq!(count["state"]["vars"]["total"], 1, "{replayed} {count}");
    assert!(!quarantined(&node).await);
    // The replay has applied the event of the dead letter.
    let redriven = node
        .post(
            "/v1/dead-letters/redrive",
            &json!({ "reason": "instance_unreadable" }),
        )
        .await
        .ok();
    assert_eq!(redriven["matched"], 1, "{redriven}");
    assert_eq!(node.get("/v1/dead-letters").await.ok()["items"], json!([]));
    let count = node.get("/v1/sagas/count/damaged").await.ok();
    assert_eq!(count["state"]["vars"]["total"], 1, "{count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_instance_with_buffered_inputs_does_not_prevent_the_start() {
    let node = start_with(|node| async move {
        node.post("/v1/sagas/count/damaged/pause", &json!({}))
            .await
            .ok();
        node.post("/v1/events", &counted("d-1", "damaged"))
            .await
            .ok();
        let is_buffered =
            |page: &Value| page["rows"].as_array().is_some_and(|rows| rows.len() == 1);
        node.until("", "/v1/inspect/buffered_input", is_buffered)
            .await;
        node
    })
    .await;
    node.post("/v1/events", &counted("i-1", "intact"))
        .await
        .ok();
    node.until("", "/v1/sagas/count/intact", |count| {
        count["state"]["vars"]["total"] == 1
    })
    .await;
    node.until("", "/v1/sagas/count/intact", |_| true).await;
    node.post("/v1/sagas/count/damaged/drop", &json!({}))
        .await
        .ok();
    let rows = node.get("/v1/inspect/buffered_input").await.ok();
    assert_eq!(rows["rows"], json!([]));
}
