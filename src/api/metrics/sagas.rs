//! Metrics of instances that need an operator, by saga.

use std::collections::BTreeMap;

use orlog_actors::MetricSink as _;
use orlog_model::{Status, Timestamp};
use prometheus_client::metrics::family::Family;

use super::types::{FloatGauge, IntGaugeFamily, Labels1};
use crate::app::App;
use crate::telemetry::MetricsRegistry;

/// Maximum scanned instances per shard; more are not counted.
const SCAN_LIMIT: usize = 10_000;

#[derive(Default)]
struct AttentionCounts {
    stuck: u64,
    paused: u64,
    oldest: Option<Timestamp>,
}

/// Registers the metrics. Active sagas without stuck instances are included.
pub(super) fn register(app: &App, registry: &mut MetricsRegistry) {
    let active = app.definitions.active();
    let names = active.iter().map(|definition| definition.program.definition_ref().saga.to_string());
    let mut sagas: BTreeMap<String, AttentionCounts> =
        names.map(|name| (name, AttentionCounts::default())).collect();
    for reader in app.runtime.readers() {
        for (key, attention) in reader.attention(SCAN_LIMIT).unwrap_or_default() {
            let saga = sagas.entry(key.saga.to_string()).or_default();
            saga.paused += u64::from(attention.status.paused);
            if attention.status.status == Status::Stuck {
                saga.stuck += 1;
                saga.oldest = Some(saga.oldest.map_or(attention.since, |oldest| oldest.min(attention.since)));
            }
        }
    }
    let (stuck, paused, oldest) =
        (IntGaugeFamily::default(), IntGaugeFamily::default(), Family::<Labels1, FloatGauge>::default());
    let now = app.clock.now();
    for (saga, waiting) in sagas {
        let label = [("saga", saga)];
        stuck.get_or_create(&label).set(waiting.stuck);
        paused.get_or_create(&label).set(waiting.paused);
        let age = waiting.oldest.map_or(0.0, |oldest| now.duration_since(oldest).as_secs_f64());
        oldest.get_or_create(&label).set(age);
    }
    registry.register("instances_stuck", stuck);
    registry.register("instances_paused", paused);
    registry.register("instances_stuck_oldest_age_seconds", oldest);
}
