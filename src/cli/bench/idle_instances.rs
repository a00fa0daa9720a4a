//! Workloads C and D: instances that sleep, what they cost, and how fast they wake.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use orlog_model::{Action, Control, EventId, EventType, Status};
use serde_json::json;

use super::client::start;
use super::options::Bench;
use super::report::{Report, float, percentile, ratio};
use super::resources::{Used, disk};
use super::workload;
use crate::app::App;
use crate::config::Config;

/// Timers that fall due within one second.
const TIMERS: u64 = 10_000;
/// Events in one publish.
const BATCH: u64 = 500;
/// How long to wait for a fact before the bench gives up.
const PATIENCE: Duration = Duration::from_mins(5);
/// How often a fact is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Workload C.
pub(super) async fn sleep(bench: &Bench, mut config: Config) -> anyhow::Result<Report> {
    config.limits.idle = Duration::from_secs(2);
    config.limits.live_instances = 2_000;
    let sagas = bench.sagas();
    let mut report = Report::of(bench);
    let (app, ends) = start(config.clone()).await?;
    let (before, begun) = (Used::now()?, Instant::now());
    put_to_sleep(&app, workload::SLEEPER, 0, sagas).await?;
    let transitions = app.runtime.metrics().transitions();
    report.rates(sagas, transitions, begun.elapsed(), Used::now()?.since(before));
    until("every instance is passivated", || app.runtime.metrics().live_instances() == 0).await?;
    report
        .more
        .insert("resident_bytes_per_instance", bytes_per(Used::now()?.resident, before.resident, sagas));

    let naps = fall_due_together(&app, sagas).await?;
    until("every timer has fired", || ends.count() >= naps).await?;
    let mut late = ends.take_late();
    late.sort_unstable();
    report.more.insert("timers_due_in_one_second", float(late.len() as u64));
    report.more.insert("timer_late_p50_ms", percentile(&late, 50));
    report.more.insert("timer_late_p99_ms", percentile(&late, 99));
    report.more.insert("timer_late_max_ms", percentile(&late, 100));
    app.stop().await?;
    drop(app);

    let tables = disk(&config.data)? - disk_of_logs(&config.data)?;
    report.more.insert("tables_mib", float(tables) / f64::from(1 << 20));
    report.more.insert("disk_bytes_per_instance", ratio(tables, float(sagas + naps)));
    report.more.insert("disk_mib_with_logs", float(disk(&config.data)?) / f64::from(1 << 20));
    let begun = Instant::now();
    let (app, _) = start(config).await?;
    report.more.insert("restart_ms", begun.elapsed().as_secs_f64() * 1e3);
    report.more.insert("sleeping_after_restart", float(count(&app, workload::SLEEPER)?));
    let used: u64 =
        app.runtime.readers().flat_map(|reader| reader.stats().tables).map(|table| table.bytes).sum();
    report.more.insert("used_bytes_per_instance", ratio(used, float(sagas + naps)));
    app.stop().await?;
    Ok(report)
}

/// Workload D.
pub(super) async fn wake(bench: &Bench, mut config: Config) -> anyhow::Result<Report> {
    config.limits.idle = Duration::from_secs(1);
    let sagas = bench.sagas();
    let (app, _) = start(config).await?;
    put_to_sleep(&app, workload::SLEEPER, 0, sagas).await?;
    until("every instance is passivated", || app.runtime.metrics().live_instances() == 0).await?;
    let (before, transitions, begun) = (Used::now()?, app.runtime.metrics().transitions(), Instant::now());
    let next = Arc::new(AtomicU64::new(0));
    let wakers: Vec<_> = (0..bench.concurrency)
        .map(|_| tokio::spawn(wake_some(Arc::clone(&app), Arc::clone(&next), sagas)))
        .collect();
    let mut latencies = Vec::new();
    for waker in wakers {
        latencies.extend(waker.await??);
    }
    let mut report = Report::of(bench);
    let transitions = app.runtime.metrics().transitions() - transitions;
    report.rates(sagas, transitions, begun.elapsed(), Used::now()?.since(before));
    report.latencies(latencies);
    app.stop().await?;
    Ok(report)
}

