//! Metrics of work results by upstream. The configuration bounds the number of series.

use std::sync::Arc;
use std::time::Duration;

use orlog_model::WorkOutcome;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::sink::{Cached, MetricSink, seconds};

type ByUpstream = [(&'static str, String); 2];

/// Metrics of all upstreams.
#[derive(Debug)]
pub(crate) struct EffectMetrics {
    completed: Family<ByUpstream, Counter>,
    seconds: Family<ByUpstream, Histogram, fn() -> Histogram>,
    by_upstream: Cached<OutcomeMetrics>,
}

impl Default for EffectMetrics {
    fn default() -> Self {
        Self {
            completed: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            by_upstream: Cached::default(),
        }
    }
}

impl EffectMetrics {
    pub(super) fn register(&self, sink: &mut impl MetricSink) {
        sink.register("effects_completed_total", self.completed.clone());
        sink.register("effect_seconds", self.seconds.clone());
    }

    /// Returns the metrics of an upstream.
    pub(crate) fn outcomes(&self, upstream: &str) -> Arc<OutcomeMetrics> {
        self.by_upstream
            .get(upstream, || OutcomeMetrics::of_upstream(upstream, self))
    }

    fn of(&self, upstream: &str, outcome: &str) -> UpstreamGauges {
        let labels = [
            ("upstream", upstream.to_owned()),
            ("outcome", outcome.to_owned()),
        ];
        UpstreamGauges {
            completed: self.completed.get_or_create(&labels).clone(),
            seconds: self.seconds.get_or_create(&labels).clone(),
        }
    }
}

#[derive(Debug)]
struct UpstreamGauges {
    completed: Counter,
    seconds: Histogram,
}

/// Metrics of one upstream.
#[derive(Debug)]
pub(crate) struct OutcomeMetrics {
    accepted: UpstreamGauges,
    succeeded: UpstreamGauges,
    failed: UpstreamGauges,
    timed_out: UpstreamGauges,
}

impl OutcomeMetrics {
    fn of_upstream(upstream: &str, effects: &EffectMetrics) -> Self {
        Self {
            accepted: effects.of(upstream, "accepted"),
            succeeded: effects.of(upstream, "succeeded"),
            failed: effects.of(upstream, "failed"),
            timed_out: effects.of(upstream, "timed_out"),
        }
    }

    /// Counts a completed work item with its outcome and the time since dispatch.
    pub(crate) fn count(&self, outcome: &WorkOutcome, duration: Duration) {
        let metrics = match outcome {
            WorkOutcome::Accepted => &self.accepted,
            WorkOutcome::Succeeded { .. } => &self.succeeded,
            WorkOutcome::Failed { .. } => &self.failed,
            WorkOutcome::TimedOut { .. } => &self.timed_out,
        };
        metrics.completed.inc();
        metrics.seconds.observe(duration.as_secs_f64());
    }
}
