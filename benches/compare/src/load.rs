//! The load generator: starts orders, waits until their end is known, and measures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hyper::Method;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use crate::client::Client;
use crate::process::{cpu_seconds, load_average, peak_mib};
use crate::service::{COUNTS, STEPS};
use crate::system::System;

/// Loads: orders in flight, or for 0 a new order every 100 ms.
pub(crate) const LOADS: [usize; 3] = [0, 256, 1000];
/// Connections to Orlog. A request occupies one until its event is durable.
const ORLOG_CONNECTIONS: usize = 64;
/// Connections to Restate. A request occupies one until its saga ends.
const RESTATE_CONNECTIONS: usize = 1000;
const PERIOD: Duration = Duration::from_millis(100);
const WARM_UP: Duration = Duration::from_secs(1);
/// Maximum duration of one order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);

/// Measurements of one load.
#[derive(Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) sagas_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// CPU time in µs for each saga: server, service, load generator.
    pub(crate) cpu_us: [f64; 3],
}

/// Measurements of one run of one system.
#[derive(Serialize, Deserialize)]
pub(crate) struct Run {
    /// In the order of `LOADS`.
    pub(crate) loads: Vec<Measurement>,
    /// Peak resident memory: server, service, load generator.
    pub(crate) peak_mib: [f64; 3],
    pub(crate) sagas: u64,
    pub(crate) load_average: f64,
}

/// Addresses and processes of one run.
pub(crate) struct Target {
    pub(crate) system: System,
    pub(crate) server: u16,
    pub(crate) control: u16,
    /// Process ids of the server and the service.
    pub(crate) processes: [u32; 2],
    pub(crate) seconds: u64,
}

/// Applies all loads, checks that each accepted order ended once, and returns the measurements.
pub(crate) async fn run(target: &Target) -> Result<Run> {
    let load_average = load_average()?;
    let processes = [target.processes[0], target.processes[1], std::process::id()];
    let orders = Arc::new(Orders::connect(target).await?);
    let (mut loads, mut sagas) = (Vec::new(), 0);
    for in_flight in LOADS {
        let window = Window::new(Duration::from_secs(target.seconds));
        let measured = measure(&orders, in_flight, window, processes).await;
        loads.push(
            measured
                .with_context(|| format!("the load with {in_flight} orders in flight failed"))?,
        );
        sagas = orders.check().await?;
    }
    let mut peak = [0.0; 3];
    for (peak, process) in peak.iter_mut().zip(processes) {
        *peak = peak_mib(process)?;
    }
    Ok(Run {
        loads,
        peak_mib: peak,
        sagas,
        load_average,
    })
}

/// Time in which ends of orders count.
#[derive(Clone, Copy)]
struct Window {
    from: Instant,
    until: Instant,
}

impl Window {
    fn new(length: Duration) -> Self {
        let from = Instant::now() + WARM_UP;
        Self {
            from,
            until: from + length,
        }
    }
}

async fn measure(
    orders: &Arc<Orders>,
    in_flight: usize,
    window: Window,
    processes: [u32; 3],
) -> Result<Measurement> {
    let mut tasks = JoinSet::new();
    if in_flight == 0 {
        tasks.spawn(open_loop(Arc::clone(orders), window));
    }
    for _ in 0..in_flight {
        tasks.spawn(closed_loop(Arc::clone(orders), window));
    }
    sleep_until(window.from).await;
    let before = (cpu(processes)?, orders.stored().await?);
    sleep_until(window.until).await;
    let after = (cpu(processes)?, orders.stored().await?);
    let mut latencies = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        latencies.extend(ended??);
    }
    latencies.sort_unstable();
    let (Some(p50), Some(p99)) = (
        latencies.get(latencies.len() / 2),
        latencies.get(latencies.len() * 99 / 100),
    ) else {
        bail!(
            "no order ended within {}s",
            (window.until - window.from).as_secs()
        );
    };
    let ended = latencies.len() as u64;
    // The service receives the last request of an order before Orlog stores its end: the node counts the stored ends.
    let count = if orders.system == System::OrlogHttp && in_flight > 0 {
        after.1 - before.1
    } else {
        ended
    };
    #[expect(clippy::cast_precision_loss, reason = "less than 2^52")]
    let count = count as f64;
    Ok(Measurement {
        sagas_per_s: count / (window.until - window.from).as_secs_f64(),
        p50_ms: p50.as_secs_f64() * 1e3,
        p99_ms: p99.as_secs_f64() * 1e3,
        cpu_us: std::array::from_fn(|index| (after.0[index] - before.0[index]) * 1e6 / count),
    })
}

