//! Node with an order saga, and switches for its faults.

use std::cell::Cell;
use std::ops::Deref;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{Method, StatusCode};
use orlog::config::{Config, TenantMode, TenantsConfig};
use orlog_effect::{FunctionProvider, Policy, ProviderError, Upstream};
use orlog_model::{Clock, SteadyTime, TenantId, Timestamp};
use orlog_program::Program;
use orlog_testkit::SettableClock;
use serde_json::{Value, json};

use crate::harness::node::{self, NodeBuilder};

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
    inner: node::Node,
    pub(crate) refunds: Arc<AtomicBool>,

    /// Wall clock of the node. A node that runs notices a later time within half a minute, one that starts at once.
    pub(crate) wall_clock: SettableClock,
}

impl Deref for Node {
    type Target = node::Node;

    fn deref(&self) -> &node::Node {
        &self.inner
    }
}

thread_local! {
    /// Whether the clock panics on this thread, which runs the test and its request handlers.
    pub(crate) static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Host clock that a test can set and break.
struct BreakableClock(SettableClock);

impl Clock for BreakableClock {
    fn now(&self) -> Timestamp {
        assert!(!PANICS.get(), "the clock is broken");
        self.0.now()
    }

    fn steady(&self) -> SteadyTime {
        self.0.steady()
    }

    fn sleep_until(&self, at: SteadyTime) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.0.sleep_until(at)
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
        let builder = NodeBuilder::new().definition("order", ORDER).config(change);
        let builder = more.into_iter().fold(builder, NodeBuilder::upstream);
        let builder = builder.overrides(|overrides| overrides.programs = programs);
        Self::open(builder, SettableClock::default()).await
    }

    /// Stops the node, changes its files, and starts it again.
    pub(crate) async fn restart(self, change: impl FnOnce(&Path)) -> Self {
        let config = Arc::clone(&self.app.config);
        let dir = self.inner.stop().await;
        change(&config.data_dir);

        let builder = NodeBuilder::on(dir).config(|fresh| *fresh = Config::clone(&config));
        Self::open(builder, self.wall_clock).await
    }

    async fn open(builder: NodeBuilder, wall_clock: SettableClock) -> Self {
        let refunds = Arc::new(AtomicBool::new(true));
        let clock: Arc<dyn Clock> = Arc::new(BreakableClock(wall_clock.clone()));
        let builder = builder.overrides(|overrides| overrides.clock = Some(clock));
        let node = builder
            .upstream(effects(Arc::clone(&refunds)))
            .gateway()
            .start()
            .await;
        Self {
            inner: node,
            refunds,
            wall_clock,
        }
    }

    /// Starts a node that accepts these tenants only.
    pub(crate) async fn listing(tenants: &[&str]) -> Self {
        let list = tenants
            .iter()
            .map(|name| TenantId::new(*name).unwrap())
            .collect();
        Self::start_with(|config| {
            config.tenants = TenantsConfig {
                mode: TenantMode::Allowlist,
                allowed: list,
                ..TenantsConfig::default()
            };
        })
        .await
    }

    /// Publishes the order and waits until it reaches this status.
    pub(crate) async fn order(&self, tenant: &str, id: &str, total: u64, status: &str) -> Value {
        let response = self
            .ask(
                Method::POST,
                tenant,
                "/v1/events",
                placed(id, total).to_string(),
            )
            .await;
        assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
        let path = format!("/v1/sagas/order/{id}");
        let is_ready = |order: &Value| {
            let is_shipping = || {
                order["waits"]
                    .as_array()
                    .is_some_and(|w| w.iter().any(|w| w["name"] == "Shipped"))
            };
            order["status"] == status && (status != "running" || is_shipping())
        };
        self.until(tenant, &path, is_ready).await
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
    event(
        &format!("placed-{id}"),
        "OrderPlaced",
        &json!({ "orderId": id, "total": total }),
    )
}

pub(crate) fn event(id: &str, kind: &str, data: &Value) -> Value {
    json!({
        "specversion": "1.0", "id": id, "type": kind, "source": "urn:shop", "time": "2026-01-02T03:04:05Z", "data": data,
    })
}
