//! Node that serves its API on a free port, in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orlog::config::{AuthMode, Config};
use orlog::{App, AppOverrides};
use orlog_effect::{FunctionProvider, Policy};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::operations::issuer::{AUDIENCE, ISSUER};

/// Timeout of all waits in these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

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
    pub(crate) app: Arc<App>,
    pub(crate) url: String,
    pub(crate) dir: TempDir,
    http: reqwest::Client,
}

/// Received response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns the detail of a problem with this status and code.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> String {
        assert_eq!((self.status, self.json()["code"].as_str()), (status, Some(code)), "{self:?}");
        self.json()["detail"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }
}

impl Node {
    pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let definitions = dir.path().join("definitions");
        std::fs::create_dir(&definitions).unwrap();
        std::fs::write(definitions.join("order.saga.yaml"), ORDER).unwrap();
        let mut config = Config {
            data_dir: dir.path().join("data"),
            definitions_dir: Some(definitions),
            ..Config::default()
        };
        change(&mut config);
        let pay = |_| async { Ok(json!({})) };
        let upstreams =
            vec![FunctionProvider::new().effect("test.charge", pay).upstream("bank", Policy::default())];
        let app =
            App::start_with(config, AppOverrides { upstreams, ..AppOverrides::default() }).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(orlog::api::serve(Arc::clone(&app), listener, std::future::pending()));
        let http = orlog_effect::http::client().timeout(TIMEOUT).build().unwrap();
        Self { app, url, dir, http }
    }

    /// Starts a node that requires tokens.
    pub(crate) async fn with_tokens(change: impl FnOnce(&mut Config)) -> Self {
        Self::start(|config| {
            config.auth.mode = AuthMode::Jwt;
            ISSUER.clone_into(&mut config.auth.jwt.issuer);
            config.auth.jwt.audience = vec![AUDIENCE.to_owned()];
            config.auth.jwt.min_refresh_interval = Duration::ZERO;
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
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        } else if headers.iter().all(|(name, _)| *name != "content-type") {
            // A node requires it for each change.
            request = request.header("content-type", "application/json");
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        HttpResponse { status, headers, text: response.text().await.unwrap() }
    }

    /// Sends a request with a token, and with a tenant unless it is empty.
    pub(crate) async fn request(&self, token: &str, tenant: &str, method: &str, path: &str) -> HttpResponse {
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

/// Returns the start event of an order.
pub(crate) fn placed(id: &str) -> Value {
    json!({
        "specversion": "1.0", "id": format!("placed-{id}"), "type": "OrderPlaced", "source": "urn:shop",
        "data": { "orderId": id },
    })
}

/// Creates a command of the real binary with a clean environment.
pub(crate) fn orlog(args: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlog"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORLOG_") {
            command.env_remove(name);
        }
    }
    command.stdin(std::process::Stdio::null()).args(args);
    command
}

/// Returns exit code, standard output and standard error.
pub(crate) async fn run(mut command: std::process::Command) -> (i32, String, String) {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}