fn cpu(processes: [u32; 3]) -> Result<[f64; 3]> {
    Ok([
        cpu_seconds(processes[0])?,
        cpu_seconds(processes[1])?,
        cpu_seconds(processes[2])?,
    ])
}

/// Runs one order after the other. Returns the latencies of the orders that ended in the window.
async fn closed_loop(orders: Arc<Orders>, window: Window) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while Instant::now() < window.until {
        let started = Instant::now();
        orders.run(false).await?;
        let ended = Instant::now();
        if window.from <= ended && ended < window.until {
            latencies.push(ended - started);
        }
    }
    Ok(latencies)
}

/// Starts an order every `PERIOD`. Returns the latencies of the orders that started in the window.
async fn open_loop(orders: Arc<Orders>, window: Window) -> Result<Vec<Duration>> {
    let (mut tasks, mut ticks) = (JoinSet::new(), interval(PERIOD));
    loop {
        let started = ticks.tick().await;
        if started >= window.until {
            break;
        }
        let orders = Arc::clone(&orders);
        tasks.spawn(async move {
            orders
                .run(true)
                .await
                .map(|()| (started, started.elapsed()))
        });
    }
    let ended: Result<Vec<_>> = tasks.join_all().await.into_iter().collect();
    Ok(ended?
        .into_iter()
        .filter(|(started, _)| *started >= window.from)
        .map(|(_, latency)| latency)
        .collect())
}

type Waiters = Arc<Mutex<HashMap<u64, oneshot::Sender<()>>>>;

/// Starts orders and waits for their ends.
struct Orders {
    system: System,
    starts: Client,
    /// Other requests, which do not wait behind starts.
    reads: Client,
    next: AtomicU64,
    /// Orders whose end the service reports.
    waiters: Waiters,
    control: tokio::sync::Mutex<(OwnedWriteHalf, mpsc::Receiver<[u64; 2]>)>,
}

impl Orders {
    async fn connect(target: &Target) -> Result<Self> {
        let connections = if target.system.is_orlog() {
            ORLOG_CONNECTIONS
        } else {
            RESTATE_CONNECTIONS
        };
        let (starts, reads) = (
            Client::new(target.server, connections),
            Client::new(target.server, 8),
        );
        let control = connect(target.control).await?;
        let (reader, writer) = control.into_split();
        let (sender, counts) = mpsc::channel(1);
        let waiters = Waiters::default();
        tokio::spawn(receive(reader, Arc::clone(&waiters), sender));
        let control = tokio::sync::Mutex::new((writer, counts));
        Ok(Self {
            system: target.system,
            starts,
            reads,
            next: AtomicU64::new(0),
            waiters,
            control,
        })
    }

    /// Starts an order and waits until its end is known. With HTTP effects of Orlog, and not `stored`, the end is the last request to
    /// the service.
    async fn run(&self, stored: bool) -> Result<()> {
        let order = self.next.fetch_add(1, Ordering::Relaxed);
        let run = async {
            match self.system {
                System::RestateService => {
                    self.post("/Order/run", "application/json", order.to_string())
                        .await
                }
                System::RestateWorkflow => {
                    self.post(
                        &format!("/OrderWorkflow/{order}/run"),
                        "application/json",
                        order.to_string(),
                    )
                    .await
                }
                System::OrlogHttp if stored => {
                    self.publish(order).await?;
                    self.wait_until_stored(order).await
                }
                System::OrlogExchange | System::OrlogHttp => self.publish(order).await,
            }
        };
        let ended = timeout(ORDER_TIMEOUT, run).await;
        ended.with_context(|| {
            format!(
                "order {order} did not end within {}s",
                ORDER_TIMEOUT.as_secs()
            )
        })?
    }

