//! Events in, in every format.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::node::{Answer, Node, event, placed};

async fn publish(node: &Node, content_type: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    let request = Request::post("/v1/events").header("content-type", content_type);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    node.send(request.body(body.into()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_runs_from_its_event_to_the_command_and_to_its_end() {
    let node = Node::start().await;
    let order = node.order("", "o-1", 5, "running").await;
    assert_eq!((&order["reference"], &order["version"]), (&json!("o-1"), &json!(2)));
    let shipped = event("shipped-1", "Shipped", &json!({ "orderId": "o-1" }));
    assert_eq!(node.post("/v1/events", &shipped).await.status, StatusCode::ACCEPTED);
    let order = node.until("", "/v1/sagas/order/o-1", |order| order["status"] == "completed").await;
    let history = order["history"]["items"].as_array().unwrap();
    assert_eq!(history.first().unwrap()["label"], "OrderPlaced");
    assert_eq!(history.last().unwrap()["label"], "Shipped");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_accepted_once_however_often_it_is_sent() {
    let node = Node::start().await;
    let first = node.post("/v1/events", &placed("o-1", 5)).await.ok();
    assert_eq!(first["accepted"][0]["duplicate"], false);
    let again = node.post("/v1/events", &placed("o-1", 5)).await.ok();
    assert_eq!(again["accepted"][0]["duplicate"], true);
    assert_eq!(again["accepted"][0]["sequence"], first["accepted"][0]["sequence"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_format_is_read() {
    let node = Node::start().await;
    let structured = placed("structured", 5).to_string();
    publish(&node, "application/cloudevents+json; charset=utf-8", &[], structured).await.ok();
    let batch = json!([placed("batch-1", 5), placed("batch-2", 5)]).to_string();
    publish(&node, "application/cloudevents-batch+json", &[], batch).await.ok();
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "placed-binary"),
        ("ce-type", "OrderPlaced"),
        ("ce-source", "urn:shop"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ];
    publish(&node, "application/json", &binary, r#"{"orderId":"binary","total":5}"#).await.ok();
    let envelope = |id: &str| {
        json!({
            "event_id": format!("placed-{id}"), "aggregate_id": id, "aggregate_type": "order",
            "event_type": "OrderPlaced", "payload_json": format!(r#"{{"orderId":"{id}","total":5}}"#),
        })
    };
    publish(&node, "application/json", &[], envelope("envelope").to_string()).await.ok();
    let envelopes = json!([envelope("envelope-1"), envelope("envelope-2"), placed("mixed", 5)]);
    let accepted = publish(&node, "application/json", &[], envelopes.to_string()).await.ok();
    let ids: Vec<&str> =
        accepted["accepted"].as_array().unwrap().iter().map(|a| a["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["placed-envelope-1", "placed-envelope-2", "placed-mixed"]);
    assert_eq!(publish(&node, "application/json", &[], "[]").await.ok(), json!({ "accepted": [] }));
    let all = |found: &Value| found["items"].as_array().unwrap().len() == 8;
    node.until("", "/v1/sagas", |found| found["items"].as_array().is_some() && all(found)).await;
    let order = node.get("/v1/sagas/order/binary").await.ok();
    assert_eq!(order["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_a_trace_belong_to_that_of_the_request() {
    let node = Node::start().await;
    let trace = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")];
    publish(&node, "application/json", &trace, placed("o-1", 5).to_string()).await.ok();
    let order = node.until("", "/v1/sagas/order/o-1", |_| true).await;
    assert_eq!(order["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_one_wrong_event_is_refused_whole() {
    let node = Node::start().await;
    let before = node.app.bus.last_sequence().await.unwrap();
    let mut batch = vec![placed("o-0", 5), placed("o-1", 5), placed("o-2", 5), placed("o-3", 5)];
    batch[3]["time"] = json!("yesterday");
    batch[2].as_object_mut().unwrap().remove("type");
    let answer = node.post("/v1/events", &json!(batch)).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let detail = answer.problem("OR0003");
    assert!(
        detail.starts_with("2 of 4 events cannot be accepted, so none is; the first is at /2/type"),
        "{detail}"
    );
    let pointers: Vec<Value> =
        answer.json()["errors"].as_array().unwrap().iter().map(|e| e["pointer"].clone()).collect();
    assert_eq!(pointers, ["/2/type", "/3/time"]);
    assert_eq!(node.app.bus.last_sequence().await.unwrap(), before);
}
