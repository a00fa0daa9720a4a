//! Node with upstream files and a saga of one effect.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use orlog::{App, AppOverrides, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

/// Timeout of all waits in these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

const PAYMENT: &str = r"
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
pub(crate) struct Node {
    pub(crate) app: Arc<App>,
    pub(crate) router: Router,
    pub(crate) dir: Arc<TempDir>,
}

/// Directories that outlive a node.
pub(crate) struct Dirs(pub(crate) Arc<TempDir>);

impl Dirs {
    /// Creates the directories with the saga and these upstreams.
    pub(crate) fn new(upstreams: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["definitions", "effects"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("definitions/payment.saga.yaml"), PAYMENT).unwrap();
        let dirs = Self(Arc::new(dir));
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
        std::fs::write(self.path("definitions").join(format!("{saga}.saga.yaml")), text).unwrap();
    }

    /// Starts a node on the directories.
    pub(crate) async fn start(&self) -> Node {
        self.start_with(&["definitions", "effects"]).await
    }

    /// Starts a node with only some of the directories.
    pub(crate) async fn start_with(&self, known: &[&str]) -> Node {
        let dir = |name: &str| known.contains(&name).then(|| self.path(name));
        let config = Config {
            data_dir: self.path("data"),
            definitions_dir: dir("definitions"),
            upstreams_dir: dir("effects"),
            ..Config::default()
        };
        let app = App::start_with(config, AppOverrides::default()).await.unwrap();
        let router = orlog::api::router(Arc::clone(&app));
        Node { app, router, dir: Arc::clone(&self.0) }
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
        self.app.stop().await.unwrap();
        self.dirs()
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        tenant: &str,
        path: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = if tenant.is_empty() { request } else { request.header("x-tenant-id", tenant) };
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.router.clone().oneshot(request.body(body).unwrap());
        let (parts, body) =
            tokio::time::timeout(TIMEOUT, response).await.expect("in time").unwrap().into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        (parts.status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, "", path, &Value::Null).await.1
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
        let is_over = |saga: &Value| matches!(saga["status"].as_str(), Some("completed" | "failed"));
        self.until(tenant, &format!("/v1/sagas/{saga}/{order}"), is_over).await
    }

    /// Repeats the request after each commit until the response matches.
    pub(crate) async fn until(&self, tenant: &str, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let fitting = async {
            let mut commits = self.app.runtime.readers().next().unwrap().watch();
            loop {
                let (_, response) = self.ask(Method::GET, tenant, path, &Value::Null).await;
                if fits(&response) {
                    return response;
                }
                commits.changed().await.unwrap();
            }
        };
        tokio::time::timeout(TIMEOUT, fitting).await.expect("it comes to that")
    }

    pub(crate) async fn reload(&self) -> (StatusCode, Value) {
        self.ask(Method::POST, "", "/admin/reload", &Value::Null).await
    }
}
