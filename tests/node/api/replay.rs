//! Replay: instances are rebuilt from their events.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::node::{Node, event};

/// Definition whose first version waits for an event with a misspelled name, `Reservd`, which is never
/// published.
const PARCEL: &str = r"
saga: parcel
version: 1
correlate: parcelId
start: ParcelPosted
vars: { parcelId: =event.parcelId }
steps:
  - id: reserve
    do: { command: depot.Reserve, data: { parcelId: =vars.parcelId } }
    ok: Reservd
  - id: deliver
    do: { command: depot.Deliver, data: { parcelId: =vars.parcelId } }
    ok: Delivered
    timeout: 1h
completed: { fact: ParcelDone, data: { parcelId: =vars.parcelId } }
";

const START: &str = "2020-01-01T00:00:00Z";

struct ReplayNode {
    node: Node,
}

impl ReplayNode {
    async fn open() -> Self {
        let depot = Self { node: Node::start().await };
        depot.deploy(PARCEL).await;
        depot
    }

    async fn deploy(&self, definition: &str) {
        std::fs::write(self.node.definitions().join("parcel.saga.yaml"), definition).unwrap();
        self.node.post("/admin/reload", &json!({})).await.ok();
    }

    /// Activates the version with the correct event name.
    async fn fix_definition(&self) {
        self.deploy(&PARCEL.replace("Reservd", "Reserved").replace("version: 1", "version: 2")).await;
    }

    async fn happens(&self, kind: &str, parcel: &str) {
        let mut event = event(&format!("{kind}-{parcel}"), kind, &json!({ "parcelId": parcel }));
        event["correlationid"] = json!(parcel);
        let response = self.node.ask(Method::POST, "", "/v1/events", event.to_string()).await;
        assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
    }

    async fn parcel(&self, parcel: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.node.until("", &format!("/v1/sagas/parcel/{parcel}"), fits).await
    }

    async fn replay(&self, work: &str, more: Value) -> Value {
        let mut order = json!({ "saga": "parcel", "from": START, "work": work, "user": "ann" });
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.node.post("/v1/replays", &order).await.ok()
    }

    /// Publishes the events of a delivered parcel. The first version ignores `Reserved`, and keeps `Delivered`
    /// for a step that does not start.
    async fn deaf(&self, parcel: &str) -> Value {
        self.happens("ParcelPosted", parcel).await;
        self.parcel(parcel, |it| it["outbox"]["items"] == json!([])).await;
        self.happens("Reserved", parcel).await;
        self.happens("Delivered", parcel).await;
        self.parcel(parcel, |it| it["state"]["early_events"] == json!(["Delivered"])).await
    }
}

fn work_ids(parcel: &Value) -> Vec<Value> {
    let records = parcel["history"]["items"].as_array().unwrap().iter();
    records.flat_map(|record| record["work"].as_array().unwrap().clone()).collect()
}

