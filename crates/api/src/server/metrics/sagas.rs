//! Metrics by saga: instances that need an operator, and counters of definitions.
//!
//! The sagas of contexts that are closed to the caller share the series `other`. Each version has
//! series as long as its definition is loaded.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{Status, Timestamp};

use super::failed_reads::FailedReads;
use super::types::LabeledMetrics;
use orlog_node::app::App;
use orlog_node::auth::{Caller, Right};
use orlog_node::definitions::closed::{OTHER, VisibleDefinitions};
use orlog_node::telemetry::MetricsRegistry;

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
pub(super) fn register(
    app: &App,
    caller: &Caller,
    failed: &mut FailedReads<'_>,
    registry: &mut MetricsRegistry,
) {
    let visible = VisibleDefinitions::to(caller, Right::Metrics, &app.access, &app.programs);
    let mut labeled = LabeledMetrics::default();
    attention(app, &visible, failed, &mut labeled);
    definitions(app, &visible, &mut labeled);
    labeled.register(registry);
}

fn attention(
    app: &App,
    visible: &VisibleDefinitions,
    failed: &mut FailedReads<'_>,
    labeled: &mut LabeledMetrics,
) {
    let active = app.definitions.active();
    let references = || {
        active
            .iter()
            .map(|definition| definition.program.definition_ref())
    };

    // A version has series before its first instance: a rate over a series that appears later
    // misses the first value.
    for reference in references() {
        app.runtime
            .metrics()
            .add_definition(&reference.saga, reference.version);
    }

    let names = references().map(|reference| reference.saga.to_string());
    // With 0 for sagas without such instances, because an alert needs a series to compare.
    let mut sagas: BTreeMap<String, AttentionCounts> = names
        .map(|name| (name, AttentionCounts::default()))
        .collect();
    for (shard, reader) in app.runtime.numbered_readers() {
        let values = "instances that require attention";
        // One more than is counted shows that there are more.
        let found = match reader.attention(SCAN_LIMIT + 1) {
            Ok(found) => found,
            // Without this, an alert on stuck instances reads a 0 that was never counted.
            Err(error) => {
                failed.report(shard, values, &error);
                continue;
            }
        };

        if found.len() > SCAN_LIMIT {
            failed.truncate(shard, values, SCAN_LIMIT);
        }

        for (key, attention) in found.into_iter().take(SCAN_LIMIT) {
            let saga = visible.of_instance(&key.tenant, &key.saga);
            let saga = sagas.entry(saga.to_owned()).or_default();
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

    let now = app.clock.now();
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
}

fn definitions(app: &App, visible: &VisibleDefinitions, labeled: &mut LabeledMetrics) {
    let metrics = app.runtime.metrics();
    for ((saga, version), totals) in metrics.definition_totals() {
        let Some(name) = visible.version(&saga, version) else {
            continue;
        };

        // The numbers of versions would reveal changes in contexts that are closed to the caller.
        let version = if name == OTHER {
            OTHER.to_owned()
        } else {
            version.to_string()
        };
        let labels = [("saga", name), ("version", version.as_str())];
        labeled.count(
            "definition_instances_started_total",
            &labels,
            totals.started,
        );

        let by_status = [
            (Status::Completed, totals.completed),
            (Status::Failed, totals.failed),
            (Status::Cancelled, totals.cancelled),
        ];

        for (status, ended) in by_status {
            let labels = [labels[0], labels[1], ("status", status.as_str())];
            labeled.count("definition_instances_ended_total", &labels, ended);
        }
    }

    for (saga, inputs) in metrics.own_inputs() {
        if let Some(name) = visible.saga(&saga) {
            labeled.count("saga_own_inputs_total", &[("saga", name)], inputs);
        }
    }
}
