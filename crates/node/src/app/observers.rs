//! Observers of attempts: lines of jobs, counters, attempt buffer, span exporter and the overridden
//! observer. Also their metrics.

use std::sync::Arc;

use orlog_actors::{AttemptMetrics, MetricSink as _, Runtime, Tracer};
use orlog_effect::{EffectObserver, ObserverList};
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
    /// All observers.
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
    let attempts = Arc::new(RecentAttempts::default());
    let attempt_metrics = Arc::new(AttemptMetrics::default());
    let lines = Arc::new(UnsavedLines::default());

    // The span of an attempt is the one of the exporter, if both it and the other observer return
    // one.
    let mut observers: Vec<Arc<dyn EffectObserver>> = vec![
        Arc::<UnsavedLines>::clone(&lines),
        Arc::<AttemptMetrics>::clone(&attempt_metrics),
        Arc::<RecentAttempts>::clone(&attempts),
    ];
    if let Some(spans) = &telemetry.spans {
        observers.push(Arc::<SpanExporter>::clone(spans));
    }
    observers.extend(other);

    Observers {
        tracer,
        attempts,
        attempt_metrics,
        lines,
        effect_observer: Arc::new(ObserverList::new(observers)),
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
