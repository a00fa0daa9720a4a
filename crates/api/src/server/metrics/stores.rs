//! Metrics of the stores: pending rows, sizes, logs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use orlog_actors::MetricSink as _;
use orlog_model::{TenantId, Timestamp, WorkKind};
use orlog_store::{Error, Reader, Stats, TenantUsage};

use super::failed_reads::FailedReads;
use super::types::{LabeledMetrics, StaticHistograms, int_gauge};
use orlog_node::app::App;
use orlog_node::telemetry::MetricsRegistry;

/// Maximum number of due timers to count.
const MAX_DUE_COUNTED: usize = 1000;

/// Registers the metrics.
pub(super) fn register(app: &App, failed: &mut FailedReads<'_>, registry: &mut MetricsRegistry) {
    let mut gauges = LabeledMetrics::default();
    let now = app.clock.now();
    let mut fsync = StaticHistograms::default();
    let mut append = StaticHistograms::default();
    let mut tenants: BTreeMap<TenantId, TenantUsage> = BTreeMap::new();

    for (shard, reader) in app.runtime.numbered_readers() {
        let stats = reader.stats();
        let label = shard.to_string();
        size(&label, &stats, &mut gauges);
        fsync.add(shard, &stats.fsync);

        // Only a replicated store has a shard log.
        if let Some(log) = &stats.replication {
            append.add(shard, &log.append);
        }

        if let Err(error) = contents(&label, &reader, now, &mut gauges) {
            failed.report(shard, "pending rows", &error);
        }

        match reader.usages() {
            Ok(usages) => {
                for (tenant, usage) in usages {
                    tenants.entry(tenant).or_default().add(&usage);
                }
            }
            Err(error) => failed.report(shard, "sizes of tenants", &error),
        }
    }
    stored_bytes(app, tenants, &mut gauges);

    gauges.register(registry);
    registry.register("store_fsync_seconds", fsync);
    registry.register("log_append_seconds", append);
    match rustix::fs::statvfs(&app.config.data_dir) {
        Ok(disk) => {
            registry.register("disk_free_bytes", int_gauge(disk.f_bavail * disk.f_frsize));
            registry.register("disk_size_bytes", int_gauge(disk.f_blocks * disk.f_frsize));
        }
        Err(error) => {
            let dir = app.config.data_dir.display();
            tracing::warn!(%dir, %error, "size of the disk unavailable; no metrics");
        }
    }
}

fn contents(
    shard: &str,
    reader: &Reader,
    now: Timestamp,
    gauges: &mut LabeledMetrics,
) -> Result<(), Error> {
    let label = &[("shard", shard)];
    let oldest = reader.oldest_work()?;
    for (kind, depth) in reader.outbox_depths()? {
        let labels = &[("shard", shard), ("kind", kind_name(kind))];
        gauges.set("outbox_depth", labels, depth);
        let age = oldest
            .get(&kind)
            .map_or(Duration::ZERO, |at| now.duration_since(*at));
        gauges.set_duration("outbox_oldest_age_seconds", labels, age);
    }

    let (due, first) = reader.timers_overdue(now, MAX_DUE_COUNTED)?;
    gauges.set("timers_armed", label, reader.timers_armed()?);
    gauges.set("timers_due", label, due as u64);
    let overdue = first.map_or(Duration::ZERO, |first| now.duration_since(first));
    gauges.set_duration("timers_oldest_overdue_seconds", label, overdue);

    let pages = reader.pages()?;
    gauges.set("store_pages", label, pages.total);
    gauges.set("store_free_pages", label, pages.free);
    gauges.set("store_readers", label, pages.readers);
    Ok(())
}

/// Sets the sizes of the rows of tenants. The largest tenants get the series that are free.
fn stored_bytes(app: &App, tenants: BTreeMap<TenantId, TenantUsage>, gauges: &mut LabeledMetrics) {
    let mut tenants: Vec<_> = tenants.into_iter().collect();
    // A tenant whose rows are deleted needs no series.
    tenants.retain(|(_, usage)| usage.total() > 0);
    tenants.sort_by_cached_key(|(_, usage)| Reverse(usage.total()));

    let metrics = app.runtime.metrics();
    let mut sums: BTreeMap<String, TenantUsage> = BTreeMap::new();
    for (tenant, usage) in tenants {
        sums.entry(metrics.tenant_series(&tenant))
            .or_default()
            .add(&usage);
    }

    for (series, usage) in sums {
        for (kind, bytes) in usage.kinds() {
            let labels = &[("tenant", &*series), ("kind", kind)];
            gauges.set("tenant_stored_bytes", labels, bytes);
        }
    }
}

fn size(shard: &str, stats: &Stats, gauges: &mut LabeledMetrics) {
    let mut set = |name, value| gauges.set(name, &[("shard", shard)], value);
    set("store_position", stats.position);
    set(
        "store_unflushed_commits",
        stats.position.saturating_sub(stats.flushed_position),
    );
    set(
        "store_flush_failing",
        u64::from(stats.flush_failure.is_some()),
    );
    set("store_memtable_bytes", stats.memtable_bytes);
    set("store_journal_bytes", stats.journal_bytes);
    set("store_tables_bytes", stats.tables_bytes);
    set("store_tables_max_bytes", stats.tables_max_bytes);
    set("store_dedupe_backlog", stats.dedupe_backlog);
    set("store_damaged_reads", stats.damaged_reads);

    if let Some(log) = &stats.replication {
        set("log_epoch", log.epoch);
        set("log_unavailable", u64::from(log.unavailable.is_some()));
        set("log_unsnapshotted_commits", log.commits_behind_snapshot);
        set("log_unsnapshotted_bytes", log.bytes_behind_snapshot);
        set(
            "log_snapshot_failing",
            u64::from(log.snapshot_failure.is_some()),
        );
    }

    for table in &stats.tables {
        gauges.set(
            "store_rows",
            &[("shard", shard), ("table", table.name)],
            table.rows,
        );
    }
}

fn kind_name(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Command => "command",
        WorkKind::Effect => "effect",
        WorkKind::Fact => "fact",
        WorkKind::Saga => "saga",
    }
}
