//! Metrics of the consumers of effect workers: their backlogs are the input of an autoscaler.

use std::collections::BTreeSet;
use std::time::Duration;

use orlog_actors::{JobConsumer, MetricSink as _};
use orlog_bus::effect_queue::SubscriptionState;

use super::types::{LabeledMetrics, int_gauge};
use orlog_node::app::App;
use orlog_node::telemetry::MetricsRegistry;

/// Registers the metrics of a node with effect workers.
pub(super) fn register(app: &App, consumers: &[JobConsumer], registry: &mut MetricsRegistry) {
    let mut labeled = LabeledMetrics::default();
    let mut failing: u64 = 0;
    let mut read = BTreeSet::new();
    for consumer in consumers {
        failing += u64::from(!matches!(consumer.state, SubscriptionState::Open { .. }));
        let (Some(name), Some(backlog)) = (consumer.name(), consumer.backlog) else {
            continue;
        };
        // Several groups can share a consumer, whose backlog counts once.
        if !read.insert(name) {
            continue;
        }

        let labels = &[
            ("effect", consumer.group.effect.as_str()),
            ("consumer", name),
        ];
        let now = app.clock.now();
        let age = backlog
            .oldest
            .map_or(Duration::ZERO, |oldest| now.duration_since(oldest));
        labeled.set("effect_queue_depth", labels, backlog.waiting);
        labeled.set("effect_queue_in_flight", labels, backlog.in_flight);

        labeled.set_duration("effect_queue_oldest_age_seconds", labels, age);
    }

    labeled.register(registry);
    registry.register("effect_subscriptions_failing", int_gauge(failing));
}
