//! Onboarding: the definitions of `examples/onboarding` on a node, with a child saga, a human task and
//! a wait.

use std::path::Path;
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use orlog_effect::{FunctionCall, FunctionProvider, Policy};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::node::{Node, event};

const DEFINITIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/onboarding");
const PARENT: &str = "/v1/sagas/onboarding/e1";
const CHILD: &str = "/v1/sagas/equipment/e1:equipment";

/// Node with the example, and its requested effects with their payloads.
struct OnboardingNode {
    node: Node,
    done: Arc<Mutex<Vec<(String, Value)>>>,
}

impl OnboardingNode {
    async fn open() -> Self {
        let done: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let mut native = FunctionProvider::new();
        for effect in ["devices.install", "devices.wipe", "mail.welcome"] {
            let done = Arc::clone(&done);
            native = native.effect(effect, move |call: FunctionCall| {
                done.lock().push((call.effect.to_string(), call.payload));
                std::future::ready(Ok(json!({})))
            });
        }
        let upstreams = vec![native.upstream("office", Policy::default())];
        let node = Node::start_whole(
            |config| config.definitions_dir = Some(Path::new(DEFINITIONS).to_owned()),
            Vec::new(),
            upstreams,
        );
        let firm = Self {
            node: node.await,
            done,
        };
        let contract = json!({
            "employeeId": "e1", "name": "Ada", "role": "engineer", "firstDay": "2026-01-02T08:00:00Z",
        });
        firm.happens("ContractSigned", "", &contract).await;
        firm
    }

    /// Publishes an event for the instance `correlation`.
    async fn happens(&self, kind: &str, correlation: &str, data: &Value) {
        let mut event = event(&format!("{kind}-{correlation}"), kind, data);
        if !correlation.is_empty() {
            event["correlationid"] = json!(correlation);
        }
        let response = self
            .node
            .ask(Method::POST, "", "/v1/events", event.to_string())
            .await;
        assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
    }

    async fn status(&self, path: &str, status: &str) -> Value {
        self.node
            .until("", path, |saga| saga["status"] == status)
            .await
    }

    fn effects(&self) -> Vec<String> {
        self.done
            .lock()
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// Requirements: E11.
#[tokio::test(flavor = "multi_thread")]
async fn onboarding_completes_with_child_saga_and_task() {
    let firm = OnboardingNode::open().await;
    let parent = firm
        .node
        .until("", PARENT, |saga| saga["tasks"][0]["id"].is_string())
        .await;
    let task = format!(
        "/v1/tasks/{}/complete",
        parent["tasks"][0]["id"].as_str().unwrap()
    );
    let found = json!({ "user": "grace", "roles": ["lead"], "outcome": "MentorFound", "data": { "mentor": "grace" } });
    firm.node.post(&task, &found).await.ok();
    firm.happens(
        "AccountCreated",
        "",
        &json!({ "employeeId": "e1", "login": "ada" }),
    )
    .await;
    let child = firm
        .node
        .until("", CHILD, |saga| saga["status"] == "running")
        .await;
    assert_eq!(child["parent"]["saga"], "onboarding");
    firm.happens(
        "LaptopDelivered",
        "e1:equipment",
        &json!({ "serial": "L-7" }),
    )
    .await;
    firm.status(CHILD, "completed").await;
    firm.status(PARENT, "completed").await;
    let welcome = json!({ "to": "ada", "mentor": "grace", "laptop": "L-7" });
    let done = firm.done.lock();
    assert_eq!(done.last(), Some(&("mail.welcome".to_owned(), welcome)));
    assert_eq!(done.len(), 2, "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_compensates_the_child_and_closes_the_task() {
    let firm = OnboardingNode::open().await;
    firm.happens(
        "AccountCreated",
        "",
        &json!({ "employeeId": "e1", "login": "ada" }),
    )
    .await;
    firm.node
        .until("", CHILD, |saga| saga["status"] == "running")
        .await;
    firm.node
        .until("", PARENT, |saga| saga["state"]["vars"]["login"] == "ada")
        .await;
    firm.happens("ContractWithdrawn", "", &json!({ "employeeId": "e1" }))
        .await;
    let parent = firm.status(PARENT, "compensating").await;
    assert_eq!(parent["tasks"], json!([]));
    firm.happens("AccountRemoved", "", &json!({ "employeeId": "e1" }))
        .await;
    firm.status(CHILD, "cancelled").await;
    firm.status(PARENT, "cancelled").await;
    assert!(
        firm.effects().is_empty(),
        "nothing was installed: {:?}",
        firm.effects()
    );
}