    async fn post(&self, path: &str, kind: &str, body: String) -> Result<()> {
        self.starts
            .send(Method::POST, path, kind, body)
            .await
            .map(drop)
    }

    /// Publishes the start event, and waits until the service reports the end.
    async fn publish(&self, order: u64) -> Result<()> {
        let (sender, ended) = oneshot::channel();
        self.waiters.lock().insert(order, sender);
        let event = format!(
            r#"{{"specversion":"1.0","id":"{order}","type":"OrderPlaced","source":"urn:compare","data":{{"order":"{order}"}}}}"#
        );
        self.post("/v1/events", "application/cloudevents+json", event)
            .await?;
        ended.await.context("the service has closed its connection")
    }

    /// Waits until the last transition of an order is stored: the service receives the last request before.
    async fn wait_until_stored(&self, order: u64) -> Result<()> {
        let path = format!("/v1/sagas/order/{order}?history_limit=1");
        loop {
            let body = self
                .reads
                .send(Method::GET, &path, "application/json", String::new())
                .await?;
            if serde_json::from_slice::<Instance<'_>>(&body)?.status == "completed" {
                return Ok(());
            }
        }
    }

    /// Returns the number of orders whose end Orlog has stored; for Restate, of those with a response.
    async fn stored(&self) -> Result<u64> {
        if !self.system.is_orlog() {
            return Ok(self.next.load(Ordering::Relaxed));
        }
        let metrics = self
            .reads
            .send(Method::GET, "/metrics", "text/plain", String::new())
            .await?;
        let metrics = String::from_utf8_lossy(&metrics);
        let mut ended = metrics
            .lines()
            .filter(|line| line.starts_with("orlog_tenant_instances_ended_total{"));
        let completed = ended.find(|line| line.contains("status=\"completed\""));
        completed
            .and_then(|line| line.split_whitespace().last())
            .map_or(Ok(0), |count| Ok(count.parse()?))
    }

    /// Checks that each order was executed once and has ended. Returns their number.
    async fn check(&self) -> Result<u64> {
        let accepted = self.next.load(Ordering::Relaxed);
        let started = Instant::now();
        while self.stored().await? < accepted && started.elapsed() < ORDER_TIMEOUT {
            sleep(Duration::from_millis(20)).await;
        }
        let stored = self.stored().await?;
        let (writer, counts) = &mut *self.control.lock().await;
        writer.write_u8(0).await?;
        let counts = timeout(ORDER_TIMEOUT, counts.recv()).await.ok().flatten();
        let [exact, executions] = counts.context("the service sent no counts")?;
        if [stored, exact, executions] != [accepted, accepted, accepted * STEPS.len() as u64] {
            bail!(
                "{accepted} orders were accepted, but {stored} completed, {exact} had each step once, and {executions} steps were executed"
            );
        }
        Ok(accepted)
    }
}

/// Connects to the service, which may still start.
async fn connect(port: u16) -> Result<TcpStream> {
    let started = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(_) if started.elapsed() < ORDER_TIMEOUT => sleep(Duration::from_millis(20)).await,
            Err(error) => return Err(error).context("the service does not listen"),
        }
    }
}

#[derive(Deserialize)]
struct Instance<'a> {
    status: &'a str,
}

/// Receives the messages of the service.
async fn receive(
    reader: OwnedReadHalf,
    waiters: Waiters,
    counts: mpsc::Sender<[u64; 2]>,
) -> Result<()> {
    let mut reader = tokio::io::BufReader::new(reader);
    loop {
        let message = reader.read_u64().await?;
        if message == COUNTS {
            counts
                .send([reader.read_u64().await?, reader.read_u64().await?])
                .await?;
            continue;
        }
        // A second report of an order has no waiter; the counts of the service include its repeated step.
        if let Some(waiter) = waiters.lock().remove(&message) {
            waiter.send(()).ok();
        }
    }
}
