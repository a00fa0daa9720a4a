//! Start of instances by request: results, idempotency, existing instances, signals with start.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};

use crate::api::node::Node;
use crate::harness::http::HttpResponse;

/// Saga whose start event has its correlation id in the envelope.
const NOTE: &str = "\
saga: note
version: 1
start: NoteWritten
vars: { text: =event.text, marks: '=[]' }
on:
  - event: Marked
    save: { marks: '=vars.marks + [event.n]' }
steps:
  - { id: read, do: { event: NoteRead }, timeout: 10m }
completed: { fact: NoteDone, data: { text: =vars.text, marks: =vars.marks } }
";

async fn notes() -> Node {
    Node::start_with(|config| {
        let definitions = config.definitions_dir.clone().unwrap();
        std::fs::write(definitions.join("note.saga.yaml"), NOTE).unwrap();
    })
    .await
}

fn order(id: &str, total: u64) -> Value {
    json!({ "orderId": id, "total": total })
}

fn shipped() -> Value {
    json!({ "type": "Shipped", "data": {} })
}

impl Node {
    async fn start_keyed(&self, path: &str, key: &str, body: &Value) -> HttpResponse {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(
            request
                .header("idempotency-key", key)
                .body(Body::from(body.to_string()))
                .unwrap(),
        )
        .await
    }

