//! The stores of this node: what waits in them, how big they are, how their logs do.

use orlog_actors::Sheet as _;
use orlog_model::{Timestamp, WorkKind};
use orlog_store::{Error, Reader, Stats};
use prometheus_client::metrics::family::Family;

use super::types::{By2, Histograms, Labelled, Real, Whole};
use crate::app::App;
use crate::telemetry::Shown;

/// Timers that are due and are looked at, at most.
const DUE: usize = 1000;

/// Everything by shard.
#[derive(Default)]
struct Figures {
    outbox_depth: Family<By2, Whole>,
    outbox_age: Family<By2, Real>,
    timers_armed: Labelled,
    timers_due: Labelled,
    timers_overdue: Family<[(&'static str, String); 1], Real>,
    position: Labelled,
    unfolded: Labelled,
    fold_failing: Labelled,
    overlay: Labelled,
    journal: Labelled,
    tables: Labelled,
    tables_max: Labelled,
    pages: Labelled,
    free_pages: Labelled,
    readers: Labelled,
    rows: Family<By2, Whole>,
    fsync: Histograms,
    epoch: Labelled,
    unavailable: Labelled,
    append: Histograms,
    commits_behind: Labelled,
    bytes_behind: Labelled,
    snapshot_failing: Labelled,
}

/// Shows them.
pub(super) fn show(app: &App, shown: &mut Shown) {
    let (mut figures, now) = (Figures::default(), app.clock.now());
    for (shard, reader) in app.runtime.numbered_readers() {
        figures.size(shard, &reader.stats());
        // A store that is closed this moment has no figures; the next look finds it elsewhere, or not at all.
        if let Err(error) = figures.contents(shard, &reader, now) {
            tracing::debug!(shard, %error, "a store has no figures");
        }
    }
    figures.show(shown);
    if let Ok(disk) = rustix::fs::statvfs(&app.config.data) {
        shown.put("disk_free_bytes", super::types::one(disk.f_bavail * disk.f_frsize));
        shown.put("disk_size_bytes", super::types::one(disk.f_blocks * disk.f_frsize));
    }
}

impl Figures {
    fn contents(&self, shard: u16, reader: &Reader, now: Timestamp) -> Result<(), Error> {
        let label = [("shard", shard.to_string())];
        let oldest = reader.oldest_work()?;
        for (kind, depth) in reader.outbox_depths()? {
            let labels = [("shard", shard.to_string()), ("kind", word(kind).to_owned())];
            self.outbox_depth.get_or_create(&labels).set(depth);
            let age = oldest.get(&kind).map_or(0.0, |at| now.since(*at).as_secs_f64());
            self.outbox_age.get_or_create(&labels).set(age);
        }
        let (due, first) = reader.timers_overdue(now, DUE)?;
        self.timers_armed.get_or_create(&label).set(reader.timers_armed()?);
        self.timers_due.get_or_create(&label).set(due as u64);
        let overdue = first.map_or(0.0, |first| now.since(first).as_secs_f64());
        self.timers_overdue.get_or_create(&label).set(overdue);
        let pages = reader.pages()?;
        self.pages.get_or_create(&label).set(pages.all);
        self.free_pages.get_or_create(&label).set(pages.free);
        self.readers.get_or_create(&label).set(pages.readers);
        Ok(())
    }

    fn size(&mut self, shard: u16, stats: &Stats) {
        let label = [("shard", shard.to_string())];
        let set = |gauge: &Labelled, value: u64| {
            gauge.get_or_create(&label).set(value);
        };
        set(&self.position, stats.position);
        set(&self.unfolded, stats.position.saturating_sub(stats.folded_position));
        set(&self.fold_failing, u64::from(stats.fold_failure.is_some()));
        set(&self.overlay, stats.overlay_bytes);
        set(&self.journal, stats.journal_bytes);
        set(&self.tables, stats.tables_bytes);
        set(&self.tables_max, stats.tables_max_bytes);
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

    fn show(self, shown: &mut Shown) {
        shown.put("outbox_depth", self.outbox_depth);
        shown.put("outbox_oldest_age_seconds", self.outbox_age);
        shown.put("timers_armed", self.timers_armed);
        shown.put("timers_due", self.timers_due);
        shown.put("timers_overdue_seconds", self.timers_overdue);
        shown.put("store_position", self.position);
        shown.put("store_unfolded_commits", self.unfolded);
        shown.put("store_fold_failing", self.fold_failing);
        shown.put("store_overlay_bytes", self.overlay);
        shown.put("store_journal_bytes", self.journal);
        shown.put("store_tables_bytes", self.tables);
        shown.put("store_tables_max_bytes", self.tables_max);
        shown.put("store_pages", self.pages);
        shown.put("store_free_pages", self.free_pages);
        shown.put("store_readers", self.readers);
        shown.put("store_rows", self.rows);
        shown.put("store_fsync_seconds", self.fsync);
        shown.put("log_epoch", self.epoch);
        shown.put("log_unavailable", self.unavailable);
        shown.put("log_append_seconds", self.append);
        shown.put("log_commits_behind_snapshot", self.commits_behind);
        shown.put("log_behind_snapshot_bytes", self.bytes_behind);
        shown.put("log_snapshot_failing", self.snapshot_failing);
    }
}

fn word(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Command => "command",
        WorkKind::Effect => "effect",
        WorkKind::Fact => "fact",
        WorkKind::Saga => "saga",
    }
}
