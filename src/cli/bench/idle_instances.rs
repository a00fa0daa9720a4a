//! Workloads C and D: idle instances, their cost, and their wake-up rate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use orlog_model::{ControlAction, ControlRequest, EventId, EventType, Status, TenantId};
use orlog_store::{InstanceQuery, Reader};
use serde_json::json;

use super::client::start;
use super::options::BenchArgs;
use super::report::{BenchReport, float, percentile, ratio};
use super::resources::{ResourceUsage, disk};
use super::workload;
use orlog_node::app::App;
use orlog_node::config::Config;

/// Number of timers that are due within one second.
const TIMERS: u64 = 10_000;
/// Events per publish request.
const BATCH: u64 = 500;
/// Maximum time to wait for a condition. Default: 5 min.
const TIMEOUT: Duration = Duration::from_mins(5);
/// Poll interval of conditions. Default: 5 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs workload C.
pub(super) async fn workload_c(
    bench: &BenchArgs,
    mut config: Config,
) -> anyhow::Result<BenchReport> {
    // A short idle time, so that the memory of passivated instances can be measured within a run.
    config.limits.idle_timeout = Duration::from_secs(2);
    config.limits.max_live_instances = 2_000;
    let sagas = bench.sagas();
    let mut report = BenchReport::of(bench);
    let (app, completions) = start(config.clone()).await?;
    let before = ResourceUsage::now()?;
    let started = Instant::now();
    // The first and the last tenth show whether a start costs more with more instances.
    let tenth = (sagas / 10).max(1);
    for first in (0..sagas).step_by(usize::try_from(tenth)?) {
        let count = tenth.min(sagas - first);
        let started = Instant::now();
        put_to_sleep(&app, workload::SLEEPER, first, count).await?;
        // Each tenth in the middle is overwritten by the next one.
        let name = if first == 0 {
            "started_per_s_first_tenth"
        } else {
            "started_per_s_last_tenth"
        };

        report
            .extra
            .insert(name, float(count) / started.elapsed().as_secs_f64());
    }

    let transitions = app.runtime.metrics().transitions();
    report.rates(
        sagas,
        transitions,
        started.elapsed(),
        ResourceUsage::now()?.since(before),
    );
    // Otherwise the resident memory would contain live actors.
    wait_until("every instance is passivated", || {
        app.runtime.metrics().live_instances() == 0
    })
    .await?;
    report.extra.insert(
        "resident_bytes_per_instance",
        bytes_per(ResourceUsage::now()?.resident, before.resident, sagas),
    );
    // Directly after the load, while the memtables contain many rows: the reads are at their
    // slowest.
    measure_reads(&app, &mut report)?;

    let naps = fall_due_together(&app, sagas).await?;
    wait_until("every timer has fired", || completions.count() >= naps).await?;
    let mut late = completions.take_late();
    late.sort_unstable();
    report
        .extra
        .insert("timers_due_in_one_second", float(late.len() as u64));
    report
        .extra
        .insert("timer_late_p50_ms", percentile(&late, 50));
    report
        .extra
        .insert("timer_late_p99_ms", percentile(&late, 99));
    report
        .extra
        .insert("timer_late_max_ms", percentile(&late, 100));
    app.stop().await?;
    // The stores are closed with the last reference, so that the next node can open them.
    drop(app);

    // Logs do not grow with the instances. The node has stopped, so that both figures are of one
    // state.
    let tables = disk(&config.data_dir)? - disk_of_logs(&config.data_dir)?;
    report
        .extra
        .insert("tables_mib", float(tables) / f64::from(1 << 20));
    report.extra.insert(
        "disk_bytes_per_instance",
        ratio(tables, float(sagas + naps)),
    );
    report.extra.insert(
        "disk_mib_with_logs",
        float(disk(&config.data_dir)?) / f64::from(1 << 20),
    );

    let started = Instant::now();
    let (app, _) = start(config).await?;
    report
        .extra
        .insert("restart_ms", started.elapsed().as_secs_f64() * 1e3);
    report.extra.insert(
        // Must equal the number of instances: the restart lost none.
        "sleeping_after_restart",
        float(count(&app, workload::SLEEPER)?),
    );

    let used: u64 = app
        .runtime
        .readers()
        .flat_map(|reader| reader.stats().tables)
        .map(|table| table.bytes)
        .sum();
    report
        .extra
        .insert("used_bytes_per_instance", ratio(used, float(sagas + naps)));
    app.stop().await?;

    Ok(report)
}

/// Measures reads whose cost must not depend on the number of instances.
fn measure_reads(app: &App, report: &mut BenchReport) -> anyhow::Result<()> {
    let mut timed = |name, read: &dyn Fn(&Reader) -> Result<(), orlog_store::Error>| {
        let started = Instant::now();
        app.runtime.readers().try_for_each(|reader| read(&reader))?;
        report
            .extra
            .insert(name, started.elapsed().as_secs_f64() * 1e3);
        anyhow::Ok(())
    };
    let tenant = TenantId::default_tenant();

    // No instance has failed, so that this list would scan all instances without an index.
    for (name, status) in [
        ("list_running_ms", Status::Running),
        ("list_failed_ms", Status::Failed),
    ] {
        let tenant = tenant.clone();
        let statuses = vec![status];
        let query = InstanceQuery {
            tenant,
            statuses,
            limit: 20,
            ..InstanceQuery::default()
        };

        timed(name, &|reader| reader.instances(&query).map(drop))?;
    }

    timed("counts_ms", &|reader| {
        reader.count_instances(&tenant).map(drop)
    })
}

