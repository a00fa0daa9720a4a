//! Observer that counts attempts by upstream and outcome.

use orlog_effect::{AttemptReport, EffectObserver, ProbeOutcome};
use orlog_model::AttemptOutcome;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::sink::{Cached, MetricSink, seconds};

const OUTCOMES: [AttemptOutcome; 6] = [
    AttemptOutcome::Succeeded,
    AttemptOutcome::Rejected,
    AttemptOutcome::Throttled,
    AttemptOutcome::Unavailable,
    AttemptOutcome::ResponseLost,
    AttemptOutcome::TimedOut,
];

/// Attempt counters.
pub struct AttemptMetrics {
    count: Family<[(&'static str, String); 2], Counter>,
    seconds: AttemptDurations,
    probes: Family<[(&'static str, String); 2], Counter>,
    rejected_facts: Family<[(&'static str, String); 1], Counter>,
    by_upstream: Cached<UpstreamAttemptMetrics>,
}

/// Durations by upstream.
type AttemptDurations = Family<[(&'static str, String); 1], Histogram, fn() -> Histogram>;

/// Metrics of one upstream, in the order of [`OUTCOMES`].
struct UpstreamAttemptMetrics {
    count: [Counter; OUTCOMES.len()],
    seconds: Histogram,
    /// In the order of [`ProbeOutcome::ALL`].
    probes: [Counter; ProbeOutcome::ALL.len()],
    rejected_facts: Counter,
}

impl Default for AttemptMetrics {
    fn default() -> Self {
        Self {
            count: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            probes: Family::default(),
            rejected_facts: Family::default(),
            by_upstream: Cached::default(),
        }
    }
}

impl AttemptMetrics {
    /// Registers the metrics.
    pub fn register(&self, sink: &mut impl MetricSink) {
        sink.register("effect_attempts_total", self.count.clone());
        sink.register("effect_attempt_seconds", self.seconds.clone());
        sink.register("effect_probes_total", self.probes.clone());
        sink.register("effect_facts_rejected_total", self.rejected_facts.clone());
    }

    /// Returns the number of attempts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_upstream
            .all()
            .iter()
            .flat_map(|upstream| &upstream.count)
            .map(Counter::get)
            .sum()
    }

    fn create(&self, upstream: &str) -> UpstreamAttemptMetrics {
        let labels = |outcome: &str| {
            [
                ("upstream", upstream.to_owned()),
                ("outcome", outcome.to_owned()),
            ]
        };

        UpstreamAttemptMetrics {
            count: OUTCOMES
                .map(|outcome| self.count.get_or_create(&labels(outcome.as_str())).clone()),
            seconds: self
                .seconds
                .get_or_create(&[("upstream", upstream.to_owned())])
                .clone(),
            probes: ProbeOutcome::ALL
                .map(|outcome| self.probes.get_or_create(&labels(outcome.as_str())).clone()),
            rejected_facts: self
                .rejected_facts
                .get_or_create(&[("upstream", upstream.to_owned())])
                .clone(),
        }
    }
}

impl EffectObserver for AttemptMetrics {
    fn attempt_finished(&self, attempted: &AttemptReport<'_>) {
        let metrics = self
            .by_upstream
            .get(attempted.upstream, || self.create(attempted.upstream));

        let index = OUTCOMES
            .iter()
            .position(|outcome| *outcome == attempted.outcome);
        metrics.count[index.expect("every attempt outcome is listed")].inc();
        metrics.seconds.observe(attempted.duration.as_secs_f64());
    }

    fn probe_finished(&self, upstream: &str, outcome: ProbeOutcome) {
        let metrics = self.by_upstream.get(upstream, || self.create(upstream));
        metrics.probes[outcome as usize].inc();
    }

    fn facts_rejected(&self, upstream: &str, number: usize) {
        let metrics = self.by_upstream.get(upstream, || self.create(upstream));
        metrics
            .rejected_facts
            .inc_by(u64::try_from(number).unwrap_or(u64::MAX));
    }
}
