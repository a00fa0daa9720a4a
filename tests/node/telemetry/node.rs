//! Node under load, with switches for all faults.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use orlog::config::{AuthMode, Config};
use orlog::doctor::DiagnosisLimits;
use orlog_effect::limits::breaker;
use orlog_effect::retry::Backoff;
use orlog_effect::{
    Attempt, FunctionCall, FunctionProvider, Policy, Provider, ProviderError, Reply, Upstream,
};
use orlog_model::WorkItem;
use orlog_testkit::{FaultyDisk, SettableClock, WAIT_TIMEOUT};
use serde_json::{Value, json};

use crate::harness::http::{client, send};
use crate::harness::node::{self, NodeBuilder};
use crate::telemetry::servers::METRICS_TOKEN;

/// Poll interval.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Window of the rates in the checks of the node; the default is 5 minutes.
const TREND_WINDOW: Duration = Duration::from_secs(10);
/// Age of reported work; the default is 5 minutes.
const OLD_WORK: Duration = Duration::from_secs(2);

const ORDER: &str = r"
saga: order
version: 1
correlate: orderId
start: OrderPlaced
reference: =vars.orderId
vars: { orderId: =event.orderId, total: =event.total }
steps:
  - id: charge
    do: { effect: bank.charge, data: { total: =vars.total } }
    ok: Charged
    fail: Declined
    undo: { effect: bank.refund, data: { total: =vars.total } }
  - id: ship
    do: { effect: carrier.ship, data: { total: =vars.total } }
    ok: Shipped
    fail: NotShipped
completed: { fact: OrderCompleted, data: { orderId: =vars.orderId } }
failed: { fact: OrderFailed, data: { orderId: =vars.orderId } }
";

const MESSAGE_DEFINITION: &str = r"
saga: letter
version: 1
correlate: letterId
start: LetterWritten
vars: { letterId: =event.letterId }
steps:
  - { id: dry, do: { wait: 100ms } }
  - { id: stamp, do: { command: post.Stamp, data: { letterId: =vars.letterId } }, ok: Stamped, fail: Rejected, timeout: 1h }
";

/// Switches of the upstreams.
pub(crate) struct Switches {
    /// Whether the bank charges.
    pub(crate) charges: AtomicBool,
    /// Whether the bank refunds.
    pub(crate) refunds: AtomicBool,
    /// Whether the carrier responds.
    pub(crate) carrier: AtomicBool,
    /// Whether the gateway accepts commands.
    pub(crate) gateway: AtomicBool,
}

/// Node on a free port.
pub(crate) struct Node {
    inner: node::Node,
    pub(crate) url: String,
    pub(crate) switches: Arc<Switches>,
    pub(crate) disk: FaultyDisk,
    pub(crate) clock: SettableClock,
    http: reqwest::Client,
}

impl Deref for Node {
    type Target = node::Node;

