//! Workloads A and B: a closed loop of clients. Each client publishes an event, waits for the end
//! of its saga, and starts the next.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use orlog_effect::Upstream;
use orlog_program::Program;
use parking_lot::Mutex;

use super::observer::CompletionTracker;
use super::options::{BenchArgs, Workload};
use super::report::{BenchReport, ratio};
use super::resources::ResourceUsage;
use super::workload;
use orlog_node::app::{App, AppOverrides};
use orlog_node::clock::SystemClock;
use orlog_node::config::Config;
use orlog_node::telemetry::{SpanExporter, TelemetryHandle};

/// Timeout for the end of a saga. Default: 1 min.
pub(super) const RESULT_TIMEOUT: Duration = Duration::from_mins(1);

/// Starts a runner with the benchmark sagas and effects, and the observer of its commits.
pub(super) async fn start(config: Config) -> anyhow::Result<(Arc<App>, Arc<CompletionTracker>)> {
    start_with(config, workload::programs()?, workload::upstreams()).await
}

/// Starts a runner with these sagas and effects, and the observer of its commits.
pub(super) async fn start_with(
    config: Config,
    programs: Vec<Arc<dyn Program>>,
    upstreams: Vec<Upstream>,
) -> anyhow::Result<(Arc<App>, Arc<CompletionTracker>)> {
    // The end of a saga is its durable commit, so that the latency contains no HTTP API.
    let completions = CompletionTracker::new(Arc::new(SystemClock));
    let collected = !config.telemetry.otlp_endpoint.is_empty();
    // Without a collector, the run has no exporter at all, as a reference for the cost of tracing.
    let spans = collected
        .then(|| SpanExporter::start(&config))
        .transpose()?;
    let overrides = AppOverrides {
        programs,
        upstreams,
        observer: Some(Arc::clone(&completions) as Arc<_>),
        telemetry: spans.map(TelemetryHandle::from_config).unwrap_or_default(),
        ..AppOverrides::default()
    };

    Ok((
        Box::pin(App::start_with(config, overrides)).await?,
        completions,
    ))
}

pub(super) async fn run(bench: &BenchArgs, config: Config) -> anyhow::Result<BenchReport> {
    let (app, completions) = start(config).await?;
    let load = Arc::new(ClosedLoop {
        app: Arc::clone(&app),
        completions,
        next: AtomicU64::new(0),
        sagas: bench.sagas(),
        until: Instant::now() + bench.time(),
        fails: bench.workload == Workload::B,
        bench: bench.clone(),
        accepted: bench
            .accepted
            .as_ref()
            .map(std::fs::File::create)
            .transpose()?
            .map(Mutex::new),
    });
    // The acquisition of shards is not part of the measurement.
    until_owned(&app).await?;

    let by_server = || bench.server.map(ResourceUsage::by).transpose();
    let before = ResourceUsage::now()?;
    let served = by_server()?;
    let started = Instant::now();
    let transitions = app.runtime.metrics().transitions();
    let clients: Vec<_> = (0..bench.concurrency)
        .map(|_| tokio::spawn(Arc::clone(&load).client()))
        .collect();
    let mut latencies = Vec::new();

    for client in clients {
        latencies.extend(client.await??);
    }
    let took = started.elapsed();
    let used = ResourceUsage::now()?.since(before);
    let transitions = app.runtime.metrics().transitions() - transitions;
    let mut report = BenchReport::of(bench);
    report.rates(latencies.len() as u64, transitions, took, used);
    report.transitions_per_commit = ratio(
        transitions,
        super::report::float(app.runtime.metrics().commits().max(1)),
    );

    // The server of NATS is another process, whose CPU time is part of the cost of a transition.
    if let (Some(before), Some(after)) = (served, by_server()?) {
        let cpu = after.since(before).cpu.as_secs_f64() * 1e6;
        report.extra.insert(
            "server_cpu_us_per_transition",
            cpu / super::report::float(transitions).max(1.0),
        );
    }

    report.latencies(latencies);
    app.stop().await?;
    Ok(report)
}

/// Waits until this process owns all shards; with leases, it acquires them one after another.
pub(super) async fn until_owned(app: &App) -> anyhow::Result<()> {
    let all = async {
        while app.runtime.owned_shards().len() < usize::from(app.config.shards) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(RESULT_TIMEOUT, all)
        .await
        .context("some stores did not open in time")
}

struct ClosedLoop {
    app: Arc<App>,
    completions: Arc<CompletionTracker>,
    next: AtomicU64,
    sagas: u64,
    until: Instant,
    fails: bool,
    bench: BenchArgs,
    accepted: Option<Mutex<std::fs::File>>,
}

impl ClosedLoop {
    async fn client(self: Arc<Self>) -> anyhow::Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.sagas || Instant::now() >= self.until {
                return Ok(latencies);
            }
            latencies.push(self.one(number).await?);
        }
    }

    async fn one(&self, number: u64) -> anyhow::Result<Duration> {
        // Before the publication: the saga can end before `publish` returns.
        let ended = self.completions.of(number);
        let begun = Instant::now();
        let event = workload::started(
            &self.bench.tenant(number),
            number,
            self.fails,
            self.app.clock.now(),
        )?;
        self.app.publish(vec![event]).await?;

        // After the durable publication, and before the end: workload E expects that each number in
        // the file ends after a crash.
        if let Some(file) = &self.accepted {
            writeln!(file.lock(), "{number}")?;
        }

        tokio::time::timeout(RESULT_TIMEOUT, ended)
            .await
            .with_context(|| format!("saga {number} did not end within {RESULT_TIMEOUT:?}"))??;
        Ok(begun.elapsed())
    }
}
