//! Replay: instances are rebuilt from their events.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use orlog_bus::Message;
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
        let depot = Self {
            node: Node::start().await,
        };
        depot.deploy(PARCEL).await;
        depot
    }

    async fn deploy(&self, definition: &str) {
        std::fs::write(self.node.definitions().join("parcel.saga.yaml"), definition).unwrap();
        self.node.post("/admin/reload", &json!({})).await.ok();
    }

    /// Activates the version with the correct event name.
    async fn fix_definition(&self) {
        self.deploy(
            &PARCEL
                .replace("Reservd", "Reserved")
                .replace("version: 1", "version: 2"),
        )
        .await;
    }

    async fn happens(&self, kind: &str, parcel: &str) {
        self.happens_as(&format!("{kind}-{parcel}"), kind, parcel)
            .await;
    }

    async fn happens_as(&self, id: &str, kind: &str, parcel: &str) {
        let mut event = event(id, kind, &json!({ "parcelId": parcel }));
        event["correlationid"] = json!(parcel);
        let response = self
            .node
            .ask(Method::POST, "", "/v1/events", event.to_string())
            .await;
        assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
    }

    /// Publishes a signal for an instance of this version on the bus.
    async fn mark(&self, id: &str, expected_version: u64) {
        let body = json!({ "specversion": "1.0", "id": id, "type": "Marked", "source": "urn:desk", "data": {},
            "orlogexpectedversion": expected_version });
        let message = Message {
            subject: "workflow.marks.t-1".to_owned(),
            id: Some(id.to_owned()),
            headers: vec![("content-type".into(), "application/cloudevents+json".into())],
            payload: body.to_string().into(),
        };
        self.node
            .app
            .bus
            .publish(vec![Arc::new(message)])
            .await
            .unwrap();
    }

    async fn parcel(&self, parcel: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.node
            .until("", &format!("/v1/sagas/parcel/{parcel}"), fits)
            .await
    }

    async fn replay(&self, work: &str, more: Value) -> Value {
        let mut order = json!({ "saga": "parcel", "from": START, "work": work, "user": "ann" });
        order
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.node.post("/v1/replays", &order).await.ok()
    }

    /// Publishes the events of a delivered parcel. The first version ignores `Reserved`, and keeps `Delivered`
    /// for a step that does not start.
    async fn deaf(&self, parcel: &str) -> Value {
        self.happens("ParcelPosted", parcel).await;
        self.parcel(parcel, |it| it["outbox"]["items"] == json!([]))
            .await;
        self.happens("Reserved", parcel).await;
        self.happens("Delivered", parcel).await;
        self.parcel(parcel, |it| {
            it["state"]["early_events"] == json!(["Delivered"])
        })
        .await
    }
}

fn work_ids(parcel: &Value) -> Vec<Value> {
    let records = parcel["history"]["items"].as_array().unwrap().iter();
    records
        .flat_map(|record| record["work"].as_array().unwrap().clone())
        .collect()
}

