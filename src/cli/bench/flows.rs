//! Workload G: flows of five trivial jobs. N runners claim and complete the jobs over HTTP, one at
//! a time, and twice as many clients submit flows over HTTP and wait for their ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::client;
use super::options::BenchArgs;
use super::report::{BenchReport, float, ratio};
use super::resources::ResourceUsage;
use orlog_node::config::{AuthMode, Config};

/// Number of jobs of a flow: one, three that receive its result, and one that receives theirs.
const JOBS: u64 = 5;

/// Clients and runners of a node.
struct Load {
    http: reqwest::Client,
    url: String,
    next: AtomicU64,
    flows: u64,
    until: Instant,
}

pub(super) async fn run(bench: &BenchArgs, mut config: Config) -> anyhow::Result<BenchReport> {
    config.auth.mode = AuthMode::Off;
    // All clients and runners are one caller.
    let callers = &mut config.http.per_caller;
    (callers.max_requests_per_second, callers.max_share) = (0, 1.0);
    (callers.max_concurrent_requests, callers.max_long_polls) = (usize::MAX, usize::MAX);

    // No programs and no upstreams: flows and their jobs are built in.
    let (app, _) = client::start_with(config, Vec::new(), Vec::new()).await?;
    client::until_owned(&app).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(orlog_api::serve(Arc::clone(&app), listener, async {
        drop(stopped.await);
    }));
    let load = Arc::new(Load {
        http: orlog_effect::http::client().build()?,
        url,
        next: AtomicU64::new(0),
        flows: bench.sagas(),
        until: Instant::now() + bench.time(),
    });

    let mut runners = JoinSet::new();
    for number in 0..bench.concurrency {
        runners.spawn(Arc::clone(&load).runner(number));
    }
    let before = ResourceUsage::now()?;
    let started = Instant::now();
    let metrics = app.runtime.metrics();
    let transitions = metrics.transitions();
    let commits = metrics.commits();
    let mut clients = JoinSet::new();

    // Twice as many as runners, so that jobs are available while other flows end.
    for _ in 0..bench.concurrency.saturating_mul(2) {
        clients.spawn(Arc::clone(&load).client());
    }
    let mut latencies = Vec::new();

    while let Some(client) = clients.join_next().await {
        latencies.extend(client??);
    }
    let took = started.elapsed();
    let used = ResourceUsage::now()?.since(before);
    let transitions = metrics.transitions() - transitions;
    let mut report = BenchReport::of(bench);
    report.rates(latencies.len() as u64, transitions, took, used);
    report.transitions_per_commit = ratio(transitions, float((metrics.commits() - commits).max(1)));
    report.extra.insert(
        "jobs_per_s",
        ratio(latencies.len() as u64 * JOBS, took.as_secs_f64()),
    );
    report.latencies(latencies);
    // Runners never end by themselves: they wait in claim requests. An error of one of them shows
    // as a flow that does not finish.
    runners.shutdown().await;

    // An error means that the server has already stopped.
    stop.send(()).ok();
    server.await??;
    app.stop().await?;
    Ok(report)
}

fn flow() -> Value {
    let job = |id: &str, dependencies: &[&str]| {
        json!({
            "id": id, "type": "bench", "script": "1", "dependencies": dependencies,
        })
    };
    json!({
        "name": "bench",
        "jobs": [
            job("a", &[]),
            job("b", &["a"]),
            job("c", &["a"]),
            job("d", &["a"]),
            job("e", &["b", "c", "d"]),
        ],
    })
}

impl Load {
    /// Submits one flow after another, and returns their durations.
    async fn client(self: Arc<Self>) -> anyhow::Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        let flow = flow();
        while self.next.fetch_add(1, Ordering::Relaxed) < self.flows && Instant::now() < self.until
        {
            let begun = Instant::now();
            let ended = self.post("/v1/flows?wait=60s", &flow).await?;
            ensure!(
                ended["status"] == "finished",
                "a flow did not finish within 60s: {ended}"
            );
            latencies.push(begun.elapsed());
        }

        Ok(latencies)
    }

    /// Executes one job after another.
    async fn runner(self: Arc<Self>, number: u32) -> anyhow::Result<()> {
        let name = format!("runner-{number}");
        let claim = json!({ "effects": ["job.bench"], "worker": name, "max": 1 });
        self.post("/v1/runners", &json!({ "name": name, "types": ["bench"] }))
            .await?;

        loop {
            let claimed = self.post("/v1/work/claim", &claim).await?;
            for job in claimed["jobs"].as_array().into_iter().flatten() {
                let path = format!(
                    "/v1/work/jobs/{}/result",
                    job["job"].as_str().unwrap_or_default()
                );
                let result = json!({ "claim": job["claim"], "result": "succeeded", "payload": 1 });
                self.post(&path, &result).await?;
            }
        }
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let response = self
            .http
            .post(format!("{}{path}", self.url))
            .json(body)
            .send()
            .await?;
        let status = response.status();
        let text = response.text().await?;
        ensure!(status.is_success(), "{path}: {status}: {text}");

        serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))
    }
}
