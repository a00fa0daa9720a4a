//! Workloads A and B: a closed loop of clients, each of which publishes an event, waits for the end of its saga, and
//! begins the next.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::observer::Ends;
use super::options::{Bench, Workload};
use super::report::{Report, ratio};
use super::resources::Used;
use super::workload;
use crate::app::{App, Seams};
use crate::clock::SystemClock;
use crate::config::Config;
use crate::telemetry::{Spans, Telemetry};

/// A saga that takes longer than this is taken for lost.
const LOST: Duration = Duration::from_mins(1);

/// A runner with the bench's sagas and effects, and the ear on its commits.
pub(super) async fn start(config: Config) -> anyhow::Result<(Arc<App>, Arc<Ends>)> {
    let ends = Ends::new(Arc::new(SystemClock));
    let collected = !config.telemetry.otlp_endpoint.is_empty();
    let spans = collected.then(|| Spans::start(&config)).transpose()?;
    let seams = Seams {
        programs: workload::programs()?,
        upstreams: workload::upstreams(),
        observer: Some(Arc::clone(&ends) as Arc<_>),
        telemetry: spans.map(Telemetry::of).unwrap_or_default(),
        ..Seams::default()
    };
    Ok((App::start_with(config, seams).await?, ends))
}

pub(super) async fn run(bench: &Bench, config: Config) -> anyhow::Result<Report> {
    let (app, ends) = start(config).await?;
    let load = Arc::new(Load {
        app: Arc::clone(&app),
        ends,
        next: AtomicU64::new(0),
        sagas: bench.sagas(),
        until: Instant::now() + bench.time(),
        fails: bench.workload == Workload::B,
        bench: bench.clone(),
        accepted: bench.accepted.as_ref().map(std::fs::File::create).transpose()?.map(Mutex::new),
    });
    until_owned(&app).await?;
    let by_server = || bench.server.map(Used::by).transpose();
    let (before, served, begun) = (Used::now()?, by_server()?, Instant::now());
    let transitions = app.runtime.metrics().transitions();
    let clients: Vec<_> = (0..bench.concurrency).map(|_| tokio::spawn(Arc::clone(&load).client())).collect();
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await??);
    }
    let took = begun.elapsed();
    let used = Used::now()?.since(before);
    let transitions = app.runtime.metrics().transitions() - transitions;
    let mut report = Report::of(bench);
    report.rates(latencies.len() as u64, transitions, took, used);
    report.transitions_per_commit =
        ratio(transitions, super::report::float(app.runtime.metrics().commits().max(1)));
    if let (Some(before), Some(after)) = (served, by_server()?) {
        let cpu = after.since(before).cpu.as_secs_f64() * 1e6;
        report.more.insert("server_cpu_us_per_transition", cpu / super::report::float(transitions).max(1.0));
    }
    report.latencies(latencies);
    app.stop().await?;
    Ok(report)
}

/// With leases, the stores come one after another.
async fn until_owned(app: &App) -> anyhow::Result<()> {
    let all = async {
        while app.runtime.owned().len() < usize::from(app.config.shards) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LOST, all).await.context("not every store was opened")
}

struct Load {
    app: Arc<App>,
    ends: Arc<Ends>,
    next: AtomicU64,
    sagas: u64,
    until: Instant,
    fails: bool,
    bench: Bench,
    accepted: Option<Mutex<std::fs::File>>,
}

impl Load {
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
        let ended = self.ends.of(number);
        let begun = Instant::now();
        let event = workload::started(&self.bench.tenant(number), number, self.fails, self.app.clock.now())?;
        self.app.publish(vec![event]).await?;
        if let Some(file) = &self.accepted {
            let mut file = file.lock().map_err(|_| anyhow::anyhow!("a client panicked"))?;
            writeln!(file, "{number}")?;
        }
        tokio::time::timeout(LOST, ended)
            .await
            .with_context(|| format!("saga {number} did not end within {LOST:?}"))??;
        Ok(begun.elapsed())
    }
}
