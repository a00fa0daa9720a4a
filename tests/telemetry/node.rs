//! A node under load, with switches for everything that can go wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use orlog::config::Config;
use orlog::{App, Seams};
use orlog_effect::backoff::Backoff;
use orlog_effect::limits::breaker;
use orlog_effect::{Attempt, Native, NativeCall, Policy, Provider, Refusal, Reply, Upstream};
use orlog_model::WorkItem;
use orlog_testkit::FaultyDisk;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Nothing in these tests takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

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

const LETTER: &str = r"
saga: letter
version: 1
correlate: letterId
start: LetterWritten
vars: { letterId: =event.letterId }
steps:
  - { id: dry, do: { wait: 100ms } }
  - { id: stamp, do: { command: post.Stamp, data: { letterId: =vars.letterId } }, ok: Stamped, fail: Refused, timeout: 1h }
";

/// Asks over HTTP.
pub(crate) fn client() -> reqwest::Client {
    orlog_effect::http::client().build().unwrap()
}

/// What can be switched off.
pub(crate) struct Switches {
    /// The bank pays back.
    pub(crate) refunds: AtomicBool,
    /// The carrier answers.
    pub(crate) carrier: AtomicBool,
    /// The gateway takes commands.
    pub(crate) gateway: AtomicBool,
}

/// A node that listens on a free port.
pub(crate) struct Node {
    pub(crate) app: Arc<App>,
    pub(crate) url: String,
    pub(crate) switches: Arc<Switches>,
    pub(crate) disk: FaultyDisk,
    pub(crate) folder: TempDir,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let definitions = folder.path().join("definitions");
        std::fs::create_dir(&definitions).unwrap();
        std::fs::write(definitions.join("order.saga.yaml"), ORDER).unwrap();
        std::fs::write(definitions.join("letter.saga.yaml"), LETTER).unwrap();
        let mut config =
            Config { data: folder.path().join("data"), definitions: Some(definitions), ..Config::default() };
        config.telemetry.tenants = 3;
        config.store.generation_age = Duration::from_millis(200);
        let [refunds, carrier, gateway] = std::array::from_fn(|_| AtomicBool::new(true));
        let switches = Arc::new(Switches { refunds, carrier, gateway });
        let disk = FaultyDisk::default();
        let seams = Seams {
            upstreams: vec![bank(&switches), shipping(&switches), gateway_of(&switches)],
            disk: Some(Arc::new(disk.clone())),
            ..Seams::default()
        };
        let app = App::start_with(config, seams).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let served = Arc::clone(&app);
        let serving = tokio::spawn(async move {
            let shutdown = async { drop(stopped.await) };
            orlog::api::serve(served, listener, shutdown).await.unwrap();
        });
        Self { app, url, switches, disk, folder, stop, serving }
    }

    /// Ends it, also while something is stuck.
    pub(crate) async fn stop(self) {
        let Self { app, stop, serving, folder, .. } = self;
        drop(stop);
        serving.abort();
        drop(serving.await);
        app.stop().await.unwrap();
        drop(folder);
    }

    /// Publishes events for a tenant.
    pub(crate) async fn publish(&self, tenant: &str, events: &[Value]) {
        let client = client();
        for event in events {
            let request =
                client.post(format!("{}/v1/events", self.url)).header("x-tenant-id", tenant).json(event);
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 202, "{}", answer.text().await.unwrap());
        }
    }

    /// What it shows to whoever accepts this.
    pub(crate) async fn metrics(&self, accept: &str) -> (String, String) {
        let request = client().get(format!("{}/metrics", self.url)).header("accept", accept);
        let answer = request.send().await.unwrap();
        let content_type = answer.headers()["content-type"].to_str().unwrap().to_owned();
        (content_type, answer.text().await.unwrap())
    }

    /// Orders that end well, are declined, are undone and stuck, letters that wait, and events that nobody understands.
    pub(crate) async fn load(&self) {
        let tenants = ["acme", "zeta", "", "late", "later"];
        for (index, tenant) in tenants.into_iter().enumerate() {
            let placed = |id: &str, total: u64| placed(&format!("{id}-{index}"), total);
            let written =
                event(&format!("w-{index}"), "LetterWritten", &json!({ "letterId": format!("l-{index}") }));
            let nobodys = event(&format!("n-{index}"), "OrderPlaced", &json!({ "total": 5 }));
            let events =
                [placed("good", 5), placed("declined", 2000), placed("refused", 700), written, nobodys];
            self.publish(tenant, &events).await;
        }
        for (tenant, failed) in [("acme", 2), ("zeta", 2), ("", 2), ("other", 4)] {
            let line =
                format!("orlog_tenant_instances_ended_total{{tenant={tenant:?},status=\"failed\"}} {failed}");
            self.until("what is refused is undone", &line).await;
        }
        self.switches.refunds.store(false, Ordering::SeqCst);
        self.publish("acme", &[placed("stuck", 700)]).await;
        self.until("something is stuck", "orlog_instances_stuck{saga=\"order\"} 1").await;
        self.switches.carrier.store(false, Ordering::SeqCst);
        self.publish("acme", &[placed("waits", 5), placed("waits-too", 6)]).await;
        self.until("a breaker opens", "orlog_breaker_openings_total{upstream=\"carrier\"} ").await;
    }

    /// Goes on with orders, letters and nonsense, until nobody waits for it any more.
    pub(crate) async fn go_on(&self) {
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        for n in 0.. {
            tick.tick().await;
            let written =
                event(&format!("w-on-{n}"), "LetterWritten", &json!({ "letterId": format!("on-{n}") }));
            let nobodys = event(&format!("n-on-{n}"), "OrderPlaced", &json!({ "total": 5 }));
            let events =
                [placed(&format!("on-{n}"), 5), placed(&format!("dear-{n}"), 2000), written, nobodys];
            self.publish("acme", &events).await;
        }
    }

    /// Writes the next version of the definition, for which an order need not have a total. Somebody must deploy it.
    pub(crate) fn bear_orders_without_total(&self) {
        let mended = ORDER.replace("version: 1", "version: 2");
        let mended = mended.replace("total: =event.total", "total: '=has(event.total) ? event.total : 0'");
        std::fs::write(self.folder.path().join("definitions/order.saga.yaml"), mended).unwrap();
    }

    /// Waits until a line of the metrics begins like this, and is not 0.
    pub(crate) async fn until(&self, what: &str, line: &str) {
        let shown = |text: &str| text.lines().any(|l| l.starts_with(line) && !l.ends_with(" 0"));
        let mut last = String::new();
        let mut look = tokio::time::interval(LOOK);
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                look.tick().await;
                last = self.metrics("text/plain").await.1;
                if shown(&last) {
                    return;
                }
            }
        });
        assert!(waited.await.is_ok(), "{what}: no {line} in\n{last}");
    }
}

