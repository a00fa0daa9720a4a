//! Node that serves its page, and a browser that displays it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use orlog::config::Config;
use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProviderError, Upstream};
use orlog_testkit::browser::Browser;
use serde_json::{Value, json};

use crate::api::node::{Node, event};

/// Node with the definitions of `examples/onboarding` and an order, on a port.
pub(crate) struct Site {
    pub(crate) node: Node,
    pub(crate) browser: Browser,
    pub(crate) url: String,
}

impl Site {
    /// Opens the page.
    pub(crate) async fn open() -> Self {
        Self::open_with(|_| ()).await
    }

    pub(crate) async fn open_with(change: impl FnOnce(&mut Config)) -> Self {
        let browser = Browser::start();
        let change = |config: &mut Config| {
            let dir = config.definitions_dir.clone().unwrap();
            for file in ["onboarding.saga.yaml", "equipment.saga.yaml"] {
                let example = Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("examples/onboarding")
                    .join(file);
                std::fs::copy(example, dir.join(file)).unwrap();
            }
            change(config);
        };
        let node = Node::start_whole(change, Vec::new(), vec![office()]).await;
        let mut site = Self {
            url: node.serve().await,
            node,
            browser,
        };
        site.browser.set_color_scheme(1360, 900, false);
        site
    }

    /// Navigates to a path of the page: `/instances`.
    pub(crate) fn go(&mut self, path: &str) {
        let url = format!("{}/#{path}", self.url);
        self.browser.navigate(&url);
    }

    /// Publishes an event as the shop or the office would.
    pub(crate) async fn happens(&self, id: &str, kind: &str, data: &Value) {
        self.happens_to(id, kind, None, data).await;
    }

    pub(crate) async fn happens_to(
        &self,
        id: &str,
        kind: &str,
        correlation: Option<&str>,
        data: &Value,
    ) {
        let mut event = event(id, kind, data);
        if let Some(correlation) = correlation {
            event["correlationid"] = json!(correlation);
        }
        let response = self
            .node
            .ask(Method::POST, "", "/v1/events", event.to_string())
            .await;
        assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
    }

    /// Starts the onboarding of a colleague; returns the task to find a mentor.
    pub(crate) async fn colleague(&self, id: &str, name: &str) -> String {
        let contract = json!({ "employeeId": id, "name": name, "role": "engineer", "firstDay": "2026-01-02T08:00:00Z" });
        self.happens(&format!("contract-{id}"), "ContractSigned", &contract)
            .await;
        let path = format!("/v1/sagas/onboarding/{id}");
        let parent = self
            .node
            .until("", &path, |saga| saga["tasks"][0]["id"].is_string())
            .await;
        parent["tasks"][0]["id"].as_str().unwrap().to_owned()
    }

    /// Creates a stuck order: paid, not shippable, and not refundable.
    pub(crate) async fn stuck(&self, id: &str) {
        self.node.order("", id, 5, "running").await;
        self.node.refunds.store(false, Ordering::SeqCst);
        self.happens_to(&format!("not-{id}"), "NotShipped", Some(id), &json!({}))
            .await;
        self.node
            .until("", &format!("/v1/sagas/order/{id}"), |order| {
                order["status"] == "stuck"
            })
            .await;
    }

    /// Creates a schedule.
    pub(crate) async fn schedule(&self, name: &str, spec: &Value) {
        let path = format!("/v1/schedules/{name}");
        self.node
            .ask(Method::PUT, "", &path, spec.to_string())
            .await
            .ok();
    }

    /// Submits a flow.
    pub(crate) async fn flow(&self, id: &str, flow: &Value) {
        let request = Request::builder()
            .method(Method::POST)
            .uri("/v1/flows?user=ann");
        let request = request
            .header("content-type", "application/json")
            .header("idempotency-key", id);
        self.node
            .send(request.body(Body::from(flow.to_string())).unwrap())
            .await
            .ok();
    }

    /// Sends a message.
    pub(crate) async fn message(&self, tenant: &str, id: &str, message: &Value) {
        let request = Request::builder()
            .method(Method::POST)
            .uri("/v1/messages")
            .header("x-tenant-id", tenant);
        let request = request
            .header("content-type", "application/json")
            .header("idempotency-key", id);
        self.node
            .send(request.body(Body::from(message.to_string())).unwrap())
            .await
            .ok();
    }

    /// Saves a screenshot for review.
    pub(crate) fn picture(&mut self, name: &str) {
        self.browser
            .screenshot(&pictures().join(format!("{name}.png")));
    }

    /// Asserts that the page had no error and sent requests to this node only.
    #[track_caller]
    pub(crate) fn was_quiet(&mut self) {
        let record = self.browser.record();
        assert!(
            record.console_errors.is_empty(),
            "{:#?}",
            record.console_errors
        );
        let own = format!("{}/", self.url);
        for request in &record.requests {
            let url = request["url"].as_str().unwrap();
            assert!(url.starts_with(&own) || url == "about:blank", "{url}");
        }
    }
}

/// Returns the directory of the screenshots.
pub(super) fn pictures() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"))
        .join("screenshots")
}

/// Returns the upstream of the office; its mail fails on the first two attempts.
fn office() -> Upstream {
    let attempts = Arc::new(AtomicU32::new(0));
    let welcome = move |_: FunctionCall| {
        let number = attempts.fetch_add(1, Ordering::SeqCst);
        async move {
            if number < 2 {
                Err(ProviderError::unavailable(
                    "mail_down",
                    "the mail server is unavailable",
                ))
            } else {
                Ok(json!({}))
            }
        }
    };
    let mut native = FunctionProvider::new().effect("mail.welcome", welcome);
    for effect in ["devices.install", "devices.wipe"] {
        native = native.effect(effect, |_: FunctionCall| std::future::ready(Ok(json!({}))));
    }
    native.upstream("office", Policy::default())
}