/// Requirements: R15.
#[tokio::test(flavor = "multi_thread")]
async fn replay_applies_missed_events_to_a_fixed_definition() {
    let depot = ReplayNode::open().await;
    let before = depot.deaf("p-1").await;
    depot.fix_definition().await;
    let planned = depot.replay("suppress", json!({ "dry_run": true })).await;
    let expected = json!({
        "correlation": "p-1", "before": "running", "after": "completed", "result": "replaced", "work": 0,
    });
    assert_eq!(planned["items"], json!([expected]));
    assert_eq!(planned["read"], 3);
    let current = depot.parcel("p-1", |_| true).await;
    assert_eq!((&current["status"], &current["version"]), (&json!("running"), &before["version"]));

    let done = depot.replay("suppress", json!({ "reason": "a typing error" })).await;
    assert_eq!(done["counts"], json!({ "created": 0, "replaced": 1, "unchanged": 0, "skipped": 0 }));
    let parcel = depot.parcel("p-1", |it| it["status"] == "completed").await;
    assert_eq!(parcel["definition"]["version"], 2);
    assert_eq!(parcel["outbox"]["items"], json!([]), "nothing is sent");
    let history = parcel["history"]["items"].as_array().unwrap();
    let labels: Vec<_> = history.iter().map(|record| &record["input_label"]).collect();
    assert_eq!(labels, ["ParcelPosted", "Reserved", "Delivered"]);
    assert!(history[2]["note"].as_str().unwrap().ends_with("replayed by ann: a typing error"));
    assert_eq!(work_ids(&parcel)[0], work_ids(&before)[0], "the same work under the same id");
    let repeated = depot.replay("suppress", json!({})).await;
    assert_eq!(repeated["counts"]["unchanged"], 1, "{repeated}");
    depot.happens("Delivered", "p-1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emitted_work_keeps_its_original_ids() {
    let depot = ReplayNode::open().await;
    let before = depot.deaf("p-1").await;
    depot.deaf("p-2").await;
    depot.fix_definition().await;
    let done = depot.replay("emit", json!({ "only": ["p-1"] })).await;
    let expected = json!({
        "correlation": "p-1", "before": "running", "after": "completed", "result": "replaced", "work": 3,
    });
    assert_eq!(done["items"], json!([expected]), "two commands and a fact");
    let parcel = depot.parcel("p-1", |it| it["outbox"]["items"] == json!([])).await;
    assert_eq!(work_ids(&parcel)[0], work_ids(&before)[0]);
    let other = depot.parcel("p-2", |_| true).await;
    assert_eq!(other["status"], "running", "it was not asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_creates_instances_of_a_new_saga() {
    let depot = ReplayNode { node: Node::start().await };
    depot.happens("ParcelPosted", "p-1").await;
    depot.happens("Reserved", "p-1").await;
    depot.fix_definition().await;
    let done = depot.replay("emit", json!({})).await;
    assert_eq!(done["counts"]["created"], 1, "{done}");
    depot.parcel("p-1", |it| it["waits"][0]["name"] == "Delivered").await;
    depot.happens("Delivered", "p-1").await;
    depot.parcel("p-1", |it| it["status"] == "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suppressed_replay_uses_recorded_time() {
    let depot = ReplayNode { node: Node::start().await };
    depot.happens("ParcelPosted", "p-1").await;
    let impatient = PARCEL.replace("ok: Reservd", "ok: Reserved\n    timeout: 1ms");
    depot.deploy(&impatient).await;
    // The replay starts a moment after the event, so its timer has fired.
    let done = depot.replay("suppress", json!({})).await;
    assert_eq!(done["items"][0]["after"], "failed", "{done}");
    depot.parcel("p-1", |it| it["status"] == "failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_with_incomplete_history_is_skipped() {
    let depot = ReplayNode::open().await;
    depot.deaf("p-1").await;
    let signal = json!({ "type": "Reservd", "data": {} });
    depot.node.post("/v1/sagas/parcel/p-1/signal", &signal).await.ok();
    depot.fix_definition().await;
    let done = depot.replay("suppress", json!({})).await;
    let reason = done["items"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("Reservd at ") && reason.contains("was not on the bus"), "{reason}");
    let late = depot.replay("suppress", json!({ "from": "2100-01-01T00:00:00Z" })).await;
    assert_eq!(late["read"], 0);

    let effect = depot.node.order("", "o-1", 125, "running").await;
    let order = json!({ "saga": "order", "from": START, "work": "emit", "user": "ann" });
    let done = depot.node.post("/v1/replays", &order).await.ok();
    // The rebuilt state is equal, but the effect result is stored only here, not on the bus.
    assert_eq!(done["counts"]["skipped"], 1, "{done}");
    let current = depot.node.get("/v1/sagas/order/o-1").await.ok();
    assert_eq!(current["version"], effect["version"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_replay_request_is_rejected() {
    let depot = ReplayNode::open().await;
    for (change, code, expected) in [
        (json!({ "from": "yesterday" }), "OR0002", "RFC 3339"),
        (json!({ "saga": "unknown" }), "OR0016", "unknown"),
        (json!({ "work": "perhaps" }), "OR0002", "perhaps"),
    ] {
        let mut order = json!({ "saga": "parcel", "from": START, "work": "suppress" });
        order.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let response = depot.node.ask(Method::POST, "", "/v1/replays", Body::from(order.to_string())).await;
        let detail = response.problem(code);
        assert!(response.text.contains(expected), "{detail}");
    }
}

/// Saga whose first version counts an event that the second one ignores.
const MARKS: &str = r"
saga: marks
version: 1
start: MarksOpened
correlate: parcelId
vars: { parcelId: =event.parcelId, marks: '=0' }
on:
  - { event: Marked, save: { marks: =vars.marks + 1 } }
steps:
  - { id: close, do: { event: MarksClosed }, timeout: 1h }
";

#[tokio::test(flavor = "multi_thread")]
async fn replay_raises_the_state_version() {
    let depot = ReplayNode { node: Node::start().await };
    depot.deploy(MARKS).await;
    depot.happens("MarksOpened", "t-1").await;
    for mark in 0..3 {
        let mut marked = event(&format!("mark-{mark}"), "Marked", &json!({ "parcelId": "t-1" }));
        marked["correlationid"] = json!("t-1");
        depot.node.post("/v1/events", &marked).await.ok();
    }
    let path = "/v1/sagas/marks/t-1";
    let before = depot.node.until("", path, |saga| saga["state"]["vars"]["marks"] == 3).await;
    let without_handler = MARKS.replace("version: 1", "version: 2").replace("marks + 1", "marks + 0");
    depot.deploy(&without_handler.replace("event: Marked", "event: MarkedTwice")).await;
    let order = json!({ "saga": "marks", "from": START, "work": "suppress", "user": "ann" });
    let done = depot.node.post("/v1/replays", &order).await.ok();
    assert_eq!(done["counts"]["replaced"], 1, "{done}");
    let after = depot.node.until("", path, |saga| saga["state"]["vars"]["marks"] == 0).await;
    assert!(after["version"].as_u64() > before["version"].as_u64(), "{after}");
    assert_eq!(after["history"]["items"].as_array().unwrap().last().unwrap()["version"], after["version"]);
    let stale = json!({ "expected_version": before["version"] });
    depot.node.post(&format!("{path}/pause"), &stale).await.problem("OR0012");
    depot.node.post(&format!("{path}/pause"), &json!({ "expected_version": after["version"] })).await.ok();
}
