//! What operators can tell an instance and a node.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::json;

use crate::node::{Node, event, placed};

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_an_event_for_one_instance() {
    let node = Node::start().await;
    node.order("", "o-1", 5, "running").await;
    let signal = json!({ "id": "s-1", "type": "Shipped", "data": { "orderId": "o-1" } });
    let answer = node.post("/v1/sagas/order/o-1/signal", &signal).await.ok();
    assert_eq!((&answer["applied"], &answer["status"]), (&json!(true), &json!("completed")));
    let again = node.post("/v1/sagas/order/o-1/signal", &signal).await.ok();
    assert_eq!(again["applied"], false);
    assert!(again["why"].is_string(), "{again}");
    let conflict = node.post("/v1/sagas/order/o-1/cancel", &json!({})).await;
    assert_eq!(conflict.status, StatusCode::CONFLICT);
    conflict.problem("OR0013");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_undoes_what_was_done() {
    let node = Node::start().await;
    let order = node.order("", "o-1", 5, "running").await;
    let stale = node.post("/v1/sagas/order/o-1/cancel", &json!({ "expected_version": 1 })).await;
    assert_eq!(stale.status, StatusCode::CONFLICT);
    assert!(stale.problem("OR0012").contains("stands at version 2, not 1"));
    let body = json!({ "expected_version": order["version"], "reason": "changed their mind" });
    assert_eq!(node.post("/v1/sagas/order/o-1/cancel", &body).await.ok()["applied"], true);
    node.until("", "/v1/sagas/order/o-1", |order| order["status"] == "cancelled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_stuck_is_skipped_or_completed_by_force() {
    let node = Node::start().await;
    node.order("", "o-1", 5, "running").await;
    for verb in ["skip", "force-complete"] {
        let path = format!("/v1/sagas/order/o-1/{verb}");
        assert!(node.post(&path, &json!({})).await.problem("OR0013").contains("stuck"));
    }
    let pause = json!({ "by": "alice", "reason": "the shop is closed" });
    node.post("/v1/sagas/order/o-1/pause", &pause).await.ok();
    let order = node.get("/v1/sagas/order/o-1").await.ok();
    let last = order["history"]["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["note"], "paused by alice: the shop is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_instance_keeps_its_inputs_until_it_is_resumed() {
    let node = Node::start().await;
    node.order("", "o-1", 5, "running").await;
    let paused = node.ask(Method::POST, "", "/v1/sagas/order/o-1/pause", Body::empty()).await.ok();
    assert_eq!(paused["paused"], true);
    let shipped = event("shipped-1", "Shipped", &json!({ "orderId": "o-1" }));
    node.post("/v1/events", &shipped).await.ok();
    let order = node.until("", "/v1/sagas/order/o-1", |order| order["held"] == 1).await;
    assert_eq!((&order["paused"], &order["status"]), (&json!(true), &json!("running")));
    node.ask(Method::POST, "", "/v1/sagas/order/o-1/resume", Body::empty()).await.ok();
    let order = node.until("", "/v1/sagas/order/o-1", |order| order["status"] == "completed").await;
    assert_eq!((&order["paused"], &order["held"]), (&json!(false), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_instance_is_tried_again() {
    let node = Node::start().await;
    node.refunds.store(false, Ordering::SeqCst);
    node.order("", "o-1", 5, "running").await;
    node.post("/v1/sagas/order/o-1/retry", &json!({})).await.problem("OR0013");
    node.post("/v1/sagas/order/o-1/cancel", &json!({})).await.ok();
    let stuck = node.until("", "/v1/sagas/order/o-1", |order| order["status"] == "stuck").await;
    assert_eq!(stuck["waits"][0]["kind"], "operator");
    assert_eq!(stuck["last_error"]["code"], "bank_closed");
    node.refunds.store(true, Ordering::SeqCst);
    assert_eq!(node.post("/v1/sagas/order/o-1/retry", &json!({})).await.ok()["applied"], true);
    node.until("", "/v1/sagas/order/o-1", |order| order["status"] == "cancelled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_with_a_mistake_changes_nothing_and_names_every_place() {
    let node = Node::start().await;
    let before = node.get("/v1/definitions/order").await.ok();
    let file = node.definitions().join("order.saga.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("timeout: 1h", "timeuot: 1h").replace("test.refund", "test.refnd"))
        .unwrap();
    let answer = node.post("/admin/reload", &json!(null)).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    answer.problem("OR0017");
    let errors = answer.json()["errors"].to_string();
    assert!(errors.contains("order.saga.yaml:") && errors.contains("timeuot"), "{errors}");
    assert_eq!(node.get("/v1/definitions/order").await.ok(), before);
    std::fs::write(&file, text.replace("version: 1", "version: 2")).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    let versions = node.get("/v1/definitions/order").await.ok();
    assert_eq!(versions["versions"][0]["version"], 2);
    assert_eq!(
        (&versions["versions"][0]["in_force"], &versions["versions"][1]["in_force"]),
        (&json!(true), &json!(false))
    );
    assert!(versions["versions"][1]["source"].as_str().unwrap().contains("version: 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_node_takes_no_events_and_says_when_to_come_back() {
    let node = Node::start().await;
    assert_eq!(node.get("/ready").await.ok(), json!({ "ready": true }));
    assert_eq!(node.post("/admin/drain", &json!(null)).await.ok(), json!({ "drained": true }));
    let refused = node.post("/v1/events", &placed("o-1", 5)).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    refused.problem("OR0018");
    assert_eq!(refused.headers["retry-after"], "5");
    node.get("/ready").await.problem("OR0018");
    assert_eq!(node.get("/health").await.ok()["status"], "ok");
    assert_eq!(node.get("/v1/sagas").await.ok()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_deployed_by_name_and_shown_with_who_and_since_when() {
    let node = Node::start().await;
    node.order("", "o-1", 5, "running").await;
    let text = std::fs::read_to_string(node.definitions().join("order.saga.yaml")).unwrap();
    let files = json!([{ "name": "order.saga.yaml", "text": text.replace("version: 1", "version: 2") }]);
    let bundle = json!({ "by": "alice", "files": files });
    let plan = node.post("/admin/deploy?dry_run=true", &bundle).await.ok();
    assert_eq!((&plan["dry_run"], &plan["changed"][0]["from_version"]), (&json!(true), &json!(1)));
    assert_eq!(node.get("/v1/definitions").await.ok()["items"][0]["version"], 1);
    let plan = node.post("/admin/deploy", &bundle).await.ok();
    assert_eq!((&plan["dry_run"], &plan["number"]), (&json!(false), &json!(2)));
    let shown = node.get("/v1/definitions/order?count=true").await.ok();
    let [new, old] = &shown["versions"].as_array().unwrap()[..] else { panic!("{shown}") };
    assert_eq!(
        (&new["in_force"], &new["deployed_by"], &new["live"]),
        (&json!(true), &json!("alice"), &json!(0))
    );
    assert_eq!((&old["in_force"], &old["live"], &old["ended"]), (&json!(false), &json!(1), &json!(0)));
    assert!(old["retired_at"].is_string() && new["retired_at"].is_null(), "{shown}");
    assert_eq!((&new["file"], &new["commands"]), (&json!("order.saga.yaml"), &json!(["shipping.Ship"])));
    assert_eq!(node.get("/v1/definitions").await.ok()["items"][0]["live"], json!(null));
    assert_eq!(node.post("/admin/collect", &json!(null)).await.ok(), json!({ "dropped": [], "kept": 1 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_cannot_be_read_is_refused_and_each_file_is_pointed_at() {
    let node = Node::start().await;
    let wrong = |files: serde_json::Value| {
        let node = &node;
        async move {
            let answer = node.post("/admin/deploy", &json!({ "files": files })).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
            answer.problem("OR0002");
            answer.json()["errors"].to_string()
        }
    };
    for (file, text) in [
        (json!({ "name": "../x.saga.yaml", "text": "" }), "is no name of a definition"),
        (json!({ "name": "order.yaml", "text": "" }), "is no name of a definition"),
        (json!({ "name": "x.saga.yaml" }), "either text or base64"),
        (json!({ "name": "x.saga.yaml", "text": "", "base64": "" }), "either text or base64"),
        (json!({ "name": "x.saga.wasm", "base64": "%" }), "base64"),
        (json!({ "name": "a.saga.yaml", "text": "" }), "is there twice"),
    ] {
        let errors = wrong(json!([{ "name": "a.saga.yaml", "text": "" }, file])).await;
        assert!(errors.contains("/files/1") && errors.contains(text), "{errors}");
    }
    let answer =
        node.post("/admin/deploy", &json!({ "files": [{ "name": "a.saga.yaml", "text": "a: [" }] })).await;
    answer.problem("OR0017");
    assert!(answer.text.contains("a.saga.yaml:"), "{answer:?}");
}
