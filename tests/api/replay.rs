//! Replaying: instances take their events again, and stand as those make them stand.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::node::{Node, event};

/// The first version waits for an event that nobody sends: `Reservd`.
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

struct Depot {
    node: Node,
}

impl Depot {
    async fn open() -> Self {
        let depot = Self { node: Node::start().await };
        depot.deploy(PARCEL).await;
        depot
    }

    async fn deploy(&self, definition: &str) {
        std::fs::write(self.node.definitions().join("parcel.saga.yaml"), definition).unwrap();
        self.node.post("/admin/reload", &json!({})).await.ok();
    }

    /// Puts the version in force that knows the event's name.
    async fn mend(&self) {
        self.deploy(&PARCEL.replace("Reservd", "Reserved").replace("version: 1", "version: 2")).await;
    }

    async fn happens(&self, kind: &str, parcel: &str) {
        let mut event = event(&format!("{kind}-{parcel}"), kind, &json!({ "parcelId": parcel }));
        event["correlationid"] = json!(parcel);
        let answer = self.node.ask(Method::POST, "", "/v1/events", event.to_string()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    }

    async fn parcel(&self, parcel: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.node.until("", &format!("/v1/sagas/parcel/{parcel}"), fits).await
    }

    async fn replay(&self, work: &str, more: Value) -> Value {
        let mut order = json!({ "saga": "parcel", "from": START, "work": work, "by": "ann" });
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.node.post("/v1/replays", &order).await.ok()
    }

    /// Posts a parcel that is delivered, but for the first version's ears.
    async fn deaf(&self, parcel: &str) -> Value {
        self.happens("ParcelPosted", parcel).await;
        let waiting = self.parcel(parcel, |it| it["outbox"]["items"] == json!([])).await;
        self.happens("Reserved", parcel).await;
        self.happens("Delivered", parcel).await;
        waiting
    }
}

fn work_ids(parcel: &Value) -> Vec<Value> {
    let records = parcel["history"]["items"].as_array().unwrap().iter();
    records.flat_map(|record| record["work"].as_array().unwrap().clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mended_definition_is_told_what_it_missed() {
    let depot = Depot::open().await;
    let before = depot.deaf("p-1").await;
    depot.mend().await;
    let planned = depot.replay("suppress", json!({ "dry_run": true })).await;
    let expected = json!({
        "correlation": "p-1", "was": "running", "becomes": "completed", "fate": "replaced", "work": 0,
    });
    assert_eq!(planned["items"], json!([expected]));
    assert_eq!(planned["read"], 3);
    let still = depot.parcel("p-1", |_| true).await;
    assert_eq!((&still["status"], &still["version"]), (&json!("running"), &before["version"]));

    let done = depot.replay("suppress", json!({ "reason": "a typing error" })).await;
    assert_eq!(done["counts"], json!({ "new": 0, "replaced": 1, "unchanged": 0, "left": 0 }));
    let parcel = depot.parcel("p-1", |it| it["status"] == "completed").await;
    assert_eq!(parcel["program"]["version"], 2);
    assert_eq!(parcel["outbox"]["items"], json!([]), "nothing is sent");
    let history = parcel["history"]["items"].as_array().unwrap();
    let labels: Vec<_> = history.iter().map(|record| &record["label"]).collect();
    assert_eq!(labels, ["ParcelPosted", "Reserved", "Delivered"]);
    assert!(history[2]["note"].as_str().unwrap().ends_with("replayed by ann: a typing error"));
    assert_eq!(work_ids(&parcel)[0], work_ids(&before)[0], "the same work under the same id");
    let again = depot.replay("suppress", json!({})).await;
    assert_eq!(again["counts"]["unchanged"], 1, "{again}");
    depot.happens("Delivered", "p-1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_emitted_again_goes_out_under_its_old_ids() {
    let depot = Depot::open().await;
    let before = depot.deaf("p-1").await;
    depot.deaf("p-2").await;
    depot.mend().await;
    let done = depot.replay("emit", json!({ "only": ["p-1"] })).await;
    let expected = json!({
        "correlation": "p-1", "was": "running", "becomes": "completed", "fate": "replaced", "work": 3,
    });
    assert_eq!(done["items"], json!([expected]), "two commands and a fact");
    let parcel = depot.parcel("p-1", |it| it["outbox"]["items"] == json!([])).await;
    assert_eq!(work_ids(&parcel)[0], work_ids(&before)[0]);
    let other = depot.parcel("p-2", |_| true).await;
    assert_eq!(other["status"], "running", "it was not asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_saga_hears_of_what_was_before_it() {
    let depot = Depot { node: Node::start().await };
    depot.happens("ParcelPosted", "p-1").await;
    depot.happens("Reserved", "p-1").await;
    depot.mend().await;
    let done = depot.replay("emit", json!({})).await;
    assert_eq!(done["counts"]["new"], 1, "{done}");
    depot.parcel("p-1", |it| it["waits"][0]["name"] == "Delivered").await;
    depot.happens("Delivered", "p-1").await;
    depot.parcel("p-1", |it| it["status"] == "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_passes_in_a_suppressed_replay_as_it_did() {
    let depot = Depot { node: Node::start().await };
    depot.happens("ParcelPosted", "p-1").await;
    let impatient = PARCEL.replace("ok: Reservd", "ok: Reserved\n    timeout: 1ms");
    depot.deploy(&impatient).await;
    // The replay begins a moment later than the event: its timer has fired.
    let done = depot.replay("suppress", json!({})).await;
    assert_eq!(done["items"][0]["becomes"], "failed", "{done}");
    depot.parcel("p-1", |it| it["status"] == "failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_that_the_bus_cannot_tell_whole_is_left_alone() {
    let depot = Depot::open().await;
    depot.deaf("p-1").await;
    let signal = json!({ "type": "Reservd", "data": {} });
    depot.node.post("/v1/sagas/parcel/p-1/signal", &signal).await.ok();
    depot.mend().await;
    let done = depot.replay("suppress", json!({})).await;
    let why = done["items"][0]["why"].as_str().unwrap();
    assert!(why.starts_with("Reservd at ") && why.contains("was not on the bus"), "{why}");
    let late = depot.replay("suppress", json!({ "from": "2100-01-01T00:00:00Z" })).await;
    assert_eq!(late["read"], 0);

    let effect = depot.node.order("", "o-1", 125, "running").await;
    let order = json!({ "saga": "order", "from": START, "work": "emit", "by": "ann" });
    let done = depot.node.post("/v1/replays", &order).await.ok();
    // It stands as it would, but what the effect answered is known here alone.
    assert_eq!(done["counts"]["left"], 1, "{done}");
    let still = depot.node.get("/v1/sagas/order/o-1").await.ok();
    assert_eq!(still["version"], effect["version"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_order_is_refused() {
    let depot = Depot::open().await;
    for (change, code, says) in [
        (json!({ "from": "yesterday" }), "OR0002", "RFC 3339"),
        (json!({ "saga": "nobody" }), "OR0016", "nobody"),
        (json!({ "work": "perhaps" }), "OR0002", "perhaps"),
    ] {
        let mut order = json!({ "saga": "parcel", "from": START, "work": "suppress" });
        order.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answer = depot.node.ask(Method::POST, "", "/v1/replays", Body::from(order.to_string())).await;
        let detail = answer.problem(code);
        assert!(answer.text.contains(says), "{detail}");
    }
}
