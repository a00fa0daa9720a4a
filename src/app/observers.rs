//! Who hears of attempts: whoever counts and keeps them, whoever the seams name, and whoever makes spans. And what is shown of it.

use std::sync::Arc;

use orlog_actors::{AttemptCounts, Runtime, Sheet as _, Tracer};
use orlog_effect::limits::breaker::State;
use orlog_effect::{Attempted, Observer, Silent};
use orlog_model::{Clock, TraceParent, WorkItem};
use prometheus_client::metrics::counter::Counter;

use super::attempts::Attempts;
use super::purge_counts::Purges;
use crate::telemetry::{Shown, Spans, Telemetry};

/// Who hears of what happens.
pub(super) struct Ears {
    pub(super) tracer: Option<Arc<dyn Tracer>>,
    pub(super) attempts: Arc<Attempts>,
    /// Hears of attempts first.
    pub(super) counted: Arc<AttemptCounts>,
}

pub(super) fn ears(telemetry: &Telemetry, other: Option<Arc<dyn Observer>>, clock: &Arc<dyn Clock>) -> Ears {
    let tracer = telemetry.spans.clone().map(|spans| spans as Arc<dyn Tracer>);
    let heard = hearing(telemetry.spans.as_ref(), other);
    let attempts = Arc::new(Attempts::heard_by(heard, Arc::clone(clock)));
    let counted = AttemptCounts::before(Arc::clone(&attempts) as Arc<dyn Observer>);
    Ears { tracer, attempts, counted }
}

/// What is shown at `/metrics` besides what is looked up then, and the counts in it that the node itself keeps.
pub(super) struct FirstShown {
    pub(super) shown: Shown,
    pub(super) collected: Counter,
    pub(super) purges: Purges,
}

impl FirstShown {
    pub(super) fn of(runtime: &Runtime, counted: &AttemptCounts, telemetry: &Telemetry) -> Self {
        let (mut shown, collected) = (Shown::default(), Counter::default());
        let purges = Purges::shown(&mut shown);
        runtime.metrics().show(&mut shown);
        counted.show(&mut shown);
        telemetry.show(&mut shown);
        shown.put("definitions_collected_total", collected.clone());
        Self { shown, collected, purges }
    }
}

/// One ear for both.
fn hearing(spans: Option<&Arc<Spans>>, other: Option<Arc<dyn Observer>>) -> Arc<dyn Observer> {
    match (spans, other) {
        (None, None) => Arc::new(Silent),
        (None, Some(other)) => other,
        (Some(spans), None) => Arc::clone(spans) as Arc<dyn Observer>,
        (Some(spans), Some(other)) => Arc::new(Both { spans: Arc::clone(spans), other }),
    }
}

struct Both {
    spans: Arc<Spans>,
    other: Arc<dyn Observer>,
}

impl Observer for Both {
    fn attempting(&self, item: &WorkItem) -> Option<TraceParent> {
        self.spans.attempting(item)
    }

    fn attempted(&self, attempted: &Attempted<'_>) {
        self.spans.attempted(attempted);
        self.other.attempted(attempted);
    }

    fn breaker_changed(&self, upstream: &str, state: State) {
        self.other.breaker_changed(upstream, state);
    }
}
