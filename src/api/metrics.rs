//! `/metrics`: what is counted all the time, and what is looked up when somebody asks, as `OpenMetrics` text.

use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use orlog_effect::breaker;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::context::Api;
use super::requests::PREFIX;
use crate::app::App;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics for Prometheus and what speaks its language
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "node",
    responses((
        status = 200,
        description = "All metrics",
        body = String,
        content_type = "application/openmetrics-text"
    ))
)]
pub(super) async fn metrics(State(api): State<Api>) -> Response {
    let mut text = String::with_capacity(16 * 1024);
    let looked_up = look(&api.app);
    let counted = api.app.registry.lock().unwrap_or_else(PoisonError::into_inner);
    encode_registry(&mut text, &counted)
        .and_then(|()| encode_registry(&mut text, api.requests.registry()))
        .and_then(|()| encode_registry(&mut text, &looked_up))
        .and_then(|()| encode_eof(&mut text))
        .expect("a string takes everything");
    drop(counted);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

/// What is not counted but can be seen at any time.
fn look(app: &App) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    stores(app, &mut registry);
    upstreams(app, &mut registry);
    let health = app.runtime.health();
    set(&mut registry, "accepting", "1 while new work is taken", u64::from(health.accepting));
    set(&mut registry, "shards_up", "1 while every shard is up", u64::from(health.up));
    let deepest = app.runtime.deepest_mailboxes(1).first().map_or(0, |(_, depth)| *depth);
    set(&mut registry, "mailbox_deepest_depth", "Inputs in the deepest mailbox", deepest as u64);
    registry
}

fn set(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge = Gauge::<u64, AtomicU64>::default();
    gauge.set(value);
    registry.register(name, help, gauge);
}

/// A gauge with one value for each value of a label.
type Labelled = Family<[(&'static str, String); 1], Gauge<u64, AtomicU64>>;

fn stores(app: &App, registry: &mut Registry) {
    let gauges: [(&str, &str, Labelled); 8] = [
        ("outbox_depth", "Work items not done", Labelled::default()),
        ("store_commits", "Commits ever made", Labelled::default()),
        ("store_unfolded_commits", "Commits that only the journal has", Labelled::default()),
        ("store_overlay_bytes", "Memory of what only the journal has", Labelled::default()),
        ("store_journal_bytes", "Journal on disk", Labelled::default()),
        ("store_tables_bytes", "Tables on disk", Labelled::default()),
        ("store_fsyncs", "Fsyncs of the journal since the start", Labelled::default()),
        ("store_last_fsync_microseconds", "How long the last one took", Labelled::default()),
    ];
    for (index, reader) in app.runtime.numbered_readers() {
        let stats = reader.stats();
        let values = [
            reader.outbox_depth().unwrap_or_default(),
            stats.position,
            stats.position.saturating_sub(stats.folded_position),
            stats.overlay_bytes,
            stats.journal_bytes,
            stats.tables_bytes,
            stats.fsyncs,
            u64::try_from(stats.last_fsync.as_micros()).unwrap_or(u64::MAX),
        ];
        for ((_, _, gauge), value) in gauges.iter().zip(values) {
            gauge.get_or_create(&[("shard", index.to_string())]).set(value);
        }
    }
    for (name, help, gauge) in gauges {
        registry.register(name, help, gauge);
    }
    logs(app, registry);
}

/// The logs of replicated shards; nothing where there are none.
fn logs(app: &App, registry: &mut Registry) {
    let gauges: [(&str, &str, Labelled); 6] = [
        ("log_epoch", "The epoch in which this node owns the shard", Labelled::default()),
        ("log_unavailable", "1 while commits wait for the log", Labelled::default()),
        ("log_last_append_microseconds", "How long the last commit took to get there", Labelled::default()),
        ("log_commits_behind_snapshot", "Commits that the last snapshot does not hold", Labelled::default()),
        ("log_bytes_behind_snapshot", "Bytes of them", Labelled::default()),
        ("log_snapshot_failing", "1 while snapshots cannot be saved", Labelled::default()),
    ];
    for (index, reader) in app.runtime.readers().enumerate() {
        let Some(log) = reader.stats().replication else { continue };
        let values = [
            log.epoch,
            u64::from(log.unavailable.is_some()),
            u64::try_from(log.last_append.as_micros()).unwrap_or(u64::MAX),
            log.commits_behind_snapshot,
            log.bytes_behind_snapshot,
            u64::from(log.snapshot_failure.is_some()),
        ];
        for ((_, _, gauge), value) in gauges.iter().zip(values) {
            gauge.get_or_create(&[("shard", index.to_string())]).set(value);
        }
    }
    for (name, help, gauge) in gauges {
        registry.register(name, help, gauge);
    }
}

fn upstreams(app: &App, registry: &mut Registry) {
    let (states, opened) = (Labelled::default(), Labelled::default());
    let (in_flight, retries) = (Labelled::default(), Labelled::default());
    for condition in app.catalog.conditions() {
        let label = [("upstream", condition.upstream)];
        if let Some(state) = condition.breaker {
            let value = match state {
                breaker::State::Closed => 0,
                breaker::State::HalfOpen => 1,
                breaker::State::Open => 2,
            };
            states.get_or_create(&label).set(value);
        }
        opened.get_or_create(&label).set(condition.opened);
        in_flight.get_or_create(&label).set(condition.in_flight as u64);
        if let Some(left) = condition.retries_left {
            retries.get_or_create(&label).set(left);
        }
    }
    registry.register("breaker_state", "0 closed, 1 half open, 2 open", states);
    registry.register("breaker_openings", "How often a breaker has opened since the start", opened);
    registry.register("upstream_in_flight", "Work items at an upstream", in_flight);
    registry.register("upstream_retries_left", "Retries that the budget of an upstream allows", retries);
}