/// Runs workload D.
pub(super) async fn workload_d(
    bench: &BenchArgs,
    mut config: Config,
) -> anyhow::Result<BenchReport> {
    config.limits.idle_timeout = Duration::from_secs(1);
    let sagas = bench.sagas();
    let (app, _) = start(config).await?;
    put_to_sleep(&app, workload::SLEEPER, 0, sagas).await?;
    wait_until("every instance is passivated", || {
        app.runtime.metrics().live_instances() == 0
    })
    .await?;

    let before = ResourceUsage::now()?;
    let transitions = app.runtime.metrics().transitions();
    let started = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let wakers: Vec<_> = (0..bench.concurrency)
        .map(|_| tokio::spawn(wake_some(Arc::clone(&app), Arc::clone(&next), sagas)))
        .collect();
    let mut latencies = Vec::new();

    for waker in wakers {
        latencies.extend(waker.await??);
    }
    let mut report = BenchReport::of(bench);
    let transitions = app.runtime.metrics().transitions() - transitions;
    report.rates(
        sagas,
        transitions,
        started.elapsed(),
        ResourceUsage::now()?.since(before),
    );
    report.latencies(latencies);
    app.stop().await?;

    Ok(report)
}

async fn wake_some(
    app: Arc<App>,
    next: Arc<AtomicU64>,
    sagas: u64,
) -> anyhow::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= sagas {
            return Ok(latencies);
        }

        let signal = ControlRequest {
            user: None,
            reason: None,
            trace: None,
            id: EventId::new(format!("wake-{number}"))?,
            action: ControlAction::Signal {
                kind: EventType::new("Woken")?,
                data: json!({ "id": format!("b-{number}") }),
                due_at: None,
            },
            expected_version: None,
            at: app.clock.now(),
            wait_token: None,
        };

        let started = Instant::now();
        let response = app
            .runtime
            .control(&workload::key(workload::SLEEPER, number)?, signal)
            .await?;
        anyhow::ensure!(
            response.status == Status::Completed,
            "instance {number} is {}",
            response.status
        );

        latencies.push(started.elapsed());
    }
}

/// Starts instances and waits until all of them wait durably and the outbox is empty.
async fn put_to_sleep(app: &App, saga: &str, first: u64, sagas: u64) -> anyhow::Result<()> {
    let before = app.runtime.metrics().transitions();
    for batch in (first..first + sagas).step_by(usize::try_from(BATCH)?) {
        let now = app.clock.now();
        let numbers = batch..(batch + BATCH).min(first + sagas);
        let events = numbers
            .map(|number| workload::sleep_requested(saga, number, now))
            .collect::<anyhow::Result<_>>()?;
        // Batches: single publications would measure the fsyncs of the log, not the starts.
        app.publish(events).await?;
    }

    wait_until("every instance waits", || {
        // The outbox is empty when the gateway has accepted the command of each instance.
        app.runtime.metrics().transitions() - before >= sagas && outbox_is_empty(app)
    })
    .await
}

/// Starts instances whose timers are all due within one second, some time from now.
async fn fall_due_together(app: &App, first: u64) -> anyhow::Result<u64> {
    let start_time = app.clock.now();
    for batch in (0..TIMERS).step_by(usize::try_from(BATCH)?) {
        let event = |n| {
            let within_a_second = i64::try_from(n * 1_000 / TIMERS)?;
            let time =
                orlog_model::Timestamp::from_millis(start_time.as_millis() + within_a_second);
            workload::sleep_requested(workload::SHORT_SLEEPER, first + n, time)
        };
        app.publish(
            (batch..batch + BATCH)
                .map(event)
                .collect::<anyhow::Result<_>>()?,
        )
        .await?;
    }

    wait_until("every timer is armed", || outbox_is_empty(app)).await?;
    anyhow::ensure!(
        // Timers that fire during the starts would measure the starts.
        app.clock.now() < start_time.saturating_add(workload::SHORT_SLEEP),
        "this machine is too slow: timers were already due"
    );
    Ok(TIMERS)
}

fn outbox_is_empty(app: &App) -> bool {
    app.runtime
        .readers()
        .all(|reader| reader.outbox_depth().is_ok_and(|depth| depth == 0))
}

fn count(app: &App, saga: &str) -> anyhow::Result<u64> {
    let mut sum = 0;
    for reader in app.runtime.readers() {
        let counts = reader.count(&TenantId::default_tenant())?;
        sum += counts
            .iter()
            .filter(|((name, _), _)| name.as_str() == saga)
            .map(|(_, n)| n)
            .sum::<u64>();
    }

    Ok(sum)
}

/// Returns the disk space of the logs, which does not grow with the instances: journals are
/// truncated after a flush, the log of the bus behind its consumers.
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

/// Waits for a condition.
pub(super) async fn wait_until(
    condition: &str,
    mut fact: impl FnMut() -> bool,
) -> anyhow::Result<()> {
    let wait = async {
        while !fact() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait)
        .await
        .with_context(|| format!("timed out waiting for: {condition}"))
}
