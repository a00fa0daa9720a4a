//! Workload F: the latency of one tenant alone and beside the load of another tenant.
//!
//! The measured tenant starts a saga at a fixed rate. The other tenant's load is complete in the
//! event log before the measurement begins.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use orlog_effect::{FunctionProvider, Policy, ProviderError, Upstream};
use orlog_model::{Event, TenantId, Timestamp};
use orlog_program::{Program, compile_yaml};
use serde_json::json;

use super::client;
use super::observer::CompletionTracker;
use super::options::BenchArgs;
use super::report::{BenchReport, percentile};
use super::workload;
use orlog_node::app::App;
use orlog_node::config::Config;

const LOUD: &str = "loud";
const QUIET: &str = "quiet";
/// Time between two sagas of the measured tenant.
const INTERVAL: Duration = Duration::from_millis(10);
/// Duration of a call of the shared upstream.
const CALL: Duration = Duration::from_millis(2);
/// Duration of a call of an upstream that the other tenant uses alone.
const SLOW_CALL: Duration = Duration::from_millis(200);
/// First number of the sagas of the measured tenant.
const FIRST: u64 = 1_000_000_000;
/// Events of the other tenant in one publication.
const BATCH: u64 = 500;
/// Size of one entry that the large instance collects, in bytes.
const ENTRY: usize = 400;
/// Entries of the large instance, 240 kB in all; a definition can store 256 KiB.
const ENTRIES: u64 = 600;
/// Share of the events of the load that the large instance receives after its entries.
const LARGE_SHARE: u64 = 10;

const SHARED: &str = "
saga: shared
version: 1
correlate: id
start: SharedStarted
vars: { id: =event.id }
steps:
  - { id: pay, do: { effect: neighbor.pay, data: { id: =vars.id } } }
";
const OTHER: &str = "
saga: other
version: 1
correlate: id
start: OtherStarted
vars: { id: =event.id }
steps:
  - { id: work, do: { effect: neighbor.work, data: { id: =vars.id } } }
";
const COLLECTOR: &str = "
saga: collector
version: 1
correlate: id
start: CollectionStarted
vars: { count: 0, entries: '=[]' }
on:
  - { event: Counted, save: { count: '=vars.count + 1' } }
  - { event: Collected, save: { entries: '=vars.entries + [event.entry]' } }
steps:
  - { id: end, do: { event: CollectionEnded }, timeout: 1h }
";

/// Load of the other tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    None,
    OtherEffect,
    OtherUpstream,
    SameUpstream,
    HotInstance,
    LargeInstance,
}

/// Loads and the names of their latencies: median and 99th percentile.
const LOADS: [(Load, [&str; 2]); 6] = [
    (Load::None, ["alone_p50_ms", "alone_p99_ms"]),
    (
        Load::OtherEffect,
        ["other_effect_p50_ms", "other_effect_p99_ms"],
    ),
    (
        Load::OtherUpstream,
        ["other_upstream_p50_ms", "other_upstream_p99_ms"],
    ),
    (
        Load::SameUpstream,
        ["same_upstream_p50_ms", "same_upstream_p99_ms"],
    ),
    (
        Load::HotInstance,
        ["hot_instance_p50_ms", "hot_instance_p99_ms"],
    ),
    (
        Load::LargeInstance,
        ["large_instance_p50_ms", "large_instance_p99_ms"],
    ),
];

/// Runs all loads one after another, each with a new data directory. The latencies of the report
/// are those of the tenant alone; the others are in `extra`.
pub(super) async fn run(bench: &BenchArgs, config: Config) -> anyhow::Result<BenchReport> {
    let mut report = BenchReport::of(bench);
    for (load, [p50, p99]) in LOADS {
        // A directory for each load: rows and log entries of an earlier load would slow down the
        // next one.
        let mut latencies = measure(bench, config.data_dir.join(p50), load)
            .await
            .context(p50)?;
        latencies.sort_unstable();
        report.extra.insert(p50, percentile(&latencies, 50));
        report.extra.insert(p99, percentile(&latencies, 99));

        if load == Load::None {
            report.sagas = latencies.len() as u64;
            report.latencies(latencies);
        }
    }

    Ok(report)
}

/// Returns the latencies of the measured tenant.
async fn measure(bench: &BenchArgs, data: PathBuf, load: Load) -> anyhow::Result<Vec<Duration>> {
    let config = bench.config(data)?;
    let (app, completions) = client::start_with(config, programs()?, upstreams(load)?).await?;
    client::until_owned(&app).await?;
    // A backlog in the log, not clients beside the measurement: they would use the CPU time of the
    // measured tenant.
    publish_load(&app, load, bench.sagas()).await?;
    let latencies = measure_quiet(&app, &completions, bench.time()).await;
    app.stop().await?;
    latencies
}

