//! Test node and its HTTP responses.

use std::cell::Cell;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use orlog::config::{Config, TenantMode, TenantsConfig};
use orlog::{App, AppOverrides, SystemClock};
use orlog_effect::{Attempt, FunctionProvider, Policy, Provider, ProviderError, Reply, Upstream};
use orlog_model::{Clock, SteadyTime, TenantId, Timestamp, WorkItem};
use orlog_program::Program;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

/// Timeout of all waits in these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

const ORDER: &str = r"
saga: order
version: 1
correlate: orderId
start: OrderPlaced
reference: =vars.orderId
vars: { orderId: =event.orderId, total: =event.total }
steps:
  - id: charge
    do: { effect: test.charge, data: { total: =vars.total } }
    ok: Charged
    fail: Declined
    undo: { effect: test.refund, data: { total: =vars.total } }
  - id: ship
    do: { command: shipping.Ship, data: { total: =vars.total } }
    ok: Shipped
    fail: NotShipped
    timeout: 1h
completed: { fact: OrderCompleted, data: { orderId: =vars.orderId } }
failed: { fact: OrderFailed, data: { orderId: =vars.orderId } }
";

/// Node and the state of its effects.
pub(crate) struct Node {
    pub(crate) app: Arc<App>,
    dir: TempDir,
    pub(crate) refunds: Arc<AtomicBool>,
    router: Router,
}

thread_local! {
    /// Whether the clock panics on this thread, which runs the test and its request handlers.
    pub(crate) static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Host clock that a test can break.
struct BreakableClock;

impl Clock for BreakableClock {
    fn now(&self) -> Timestamp {
        assert!(!PANICS.get(), "the clock is broken");
        SystemClock.now()
    }

    fn steady(&self) -> SteadyTime {
        SystemClock.steady()
    }

    fn sleep_until(&self, at: SteadyTime) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        SystemClock.sleep_until(at)
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

/// Received response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns the detail of a problem with this code.
    #[track_caller]
    pub(crate) fn problem(&self, code: &str) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], self.status.as_u16());
        assert_eq!(problem["type"], format!("/errors/{code}"));
        problem["detail"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.json()
    }
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_with_programs(change, Vec::new()).await
    }

    pub(crate) async fn start_with_programs(
        change: impl FnOnce(&mut Config),
        programs: Vec<Arc<dyn Program>>,
    ) -> Self {
        Self::start_whole(change, programs, Vec::new()).await
    }

    pub(crate) async fn start_whole(
        change: impl FnOnce(&mut Config),
        programs: Vec<Arc<dyn Program>>,
        more: Vec<Upstream>,
    ) -> Self {
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
        Self::open(dir, config, programs, more).await
    }

    /// Stops the node, changes its files, and starts it again.
    pub(crate) async fn restart(self, change: impl FnOnce(&Path)) -> Self {
        self.app.stop().await.unwrap();
        let Self { app, dir, .. } = self;
        let config = app.config.clone();
        change(&config.data_dir);
        Self::open(dir, config, Vec::new(), Vec::new()).await
    }

    async fn open(
        dir: TempDir,
        config: Config,
        programs: Vec<Arc<dyn Program>>,
        more: Vec<Upstream>,
    ) -> Self {
        let refunds = Arc::new(AtomicBool::new(true));
        let gateway = Upstream::gateway(Arc::new(AcceptAllGateway), Policy::gateway());
        let upstreams = [effects(Arc::clone(&refunds)), gateway].into_iter().chain(more).collect();
        let clock = Some(Arc::new(BreakableClock) as Arc<dyn Clock>);
        let app =
            App::start_with(config, AppOverrides { clock, upstreams, programs, ..AppOverrides::default() })
                .await
                .unwrap();
        let router = orlog::api::router(Arc::clone(&app));
        Self { app, dir, refunds, router }
    }

    /// Starts a node that accepts these tenants only.
    pub(crate) async fn listing(tenants: &[&str]) -> Self {
        let list = tenants.iter().map(|name| TenantId::new(*name).unwrap()).collect();
        Self::start_with(|config| {
            config.tenants =
                TenantsConfig { mode: TenantMode::Allowlist, allowed: list, ..TenantsConfig::default() };
        })
        .await
    }

    pub(crate) fn definitions(&self) -> &Path {
        self.app.config.definitions_dir.as_deref().unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> HttpResponse {
        let response = tokio::time::timeout(TIMEOUT, self.router.clone().oneshot(request)).await;
        let (parts, body) = response.expect("in time").unwrap().into_parts();
        assert!(parts.headers.contains_key("x-request-id"));
        if parts.status.is_client_error() || parts.status.is_server_error() {
            assert!(matches!(
                parts.headers["content-type"].to_str().unwrap(),
                "application/problem+json" | "application/json"
            ));
        }
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        HttpResponse {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        tenant: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> HttpResponse {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = if tenant.is_empty() { request } else { request.header("x-tenant-id", tenant) };
        self.send(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.ask(Method::GET, "", path, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.ask(Method::POST, "", path, body.to_string()).await
    }

    /// Publishes the order and waits until it reaches this status.
    pub(crate) async fn order(&self, tenant: &str, id: &str, total: u64, status: &str) -> Value {
        let response = self.ask(Method::POST, tenant, "/v1/events", placed(id, total).to_string()).await;
        assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
        let path = format!("/v1/sagas/order/{id}");
        let is_ready = |order: &Value| {
            let is_shipping =
                || order["waits"].as_array().is_some_and(|w| w.iter().any(|w| w["name"] == "Shipped"));
            order["status"] == status && (status != "running" || is_shipping())
        };
        self.until(tenant, &path, is_ready).await
    }

    /// Repeats the request after each commit until the response matches.
    pub(crate) async fn until(&self, tenant: &str, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut commits = self.app.runtime.readers().next().unwrap().watch();
        let mut last = Value::Null;
        let waited = tokio::time::timeout(TIMEOUT, async {
            loop {
                commits.borrow_and_update();
                let response = self.ask(Method::GET, tenant, path, Body::empty()).await;
                last = response.json();
                if response.status.is_success() && fits(&last) {
                    return;
                }
                commits.changed().await.unwrap();
            }
        });
        assert!(waited.await.is_ok(), "{path} stays at {last:#}");
        last
    }
}

fn effects(refunds: Arc<AtomicBool>) -> Upstream {
    let charge = |call: orlog_effect::FunctionCall| async move {
        match call.payload["total"].as_u64() {
            Some(total) if total < 1000 => Ok(json!({ "paid": total })),
            _ => Err(ProviderError::permanent("card_declined", "too much")),
        }
    };
    let refund = move |_| {
        let works = refunds.load(Ordering::SeqCst);
        async move {
            if works {
                Ok(json!({}))
            } else {
                Err(ProviderError::permanent("bank_closed", "come back later"))
            }
        }
    };
    FunctionProvider::new()
        .effect("test.charge", charge)
        .effect("test.refund", refund)
        .upstream("bank", Policy::default())
}

/// Returns the start event of an order.
pub(crate) fn placed(id: &str, total: u64) -> Value {
    event(&format!("placed-{id}"), "OrderPlaced", &json!({ "orderId": id, "total": total }))
}

pub(crate) fn event(id: &str, kind: &str, data: &Value) -> Value {
    json!({
        "specversion": "1.0", "id": id, "type": kind, "source": "urn:shop", "time": "2026-01-02T03:04:05Z", "data": data,
    })
}
