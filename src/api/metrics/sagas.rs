//! Metrics of instances that need an operator, by saga.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{Status, Timestamp};

use super::types::LabeledMetrics;
use crate::app::App;
use crate::telemetry::MetricsRegistry;

/// Maximum scanned instances per shard; more are not counted.
const SCAN_LIMIT: usize = 10_000;

#[derive(Default)]
struct AttentionCounts {
    stuck: u64,
    paused: u64,
    unapplied: u64,
    oldest: Option<Timestamp>,
}

/// Registers the metrics. Active sagas without stuck instances are included.
pub(super) fn register(app: &App, registry: &mut MetricsRegistry) {
    let active = app.definitions.active();
    let references = || {
        active
            .iter()
            .map(|definition| definition.program.definition_ref())
    };
    for reference in references() {
        app.runtime
            .metrics()
            .add_definition(&reference.saga, reference.version);
    }
    let names = references().map(|reference| reference.saga.to_string());
    let mut sagas: BTreeMap<String, AttentionCounts> = names
        .map(|name| (name, AttentionCounts::default()))
        .collect();
    for reader in app.runtime.readers() {
        for (key, attention) in reader.attention(SCAN_LIMIT).unwrap_or_default() {
            let saga = sagas.entry(key.saga.to_string()).or_default();
            saga.paused += u64::from(attention.status.paused);
            saga.unapplied += u64::from(attention.status.has_unapplied_result);
            if attention.status.status == Status::Stuck {
                saga.stuck += 1;
                saga.oldest = Some(
                    saga.oldest
                        .map_or(attention.since, |oldest| oldest.min(attention.since)),
                );
            }
        }
    }
    let (now, mut labeled) = (app.clock.now(), LabeledMetrics::default());
    for (saga, waiting) in &sagas {
        let label = &[("saga", saga.as_str())];
        labeled.set("instances_stuck", label, waiting.stuck);
        labeled.set("instances_paused", label, waiting.paused);
        labeled.set("instances_unapplied_result", label, waiting.unapplied);
        let age = waiting
            .oldest
            .map_or(Duration::ZERO, |oldest| now.duration_since(oldest));
        labeled.set_duration("instances_stuck_oldest_age_seconds", label, age);
    }
    labeled.register(registry);
}