fn programs() -> anyhow::Result<Vec<Arc<dyn Program>>> {
    let compile = |source| {
        let program = compile_yaml(source, "neighbors.saga.yaml");
        let program = program.map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
        Ok(Arc::new(program) as Arc<dyn Program>)
    };
    [SHARED, OTHER, COLLECTOR]
        .into_iter()
        .map(compile)
        .collect()
}

fn upstreams(load: Load) -> anyhow::Result<Vec<Upstream>> {
    let calls = |effect: &str, duration: Duration| {
        FunctionProvider::new().effect(effect, move |_| async move {
            tokio::time::sleep(duration).await;
            Ok::<_, ProviderError>(json!({}))
        })
    };
    let policy = || Policy {
        max_concurrency: 64,
        ..Policy::in_process()
    };

    let only = |tenant: &str| anyhow::Ok(Some(BTreeSet::from([TenantId::new(tenant)?])));
    let work = calls("neighbor.work", SLOW_CALL).upstream("work", policy());
    let pay = calls("neighbor.pay", CALL).upstream("pay", policy());
    // Both tenants use one upstream of `neighbor.pay`, except for this load.
    if load != Load::OtherUpstream {
        return Ok(vec![pay, work]);
    }

    let slow = calls("neighbor.pay", SLOW_CALL).upstream("slow_pay", policy());
    Ok(vec![
        pay.for_tenants(only(QUIET)?),
        slow.for_tenants(only(LOUD)?),
        work,
    ])
}

/// Publishes the load of the other tenant.
async fn publish_load(app: &App, load: Load, count: u64) -> anyhow::Result<()> {
    let parts = match load {
        Load::None => vec![],
        Load::OtherEffect => vec![("OtherStarted", count)],
        Load::OtherUpstream | Load::SameUpstream => vec![("SharedStarted", count)],
        Load::HotInstance => vec![("CollectionStarted", 1), ("Counted", count)],
        Load::LargeInstance => {
            vec![
                ("CollectionStarted", 1),
                ("Collected", ENTRIES),
                ("Counted", count / LARGE_SHARE),
            ]
        }
    };

    let is_one_instance = matches!(load, Load::HotInstance | Load::LargeInstance);
    let now = app.clock.now();
    for (kind, count) in parts {
        for first in (0..count).step_by(usize::try_from(BATCH)?) {
            let events = (first..count.min(first + BATCH)).map(|number| {
                let instance = if is_one_instance { 0 } else { number };
                event(LOUD, kind, number, instance, now)
            });
            app.publish(events.collect::<anyhow::Result<_>>()?).await?;
        }
    }

    Ok(())
}

/// Starts a saga of the measured tenant every [`INTERVAL`]; returns the latencies.
async fn measure_quiet(
    app: &Arc<App>,
    completions: &Arc<CompletionTracker>,
    time: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let until = Instant::now() + time;
    let mut pause = tokio::time::interval(INTERVAL);
    let mut sagas = Vec::new();
    for number in FIRST.. {
        // A fixed rate, not a closed loop: a slow saga must not reduce the number of later ones.
        pause.tick().await;
        if Instant::now() >= until {
            break;
        }

        let app = Arc::clone(app);
        // The numbers start above those of the other tenant, whose ends have the same observer.
        let ended = completions.of(number);
        sagas.push(tokio::spawn(async move {
            let begun = Instant::now();
            let started = event(QUIET, "SharedStarted", number, number, app.clock.now())?;
            app.publish(vec![started]).await?;
            let ended = tokio::time::timeout(client::RESULT_TIMEOUT, ended).await;
            ended.with_context(|| format!("saga {number} did not end"))??;
            anyhow::Ok(begun.elapsed())
        }));
    }

    // Sagas in progress at the end count too: without them, the slowest latencies would be missing.
    let mut latencies = Vec::with_capacity(sagas.len());
    for saga in sagas {
        latencies.push(saga.await??);
    }
    Ok(latencies)
}

fn event(
    tenant: &str,
    kind: &str,
    number: u64,
    instance: u64,
    time: Timestamp,
) -> anyhow::Result<Event> {
    let data = json!({ "id": format!("n-{instance}"), "entry": "x".repeat(ENTRY) });
    Ok(Event {
        tenant: TenantId::new(tenant)?,
        ..workload::event(kind, number, time, data)?
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn definitions_are_valid() {
        assert_eq!(super::programs().unwrap().len(), 3);
    }
}