/// The event that begins an order. The bank takes totals below 1000, the carrier those below 500.
pub(crate) fn placed(id: &str, total: u64) -> Value {
    event(&format!("placed-{id}"), "OrderPlaced", &json!({ "orderId": id, "total": total }))
}

pub(crate) fn event(id: &str, kind: &str, data: &Value) -> Value {
    json!({ "specversion": "1.0", "id": id, "type": kind, "source": "urn:shop", "data": data })
}

fn total(call: &NativeCall) -> u64 {
    call.payload["total"].as_u64().unwrap_or_default()
}

fn bank(switches: &Arc<Switches>) -> Upstream {
    let charge = |call: NativeCall| async move {
        if total(&call) < 1000 { Ok(json!({})) } else { Err(Refusal::failed("declined", "too much")) }
    };
    let switches = Arc::clone(switches);
    let refund = move |_: NativeCall| {
        let works = switches.refunds.load(Ordering::SeqCst);
        async move { if works { Ok(json!({})) } else { Err(Refusal::failed("bank_closed", "come back later")) } }
    };
    Native::new()
        .effect("bank.charge", charge)
        .effect("bank.refund", refund)
        .upstream("bank", Policy::default())
}

/// It refuses what is dear, and opens its breaker after three attempts that found nobody.
fn shipping(switches: &Arc<Switches>) -> Upstream {
    let switches = Arc::clone(switches);
    let ship = move |call: NativeCall| {
        let (up, dear) = (switches.carrier.load(Ordering::SeqCst), total(&call) >= 500);
        async move {
            match (up, dear) {
                (false, _) => Err(Refusal::retry("nobody_there", "the line is dead")),
                (true, true) => Err(Refusal::failed("too_dear", "not insured")),
                (true, false) => Ok(json!({})),
            }
        }
    };
    let policy = Policy {
        backoff: Backoff {
            first: Duration::from_millis(20),
            max: Duration::from_millis(200),
            ..Backoff::default()
        },
        breaker: Some(breaker::Options { failures: 3, rate: None, open_for: Duration::from_secs(1) }),
        ..Policy::default()
    };
    Native::new().effect("carrier.ship", ship).upstream("carrier", policy)
}

/// Takes every command, while it is there.
struct Gateway(Arc<Switches>);

#[async_trait]
impl Provider for Gateway {
    async fn perform(&self, _item: &WorkItem, _attempt: Attempt) -> Result<Reply, Refusal> {
        if self.0.gateway.load(Ordering::SeqCst) {
            return Ok(Reply::from(Value::Null));
        }
        Err(Refusal::busy("away", "later"))
    }
}

fn gateway_of(switches: &Arc<Switches>) -> Upstream {
    let backoff = Backoff { max: Duration::from_millis(200), ..Backoff::default() };
    let policy = Policy { breaker: None, backoff, ..Policy::gateway() };
    Upstream::gateway(Arc::new(Gateway(Arc::clone(switches))), policy)
}
