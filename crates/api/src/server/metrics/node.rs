//! Metrics of the node: owned shards, consumer lag, upstreams.

use std::time::Duration;

use orlog_actors::{JobConsumer, MetricSink as _, StreamLag};
use orlog_effect::limits::breaker;

use super::types::{LabeledMetrics, float_gauge, int_gauge};
use orlog_node::app::App;
use orlog_node::telemetry::MetricsRegistry;

/// State of the bus, read before the other gauges.
#[derive(Clone, Copy)]
pub(super) struct BusMetrics<'a> {
    /// The bus responds.
    pub(super) is_available: bool,
    pub(super) lags: &'a [StreamLag],
    /// Consumers of the effect workers.
    pub(super) consumers: &'a [JobConsumer],
}

/// Registers the metrics.
pub(super) fn register(app: &App, bus: BusMetrics<'_>, registry: &mut MetricsRegistry) {
    let health = app.runtime.health();
    let mut labeled = LabeledMetrics::default();
    registry.register("node_accepting", int_gauge(u64::from(health.accepting)));
    registry.register("node_shards_up", int_gauge(u64::from(health.is_running)));
    registry.register(
        "bus_connected",
        int_gauge(u64::from(app.transport.info().connected)),
    );
    registry.register("bus_available", int_gauge(u64::from(bus.is_available)));

    let offset = app.services.trends.clock_offset_ms();
    let seconds = Duration::from_millis(offset.unsigned_abs()).as_secs_f64();
    registry.register(
        "clock_offset_seconds",
        float_gauge(if offset < 0 { -seconds } else { seconds }),
    );

    if let Some(rejected) = app.services.keys.rejected_messages() {
        for (kind, count) in rejected {
            labeled.count("bus_messages_rejected_total", &[("kind", kind)], count);
        }
    }

    labeled.set("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    if app.config.role.runs_sagas() {
        let here = app.runtime.owned_shards();
        for shard in 0..app.config.shards {
            let is_owned = u64::from(here.contains(&shard));
            labeled.set("shard_owned", &[("shard", &shard.to_string())], is_owned);
        }

        // A leased shard that does not run is being started, or its start fails.
        let idle = app
            .routing
            .leased_shards()
            .into_iter()
            .filter(|shard| !here.contains(shard))
            .count();
        registry.register("shards_leased_not_running", int_gauge(idle as u64));

        let obstacles = app.obstacles();
        registry.register("shards_failing", int_gauge(obstacles.shards.len() as u64));
        let has_lease = u64::from(obstacles.lease.is_none());
        registry.register("pod_lease_held", int_gauge(has_lease));
    }

    if app.audit.dir().is_some() {
        registry.register("audit_trail_bytes", int_gauge(app.audit.bytes()));
        registry.register(
            "audit_trail_alarm_bytes",
            int_gauge(app.config.audit.alarm_size),
        );
    }

    registry.register("audit_writes_failed_total", app.audit.failures());
    registry.register("audit_publishes_failed_total", app.audit.publish_failures());
    for lag in bus.lags {
        let labels = &[
            ("stream", lag.stream.as_str()),
            ("shard", &lag.shard.to_string()),
        ];
        labeled.set("consumer_lag", labels, lag.messages);
    }

    upstreams(app, &mut labeled);
    labeled.register(registry);
}

fn upstreams(app: &App, labeled: &mut LabeledMetrics) {
    for condition in app.catalog.upstream_statuses() {
        let label = &[("upstream", condition.upstream.as_str())];
        if let Some(state) = condition.breaker {
            let value = match state {
                breaker::BreakerState::Closed => 0,
                breaker::BreakerState::HalfOpen => 1,
                breaker::BreakerState::Open => 2,
            };
            labeled.set("breaker_state", label, value);
            labeled.count("breaker_opened_total", label, condition.breaker_open_count);
        }

        labeled.set("upstream_in_flight", label, condition.in_flight as u64);
        if let Some(remaining) = condition.remaining_retries {
            labeled.set("upstream_retry_budget", label, remaining);
        }
    }
}
