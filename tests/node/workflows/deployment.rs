//! Deployment of workflows: start, state, signals, effects of upstreams, versions and restarts.

use axum::http::StatusCode;
use orlog::AppOverrides;
use orlog_effect::{FunctionProvider, Policy};
use orlog_workflow::{RunError, Workflow};
use serde_json::{Value, json};

use super::cases::{Interaction, Runner as _};
use super::runner::{NodeRunner, ended, node, path, start};
use super::tasks::{Order, calls, step, undo};
use crate::harness::node::{Node, NodeBuilder};

/// A task with a compensation, a wait for an approval, and a task.
fn purchase() -> Workflow<Order, Order> {
    let workflow = Workflow::builder("purchase")
        .then("reserve", step)
        .undo(undo)
        .signal::<u32>("approve");
    workflow
        .map(
            "charge",
            |(order, _): (Order, u32)| async move { Ok(order) },
        )
        .build()
        .unwrap()
}

/// Waits until the instance waits for its approval.
async fn waiting(node: &Node) -> Value {
    let is_waiting = |view: &Value| view["state"]["current"] == json!(["approve"]);
    node.until("", &path("purchase"), is_waiting).await
}

async fn approve(node: &Node, payload: Value) -> (StatusCode, String) {
    let signal = json!({ "type": "approve", "data": payload });
    let response = node
        .post(&format!("{}/signal", path("purchase")), &signal)
        .await;
    (response.status, response.text)
}

/// Requirements: E11, T5.
#[tokio::test]
async fn a_workflow_appears_like_any_saga() {
    let node = node([purchase().on_node()]).await;
    let order = json!(Order::new());
    start(&node, "purchase", &order).await;
    let view = waiting(&node).await;
    assert_eq!(
        (&view["status"], &view["definition"]["version"]),
        (&json!("running"), &json!(1))
    );
    assert_eq!(view["state"]["completed"], json!(["reserve"]));
    assert_eq!(
        (&view["waits"][0]["kind"], &view["waits"][0]["name"]),
        (&json!("event"), &json!("approve"))
    );
    assert_eq!(view["state"]["vars"]["approve"], order);
    let graph = node
        .get(&format!("{}/graph.svg", path("purchase")))
        .await
        .text;
    assert!(
        graph.contains("purchase.reserve") && graph.contains("class=\"running\""),
        "{graph}"
    );
    assert!(
        node.get("/v1/definitions/purchase/graph.svg")
            .await
            .text
            .contains("purchase.charge")
    );
    let definitions: Value = serde_json::from_str(&node.get("/v1/definitions").await.text).unwrap();
    assert_eq!(
        (
            &definitions["items"][0]["saga"],
            &definitions["items"][0]["effects"]
        ),
        (
            &json!("purchase"),
            &json!([
                "purchase.charge",
                "purchase.reserve",
                "purchase.reserve.undo"
            ])
        )
    );
    assert!(approve(&node, json!(7)).await.0.is_success());
    let view = ended(&node, "purchase").await;
    assert_eq!(
        view["result"],
        json!({ "event": "purchase.completed", "data": order })
    );
    let notes = view["history"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["note"].as_str().unwrap());
    let mut notes: Vec<_> = notes.collect();
    notes.sort_unstable();
    assert_eq!(
        notes,
        [
            "approve: completed",
            "charge: completed, completed",
            "purchase.start",
            "reserve: completed"
        ]
    );
    node.stop().await;
}

#[tokio::test]
async fn an_input_or_a_signal_of_another_type_is_rejected() {
    let node = node([purchase().on_node()]).await;
    let response = node
        .post("/v1/sagas/purchase?correlation=i-1", &json!({ "key": "k" }))
        .await;
    assert!(response.status.is_client_error(), "{}", response.text);
    assert!(
        response.text.contains(
            "invalid input of workflow \\\"purchase\\\": not a `Order`: missing field `express`"
        ),
        "{}",
        response.text
    );
    start(&node, "purchase", &json!(Order::new())).await;
    waiting(&node).await;
    let (status, text) = approve(&node, json!("yes")).await;
    assert_eq!(status, StatusCode::CONFLICT, "{text}");
    assert!(
        text.contains("the payload of signal \\\"approve\\\" is invalid: not a `u32`"),
        "{text}"
    );
    assert!(approve(&node, json!(1)).await.0.is_success());
    assert_eq!(ended(&node, "purchase").await["status"], "completed");
    node.stop().await;
}

