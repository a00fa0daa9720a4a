//! A node as a runner of the cases.

use axum::http::Method;
use orlog::AppOverrides;
use orlog_model::{InstanceKey, SagaName, TenantId};
use orlog_workflow::{Data, Failure, NodeWorkflow, RunError, Workflow};
use serde_json::{Value, json};

use super::cases::{Interaction, Runner};
use crate::harness::node::{Node, NodeBuilder};

/// Runner that deploys a workflow to a new node.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeRunner;

/// Correlation id of the instance.
const ID: &str = "i-1";

impl Runner for NodeRunner {
    async fn run<In: Data, Out: Data>(
        self,
        workflow: &Workflow<In, Out>,
        input: In,
    ) -> Result<Out, RunError> {
        let node = node([workflow.on_node()]).await;
        start(&node, workflow.name(), &json!(input)).await;
        let outcome = outcome(&node, workflow.name()).await;
        node.stop().await;
        outcome
    }

    async fn interact<In: Data, Out: Data>(
        self,
        workflow: &Workflow<In, Out>,
        input: In,
        interaction: Interaction,
        when: impl Fn() -> bool,
    ) -> Result<Out, RunError> {
        let node = node([workflow.on_node()]).await;
        start(&node, workflow.name(), &json!(input)).await;
        orlog_testkit::wait::until("the condition holds", || async { when().then_some(()) }).await;
        let path = path(workflow.name());
        let response = match interaction {
            Interaction::Cancel => node.post(&format!("{path}/cancel"), &json!({})).await,
            Interaction::Signal(step, payload) => {
                let signal = json!({ "type": step, "data": payload });
                node.post(&format!("{path}/signal"), &signal).await
            }
        };
        assert!(response.status.is_success(), "{}", response.text);
        let outcome = outcome(&node, workflow.name()).await;
        node.stop().await;
        outcome
    }
}

/// Starts a node with workflows.
pub(super) async fn node(workflows: impl IntoIterator<Item = NodeWorkflow>) -> Node {
    let overrides = AppOverrides::workflows(workflows).unwrap();
    NodeBuilder::new()
        .overrides(|own| *own = overrides)
        .start()
        .await
}

pub(super) fn path(workflow: &str) -> String {
    format!("/v1/sagas/{workflow}/{ID}")
}

/// Starts an instance.
pub(super) async fn start(node: &Node, workflow: &str, input: &Value) {
    let path = format!("/v1/sagas/{workflow}?correlation={ID}");
    let response = node.ask(Method::POST, "", &path, input.to_string()).await;
    assert!(response.status.is_success(), "{}", response.text);
}

/// Waits until an instance has ended or is stuck; returns its view.
pub(super) async fn ended(node: &Node, workflow: &str) -> Value {
    let is_over = |view: &Value| {
        ["completed", "failed", "cancelled", "stuck"]
            .iter()
            .any(|status| view["status"] == *status)
    };
    node.until("", &path(workflow), is_over).await
}

async fn outcome<Out: Data>(node: &Node, workflow: &str) -> Result<Out, RunError> {
    let view = ended(node, workflow).await;
    let state = state(node, workflow);
    let failure: Option<Failure> =
        serde_json::from_value(state["workflow"]["failure"].clone()).unwrap();
    match view["status"].as_str().unwrap() {
        "completed" => Ok(serde_json::from_value(view["result"]["data"].clone()).unwrap()),
        "cancelled" => Err(RunError::Cancelled),
        "stuck" => {
            let stuck = serde_json::from_value(state["workflow"]["undo"]["error"].clone());
            Err(RunError::Stuck(with_attempts(stuck.unwrap(), &view)))
        }
        _ => Err(RunError::Failed(with_attempts(failure.unwrap(), &view))),
    }
}

/// Returns the failure with the number of attempts, which the node counts.
fn with_attempts(mut failure: Failure, view: &Value) -> Failure {
    if let Failure::TaskFailed { attempts, .. } = &mut failure {
        *attempts = serde_json::from_value(view["last_error"]["attempts"].clone()).unwrap();
    }
    failure
}

/// Returns the stored state.
fn state(node: &Node, workflow: &str) -> Value {
    let key = InstanceKey {
        tenant: TenantId::default(),
        saga: SagaName::new(workflow).unwrap(),
        correlation: ID.parse().unwrap(),
    };
    let reader = node.app.runtime.reader(&key).unwrap();
    serde_json::from_slice(&reader.instance(&key).unwrap().unwrap().state).unwrap()
}