    fn deref(&self) -> &node::Node {
        &self.inner
    }
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_, _| {}).await
    }

    /// Starts a node that requires a token for everything, and another one for the metrics.
    pub(crate) async fn with_metrics_token() -> Self {
        Self::start_with(|config, dir| {
            let token = dir.join("metrics-token");
            std::fs::write(&token, METRICS_TOKEN).unwrap();
            config.auth.mode = AuthMode::Token;
            config.auth.metrics_token = Some(format!("file:{}", token.display()).parse().unwrap());
        })
        .await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config, &Path)) -> Self {
        let builder = NodeBuilder::new()
            .definition("order", ORDER)
            .definition("letter", MESSAGE_DEFINITION);
        let dir = Arc::clone(&builder.dir);
        let [charges, refunds, carrier, gateway] = std::array::from_fn(|_| AtomicBool::new(true));
        let switches = Arc::new(Switches {
            charges,
            refunds,
            carrier,
            gateway,
        });
        let (disk, clock) = (FaultyDisk::default(), SettableClock::default());
        let builder = builder.config(|config| {
            config.telemetry.max_tenant_series = 3;
            config.store.memtable_max_age = Duration::from_millis(200);
            change(config, dir.path());
        });
        let builder = builder.overrides(|overrides| {
            overrides.disk = Some(Arc::new(disk.clone()));
            overrides.clock = Some(Arc::new(clock.clone()));
            overrides.diagnosis = DiagnosisLimits {
                window: TREND_WINDOW,
                stale_work: OLD_WORK,
            };
        });
        let builder = builder
            .upstream(bank(&switches))
            .upstream(shipping(&switches));
        let node = builder.upstream(gateway_of(&switches)).start().await;
        Self {
            url: node.serve().await,
            http: client(),
            inner: node,
            switches,
            disk,
            clock,
        }
    }

    /// Stops the node, even if an instance is stuck.
    pub(crate) async fn stop(self) {
        self.inner.stop().await;
    }

    /// Publishes events for a tenant.
    pub(crate) async fn publish(&self, tenant: &str, events: &[Value]) {
        for event in events {
            let status = self.try_publish(tenant, event).await;
            assert_eq!(status, 202, "{event}");
        }
    }

    /// Publishes events for a tenant in one request.
    pub(crate) async fn publish_batch(&self, tenant: &str, events: &[Value]) {
        assert_eq!(self.try_publish(tenant, &json!(events)).await, 202);
    }

    /// Publishes an event for a tenant and returns the status of the response.
    pub(crate) async fn try_publish(&self, tenant: &str, event: &Value) -> u16 {
        let url = format!("{}/v1/events", self.url);
        send(
            &self.http,
            "POST",
            url,
            &[("x-tenant-id", tenant)],
            Some(event),
        )
        .await
        .status
        .as_u16()
    }

    /// Returns the metrics for this `Accept` header.
    pub(crate) async fn metrics(&self, accept: &str) -> (String, String) {
        let url = format!("{}/metrics", self.url);
        let response = send(&self.http, "GET", url, &[("accept", accept)], None).await;
        (
            response.headers["content-type"]
                .to_str()
                .unwrap()
                .to_owned(),
            response.text,
        )
    }

    /// Creates load: orders that complete, are declined, are compensated or stuck; dead letters; unknown
    /// events.
    pub(crate) async fn load(&self) {
        let tenants = ["acme", "zeta", "", "late", "later"];
        for (index, tenant) in tenants.into_iter().enumerate() {
            let placed = |id: &str, total: u64| placed(&format!("{id}-{index}"), total);
            let written = event(
                &format!("w-{index}"),
                "LetterWritten",
                &json!({ "letterId": format!("l-{index}") }),
            );
            let nobodys = event(&format!("n-{index}"), "OrderPlaced", &json!({ "total": 5 }));
            let events = [
                placed("good", 5),
                placed("declined", 2000),
                placed("rejected", 700),
                written,
                nobodys,
            ];
            self.publish(tenant, &events).await;
        }
        for (tenant, failed) in [("acme", 2), ("zeta", 2), ("", 2), ("other", 4)] {
            let line = format!(
                "orlog_tenant_instances_ended_total{{tenant={tenant:?},status=\"failed\"}} {failed}"
            );
            self.until("rejected letters are compensated", &line).await;
        }
        self.switches.refunds.store(false, Ordering::SeqCst);
        self.publish("acme", &[placed("stuck", 700)]).await;
        self.until(
            "something is stuck",
            "orlog_instances_stuck{saga=\"order\"} 1",
        )
        .await;
        self.switches.carrier.store(false, Ordering::SeqCst);
        self.publish("acme", &[placed("waits", 5), placed("waits-too", 6)])
            .await;
        self.until(
            "a breaker opens",
            "orlog_breaker_opened_total{upstream=\"carrier\"} ",
        )
        .await;
    }

    /// Continues the load with orders, dead letters and invalid events until its receiver is dropped.
    pub(crate) async fn go_on(&self) {
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        for n in 0.. {
            tick.tick().await;
            let written = event(
                &format!("w-on-{n}"),
                "LetterWritten",
                &json!({ "letterId": format!("on-{n}") }),
            );
            let nobodys = event(&format!("n-on-{n}"), "OrderPlaced", &json!({ "total": 5 }));
            let events = [
                placed(&format!("on-{n}"), 5),
                placed(&format!("dear-{n}"), 2000),
                written,
                nobodys,
            ];
            self.publish("acme", &events).await;
        }
    }

    /// Writes a directory of definitions beside the active ones: orders with this change, and letters.
    pub(crate) fn write_definitions(&self, dir: &str, change: impl Fn(&str) -> String) {
        let dir = self.dir.path().join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("order.saga.yaml"), change(ORDER)).unwrap();
        std::fs::write(dir.join("letter.saga.yaml"), MESSAGE_DEFINITION).unwrap();
    }

    /// Writes the next version of the definition, in which an order has no required total. It must still be
    /// deployed.
    pub(crate) fn bear_orders_without_total(&self) {
        let fixed = ORDER.replace("version: 1", "version: 2");
        let fixed = fixed.replace(
            "total: =event.total",
            "total: '=has(event.total) ? event.total : 0'",
        );
        std::fs::write(self.dir.path().join("definitions/order.saga.yaml"), fixed).unwrap();
    }

    /// Waits until a line of the metrics has this prefix and is not 0.
    pub(crate) async fn until(&self, description: &str, line: &str) {
        let is_exported = |text: &str| {
            text.lines()
                .any(|l| l.starts_with(line) && !l.ends_with(" 0"))
        };
        let mut last = String::new();
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        let waited = tokio::time::timeout(WAIT_TIMEOUT, async {
            loop {
                ticks.tick().await;
                last = self.metrics("text/plain").await.1;
                if is_exported(&last) {
                    return;
                }
            }
        });
        assert!(waited.await.is_ok(), "{description}: no {line} in\n{last}");
    }
}