/// Requirements: R15.
#[tokio::test(flavor = "multi_thread")]
async fn replay_applies_missed_events_to_a_fixed_definition() {
    let depot = ReplayNode::open().await;
    let before = depot.deaf("p-1").await;
    depot.fix_definition().await;
    let planned = depot.replay("suppress", json!({ "dry_run": true })).await;
    let expected = json!({
        "correlation": "p-1", "before": "running", "after": "completed", "result": "replaced", "work": 0, "inputs": 0,
    });
    assert_eq!(planned["items"], json!([expected]));
    assert_eq!(planned["read"], 3);
    let current = depot.parcel("p-1", |_| true).await;
    assert_eq!(
        (&current["status"], &current["version"]),
        (&json!("running"), &before["version"])
    );

    let done = depot
        .replay("suppress", json!({ "reason": "a typing error" }))
        .await;
    assert_eq!(
        done["counts"],
        json!({ "created": 0, "replaced": 1, "redelivered": 0, "unchanged": 0, "skipped": 0 })
    );
    let parcel = depot.parcel("p-1", |it| it["status"] == "completed").await;
    assert_eq!(parcel["definition"]["version"], 2);
    assert_eq!(parcel["outbox"]["items"], json!([]), "nothing is sent");
    let history = parcel["history"]["items"].as_array().unwrap();
    let labels: Vec<_> = history
        .iter()
        .map(|record| &record["input_label"])
        .collect();
    assert_eq!(labels, ["ParcelPosted", "Reserved", "Delivered"]);
    assert!(
        history[2]["note"]
            .as_str()
            .unwrap()
            .ends_with("replayed by ann: a typing error")
    );
    assert_eq!(
        work_ids(&parcel)[0],
        work_ids(&before)[0],
        "the same work under the same id"
    );
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
        "correlation": "p-1", "before": "running", "after": "completed", "result": "replaced", "work": 3, "inputs": 0,
    });
    assert_eq!(done["items"], json!([expected]), "two commands and a fact");
    let parcel = depot
        .parcel("p-1", |it| it["outbox"]["items"] == json!([]))
        .await;
    assert_eq!(work_ids(&parcel)[0], work_ids(&before)[0]);
    let other = depot.parcel("p-2", |_| true).await;
    assert_eq!(other["status"], "running", "it was not asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_creates_instances_of_a_new_saga() {
    let depot = ReplayNode {
        node: Node::start().await,
    };
    depot.happens("ParcelPosted", "p-1").await;
    depot.happens("Reserved", "p-1").await;
    depot.fix_definition().await;
    let done = depot.replay("emit", json!({})).await;
    assert_eq!(done["counts"]["created"], 1, "{done}");
    depot
        .parcel("p-1", |it| it["waits"][0]["name"] == "Delivered")
        .await;
    depot.happens("Delivered", "p-1").await;
    depot.parcel("p-1", |it| it["status"] == "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suppressed_replay_uses_recorded_time() {
    let depot = ReplayNode {
        node: Node::start().await,
    };
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
    depot
        .node
        .post("/v1/sagas/parcel/p-1/signal", &signal)
        .await
        .ok();
    depot.fix_definition().await;
    let done = depot.replay("suppress", json!({})).await;
    let reason = done["items"][0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("Reservd at ") && reason.contains("was not on the bus"),
        "{reason}"
    );
    let late = depot
        .replay("suppress", json!({ "from": "2100-01-01T00:00:00Z" }))
        .await;
    assert_eq!(late["read"], 0);
}

/// Activates another version of the orders, with another fact at the end and the same work.
async fn end_with(node: &Node, version: u32, fact: &str) {
    let file = node.definitions().join("order.saga.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace(
        &format!("version: {}", version - 1),
        &format!("version: {version}"),
    );
    let (head, _) = text.split_once("failed: {").unwrap();
    std::fs::write(&file, format!("{head}failed: {{ fact: {fact} }}\n")).unwrap();
    node.post("/admin/reload", &json!({})).await.ok();
}

async fn replay_orders(node: &Node, work: &str) -> Value {
    let order = json!({ "saga": "order", "from": START, "work": work, "user": "ann" });
    node.post("/v1/replays", &order).await.ok()
}

/// The order is charged, not shipped, and refunded: an effect, a command, a compensation.
///
/// Requirements: R15.
#[tokio::test(flavor = "multi_thread")]
async fn instances_without_inputs_on_the_bus_are_listed_with_the_reason() {
    let depot = ReplayNode::open().await;
    depot.happens("ParcelPosted", "p-bus").await;
    depot.parcel("p-bus", |_| true).await;
    let started = depot
        .node
        .post("/v1/sagas/parcel", &json!({ "parcelId": "p-http" }))
        .await;
    assert!(started.status.is_success(), "{started:?}");
    let replayed = depot.replay("suppress", json!({ "dry_run": true })).await;
    let items = replayed["items"].as_array().unwrap();
    let of = |correlation: &str| {
        let found = items.iter().find(|item| item["correlation"] == correlation);
        found.unwrap_or_else(|| panic!("no {correlation}: {replayed}"))
    };
    assert_eq!(of("p-bus")["result"], "unchanged");
    assert_eq!(of("p-http")["result"], "skipped");
    let reason = of("p-http")["reason"].as_str().unwrap();
    assert!(
        reason.contains("was not on the bus; a replay cannot rebuild it"),
        "{reason}"
    );
    assert_eq!(replayed["counts"]["skipped"], 1, "{replayed}");

    let only = json!({ "dry_run": true, "only": ["p-http", "p-none", "p-bus"] });
    let replayed = depot.replay("suppress", only).await;
    let results: Vec<_> = replayed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["correlation"].as_str(), item["result"].as_str()))
        .collect();
    let expected = [
        ("p-bus", "unchanged"),
        ("p-http", "skipped"),
        ("p-none", "skipped"),
    ];
    let expected = expected.map(|(correlation, result)| (Some(correlation), Some(result)));
    assert_eq!(results, expected, "{replayed}");
}