/// Requirements: T1.
#[tokio::test]
async fn an_event_starts_a_workflow_under_the_identifier_in_its_data() {
    let workflow = Workflow::builder("fulfil")
        .then("pack", step)
        .build()
        .unwrap();
    let node = node([workflow
        .on_node()
        .start_event("OrderPlaced")
        .correlate("key")])
    .await;
    let order = Order {
        key: "i-1".to_owned(),
        ..Order::new()
    };
    let event = json!({
        "specversion": "1.0", "id": "e-1", "source": "urn:shop", "type": "OrderPlaced", "data": order
    });
    let response = node.post("/v1/events", &event).await;
    assert!(response.status.is_success(), "{}", response.text);
    assert_eq!(ended(&node, "fulfil").await["status"], "completed");
    node.stop().await;
}

fn paid() -> Workflow<u32, String> {
    let workflow = Workflow::builder("paid").remote::<String>("charge", "payments.charge");
    workflow
        .undo_remote("payments.refund")
        .map("thank", |receipt: String| async move { Ok(receipt) })
        .build()
        .unwrap()
}

/// Requirements: R10, T2.
#[tokio::test]
async fn a_task_can_be_performed_by_an_upstream() {
    let error = NodeBuilder::new()
        .overrides(|own| *own = AppOverrides::workflows([paid().on_node()]).unwrap());
    let error = error.try_start().await.err().unwrap().to_string();
    assert!(
        error.contains("no upstream executes the effect payments.charge"),
        "{error}"
    );
    let bank = FunctionProvider::new()
        .effect("payments.charge", |call| async move {
            Ok(json!(format!("receipt for {}", call.payload)))
        })
        .effect("payments.refund", |_| async { Ok(Value::Null) });
    let node = NodeBuilder::new()
        .overrides(|own| *own = AppOverrides::workflows([paid().on_node()]).unwrap())
        .upstream(bank.upstream("bank", Policy::in_process()))
        .start()
        .await;
    start(&node, "paid", &json!(12)).await;
    assert_eq!(
        ended(&node, "paid").await["result"]["data"],
        "receipt for 12"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_cancellation_compensates() {
    let order = Order::new();
    let key = order.key.clone();
    let result = NodeRunner
        .interact(&purchase(), order, Interaction::Cancel, || {
            calls(&key) == ["reserve"]
        })
        .await;
    assert!(matches!(result, Err(RunError::Cancelled)), "{result:?}");
    assert_eq!(calls(&key), ["reserve", "undo reserve"]);
}

/// Requirements: E8.
#[tokio::test]
async fn an_instance_continues_after_a_restart_with_its_version() {
    let deployed = |workflows: Vec<orlog_workflow::NodeWorkflow>, dir| {
        let overrides = AppOverrides::workflows(workflows).unwrap();
        NodeBuilder::on(dir)
            .overrides(|own| *own = overrides)
            .try_start()
    };
    let first = node([purchase().on_node()]).await;
    let order = Order::new();
    start(&first, "purchase", &json!(order)).await;
    waiting(&first).await;
    let dir = first.stop().await;

    let changed = Workflow::builder("purchase")
        .then("reserve", step)
        .then("pay", step)
        .build()
        .unwrap();
    let error = deployed(vec![changed.on_node()], dir.clone())
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("version 1 changed, but 1 live instances use its previous content: step \"approve\" is missing now"),
        "{error}"
    );
    let both = vec![changed.on_node().version(2), purchase().on_node()];
    let second = deployed(both, dir).await.unwrap();
    assert!(approve(&second, json!(1)).await.0.is_success());
    let view = ended(&second, "purchase").await;
    assert_eq!(
        (&view["status"], &view["definition"]["version"]),
        (&json!("completed"), &json!(1))
    );
    let response = second
        .post(
            "/v1/sagas/purchase?correlation=i-2&wait=60s",
            &json!(Order::new()),
        )
        .await;
    let ended: Value = serde_json::from_str(&response.text).unwrap();
    assert_eq!(ended["status"], "completed", "{}", response.text);
    let view: Value =
        serde_json::from_str(&second.get("/v1/sagas/purchase/i-2").await.text).unwrap();
    assert_eq!(view["definition"]["version"], 2);
    assert_eq!(calls(&order.key), ["reserve"]);
    second.stop().await;
}
