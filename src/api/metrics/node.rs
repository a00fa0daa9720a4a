//! Metrics of the node: owned shards, consumer lag, upstreams.

use orlog_actors::{MetricSink as _, StreamLag};
use orlog_effect::limits::breaker;
use prometheus_client::metrics::family::Family;

use super::types::{CounterFamily, IntGauge, IntGaugeFamily, Labels2, int_gauge};
use crate::app::App;
use crate::telemetry::MetricsRegistry;

/// Registers the metrics.
pub(super) fn register(app: &App, lags: &[StreamLag], registry: &mut MetricsRegistry) {
    let health = app.runtime.health();
    registry.register("node_accepting", int_gauge(u64::from(health.accepting)));
    registry.register("node_shards_up", int_gauge(u64::from(health.is_running)));
    registry.register("bus_connected", int_gauge(u64::from(app.is_connected())));
    if let Some(rejected) = app.services.keys.rejected_messages() {
        let family = CounterFamily::default();
        for (kind, count) in rejected {
            family.get_or_create(&[("kind", kind.to_owned())]).inc_by(count);
        }
        registry.register("bus_messages_rejected_total", family);
    }
    let build = IntGaugeFamily::default();
    build.get_or_create(&[("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
    registry.register("build_info", build);
    if app.config.role.runs_sagas() {
        let (owned, here) = (IntGaugeFamily::default(), app.runtime.owned_shards());
        for shard in 0..app.config.shards {
            owned.get_or_create(&[("shard", shard.to_string())]).set(u64::from(here.contains(&shard)));
        }
        registry.register("shard_owned", owned);
        let idle = app.routing.leased_shards().into_iter().filter(|shard| !here.contains(shard)).count();
        registry.register("shards_leased_not_running", int_gauge(idle as u64));
    }
    if app.audit.dir().is_some() {
        registry.register("audit_trail_bytes", int_gauge(app.audit.bytes()));
        registry.register("audit_trail_alarm_bytes", int_gauge(app.config.audit.alarm_size));
    }
    registry.register("audit_writes_failed_total", app.audit.failures());
    registry.register("audit_publishes_failed_total", app.audit.publish_failures());
    let behind = Family::<Labels2, IntGauge>::default();
    for lag in lags {
        let labels = [("stream", lag.stream.clone()), ("shard", lag.shard.to_string())];
        behind.get_or_create(&labels).set(lag.messages);
    }
    registry.register("consumer_lag", behind);
    upstreams(app, registry);
}

fn upstreams(app: &App, registry: &mut MetricsRegistry) {
    let (states, openings) = (IntGaugeFamily::default(), CounterFamily::default());
    let (in_flight, retries) = (IntGaugeFamily::default(), IntGaugeFamily::default());
    for condition in app.catalog.upstream_statuses() {
        let label = [("upstream", condition.upstream)];
        if let Some(state) = condition.breaker {
            let value = match state {
                breaker::BreakerState::Closed => 0,
                breaker::BreakerState::HalfOpen => 1,
                breaker::BreakerState::Open => 2,
            };
            states.get_or_create(&label).set(value);
            openings.get_or_create(&label).inc_by(condition.breaker_open_count);
        }
        in_flight.get_or_create(&label).set(condition.in_flight as u64);
        if let Some(remaining) = condition.remaining_retries {
            retries.get_or_create(&label).set(remaining);
        }
    }
    registry.register("breaker_state", states);
    registry.register("breaker_opened_total", openings);
    registry.register("upstream_in_flight", in_flight);
    registry.register("upstream_retry_budget", retries);
}
