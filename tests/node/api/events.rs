//! Publishing of events in all formats.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use orlog_testkit::wait::until_ok;
use serde_json::{Value, json};

use crate::api::node::{Node, event, placed};
use crate::harness::http::HttpResponse;

async fn publish(
    node: &Node,
    content_type: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> HttpResponse {
    let request = Request::post("/v1/events").header("content-type", content_type);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    node.send(request.body(body.into()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn order_runs_from_event_to_completion() {
    let node = Node::start().await;
    let order = node.order("", "o-1", 5, "running").await;
    assert_eq!(
        (&order["reference"], &order["version"]),
        (&json!("o-1"), &json!(2))
    );
    let shipped = event("shipped-1", "Shipped", &json!({ "orderId": "o-1" }));
    assert_eq!(
        node.post("/v1/events", &shipped).await.status,
        StatusCode::ACCEPTED
    );
    let order = node
        .until("", "/v1/sagas/order/o-1", |order| {
            order["status"] == "completed"
        })
        .await;
    let history = order["history"]["items"].as_array().unwrap();
    assert_eq!(history.first().unwrap()["input_label"], "OrderPlaced");
    assert_eq!(history.last().unwrap()["input_label"], "Shipped");
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_event_is_accepted_once() {
    let node = Node::start().await;
    let first = node.post("/v1/events", &placed("o-1", 5)).await.ok();
    assert_eq!(first["accepted"][0]["duplicate"], false);
    let repeated = node.post("/v1/events", &placed("o-1", 5)).await.ok();
    assert_eq!(repeated["accepted"][0]["duplicate"], true);
    assert_eq!(
        repeated["accepted"][0]["sequence"],
        first["accepted"][0]["sequence"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_effect_are_reported_and_counted() {
    let node = Node::start().await;
    let unknown = node
        .post(
            "/v1/events?existing=true",
            &event("e-1", "Unheard", &json!({})),
        )
        .await
        .ok();
    assert_eq!(
        (
            &unknown["accepted"][0]["matched"],
            &unknown["accepted"][0]["existing"]
        ),
        (&json!(0), &Value::Null)
    );
    let placed_as = |id: &str| {
        let mut order = placed("o-1", 5);
        order["id"] = json!(id);
        order
    };
    let first = node
        .post("/v1/events?existing=true", &placed_as("p-1"))
        .await
        .ok();
    assert_eq!(
        (
            &first["accepted"][0]["matched"],
            &first["accepted"][0]["existing"]
        ),
        (&json!(1), &json!(false))
    );
    node.until("", "/v1/sagas/order/o-1", |_| true).await;
    let shipped = event("s-1", "Shipped", &json!({ "orderId": "o-1" }));
    let both = json!([placed_as("p-2"), shipped]);
    let second = node.post("/v1/events?existing=true", &both).await.ok();
    assert_eq!(second["accepted"][0]["existing"], true);
    assert_eq!(
        second["accepted"][1]["existing"],
        Value::Null,
        "it starts nothing"
    );
    assert_eq!(
        node.post("/v1/events", &placed_as("p-3")).await.ok()["accepted"][0]["existing"],
        Value::Null
    );
    until_ok("the counts", async || {
        let metrics = node.get("/metrics").await.text;
        let is_counted = |line: &str| metrics.contains(&format!("\n{line}\n"));
        let counted = is_counted("orlog_events_unmatched_total 1")
            && is_counted("orlog_start_events_ignored_total 2");
        if counted { Ok(()) } else { Err(metrics) }
    })
    .await;

    let instance = node.get("/v1/sagas/order/o-1").await.ok();
    let ignored = instance["ignored_events"].as_array().unwrap();
    let ids: Vec<_> = ignored.iter().map(|event| &event["id"]).collect();
    assert_eq!(ids, ["p-2", "p-3"], "{ignored:?}");
    assert_eq!(ignored[0]["type"], "OrderPlaced");
    assert!(
        ignored[0]["reason"].as_str().unwrap().len() > 10,
        "{ignored:?}"
    );
    let other = node.order("", "o-2", 5, "running").await;
    assert_eq!(other["ignored_events"], json!([]));
}

const IMPORT: &str = "
saga: import
version: 1
correlate: =envelope.subject
start: DocumentReceived
vars: { document: =event, region: =envelope.extensions.region, type: =envelope.datacontenttype, at: =envelope.time }
steps:
  - { id: released, do: { event: Released, when: envelope.extensions.region == vars.region }, save: { by: =envelope.source } }
";

/// The early event `Released` arrives before the document.
///
/// Requirements: R5.
#[tokio::test(flavor = "multi_thread")]
async fn attributes_and_xml_are_the_same_in_every_mode() {
    let node = Node::start().await;
    std::fs::write(node.definitions().join("import.saga.yaml"), IMPORT).unwrap();
    node.post("/admin/reload", &json!({})).await.ok();
    let xml = "<order id=\"1\">ä</order>";
    let structured = |id: &str| {
        json!({
            "specversion": "1.0", "id": format!("doc-{id}"), "source": "urn:scanner", "type": "DocumentReceived",
            "subject": id, "time": "2026-01-02T03:04:05Z", "datacontenttype": "application/xml", "region": "eu",
            "correlationid": id, "data": xml,
        })
    };
    for id in ["binary", "structured", "batch"] {
        let mut early = event(&format!("released-{id}"), "Released", &json!({}));
        early["subject"] = json!(id);
        early["correlationid"] = json!(id);
        early["region"] = json!("eu");
        node.post("/v1/events", &early).await.ok();
    }
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "doc-binary"),
        ("ce-source", "urn:scanner"),
        ("ce-type", "DocumentReceived"),
        ("ce-subject", "binary"),
        ("ce-time", "2026-01-02T03:04:05Z"),
        ("ce-region", "eu"),
        ("ce-correlationid", "binary"),
        // No publisher can forge the result of an effect.
        ("ce-orlogeffect", "test.charge"),
    ];
    publish(&node, "application/xml", &headers, xml).await.ok();
    publish(
        &node,
        "application/cloudevents+json",
        &[],
        structured("structured").to_string(),
    )
    .await
    .ok();
    let batch = json!([structured("batch")]).to_string();
    publish(&node, "application/cloudevents-batch+json", &[], batch)
        .await
        .ok();
    for id in ["binary", "structured", "batch"] {
        let path = format!("/v1/sagas/import/{id}");
        let import = node
            .until("", &path, |import| import["status"] == "completed")
            .await;
        let expected = json!({
            "document": xml, "region": "eu", "type": "application/xml", "at": "2026-01-02T03:04:05.000Z",
            "by": "urn:shop",
        });
        assert_eq!(import["state"]["vars"], expected, "{id}");
        let history = import["history"]["items"].as_array().unwrap();
        let attributes =
            json!({ "datacontenttype": "application/xml", "extensions": { "region": "eu" } });
        assert_eq!(history[0]["attributes"], attributes, "{id}");
        assert_eq!(
            history[1]["attributes"],
            json!({ "extensions": { "region": "eu" } }),
            "{id}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_format_is_accepted() {
    let node = Node::start().await;
    let structured = placed("structured", 5).to_string();
    publish(
        &node,
        "application/cloudevents+json; charset=utf-8",
        &[],
        structured,
    )
    .await
    .ok();
    let batch = json!([placed("batch-1", 5), placed("batch-2", 5)]).to_string();
    publish(&node, "application/cloudevents-batch+json", &[], batch)
        .await
        .ok();
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "placed-binary"),
        ("ce-type", "OrderPlaced"),
        ("ce-source", "urn:shop"),
        (
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
    ];
    publish(
        &node,
        "application/json",
        &binary,
        r#"{"orderId":"binary","total":5}"#,
    )
    .await
    .ok();
    let envelope = |id: &str| {
        json!({
            "event_id": format!("placed-{id}"), "aggregate_id": id, "aggregate_type": "order",
            "event_type": "OrderPlaced", "payload_json": format!(r#"{{"orderId":"{id}","total":5}}"#),
        })
    };
    publish(
        &node,
        "application/json",
        &[],
        envelope("envelope").to_string(),
    )
    .await
    .ok();
    let envelopes = json!([
        envelope("envelope-1"),
        envelope("envelope-2"),
        placed("mixed", 5)
    ]);
    let accepted = publish(&node, "application/json", &[], envelopes.to_string())
        .await
        .ok();
    let ids: Vec<&str> = accepted["accepted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["id"].as_str().unwrap())
        .collect();
    assert_eq!(
        ids,
        ["placed-envelope-1", "placed-envelope-2", "placed-mixed"]
    );
    assert_eq!(
        publish(&node, "application/json", &[], "[]").await.ok(),
        json!({ "accepted": [] })
    );
    let all = |found: &Value| found["items"].as_array().unwrap().len() == 8;
    node.until("", "/v1/sagas", |found| {
        found["items"].as_array().is_some() && all(found)
    })
    .await;
    let order = node.get("/v1/sagas/order/binary").await.ok();
    assert_eq!(order["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[tokio::test(flavor = "multi_thread")]
async fn event_without_traceparent_inherits_the_request_trace() {
    let node = Node::start().await;
    let trace = [(
        "traceparent",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )];
    publish(
        &node,
        "application/json",
        &trace,
        placed("o-1", 5).to_string(),
    )
    .await
    .ok();
    let order = node.until("", "/v1/sagas/order/o-1", |_| true).await;
    assert_eq!(order["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_with_one_invalid_event_is_rejected() {
    let node = Node::start().await;
    let before = node.app.bus.last_sequence().await.unwrap();
    let mut batch = vec![
        placed("o-0", 5),
        placed("o-1", 5),
        placed("o-2", 5),
        placed("o-3", 5),
    ];
    batch[3]["time"] = json!("yesterday");
    batch[2].as_object_mut().unwrap().remove("type");
    let response = node.post("/v1/events", &json!(batch)).await;
    assert_eq!(response.status, StatusCode::UNPROCESSABLE_ENTITY);
    let detail = response.problem("OR0003");
    assert!(
        detail.starts_with("2 of 4 events are invalid, batch rejected; first error at /2/type"),
        "{detail}"
    );
    let pointers: Vec<Value> = response.json()["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["pointer"].clone())
        .collect();
    assert_eq!(pointers, ["/2/type", "/3/time"]);
    assert_eq!(node.app.bus.last_sequence().await.unwrap(), before);
}
