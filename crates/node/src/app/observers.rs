//! Observers of attempts: counters, attempt buffer, the overridden observer and the span exporter.
//! Also their metrics.

use std::sync::Arc;

use orlog_actors::{AttemptMetrics, MetricSink as _, Runtime, Tracer};
use orlog_effect::limits::breaker::BreakerState;
use orlog_effect::{AttemptReport, EffectObserver, NoopObserver, ProbeOutcome};
use orlog_model::{TraceParent, WorkItem};
use prometheus_client::metrics::counter::Counter;

use crate::jobs::lines::UnsavedLines;
use crate::retention::PurgeCounters;
use crate::sagas::attempts::RecentAttempts;
use crate::telemetry::{MetricsRegistry, SpanExporter, TelemetryHandle};

/// Observers of a node.
pub(crate) struct Observers {
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) attempts: Arc<RecentAttempts>,
    /// Counters of attempts.
    pub(crate) attempt_metrics: Arc<AttemptMetrics>,
    /// Lines of jobs.
    pub(crate) lines: Arc<UnsavedLines>,
    /// The first observer, which calls the others.
    pub(crate) effect_observer: Arc<dyn EffectObserver>,
}

pub(crate) fn build_observers(
    telemetry: &TelemetryHandle,
    other: Option<Arc<dyn EffectObserver>>,
) -> Observers {
    let tracer = telemetry
        .spans
        .clone()
        .map(|spans| spans as Arc<dyn Tracer>);
    let observer = combined_observer(telemetry.spans.as_ref(), other);

    // Each observer calls the next one, so that the executors need only one.
    let attempts = Arc::new(RecentAttempts::observer(observer));
    let attempt_metrics = AttemptMetrics::chained(Arc::clone(&attempts) as Arc<dyn EffectObserver>);
    let lines = Arc::new(UnsavedLines::observer(
        Arc::clone(&attempt_metrics) as Arc<dyn EffectObserver>
    ));
    let effect_observer = Arc::clone(&lines) as Arc<dyn EffectObserver>;

    Observers {
        tracer,
        attempts,
        attempt_metrics,
        lines,
        effect_observer,
    }
}

/// Metrics that are registered before the node starts, and the counters that the node itself
/// updates.
pub(crate) struct InitialMetrics {
    pub(crate) registry: MetricsRegistry,
    pub(crate) collected: Counter,
    pub(crate) purges: PurgeCounters,
}

impl InitialMetrics {
    pub(crate) fn of(
        runtime: &Runtime,
        attempt_metrics: &AttemptMetrics,
        telemetry: &TelemetryHandle,
    ) -> Self {
        let mut registry = MetricsRegistry::default();
        let collected = Counter::default();
        let purges = PurgeCounters::register(&mut registry);

        runtime.metrics().register(&mut registry);
        attempt_metrics.register(&mut registry);
        telemetry.register_metrics(&mut registry);
        registry.register("definitions_collected_total", collected.clone());

        Self {
            registry,
            collected,
            purges,
        }
    }
}

/// Combines the span exporter and another observer.
fn combined_observer(
    spans: Option<&Arc<SpanExporter>>,
    other: Option<Arc<dyn EffectObserver>>,
) -> Arc<dyn EffectObserver> {
    match (spans, other) {
        (None, None) => Arc::new(NoopObserver),
        (None, Some(other)) => other,
        (Some(spans), None) => Arc::clone(spans) as Arc<dyn EffectObserver>,
        (Some(spans), Some(other)) => Arc::new(TeeObserver {
            spans: Arc::clone(spans),
            other,
        }),
    }
}

struct TeeObserver {
    spans: Arc<SpanExporter>,
    other: Arc<dyn EffectObserver>,
}

impl EffectObserver for TeeObserver {
    fn attempt_started(&self, item: &WorkItem) -> Option<TraceParent> {
        self.spans.attempt_started(item)
    }

    fn attempt_finished(&self, attempted: &AttemptReport<'_>) {
        self.spans.attempt_finished(attempted);
        self.other.attempt_finished(attempted);
    }

    fn probe_finished(&self, upstream: &str, outcome: ProbeOutcome) {
        self.other.probe_finished(upstream, outcome);
    }

    fn facts_rejected(&self, upstream: &str, number: usize) {
        self.other.facts_rejected(upstream, number);
    }

    fn breaker_changed(&self, upstream: &str, state: BreakerState) {
        self.other.breaker_changed(upstream, state);
    }
}