/// Returns the start event of an order. The bank accepts totals below 1000, the carrier those below
/// 500.
pub(crate) fn placed(id: &str, total: u64) -> Value {
    event(
        &format!("placed-{id}"),
        "OrderPlaced",
        &json!({ "orderId": id, "total": total }),
    )
}

pub(crate) fn event(id: &str, kind: &str, data: &Value) -> Value {
    json!({ "specversion": "1.0", "id": id, "type": kind, "source": "urn:shop", "data": data })
}

fn total(call: &FunctionCall) -> u64 {
    call.payload["total"].as_u64().unwrap_or_default()
}

fn bank(switches: &Arc<Switches>) -> Upstream {
    let till = Arc::clone(switches);
    let charge = move |call: FunctionCall| {
        let is_open = till.charges.load(Ordering::SeqCst);
        async move {
            match total(&call) {
                _ if !is_open => Err(ProviderError::unavailable("closed", "the till is closed")),
                ..1000 => Ok(json!({})),
                _ => Err(ProviderError::permanent("declined", "too much")),
            }
        }
    };
    let switches = Arc::clone(switches);
    let refund = move |_: FunctionCall| {
        let works = switches.refunds.load(Ordering::SeqCst);
        async move {
            if works {
                Ok(json!({}))
            } else {
                Err(ProviderError::permanent("bank_closed", "come back later"))
            }
        }
    };
    FunctionProvider::new()
        .effect("bank.charge", charge)
        .effect("bank.refund", refund)
        .upstream(
            "bank",
            Policy {
                breaker: None,
                backoff: short_backoff(),
                ..Policy::default()
            },
        )
}

fn short_backoff() -> Backoff {
    Backoff {
        initial: Duration::from_millis(20),
        max: Duration::from_millis(200),
        ..Backoff::default()
    }
}

/// Returns the carrier: it rejects expensive orders and opens its breaker after three failed
/// connections.
fn shipping(switches: &Arc<Switches>) -> Upstream {
    let switches = Arc::clone(switches);
    let ship = move |call: FunctionCall| {
        let (up, dear) = (switches.carrier.load(Ordering::SeqCst), total(&call) >= 500);
        async move {
            match (up, dear) {
                (false, _) => Err(ProviderError::unavailable(
                    "unreachable",
                    "the line is dead",
                )),
                (true, true) => Err(ProviderError::permanent("too_dear", "not insured")),
                (true, false) => Ok(json!({})),
            }
        }
    };
    let policy = Policy {
        backoff: short_backoff(),
        breaker: Some(breaker::BreakerOptions {
            failure_threshold: 3,
            rate: None,
            open_duration: Duration::from_secs(1),
        }),
        ..Policy::default()
    };
    FunctionProvider::new()
        .effect("carrier.ship", ship)
        .upstream("carrier", policy)
}

/// Gateway that accepts every command while it is switched on.
struct Gateway(Arc<Switches>);

#[async_trait]
impl Provider for Gateway {
    async fn execute(&self, _item: &WorkItem, _attempt: Attempt) -> Result<Reply, ProviderError> {
        if self.0.gateway.load(Ordering::SeqCst) {
            return Ok(Reply::from(Value::Null));
        }
        Err(ProviderError::throttled("away", "later"))
    }
}

fn gateway_of(switches: &Arc<Switches>) -> Upstream {
    let backoff = Backoff {
        max: Duration::from_millis(200),
        ..Backoff::default()
    };
    let policy = Policy {
        breaker: None,
        backoff,
        ..Policy::gateway()
    };
    Upstream::gateway(Arc::new(Gateway(Arc::clone(switches))), policy)
}