/// Requirements: R9, R15.
#[tokio::test(flavor = "multi_thread")]
async fn replay_uses_the_results_of_the_effects_of_its_own_process() {
    let node = Node::start().await;
    node.order("", "o-1", 125, "running").await;
    let mut rejected = event(
        "not-shipped-o-1",
        "NotShipped",
        &json!({ "orderId": "o-1" }),
    );
    rejected["correlationid"] = json!("o-1");
    node.post("/v1/events", &rejected).await.ok();
    // The results are on the bus when nothing is left in the outbox.
    let is_published =
        |order: &Value| order["status"] == "failed" && order["outbox"]["items"] == json!([]);
    let failed = node.until("", "/v1/sagas/order/o-1", is_published).await;
    let equal = replay_orders(&node, "suppress").await;
    assert_eq!(equal["counts"]["unchanged"], 1, "{equal}");

    let inputs = |order: &Value, field: &str| -> Vec<Value> {
        let history = order["history"]["items"].as_array().unwrap();
        history.iter().map(|entry| entry[field].clone()).collect()
    };
    end_with(&node, 2, "OrderCancelled").await;
    let silent = replay_orders(&node, "suppress").await;
    assert_eq!(
        (&silent["counts"]["replaced"], &silent["items"][0]["work"]),
        (&json!(1), &json!(0)),
        "{silent}"
    );
    let order = node
        .until("", "/v1/sagas/order/o-1", |it| {
            it["definition"]["version"] == 2
        })
        .await;
    assert_eq!(
        inputs(&order, "at"),
        inputs(&failed, "at"),
        "the times are those of the transitions"
    );

    end_with(&node, 3, "OrderAbandoned").await;
    let emitted = replay_orders(&node, "emit").await;
    assert_eq!(emitted["counts"]["replaced"], 1, "{emitted}");
    assert_eq!(
        emitted["items"][0]["work"], 3,
        "a command and two facts, but no effect: {emitted}"
    );
    let order = node
        .until("", "/v1/sagas/order/o-1", |it| {
            it["outbox"]["items"] == json!([])
        })
        .await;
    assert_eq!(
        (&order["status"], &order["definition"]["version"]),
        (&json!("failed"), &json!(3))
    );
    assert_eq!(
        inputs(&order, "input_label"),
        inputs(&failed, "input_label")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_skips_an_instance_whose_results_are_not_published() {
    let node = Node::start_with(|config| config.results.publish = false).await;
    let order = node.order("", "o-1", 125, "running").await;
    let done = replay_orders(&node, "emit").await;
    // The rebuilt state would wait for the charge again.
    assert_eq!(done["counts"]["skipped"], 1, "{done}");
    assert!(
        done["items"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("was not on the bus"),
        "{done}"
    );
    let current = node.get("/v1/sagas/order/o-1").await.ok();
    assert_eq!(current["version"], order["version"]);
}

/// Requirements: R15.
#[tokio::test(flavor = "multi_thread")]
async fn redelivery_applies_missed_events_once_and_starts_missed_instances() {
    let depot = ReplayNode {
        node: Node::start().await,
    };
    depot.happens("ParcelPosted", "p-1").await;
    depot.happens("Reserved", "p-1").await;
    depot.fix_definition().await;
    let all = json!({ "saga": "parcel", "from": START, "redeliver": true, "user": "ann" });
    let one = json!({ "saga": "parcel", "from": START, "redeliver": true, "only": ["p-2"] });
    let mut dry = all.clone();
    dry["dry_run"] = json!(true);
    let planned = depot.node.post("/v1/replays", &dry).await.ok();
    assert_eq!(
        (
            &planned["counts"]["created"],
            &planned["items"][0]["inputs"]
        ),
        (&json!(1), &json!(2))
    );
    assert_eq!(
        depot.node.post("/v1/replays", &one).await.ok()["items"],
        json!([])
    );
    depot
        .node
        .get("/v1/sagas/parcel/p-1")
        .await
        .problem("OR0011");

    let done = depot.node.post("/v1/replays", &all).await.ok();
    assert_eq!(done["items"][0]["after"], "running", "{done}");
    let parcel = depot
        .parcel("p-1", |it| it["waits"][0]["name"] == "Delivered")
        .await;
    let repeated = depot.node.post("/v1/replays", &all).await.ok();
    assert_eq!(repeated["counts"]["unchanged"], 1, "{repeated}");
    assert_eq!(
        depot.parcel("p-1", |_| true).await["version"],
        parcel["version"]
    );
    depot.happens("Delivered", "p-1").await;
    depot.parcel("p-1", |it| it["status"] == "completed").await;
}

/// Requirements: R15.
#[tokio::test(flavor = "multi_thread")]
async fn redelivery_continues_an_instance_that_a_rebuild_must_skip() {
    let depot = ReplayNode::open().await;
    depot.deaf("p-1").await;
    depot.fix_definition().await;
    let path = "/v1/sagas/parcel/p-1";
    depot
        .node
        .post(&format!("{path}/pause"), &json!({}))
        .await
        .ok();
    let all = json!({ "saga": "parcel", "from": START, "redeliver": true, "user": "ann" });
    let paused = depot.node.post("/v1/replays", &all).await.ok();
    assert_eq!(
        paused["items"][0]["reason"], "it is paused; resume it first",
        "{paused}"
    );
    depot
        .node
        .post(&format!("{path}/resume"), &json!({}))
        .await
        .ok();
    let rebuilt = depot.replay("suppress", json!({ "dry_run": true })).await;
    assert_eq!(rebuilt["counts"]["skipped"], 1, "{rebuilt}");
    let migration = json!({ "from": "1", "only": ["p-1"] });
    depot
        .node
        .post("/v1/definitions/parcel/migrate", &migration)
        .await
        .ok();
    let done = depot.node.post("/v1/replays", &all).await.ok();
    let expected = json!({
        "correlation": "p-1", "before": "running", "after": "completed", "result": "redelivered", "work": 0, "inputs": 1,
    });
    assert_eq!(
        done["items"],
        json!([expected]),
        "only `Reserved` was missed"
    );
    let parcel = depot
        .parcel("p-1", |it| it["outbox"]["items"] == json!([]))
        .await;
    let history = parcel["history"]["items"].as_array().unwrap();
    assert_eq!(
        history
            .iter()
            .filter(|entry| entry["input_label"] == "Reserved")
            .count(),
        1,
        "{parcel}"
    );
}

/// Requirements: R15.
#[tokio::test(flavor = "multi_thread")]
async fn redelivery_does_not_start_a_purged_instance_again() {
    let depot = ReplayNode {
        node: Node::start().await,
    };
    depot.fix_definition().await;
    for kind in ["ParcelPosted", "Reserved", "Delivered"] {
        depot.happens(kind, "p-1").await;
    }
    let parcel = depot
        .parcel("p-1", |it| {
            it["status"] == "completed" && it["outbox"]["items"] == json!([])
        })
        .await;
    let key = orlog_model::InstanceKey {
        tenant: orlog_model::TenantId::default_tenant(),
        saga: "parcel".parse().unwrap(),
        correlation: "p-1".parse().unwrap(),
    };
    let version = parcel["version"].as_u64().unwrap();
    let runtime = &depot.node.app.runtime;
    orlog_testkit::wait::until("the instance is purged", async || {
        runtime
            .purge_instance(key.clone(), version)
            .await
            .unwrap()
            .then_some(())
    })
    .await;
    depot
        .node
        .get("/v1/sagas/parcel/p-1")
        .await
        .problem("OR0011");
    let all = json!({ "saga": "parcel", "from": START, "redeliver": true, "user": "ann" });
    let done = depot.node.post("/v1/replays", &all).await.ok();
    assert_eq!(done["counts"]["created"], 0, "{done}");
    depot
        .node
        .get("/v1/sagas/parcel/p-1")
        .await
        .problem("OR0011");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_replay_request_is_rejected() {
    let depot = ReplayNode::open().await;
    for (change, code, expected) in [
        (json!({ "from": "yesterday" }), "OR0002", "RFC 3339"),
        (json!({ "saga": "unknown" }), "OR0016", "unknown"),
        (json!({ "work": "perhaps" }), "OR0002", "perhaps"),
        (
            json!({ "work": null }),
            "OR0002",
            "set it to `suppress` or `emit`, or set `redeliver`",
        ),
        (
            json!({ "redeliver": true }),
            "OR0002",
            "remove `work` or `redeliver`",
        ),
    ] {
        let mut order = json!({ "saga": "parcel", "from": START, "work": "suppress" });
        order
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let response = depot
            .node
            .ask(
                Method::POST,
                "",
                "/v1/replays",
                Body::from(order.to_string()),
            )
            .await;
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
    let depot = ReplayNode {
        node: Node::start().await,
    };
    depot.deploy(MARKS).await;
    depot.happens("MarksOpened", "t-1").await;
    for mark in 0..3 {
        let mut marked = event(
            &format!("mark-{mark}"),
            "Marked",
            &json!({ "parcelId": "t-1" }),
        );
        marked["correlationid"] = json!("t-1");
        depot.node.post("/v1/events", &marked).await.ok();
    }
    let path = "/v1/sagas/marks/t-1";
    let before = depot
        .node
        .until("", path, |saga| saga["state"]["vars"]["marks"] == 3)
        .await;
    let without_handler = MARKS
        .replace("version: 1", "version: 2")
        .replace("marks + 1", "marks + 0");
    depot
        .deploy(&without_handler.replace("event: Marked", "event: MarkedTwice"))
        .await;
    let order = json!({ "saga": "marks", "from": START, "work": "suppress", "user": "ann" });
    let done = depot.node.post("/v1/replays", &order).await.ok();
    assert_eq!(done["counts"]["replaced"], 1, "{done}");
    let after = depot
        .node
        .until("", path, |saga| saga["state"]["vars"]["marks"] == 0)
        .await;
    assert!(
        after["version"].as_u64() > before["version"].as_u64(),
        "{after}"
    );
    assert_eq!(
        after["history"]["items"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()["version"],
        after["version"]
    );
    let stale = json!({ "expected_version": before["version"] });
    depot
        .node
        .post(&format!("{path}/pause"), &stale)
        .await
        .problem("OR0012");
    depot
        .node
        .post(
            &format!("{path}/pause"),
            &json!({ "expected_version": after["version"] }),
        )
        .await
        .ok();
}

/// The version of an instance that was replayed is higher than the number of its transitions.
#[tokio::test(flavor = "multi_thread")]
async fn replay_skips_an_instance_whose_conditional_signal_it_would_reject() {
    let depot = ReplayNode {
        node: Node::start_with(|config| config.results.publish = true).await,
    };
    let path = "/v1/sagas/marks/t-1";
    let order = json!({ "saga": "marks", "from": START, "work": "suppress", "user": "ann" });
    let version = |number: u32| {
        let handler = format!("marks + {number}");
        MARKS
            .replace("version: 1", &format!("version: {number}"))
            .replace("marks + 1", &handler)
    };
    depot.deploy(&version(1)).await;
    depot.happens("MarksOpened", "t-1").await;
    depot.mark("m-1", 1).await;
    depot
        .node
        .until("", path, |saga| saga["state"]["vars"]["marks"] == 1)
        .await;
    depot.deploy(&version(2)).await;
    let done = depot.node.post("/v1/replays", &order).await.ok();
    assert_eq!(done["counts"]["replaced"], 1, "{done}");
    let replayed = depot
        .node
        .until("", path, |saga| saga["state"]["vars"]["marks"] == 2)
        .await;
    assert_eq!(replayed["version"], 3);
    depot.mark("m-2", 3).await;
    depot
        .node
        .until("", path, |saga| saga["state"]["vars"]["marks"] == 4)
        .await;
    depot.deploy(&version(3)).await;
    let done = depot.node.post("/v1/replays", &order).await.ok();
    assert_eq!(done["counts"]["skipped"], 1, "{done}");
    let reason = done["items"][0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the replay would reject Marked"),
        "{reason}"
    );
    assert_eq!(depot.node.get(path).await.ok()["state"]["vars"]["marks"], 4);
}

/// Saga with a run for each mark.
const RUNS: &str = r"
saga: parcel
version: 1
start: ParcelPosted
correlate: parcelId
vars: { parcelId: =event.parcelId }
steps:
  - { id: reserve, do: { event: Reserved } }
  - { id: deliver, do: { event: Delivered } }
  - { id: again, do: { restart_as_new: ParcelPosted, data: { parcelId: =vars.parcelId } } }
";

/// A signal of the API, which is not on the bus, was applied in a run whose history is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn replay_skips_an_instance_whose_earlier_runs_are_deleted() {
    let depot = ReplayNode {
        node: Node::start_with(|config| config.results.publish = true).await,
    };
    depot.deploy(RUNS).await;
    let path = "/v1/sagas/parcel/p-1";
    depot.happens("ParcelPosted", "p-1").await;
    depot.parcel("p-1", |it| it["version"] == 1).await;
    depot
        .node
        .post(
            &format!("{path}/signal"),
            &json!({ "type": "Reserved", "data": {} }),
        )
        .await
        .ok();
    depot.happens_as("d-1", "Delivered", "p-1").await;
    depot.parcel("p-1", |it| it["state"]["run"] == 2).await;
    depot.happens_as("r-2", "Reserved", "p-1").await;
    depot.happens_as("d-2", "Delivered", "p-1").await;
    let before = depot.parcel("p-1", |it| it["state"]["run"] == 3).await;
    assert_eq!(
        before["history"]["items"][0]["version"], 4,
        "the entries of the first run are deleted"
    );
    let done = depot.replay("suppress", json!({})).await;
    assert_eq!(done["counts"]["skipped"], 1, "{done}");
    let reason = done["items"][0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("its history begins at version 4"),
        "{reason}"
    );
    assert_eq!(
        depot.parcel("p-1", |_| true).await["version"],
        before["version"]
    );
}