    /// Waits until the order waits for its shipment.
    async fn until_shipping(&self, id: &str) {
        let waits = |order: &Value| {
            order["waits"]
                .as_array()
                .is_some_and(|waits| waits.iter().any(|wait| wait["name"] == "Shipped"))
        };
        self.until("", &format!("/v1/sagas/order/{id}"), waits)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn start_request_waits_for_the_result() {
    let node = Node::start().await;
    let body = order("o-1", 5);
    let start = node.post("/v1/sagas/order?wait=30s", &body);
    let ship = async {
        node.until_shipping("o-1").await;
        node.post("/v1/sagas/order/o-1/signal", &shipped())
            .await
            .ok();
    };
    let (response, ()) = tokio::join!(start, ship);
    assert_eq!(response.status, StatusCode::OK, "{response:?}");
    let result = response.json();
    assert_eq!(
        (&result["status"], &result["existing"]),
        (&json!("completed"), &json!(false))
    );
    assert_eq!(
        result["result"],
        json!({ "event": "OrderCompleted", "data": { "orderId": "o-1" } })
    );
    assert_eq!(
        (&result["correlation"], &result["failure"]),
        (&json!("o-1"), &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn start_request_returns_the_failure() {
    let node = Node::start().await;
    let response = node
        .post("/v1/sagas/order?wait=30s", &order("o-1", 5000))
        .await;
    assert_eq!(response.status, StatusCode::OK, "{response:?}");
    let result = response.json();
    assert_eq!(
        (&result["status"], &result["failure"]["code"]),
        (&json!("failed"), &json!("card_declined"))
    );
    assert_eq!(
        result["result"],
        json!({ "event": "OrderFailed", "data": { "orderId": "o-1" } })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_instance_is_accepted_and_joined_later_by_several_requests() {
    let node = Node::start().await;
    let response = node
        .post("/v1/sagas/order?wait=10ms", &order("o/1", 5))
        .await;
    assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
    let location = response.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(location, "/v1/sagas/order/o%2F1/result");
    assert_eq!(response.json()["status"], "running");
    let waiting = format!("{location}?wait=30s");
    let ship = async {
        node.until_shipping("o%2F1").await;
        node.post("/v1/sagas/order/o%2F1/signal", &shipped())
            .await
            .ok();
    };
    let (first, second, ()) = tokio::join!(node.get(&waiting), node.get(&waiting), ship);
    for response in [first, second, node.get(&location).await] {
        assert_eq!(response.status, StatusCode::OK, "{response:?}");
        let result = response.json();
        assert_eq!(
            (&result["result"]["data"]["orderId"], &result["existing"]),
            (&json!("o/1"), &Value::Null)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn start_request_without_wait_is_accepted_when_it_is_durable() {
    let node = Node::start().await;
    let response = node.post("/v1/sagas/order", &order("o-1", 5)).await;
    assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
    let found = node.get("/v1/sagas/order/o-1").await.ok();
    assert_eq!(found["history"]["items"][0]["input_label"], "start");
    node.get("/v1/sagas/order/none/result?wait=1s")
        .await
        .rejected(404, "OR0011");
}

#[tokio::test(flavor = "multi_thread")]
async fn result_survives_a_restart() {
    let node = Node::start().await;
    node.post("/v1/sagas/order?wait=30s", &order("declined", 5000))
        .await
        .ok();
    node.post("/v1/sagas/order", &order("slow", 5)).await.ok();
    node.until_shipping("slow").await;
    let node = node.restart(|_| ()).await;
    let result = node.get("/v1/sagas/order/declined/result").await;
    assert_eq!(
        (result.status, &result.json()["result"]["event"]),
        (StatusCode::OK, &json!("OrderFailed"))
    );
    let signal = shipped();
    let ship = node.post("/v1/sagas/order/slow/signal", &signal);
    let (result, sent) = tokio::join!(node.get("/v1/sagas/order/slow/result?wait=30s"), ship);
    sent.ok();
    assert_eq!(
        (result.status, &result.json()["status"]),
        (StatusCode::OK, &json!("completed"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_ends_waiting_requests_with_a_retry_hint() {
    let node = Node::start().await;
    node.post("/v1/sagas/order", &order("o-1", 5)).await.ok();
    node.until_shipping("o-1").await;
    let (response, drained) = tokio::join!(
        node.get("/v1/sagas/order/o-1/result?wait=60s"),
        node.app.drain()
    );
    assert!(drained);
    response.rejected(503, "OR0018");
    assert_eq!(response.headers["retry-after"], "5");
    node.post("/v1/sagas/order", &order("o-2", 5))
        .await
        .rejected(503, "OR0018");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_concurrent_requests_start_one_instance() {
    let node = notes().await;
    let body = json!({ "text": "a" });
    let responses =
        join_all((0..50).map(|_| node.start_keyed("/v1/sagas/note", "key-1", &body))).await;
    let started: Vec<Value> = responses.iter().map(HttpResponse::ok).collect();
    assert_eq!(
        started
            .iter()
            .filter(|one| one["existing"] == false)
            .count(),
        1,
        "{started:?}"
    );
    assert!(
        started
            .iter()
            .all(|one| one["correlation"] == started[0]["correlation"]),
        "{started:?}"
    );
    let list = node.get("/v1/sagas?saga=note").await.ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    let other = node
        .start_keyed("/v1/sagas/note", "key-2", &body)
        .await
        .ok();
    assert_ne!(other["correlation"], started[0]["correlation"]);
    let fail = node
        .start_keyed("/v1/sagas/note?on_existing=fail", "key-1", &body)
        .await;
    assert_eq!(fail.ok()["existing"], true, "a repetition is no conflict");
    let orders =
        (0..50).map(|_| async { node.post("/v1/sagas/order", &order("o-1", 5)).await.ok() });
    let started = join_all(orders).await;
    assert_eq!(
        started
            .iter()
            .filter(|one| one["existing"] == false)
            .count(),
        1,
        "{started:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_decides_about_an_existing_instance() {
    let node = Node::start().await;
    node.refunds.store(false, Ordering::SeqCst);
    for id in ["running", "stuck"] {
        node.post("/v1/sagas/order", &order(id, 5)).await.ok();
        node.until_shipping(id).await;
    }
    node.post("/v1/sagas/order/stuck/cancel", &json!({}))
        .await
        .ok();
    node.until("", "/v1/sagas/order/stuck", |order| {
        order["status"] == "stuck"
    })
    .await;
    node.post("/v1/sagas/order?wait=30s", &order("failed", 5000))
        .await
        .ok();
    for status in ["running", "stuck", "failed"] {
        let joined = node
            .post("/v1/sagas/order?on_existing=return", &order(status, 5))
            .await
            .ok();
        assert_eq!(
            (&joined["existing"], &joined["status"]),
            (&json!(true), &json!(status))
        );
        let detail = node
            .post("/v1/sagas/order?on_existing=fail", &order(status, 5))
            .await;
        assert!(detail.rejected(409, "OR0032").contains(status));
    }
    for status in ["running", "stuck"] {
        let restart = node
            .post("/v1/sagas/order?on_existing=restart", &order(status, 5))
            .await;
        assert!(
            restart
                .rejected(409, "OR0013")
                .contains("only an ended instance")
        );
    }
    let joined = node
        .post("/v1/sagas/order?wait=0s", &order("failed", 5))
        .await;
    assert_eq!(
        (joined.status, &joined.json()["status"]),
        (StatusCode::OK, &json!("failed"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_runs_an_ended_instance_again_once() {
    let node = Node::start().await;
    let first = node
        .post("/v1/sagas/order?wait=30s", &order("o-1", 5000))
        .await
        .ok();
    assert_eq!(first["status"], "failed");
    let path = "/v1/sagas/order?on_existing=restart";
    let again = node.start_keyed(path, "again", &order("o-1", 5)).await.ok();
    assert_eq!(
        (&again["existing"], &again["status"]),
        (&json!(false), &json!("running"))
    );
    assert!(
        again["version"].as_u64() > first["version"].as_u64(),
        "{again}"
    );
    let repeated = node.start_keyed(path, "again", &order("o-1", 5)).await.ok();
    assert_eq!(
        repeated["existing"], true,
        "a repetition starts no third run and is no conflict"
    );
    node.until_shipping("o-1").await;
    let node = node.restart(|_| ()).await;
    node.post("/v1/sagas/order/o-1/signal", &shipped())
        .await
        .ok();
    let result = node.get("/v1/sagas/order/o-1/result?wait=30s").await.ok();
    assert_eq!(
        (&result["status"], &result["failure"]),
        (&json!("completed"), &Value::Null)
    );
    assert_eq!(result["result"]["event"], "OrderCompleted");
    let shown = node.get("/v1/sagas/order/o-1").await.ok();
    let labels: Vec<_> = shown["history"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["status"])
        .collect();
    assert_eq!(
        labels.iter().filter(|status| **status == "failed").count(),
        1,
        "both runs are in the history"
    );
    let list = node.get("/v1/sagas?status=failed").await.ok();
    assert_eq!(list["items"], json!([]), "the index has the new run only");
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_key_belongs_to_one_request() {
    let node = Node::start().await;
    let path = "/v1/sagas/order";
    node.start_keyed(path, "k-1", &order("o-1", 5)).await.ok();

    // Another body for the same instance, and for another one; another attribute.
    for (path, body) in [
        (path, order("o-1", 6)),
        (path, order("o-2", 5)),
        ("/v1/sagas/order?subject=s", order("o-1", 5)),
    ] {
        let response = node.start_keyed(path, "k-1", &body).await;
        let detail = response.rejected(422, "OR0037");
        assert!(detail.contains("\"k-1\" was used"), "{detail}");
    }
    assert_eq!(node.get("/v1/sagas/order/o-2").await.status, 404);

    let repeated = node.start_keyed(path, "k-1", &order("o-1", 5)).await.ok();
    assert_eq!(repeated["existing"], true);
    node.start_keyed(path, "k-2", &order("o-2", 5)).await.ok();

    // The result of an ended instance is known, or absent.
    let shipped = json!({ "type": "Shipped", "data": { "orderId": "o-2" } });
    let signal = "/v1/sagas/order/o-2/signal";
    node.until("", "/v1/sagas/order/o-2", |it| it["version"] == 2)
        .await;
    let ended = node.post(signal, &shipped).await.ok();
    assert_eq!(ended["status"], "completed");
    let joined = node.start_keyed(path, "k-2", &order("o-2", 5)).await;
    assert_eq!(joined.status, 202);
    assert_eq!(joined.json()["result"]["event"], "OrderCompleted");

    // A start that finds its instance has its key, too.
    for _ in 0..2 {
        let joined = node.start_keyed(path, "k-3", &order("o-2", 5)).await.ok();
        assert_eq!(joined["existing"], true);
        let other = node.start_keyed(path, "k-3", &order("o-3", 5)).await;
        other.rejected(422, "OR0037");
    }
    assert_eq!(node.get("/v1/sagas/order/o-3").await.status, 404);

    let node = node.restart(|_| ()).await;
    let reused = node.start_keyed(path, "k-1", &order("o-1", 6)).await;
    reused.rejected(422, "OR0037");
    node.start_keyed(path, "k-1", &order("o-1", 5)).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_with_start_starts_once_and_signals_once() {
    let node = notes().await;
    let body = |id: &str, n: u64| json!({ "id": id, "type": "Marked", "data": { "n": n }, "start": { "data": { "text": "a" } } });
    for _ in 0..2 {
        node.post("/v1/sagas/note/n-1/signal", &body("first", 1))
            .await
            .ok();
    }
    let marks = |count: usize| {
        move |note: &Value| {
            note["state"]["vars"]["marks"]
                .as_array()
                .is_some_and(|marks| marks.len() >= count)
        }
    };
    node.until("", "/v1/sagas/note/n-1", marks(1)).await;
    node.post("/v1/sagas/note/n-1/signal", &body("second", 2))
        .await
        .ok();
    let marked = node.until("", "/v1/sagas/note/n-1", marks(2)).await;
    assert_eq!(
        marked["state"]["vars"],
        json!({ "text": "a", "marks": [1, 2] })
    );
    let history = marked["history"]["items"].as_array().unwrap();
    let labels: Vec<_> = history
        .iter()
        .map(|entry| entry["input_label"].as_str().unwrap())
        .collect();
    assert_eq!(
        labels,
        ["start", "Marked", "start"],
        "the second request only signals"
    );
    let fail = json!({ "type": "Marked", "start": { "on_existing": "fail" } });
    let detail = node
        .post("/v1/sagas/note/n-1/signal", &fail)
        .await
        .rejected(422, "OR0002");
    assert!(detail.contains("on_existing"), "{detail}");
    let other = json!({ "type": "Shipped", "start": { "data": order("o-2", 5) } });
    let detail = node
        .post("/v1/sagas/order/o-1/signal", &other)
        .await
        .rejected(422, "OR0003");
    assert!(detail.contains("o-1") && detail.contains("o-2"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_with_start_survives_a_crash_between_both() {
    let node = notes().await;
    let body = json!({ "id": "s", "type": "NoteRead", "start": { "data": { "text": "a" } } });
    node.post("/v1/sagas/note/n-1/signal", &body).await.ok();
    // The signal may be applied or still be buffered.
    let node = node.restart(|_| ()).await;
    let result = node.get("/v1/sagas/note/n-1/result?wait=30s").await.ok();
    assert_eq!(
        result["result"],
        json!({ "event": "NoteDone", "data": { "text": "a", "marks": [] } })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_start_requests_are_rejected_with_the_remedy() {
    let node = notes().await;
    let missing = node
        .post("/v1/sagas/order", &json!({ "total": 5 }))
        .await
        .rejected(422, "OR0003");
    assert!(
        missing.contains("`orderId`") && missing.contains("state the correlation id"),
        "{missing}"
    );
    let other = node
        .post("/v1/sagas/order?correlation=o-2", &order("o-1", 5))
        .await;
    assert!(other.rejected(422, "OR0003").contains("o-2"));
    node.post("/v1/sagas/note?correlation=..", &json!({}))
        .await
        .rejected(400, "OR0008");
    let event = node
        .post("/v1/sagas/order?event=Shipped", &order("o-1", 5))
        .await
        .rejected(400, "OR0008");
    assert!(event.contains("start events: OrderPlaced"), "{event}");
    let wait = node
        .post("/v1/sagas/order?wait=2m", &order("o-1", 5))
        .await
        .rejected(400, "OR0008");
    assert!(wait.contains("the limit is 60s"), "{wait}");
    node.get("/v1/sagas/order/o-1/result?wait=2m")
        .await
        .rejected(400, "OR0008");
    node.post("/v1/sagas/none", &json!({}))
        .await
        .rejected(404, "OR0016");
    node.post("/v1/sagas/order?on_existing=maybe", &order("o-1", 5))
        .await
        .rejected(400, "OR0008");
    node.post("/v1/sagas/order?subject=", &order("o-1", 5))
        .await
        .rejected(400, "OR0008");
    node.post("/v1/sagas/order?dataversion=0", &order("o-1", 5))
        .await
        .rejected(400, "OR0008");
    node.start_keyed("/v1/sagas/order", &"x".repeat(200), &order("o-1", 5))
        .await
        .rejected(400, "OR0008");
    node.ask(Method::POST, "", "/v1/sagas/order", "{")
        .await
        .rejected(400, "OR0001");
    node.post("/v1/sagas/note?correlation=n", &json!({}))
        .await
        .rejected(422, "OR0033");
    assert_eq!(
        node.get("/v1/dead-letters").await.ok()["items"],
        json!([]),
        "nothing was stored"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_of_a_caller_have_a_limit() {
    let node = Node::start_with(|config| config.http.per_caller.max_long_polls = 1).await;
    node.post("/v1/sagas/order", &order("o-1", 5)).await.ok();
    node.until_shipping("o-1").await;
    let path = "/v1/sagas/order/o-1/result?wait=30s";
    let mut waiting = FuturesUnordered::from_iter([node.get(path), node.get(path)]);
    let rejected = waiting.next().await.unwrap();
    assert!(rejected.rejected(429, "OR0031").contains("max_long_polls"));
    node.post("/v1/sagas/order/o-1/signal", &shipped())
        .await
        .ok();
    assert_eq!(waiting.next().await.unwrap().ok()["status"], "completed");
}