async fn wake_some(app: Arc<App>, next: Arc<AtomicU64>, sagas: u64) -> anyhow::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= sagas {
            return Ok(latencies);
        }
        let signal = Control {
            by: None,
            reason: None,
            trace: None,
            id: EventId::new(format!("wake-{number}"))?,
            action: Action::Signal {
                kind: EventType::new("Woken")?,
                data: json!({ "id": format!("b-{number}") }),
            },
            expected_version: None,
            at: app.clock.now(),
        };
        let begun = Instant::now();
        let answer = app.runtime.control(&workload::key(workload::SLEEPER, number)?, signal).await?;
        anyhow::ensure!(answer.status == Status::Completed, "instance {number} is {}", answer.status);
        latencies.push(begun.elapsed());
    }
}

/// Begins instances and waits until all of them sleep durably with nothing left to do.
async fn put_to_sleep(app: &App, saga: &str, first: u64, sagas: u64) -> anyhow::Result<()> {
    let before = app.runtime.metrics().transitions();
    for batch in (first..first + sagas).step_by(usize::try_from(BATCH)?) {
        let now = app.clock.now();
        let numbers = batch..(batch + BATCH).min(first + sagas);
        let events =
            numbers.map(|number| workload::asleep(saga, number, now)).collect::<anyhow::Result<_>>()?;
        app.publish(events).await?;
    }
    until("every instance sleeps", || {
        app.runtime.metrics().transitions() - before >= sagas && outbox_is_empty(app)
    })
    .await
}

/// Begins instances whose timers all fall due within one second, some time from now.
async fn fall_due_together(app: &App, first: u64) -> anyhow::Result<u64> {
    let begin = app.clock.now();
    for batch in (0..TIMERS).step_by(usize::try_from(BATCH)?) {
        let event = |n| {
            let within_a_second = i64::try_from(n * 1_000 / TIMERS)?;
            let time = orlog_model::Timestamp::from_millis(begin.millis() + within_a_second);
            workload::asleep(workload::NAPPER, first + n, time)
        };
        app.publish((batch..batch + BATCH).map(event).collect::<anyhow::Result<_>>()?).await?;
    }
    until("every timer is armed", || outbox_is_empty(app)).await?;
    anyhow::ensure!(
        app.clock.now() < begin.after(workload::NAP),
        "this machine is too slow: timers were due already"
    );
    Ok(TIMERS)
}

fn outbox_is_empty(app: &App) -> bool {
    app.runtime.readers().all(|reader| reader.outbox_depth().is_ok_and(|depth| depth == 0))
}

fn count(app: &App, saga: &str) -> anyhow::Result<u64> {
    let mut sum = 0;
    for reader in app.runtime.readers() {
        let counts = reader.count(&orlog_model::TenantId::default_tenant())?;
        sum += counts.iter().filter(|((name, _), _)| name.as_str() == saga).map(|(_, n)| n).sum::<u64>();
    }
    Ok(sum)
}

/// What the logs occupy, which does not grow with the instances: journals are cut behind the tables, the bus's log
/// behind its consumers.
fn disk_of_logs(data: &Path) -> anyhow::Result<u64> {
    let mut bytes = disk(&data.join("bus"))?;
    for entry in std::fs::read_dir(data)? {
        let journal = entry?.path().join("journal");
        if journal.is_dir() {
            bytes += disk(&journal)?;
        }
    }
    Ok(bytes)
}

fn bytes_per(now: u64, before: u64, count: u64) -> f64 {
    ratio(now.saturating_sub(before), float(count))
}

/// Waits for a fact.
pub(super) async fn until(what: &str, mut fact: impl FnMut() -> bool) -> anyhow::Result<()> {
    let wait = async {
        while !fact() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("gave up waiting: {what}"))
}
