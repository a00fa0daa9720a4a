//! Node with upstream files and a saga of one effect.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use orlog::Config;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::node::{self, NodeBuilder};

pub(crate) const PAYMENT: &str = r"
saga: payment
version: 1
correlate: orderId
start: PaymentAsked
vars: { order: =event }
steps:
  - id: charge
    do: { effect: pay.charge, data: =vars.order }
    ok: Charged
    fail: Declined
";

/// Node and its directories.
pub(crate) struct Node(pub(crate) node::Node);

impl Deref for Node {
    type Target = node::Node;

    fn deref(&self) -> &node::Node {
        &self.0
    }
}

/// Directories that outlive a node.
pub(crate) struct Dirs(Arc<TempDir>);

impl Dirs {
    /// Creates the directories with the saga and these upstreams.
    pub(crate) fn new(upstreams: &[(&str, &str)]) -> Self {
        let dirs = Self(Arc::new(tempfile::tempdir().unwrap()));
        for name in ["definitions", "effects"] {
            std::fs::create_dir(dirs.path(name)).unwrap();
        }
        dirs.define("payment", PAYMENT);
        for (name, text) in upstreams {
            dirs.describe(name, text);
        }
        dirs
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn describe(&self, upstream: &str, text: &str) {
        std::fs::write(self.path("effects").join(format!("{upstream}.toml")), text).unwrap();
    }

    /// Adds or replaces a definition.
    pub(crate) fn define(&self, saga: &str, text: &str) {
        std::fs::write(
            self.path("definitions").join(format!("{saga}.saga.yaml")),
            text,
        )
        .unwrap();
    }

    /// Returns a node on the directories.
    pub(crate) fn builder(&self, change: impl FnOnce(&mut Config)) -> NodeBuilder {
        let effects = self.path("effects");
        NodeBuilder::on(Arc::clone(&self.0))
            .config(|config| config.upstreams_dir = Some(effects))
            .config(change)
    }

    /// Starts a node on the directories.
    pub(crate) async fn start(&self) -> Node {
        self.start_with(|_| {}).await
    }

    /// Starts a node on the directories with another configuration.
    pub(crate) async fn start_with(&self, change: impl FnOnce(&mut Config)) -> Node {
        Node(self.builder(change).start().await)
    }
}

impl Node {
    pub(crate) async fn start(upstreams: &[(&str, &str)]) -> Self {
        Dirs::new(upstreams).start().await
    }

    pub(crate) fn dirs(&self) -> Dirs {
        Dirs(Arc::clone(&self.dir))
    }

    /// Stops the node without a drain, like a crash, but releases the file locks.
    pub(crate) async fn stop(self) -> Dirs {
        Dirs(self.0.stop().await)
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        tenant: &str,
        path: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string())
        };
        let response = self.0.ask(method, tenant, path, body).await;
        (
            response.status,
            serde_json::from_str(&response.text).unwrap_or(Value::String(response.text)),
        )
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.get_as("", path).await
    }

    /// Returns the response for a tenant.
    pub(crate) async fn get_as(&self, tenant: &str, path: &str) -> Value {
        self.ask(Method::GET, tenant, path, &Value::Null).await.1
    }

    /// Deploys the saga like `orlog deploy`.
    pub(crate) async fn deploy(&self) {
        let bundle = json!({ "files": [{ "name": "payment.saga.yaml", "text": PAYMENT }] });
        let (status, response) = self.ask(Method::POST, "", "/admin/deploy", &bundle).await;
        assert_eq!(status, StatusCode::OK, "{response}");
    }

    /// Requests a payment: the saga's effect receives `data` as its arguments.
    pub(crate) async fn pay(&self, tenant: &str, order: &str, mut data: Value) {
        data["orderId"] = json!(order);
        let event = json!({
            "specversion": "1.0", "id": format!("asked-{order}"), "source": "urn:test", "type": "PaymentAsked",
            "data": data,
        });
        let (status, response) = self.ask(Method::POST, tenant, "/v1/events", &event).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{response}");
    }

    /// Waits until a payment has ended, and returns the instance.
    pub(crate) async fn end(&self, tenant: &str, order: &str) -> Value {
        self.end_of(tenant, "payment", order).await
    }

    /// Waits until an instance has ended, and returns it.
    pub(crate) async fn end_of(&self, tenant: &str, saga: &str, order: &str) -> Value {
        let is_over =
            |saga: &Value| matches!(saga["status"].as_str(), Some("completed" | "failed"));
        self.until(tenant, &format!("/v1/sagas/{saga}/{order}"), is_over)
            .await
    }

    pub(crate) async fn reload(&self) -> (StatusCode, Value) {
        self.ask(Method::POST, "", "/admin/reload", &Value::Null)
            .await
    }
}
