//! Workload H: sagas start at a constant rate for a long time, and are purged after a retention
//! period. Throughput, latency, memory and disk must not change with time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::client::{RESULT_TIMEOUT, start, until_owned};
use super::observer::CompletionTracker;
use super::options::BenchArgs;
use super::report::{BenchReport, Interval, float, percentile, ratio};
use super::resources::{ResourceUsage, disk};
use super::workload;
use orlog_node::app::App;
use orlog_node::config::{Config, RetentionPeriod};

/// Time between two groups of starts.
const TICK: Duration = Duration::from_millis(5);
/// Length of a measured interval.
const INTERVAL: Duration = Duration::from_mins(1);
/// Time between two purges.
const PURGE_INTERVAL: Duration = Duration::from_secs(10);
/// Number of sagas in progress at which the node is too slow for the rate.
const MAX_IN_PROGRESS: usize = 100_000;

pub(super) async fn run(bench: &BenchArgs, mut config: Config) -> anyhow::Result<BenchReport> {
    let window = Duration::from_secs(bench.retention);
    config.retention.instances = RetentionPeriod::For(window);
    config.retention.interval = PURGE_INTERVAL;
    // The default is one day: the dedupe keys of purged sagas would grow during the whole run.
    config.store.dedupe_window = config.store.dedupe_window.min(window);

    let data = config.data_dir.clone();
    let (app, completions) = start(config).await?;
    until_owned(&app).await?;
    let before = ResourceUsage::now()?;
    let transitions = app.runtime.metrics().transitions();
    let started = Instant::now();
    let mut load = OpenLoop {
        app: Arc::clone(&app),
        completions,
        sagas: JoinSet::new(),
        started: 0,
    };

    let mut report = BenchReport::of(bench);
    let mut all = 0;
    let mut measured = started;
    while let Some(left) = bench
        .time()
        .checked_sub(started.elapsed())
        .filter(|left| !left.is_zero())
    {
        let mut latencies = load
            .run_for(bench.rate, started, left.min(INTERVAL))
            .await?;
        latencies.sort_unstable();
        all += latencies.len() as u64;

        let interval = Interval {
            second: started.elapsed().as_secs(),
            sagas_per_s: ratio(latencies.len() as u64, measured.elapsed().as_secs_f64()),
            p50_ms: percentile(&latencies, 50),
            p99_ms: percentile(&latencies, 99),
            rss_mib: float(ResourceUsage::now()?.resident) / f64::from(1 << 20),
            disk_mib: float(disk(&data)?) / f64::from(1 << 20),
            purged: app.services.retention.purges.instances.get(),
        };
        measured = Instant::now();

        report.intervals.push(interval);
    }

    all += load.ended().await?;
    let transitions = app.runtime.metrics().transitions() - transitions;
    report.rates(
        all,
        transitions,
        started.elapsed(),
        ResourceUsage::now()?.since(before),
    );
    app.stop().await?;

    Ok(report)
}

/// Sagas that start without regard to the ends of others.
struct OpenLoop {
    app: Arc<App>,
    completions: Arc<CompletionTracker>,
    sagas: JoinSet<anyhow::Result<Duration>>,
    /// Number of started sagas.
    started: u64,
}

impl OpenLoop {
    /// Starts sagas at a rate that began at `begin`; returns the latencies of those that ended
    /// within this time.
    async fn run_for(
        &mut self,
        rate: u32,
        begin: Instant,
        time: Duration,
    ) -> anyhow::Result<Vec<Duration>> {
        let until = Instant::now() + time;
        let mut ticks = tokio::time::interval(TICK);
        let mut latencies = Vec::new();
        // The number of due sagas follows from the elapsed time, so that missed ticks lose none.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);

        while Instant::now() < until {
            ticks.tick().await;
            // From the start of the run, not of the interval: rounding does not add up.
            let due = begin.elapsed().as_millis() * u128::from(rate) / 1000;
            while u128::from(self.started) < due {
                self.sagas.spawn(one(
                    Arc::clone(&self.app),
                    Arc::clone(&self.completions),
                    self.started,
                ));
                self.started += 1;
            }

            while let Some(ended) = self.sagas.try_join_next() {
                latencies.push(ended??);
            }
            let in_progress = self.sagas.len();
            anyhow::ensure!(
                // An open loop beyond the capacity of the node would fill the memory instead of
                // reporting a result.
                in_progress < MAX_IN_PROGRESS,
                "{in_progress} sagas have not ended: the node is too slow for --rate {rate}; \
                 reduce it"
            );
        }

        Ok(latencies)
    }

    /// Waits for the sagas in progress; returns their number.
    async fn ended(&mut self) -> anyhow::Result<u64> {
        let mut count = 0;
        while let Some(ended) = self.sagas.join_next().await {
            ended??;
            count += 1;
        }
        Ok(count)
    }
}

async fn one(
    app: Arc<App>,
    completions: Arc<CompletionTracker>,
    number: u64,
) -> anyhow::Result<Duration> {
    let ended = completions.of(number);
    let begun = Instant::now();
    app.publish(vec![workload::started("", number, false, app.clock.now())?])
        .await?;
    let ended = tokio::time::timeout(RESULT_TIMEOUT, ended).await;
    ended.with_context(|| format!("saga {number} did not end within {RESULT_TIMEOUT:?}"))??;
    Ok(begun.elapsed())
}
