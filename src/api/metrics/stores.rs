//! Metrics of the stores: pending rows, sizes, logs.

use orlog_actors::MetricSink as _;
use orlog_model::{Timestamp, WorkKind};
use orlog_store::{Error, Reader, Stats};
use prometheus_client::metrics::family::Family;

use super::types::{FloatGauge, IntGauge, IntGaugeFamily, Labels2, StaticHistograms};
use crate::app::App;
use crate::telemetry::MetricsRegistry;

/// Maximum number of due timers to count.
const MAX_DUE_COUNTED: usize = 1000;

/// Gauges by shard.
#[derive(Default)]
struct ShardGauges {
    outbox_depth: Family<Labels2, IntGauge>,
    outbox_age: Family<Labels2, FloatGauge>,
    timers_armed: IntGaugeFamily,
    timers_due: IntGaugeFamily,
    timers_overdue: Family<[(&'static str, String); 1], FloatGauge>,
    position: IntGaugeFamily,
    unfolded: IntGaugeFamily,
    flush_failing: IntGaugeFamily,
    memtable_bytes: IntGaugeFamily,
    journal: IntGaugeFamily,
    tables: IntGaugeFamily,
    tables_max: IntGaugeFamily,
    dedupe_backlog: IntGaugeFamily,
    damaged_reads: IntGaugeFamily,
    pages: IntGaugeFamily,
    free_pages: IntGaugeFamily,
    readers: IntGaugeFamily,
    rows: Family<Labels2, IntGauge>,
    fsync: StaticHistograms,
    epoch: IntGaugeFamily,
    unavailable: IntGaugeFamily,
    append: StaticHistograms,
    commits_behind: IntGaugeFamily,
    bytes_behind: IntGaugeFamily,
    snapshot_failing: IntGaugeFamily,
}

/// Registers the metrics.
pub(super) fn register(app: &App, registry: &mut MetricsRegistry) {
    let (mut gauges, now) = (ShardGauges::default(), app.clock.now());
    for (shard, reader) in app.runtime.numbered_readers() {
        gauges.size(shard, &reader.stats());
        // A store that closes at this moment has no metrics; a later read finds it on its new owner, or not at
        // all.
        if let Err(error) = gauges.contents(shard, &reader, now) {
            tracing::debug!(shard, %error, "store statistics unavailable");
        }
    }
    gauges.show(registry);
    if let Ok(disk) = rustix::fs::statvfs(&app.config.data_dir) {
        registry.register("disk_free_bytes", super::types::int_gauge(disk.f_bavail * disk.f_frsize));
        registry.register("disk_size_bytes", super::types::int_gauge(disk.f_blocks * disk.f_frsize));
    }
}

impl ShardGauges {
    fn contents(&self, shard: u16, reader: &Reader, now: Timestamp) -> Result<(), Error> {
        let label = [("shard", shard.to_string())];
        let oldest = reader.oldest_work()?;
        for (kind, depth) in reader.outbox_depths()? {
            let labels = [("shard", shard.to_string()), ("kind", kind_name(kind).to_owned())];
            self.outbox_depth.get_or_create(&labels).set(depth);
            let age = oldest.get(&kind).map_or(0.0, |at| now.duration_since(*at).as_secs_f64());
            self.outbox_age.get_or_create(&labels).set(age);
        }
        let (due, first) = reader.timers_overdue(now, MAX_DUE_COUNTED)?;
        self.timers_armed.get_or_create(&label).set(reader.timers_armed()?);
        self.timers_due.get_or_create(&label).set(due as u64);
        let overdue = first.map_or(0.0, |first| now.duration_since(first).as_secs_f64());
        self.timers_overdue.get_or_create(&label).set(overdue);
        let pages = reader.pages()?;
        self.pages.get_or_create(&label).set(pages.total);
        self.free_pages.get_or_create(&label).set(pages.free);
        self.readers.get_or_create(&label).set(pages.readers);
        Ok(())
    }

    fn size(&mut self, shard: u16, stats: &Stats) {
        let label = [("shard", shard.to_string())];
        let set = |gauge: &IntGaugeFamily, value: u64| {
            gauge.get_or_create(&label).set(value);
        };
        set(&self.position, stats.position);
        set(&self.unfolded, stats.position.saturating_sub(stats.flushed_position));
        set(&self.flush_failing, u64::from(stats.flush_failure.is_some()));
        set(&self.memtable_bytes, stats.memtable_bytes);
        set(&self.journal, stats.journal_bytes);
        set(&self.tables, stats.tables_bytes);
        set(&self.tables_max, stats.tables_max_bytes);
        set(&self.dedupe_backlog, stats.dedupe_backlog);
        set(&self.damaged_reads, stats.damaged_reads);
        for table in &stats.tables {
            let labels = [("shard", shard.to_string()), ("table", table.name.to_owned())];
            self.rows.get_or_create(&labels).set(table.rows);
        }
        self.fsync.add(shard, &stats.fsync);
        if let Some(log) = &stats.replication {
            set(&self.epoch, log.epoch);
            set(&self.unavailable, u64::from(log.unavailable.is_some()));
            set(&self.commits_behind, log.commits_behind_snapshot);
            set(&self.bytes_behind, log.bytes_behind_snapshot);
            set(&self.snapshot_failing, u64::from(log.snapshot_failure.is_some()));
            self.append.add(shard, &log.append);
        }
    }

    fn show(self, registry: &mut MetricsRegistry) {
        registry.register("outbox_depth", self.outbox_depth);
        registry.register("outbox_oldest_age_seconds", self.outbox_age);
        registry.register("timers_armed", self.timers_armed);
        registry.register("timers_due", self.timers_due);
        registry.register("timers_oldest_overdue_seconds", self.timers_overdue);
        registry.register("store_position", self.position);
        registry.register("store_unflushed_commits", self.unfolded);
        registry.register("store_flush_failing", self.flush_failing);
        registry.register("store_memtable_bytes", self.memtable_bytes);
        registry.register("store_journal_bytes", self.journal);
        registry.register("store_tables_bytes", self.tables);
        registry.register("store_tables_max_bytes", self.tables_max);
        registry.register("store_dedupe_backlog", self.dedupe_backlog);
        registry.register("store_damaged_reads", self.damaged_reads);
        registry.register("store_pages", self.pages);
        registry.register("store_free_pages", self.free_pages);
        registry.register("store_readers", self.readers);
        registry.register("store_rows", self.rows);
        registry.register("store_fsync_seconds", self.fsync);
        registry.register("log_epoch", self.epoch);
        registry.register("log_unavailable", self.unavailable);
        registry.register("log_append_seconds", self.append);
        registry.register("log_unsnapshotted_commits", self.commits_behind);
        registry.register("log_unsnapshotted_bytes", self.bytes_behind);
        registry.register("log_snapshot_failing", self.snapshot_failing);
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
