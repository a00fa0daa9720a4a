//! Control requests of operators for instances and nodes.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::json;

use crate::api::node::{Node, event, placed};

/// Requirements: E3.
#[tokio::test(flavor = "multi_thread")]
async fn signal_reaches_one_instance_only() {
    let node = Node::start().await;
    node.order("", "o-1", 5, "running").await;
    let signal = json!({ "id": "s-1", "type": "Shipped", "data": { "orderId": "o-1" } });
    let response = node.post("/v1/sagas/order/o-1/signal", &signal).await.ok();
    assert_eq!(
        (&response["applied"], &response["status"]),
        (&json!(true), &json!("completed"))
    );
    let repeated = node.post("/v1/sagas/order/o-1/signal", &signal).await.ok();
    assert_eq!(repeated["applied"], false);
    assert!(repeated["reason"].is_string(), "{repeated}");
    let conflict = node.post("/v1/sagas/order/o-1/cancel", &json!({})).await;
    assert_eq!(conflict.status, StatusCode::CONFLICT);
    conflict.problem("OR0013");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_compensates_completed_steps() {
    let node = Node::start().await;
    let order = node.order("", "o-1", 5, "running").await;
    let stale = node
        .post(
            "/v1/sagas/order/o-1/cancel",
            &json!({ "expected_version": 1 }),
        )
        .await;
    assert_eq!(stale.status, StatusCode::CONFLICT);
    assert!(
        stale
            .problem("OR0012")
            .contains("instance version is 2, expected 1")
    );
    let body = json!({ "expected_version": order["version"], "reason": "changed their mind" });
    assert_eq!(
        node.post("/v1/sagas/order/o-1/cancel", &body).await.ok()["applied"],
        true
    );
    node.until("", "/v1/sagas/order/o-1", |order| {
        order["status"] == "cancelled"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skip_and_force_complete_require_stuck() {
    let node = Node::start().await;
    node.order("", "o-1", 5, "running").await;
    for verb in ["skip", "force-complete"] {
        let path = format!("/v1/sagas/order/o-1/{verb}");
        assert!(
            node.post(&path, &json!({}))
                .await
                .problem("OR0013")
                .contains("stuck")
        );
    }
    let pause = json!({ "user": "alice", "reason": "the shop is closed" });
    node.post("/v1/sagas/order/o-1/pause", &pause).await.ok();
    let order = node.get("/v1/sagas/order/o-1").await.ok();
    let last = order["history"]["items"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    assert_eq!(last["note"], "paused by alice: the shop is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_instance_buffers_inputs_until_resume() {
    let node = Node::start().await;
    node.order("", "o-1", 5, "running").await;
    let paused = node
        .ask(Method::POST, "", "/v1/sagas/order/o-1/pause", Body::empty())
        .await
        .ok();
    assert_eq!(paused["paused"], true);
    let shipped = event("shipped-1", "Shipped", &json!({ "orderId": "o-1" }));
    node.post("/v1/events", &shipped).await.ok();
    let order = node
        .until("", "/v1/sagas/order/o-1", |order| {
            order["buffered_inputs"] == 1
        })
        .await;
    assert_eq!(
        (&order["paused"], &order["status"]),
        (&json!(true), &json!("running"))
    );
    node.ask(
        Method::POST,
        "",
        "/v1/sagas/order/o-1/resume",
        Body::empty(),
    )
    .await
    .ok();
    let order = node
        .until("", "/v1/sagas/order/o-1", |order| {
            order["status"] == "completed"
        })
        .await;
    assert_eq!(
        (&order["paused"], &order["buffered_inputs"]),
        (&json!(false), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_resumes_a_stuck_instance() {
    let node = Node::start().await;
    node.refunds.store(false, Ordering::SeqCst);
    node.order("", "o-1", 5, "running").await;
    node.post("/v1/sagas/order/o-1/retry", &json!({}))
        .await
        .problem("OR0013");
    node.post("/v1/sagas/order/o-1/cancel", &json!({}))
        .await
        .ok();
    let stuck = node
        .until("", "/v1/sagas/order/o-1", |order| {
            order["status"] == "stuck"
        })
        .await;
    assert_eq!(stuck["waits"][0]["kind"], "operator");
    assert_eq!(stuck["last_error"]["code"], "bank_closed");
    node.refunds.store(true, Ordering::SeqCst);
    assert_eq!(
        node.post("/v1/sagas/order/o-1/retry", &json!({}))
            .await
            .ok()["applied"],
        true
    );
    node.until("", "/v1/sagas/order/o-1", |order| {
        order["status"] == "cancelled"
    })
    .await;
}

/// Requirements: R16.
#[tokio::test(flavor = "multi_thread")]
async fn reload_with_errors_changes_nothing_and_lists_all() {
    let node = Node::start().await;
    // Without an instance, the first version is collected once another one is active.
    node.order("", "o-1", 5, "running").await;
    let before = node.get("/v1/definitions/order").await.ok();
    let file = node.definitions().join("order.saga.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        text.replace("timeout: 1h", "timeuot: 1h")
            .replace("test.refund", "test.refnd"),
    )
    .unwrap();
    let response = node.post("/admin/reload", &json!(null)).await;
    assert_eq!(response.status, StatusCode::UNPROCESSABLE_ENTITY);
    response.problem("OR0017");
    let errors = response.json()["errors"].to_string();
    assert!(
        errors.contains("order.saga.yaml:") && errors.contains("timeuot"),
        "{errors}"
    );
    assert_eq!(node.get("/v1/definitions/order").await.ok(), before);
    std::fs::write(&file, text.replace("version: 1", "version: 2")).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    let versions = node.get("/v1/definitions/order").await.ok();
    assert_eq!(versions["versions"][0]["version"], 2);
    assert_eq!(
        (
            &versions["versions"][0]["active"],
            &versions["versions"][1]["active"]
        ),
        (&json!(true), &json!(false))
    );
    assert!(
        versions["versions"][1]["source"]
            .as_str()
            .unwrap()
            .contains("version: 1")
    );
}

/// Requirements: R16.
#[tokio::test(flavor = "multi_thread")]
async fn draining_node_rejects_events_with_retry_after() {
    let node = Node::start().await;
    assert_eq!(node.get("/ready").await.ok(), json!({ "ready": true }));
    assert_eq!(
        node.post("/admin/drain", &json!(null)).await.ok(),
        json!({ "drained": true })
    );
    let rejected = node.post("/v1/events", &placed("o-1", 5)).await;
    assert_eq!(rejected.status, StatusCode::SERVICE_UNAVAILABLE);
    rejected.problem("OR0018");
    assert_eq!(rejected.headers["retry-after"], "5");
    node.get("/ready").await.problem("OR0018");
    assert_eq!(node.get("/health").await.ok()["status"], "ok");
    assert_eq!(node.get("/v1/sagas").await.ok()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn deployed_definitions_show_actor_and_time() {
    let node = Node::start().await;
    node.order("", "o-1", 5, "running").await;
    let text = std::fs::read_to_string(node.definitions().join("order.saga.yaml")).unwrap();
    let files =
        json!([{ "name": "order.saga.yaml", "text": text.replace("version: 1", "version: 2") }]);
    let bundle = json!({ "user": "alice", "files": files });
    let plan = node.post("/admin/deploy?dry_run=true", &bundle).await.ok();
    assert_eq!(
        (&plan["dry_run"], &plan["changed"][0]["from_version"]),
        (&json!(true), &json!(1))
    );
    assert_eq!(
        node.get("/v1/definitions").await.ok()["items"][0]["version"],
        1
    );
    let plan = node.post("/admin/deploy", &bundle).await.ok();
    assert_eq!(
        (&plan["dry_run"], &plan["number"]),
        (&json!(false), &json!(2))
    );
    let definition = node.get("/v1/definitions/order?count=true").await.ok();
    let [new, old] = &definition["versions"].as_array().unwrap()[..] else {
        panic!("{definition}")
    };
    assert_eq!(
        (&new["active"], &new["deployed_by"], &new["live"]),
        (&json!(true), &json!("alice"), &json!(0))
    );
    assert_eq!(
        (&old["active"], &old["live"], &old["ended"]),
        (&json!(false), &json!(1), &json!(0))
    );
    assert!(
        old["retired_at"].is_string() && new["retired_at"].is_null(),
        "{definition}"
    );
    assert_eq!(
        (&new["file"], &new["commands"]),
        (&json!("order.saga.yaml"), &json!(["shipping.Ship"]))
    );
    assert_eq!(
        node.get("/v1/definitions").await.ok()["items"][0]["live"],
        json!(null)
    );
    assert_eq!(
        node.post("/admin/collect", &json!(null)).await.ok(),
        json!({ "dropped": [], "kept": 1 })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_deploy_body_points_at_each_file() {
    let node = Node::start().await;
    let deploy_errors = |files: serde_json::Value| {
        let node = &node;
        async move {
            let response = node.post("/admin/deploy", &json!({ "files": files })).await;
            assert_eq!(response.status, StatusCode::UNPROCESSABLE_ENTITY);
            response.problem("OR0002");
            response.json()["errors"].to_string()
        }
    };
    for (file, text) in [
        (
            json!({ "name": "../x.saga.yaml", "text": "" }),
            "invalid definition file name",
        ),
        (
            json!({ "name": "order.yaml", "text": "" }),
            "invalid definition file name",
        ),
        (
            json!({ "name": "x.saga.yaml" }),
            "set either text or base64",
        ),
        (
            json!({ "name": "x.saga.yaml", "text": "", "base64": "" }),
            "set either text or base64",
        ),
        (json!({ "name": "x.saga.wasm", "base64": "%" }), "base64"),
        (
            json!({ "name": "a.saga.yaml", "text": "" }),
            "duplicate file",
        ),
    ] {
        let errors = deploy_errors(json!([{ "name": "a.saga.yaml", "text": "" }, file])).await;
        assert!(
            errors.contains("/files/1") && errors.contains(text),
            "{errors}"
        );
    }
    let response = node
        .post(
            "/admin/deploy",
            &json!({ "files": [{ "name": "a.saga.yaml", "text": "a: [" }] }),
        )
        .await;
    response.problem("OR0017");
    assert!(response.text.contains("a.saga.yaml:"), "{response:?}");
}
