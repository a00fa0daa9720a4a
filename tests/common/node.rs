//! Node in the test process.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use orlog::config::Config;
use orlog::{App, AppOverrides};
use orlog_effect::{Attempt, FunctionProvider, Policy, Provider, ProviderError, Reply, Upstream};
use orlog_model::WorkItem;
use orlog_testkit::wait::{until_ok, within};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use super::http::HttpResponse;

/// Directories, configuration and replaced parts of a node.
pub(crate) struct NodeBuilder {
    pub(crate) dir: Arc<TempDir>,
    // Both are large.
    pub(crate) config: Box<Config>,
    overrides: Box<AppOverrides>,
}

impl NodeBuilder {
    /// Creates an empty directory for a node.
    pub(crate) fn new() -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()))
    }

    /// Uses the directory of an earlier node: `data` with its data, and `definitions`.
    pub(crate) fn on(dir: Arc<TempDir>) -> Self {
        let definitions = dir.path().join("definitions");
        std::fs::create_dir_all(&definitions).unwrap();
        let config = Config {
            data_dir: dir.path().join("data"),
            definitions_dir: Some(definitions),
            ..Config::default()
        };
        Self {
            dir,
            config: Box::new(config),
            overrides: Box::default(),
        }
    }

    /// Writes a definition.
    pub(crate) fn definition(self, saga: &str, text: &str) -> Self {
        std::fs::write(
            self.dir
                .path()
                .join(format!("definitions/{saga}.saga.yaml")),
            text,
        )
        .unwrap();
        self
    }

    pub(crate) fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    pub(crate) fn overrides(mut self, change: impl FnOnce(&mut AppOverrides)) -> Self {
        change(&mut self.overrides);
        self
    }

    pub(crate) fn upstream(mut self, upstream: Upstream) -> Self {
        self.overrides.upstreams.push(upstream);
        self
    }

    /// Adds an upstream with one effect that always succeeds.
    pub(crate) fn effect(self, name: &str) -> Self {
        let effect = FunctionProvider::new().effect(name, |_| async { Ok(json!({})) });
        self.upstream(effect.upstream("bank", Policy::default()))
    }

    /// Adds a gateway that accepts every command.
    pub(crate) fn gateway(self) -> Self {
        self.upstream(Upstream::gateway(
            Arc::new(AcceptAllGateway),
            Policy::gateway(),
        ))
    }

    pub(crate) async fn start(self) -> Node {
        self.try_start().await.unwrap()
    }

    pub(crate) async fn try_start(self) -> anyhow::Result<Node> {
        let app = Box::pin(App::start_with(*self.config, *self.overrides)).await?;
        Ok(Node {
            router: orlog::api::router(Arc::clone(&app)),
            app,
            dir: self.dir,
        })
    }
}

/// Gateway that accepts every command.
struct AcceptAllGateway;

#[async_trait]
impl Provider for AcceptAllGateway {
    async fn execute(&self, _item: &WorkItem, _attempt: Attempt) -> Result<Reply, ProviderError> {
        Ok(Reply::from(Value::Null))
    }
}

/// Running node, its API and its directory.
pub(crate) struct Node {
    pub(crate) app: Arc<App>,
    pub(crate) router: Router,
    pub(crate) dir: Arc<TempDir>,
}

impl Node {
    /// Serves the API on a free port until the end of the test, and returns its URL.
    pub(crate) async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(orlog::api::serve(
            Arc::clone(&self.app),
            listener,
            std::future::pending(),
        ));
        url
    }

    /// Stops the node without a drain, and returns its directory.
    pub(crate) async fn stop(self) -> Arc<TempDir> {
        self.app.stop().await.unwrap();
        self.dir
    }

    pub(crate) fn definitions(&self) -> PathBuf {
        self.app.config.definitions_dir.clone().unwrap()
    }

    /// Sends a request to the API without a socket.
    pub(crate) async fn send(&self, request: Request<Body>) -> HttpResponse {
        let response = within("the response", self.router.clone().oneshot(request))
            .await
            .unwrap();
        let response = within("the body of the response", HttpResponse::receive(response)).await;
        assert!(response.headers.contains_key("x-request-id"));
        if response.status.is_client_error() || response.status.is_server_error() {
            let content_type = response.headers["content-type"].to_str().unwrap();
            assert!(
                matches!(
                    content_type,
                    "application/problem+json" | "application/json"
                ),
                "{response:?}"
            );
        }
        response
    }

    /// Sends JSON, for a tenant unless it is empty.
    pub(crate) async fn ask(
        &self,
        method: Method,
        tenant: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> HttpResponse {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json");
        let request = if tenant.is_empty() {
            request
        } else {
            request.header("x-tenant-id", tenant)
        };
        self.send(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.ask(Method::GET, "", path, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.ask(Method::POST, "", path, body.to_string()).await
    }

    /// Repeats the request until it succeeds with a matching response.
    #[track_caller]
    pub(crate) fn until(
        &self,
        tenant: &str,
        path: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> impl Future<Output = Value> {
        until_ok(path, async move || {
            let response = self.ask(Method::GET, tenant, path, Body::empty()).await;
            let found: Value = serde_json::from_str(&response.text).unwrap_or_default();
            if response.status.is_success() && fits(&found) {
                Ok(found)
            } else {
                Err(response.text)
            }
        })
    }
}
