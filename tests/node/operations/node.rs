//! Node that serves its API on a free port, in this process.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use orlog::config::{AuthMode, Config};
use serde_json::{Value, json};

use crate::harness::http::{HttpResponse, client, send};
use crate::harness::node::{self, NodeBuilder};
use crate::operations::issuer::{AUDIENCE, ISSUER};

pub(crate) const ORDER: &str = "
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId }
steps:
  - id: charge
    do: { effect: test.charge, data: { orderId: =vars.orderId } }
";

pub(crate) struct Node {
    inner: node::Node,
    pub(crate) url: String,
    http: reqwest::Client,
}

impl Deref for Node {
    type Target = node::Node;

    fn deref(&self) -> &node::Node {
        &self.inner
    }
}

impl Node {
    pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_with(ORDER, change).await
    }

    /// Starts a node with another definition of the order.
    pub(crate) async fn start_with(definition: &str, change: impl FnOnce(&mut Config)) -> Self {
        let builder = NodeBuilder::new()
            .definition("order", definition)
            .effect("test.charge")
            .config(change);
        let node = builder.start().await;
        Self {
            url: node.serve().await,
            http: client(),
            inner: node,
        }
    }

    /// Starts a node that requires tokens.
    pub(crate) async fn with_tokens(change: impl FnOnce(&mut Config)) -> Self {
        Self::start(|config| {
            with_issuer(config, "");
            change(config);
        })
        .await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> HttpResponse {
        send(
            &self.http,
            method,
            format!("{}{path}", self.url),
            headers,
            body,
        )
        .await
    }

    /// Sends a request with a token, and with a tenant unless it is empty.
    pub(crate) async fn request(
        &self,
        token: &str,
        tenant: &str,
        method: &str,
        path: &str,
    ) -> HttpResponse {
        self.call(token, tenant, method, path, None).await
    }

    pub(crate) async fn call(
        &self,
        token: &str,
        tenant: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("authorization", bearer.as_str())];
        if !tenant.is_empty() {
            headers.push(("x-tenant-id", tenant));
        }
        self.send(method, path, &headers, body).await
    }

    pub(crate) fn data(&self) -> &Path {
        &self.app.config.data_dir
    }
}

/// Requires tokens of the issuer with this URL of its keys.
pub(crate) fn with_issuer(config: &mut Config, jwks_url: &str) {
    config.auth.mode = AuthMode::Jwt;
    ISSUER.clone_into(&mut config.auth.jwt.issuer);
    config.auth.jwt.audience = vec![AUDIENCE.to_owned()];
    config.auth.jwt.min_refresh_interval = Duration::ZERO;
    jwks_url.clone_into(&mut config.auth.jwt.jwks_url);
}

/// Returns the start event of an order.
pub(crate) fn placed(id: &str) -> Value {
    json!({
        "specversion": "1.0", "id": format!("placed-{id}"), "type": "OrderPlaced", "source": "urn:shop",
        "data": { "orderId": id },
    })
}
