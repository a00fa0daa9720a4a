//! Observer of attempts and circuit breakers, implemented by the metrics.

use std::sync::Arc;
use std::time::Duration;

use orlog_model::{
    AttemptOutcome, AttemptRecord, LogLine, Timestamp, TraceParent, WorkItem, beginning,
};
use serde_json::Value;

use crate::limits::breaker::BreakerState;
use crate::provider::{ProbeResult, ProviderError};

/// Receives events of the executor. Calls are synchronous: they must be fast and must not block.
pub trait EffectObserver: Send + Sync + 'static {
    /// Called before an attempt. Returns the span of the attempt, a child of the item's span;
    /// `None` if tracing is disabled or the item has no span.
    fn attempt_started(&self, _item: &WorkItem) -> Option<TraceParent> {
        None
    }

    /// Called after an attempt.
    fn attempt_finished(&self, _attempted: &AttemptReport<'_>) {}

    /// Called after a probe of an attempt in doubt.
    fn probe_finished(&self, _upstream: &str, _outcome: ProbeOutcome) {}

    /// Called when the result of an item contained facts whose types its upstream does not declare;
    /// they are not published.
    fn facts_rejected(&self, _upstream: &str, _number: usize) {}

    /// Called when a job has written lines.
    fn job_logged(&self, _item: &WorkItem, _lines: &[LogLine]) {}

    /// Called after the breaker of an upstream changes its state.
    fn breaker_changed(&self, _upstream: &str, _state: BreakerState) {}
}

/// Outcome of a probe of an attempt in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// An earlier attempt executed the effect.
    Executed,
    /// An earlier attempt was rejected permanently.
    Failed,
    /// No attempt executed the effect.
    NotExecuted,
    /// The next attempt determines the outcome.
    Pending,
    /// The upstream could not be asked, or has no final answer yet.
    Unanswered,
    /// The upstream cannot determine the outcome.
    Unknown,
}

impl ProbeOutcome {
    /// All outcomes, in their order.
    pub const ALL: [Self; 6] = [
        Self::Executed,
        Self::Failed,
        Self::NotExecuted,
        Self::Pending,
        Self::Unanswered,
        Self::Unknown,
    ];

    /// Returns the name, for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Failed => "failed",
            Self::NotExecuted => "not_executed",
            Self::Pending => "pending",
            Self::Unanswered => "unanswered",
            Self::Unknown => "unknown",
        }
    }
}

impl From<&ProbeResult> for ProbeOutcome {
    fn from(result: &ProbeResult) -> Self {
        match result {
            ProbeResult::Done(_) => Self::Executed,
            ProbeResult::Failed(_) => Self::Failed,
            ProbeResult::NotDone => Self::NotExecuted,
            ProbeResult::Pending => Self::Pending,
            ProbeResult::Unanswered { .. } => Self::Unanswered,
            ProbeResult::Unknown => Self::Unknown,
        }
    }
}

/// Observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopObserver;

impl EffectObserver for NoopObserver {}

/// Observers of one executor, called in their order.
///
/// Every observer receives every event. The span of an attempt is the first one that an observer
/// returns.
pub struct ObserverList(Vec<Arc<dyn EffectObserver>>);

impl ObserverList {
    /// Creates a list of observers.
    #[must_use]
    pub fn new(observers: Vec<Arc<dyn EffectObserver>>) -> Self {
        Self(observers)
    }
}

// The defaults of the trait ignore an event. A method that is missing here would hide its events
// from all observers, so the lint requires each one.
#[deny(clippy::missing_trait_methods)]
impl EffectObserver for ObserverList {
    fn attempt_started(&self, item: &WorkItem) -> Option<TraceParent> {
        let mut span = None;
        for observer in &self.0 {
            // Called also if there is a span already: an observer may count the starts.
            let own_span = observer.attempt_started(item);
            span = span.or(own_span);
        }

        span
    }

    fn attempt_finished(&self, attempted: &AttemptReport<'_>) {
        for observer in &self.0 {
            observer.attempt_finished(attempted);
        }
    }

    fn probe_finished(&self, upstream: &str, outcome: ProbeOutcome) {
        for observer in &self.0 {
            observer.probe_finished(upstream, outcome);
        }
    }

    fn facts_rejected(&self, upstream: &str, number: usize) {
        for observer in &self.0 {
            observer.facts_rejected(upstream, number);
        }
    }

    fn job_logged(&self, item: &WorkItem, lines: &[LogLine]) {
        for observer in &self.0 {
            observer.job_logged(item, lines);
        }
    }

    fn breaker_changed(&self, upstream: &str, state: BreakerState) {
        for observer in &self.0 {
            observer.breaker_changed(upstream, state);
        }
    }
}

/// Report of a finished attempt.
#[derive(Clone, Copy, Debug)]
pub struct AttemptReport<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// Work item; its trace is the span of this attempt, if it has one.
    pub item: &'a WorkItem,
    /// Parent span, if this attempt has its own span.
    pub parent: Option<&'a TraceParent>,
    /// Span of the remote execution, if the remote system reports it.
    pub remote_span: Option<&'a TraceParent>,
    /// Attempt number, from 1.
    pub number: u32,
    /// Error of a failed attempt.
    pub error: Option<&'a ProviderError>,
    /// Outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// Start time.
    pub at: Timestamp,
    /// Duration of the attempt.
    pub duration: Duration,
}

impl AttemptReport<'_> {
    /// Returns the failure code.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.error.map(|error| error.failure().code.as_str())
    }

    /// Returns the record of the attempt, with the beginning of its message and of its response.
    #[must_use]
    pub fn record(&self) -> AttemptRecord {
        let bounded = |text: &str| beginning(text, AttemptRecord::MAX_TEXT_BYTES).to_owned();
        let failure = self.error.map(ProviderError::failure);

        AttemptRecord {
            number: self.number,
            at: self.at,
            duration_ms: u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
            outcome: self.outcome,
            code: failure
                .map(|failure| bounded(&failure.code))
                .unwrap_or_default(),
            message: failure
                .map(|failure| bounded(&failure.message))
                .unwrap_or_default(),
            response: self
                .error
                .and_then(ProviderError::payload)
                .and_then(response_text)
                .map(|text| bounded(&text)),
        }
    }
}

/// Returns a response as text; `None` if it is empty. A response that is not JSON is `{"text": …}`.
fn response_text(payload: &Value) -> Option<String> {
    let text = payload.as_object().filter(|fields| {
        fields
            .keys()
            .all(|name| name == "text" || name == "truncated")
    });

    match text.and_then(|fields| fields.get("text")) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) | None if payload.is_null() => None,
        Some(_) | None => Some(payload.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use orlog_model::EffectName;
    use orlog_testkit::provider_suite::item;

    use super::*;

    /// Observer that counts the started attempts and the lines of jobs.
    #[derive(Default)]
    struct EventCounter {
        span: Option<TraceParent>,
        started: AtomicUsize,
        lines: AtomicUsize,
    }

    impl EffectObserver for EventCounter {
        fn attempt_started(&self, _item: &WorkItem) -> Option<TraceParent> {
            self.started.fetch_add(1, Ordering::SeqCst);
            self.span.clone()
        }

        fn job_logged(&self, _item: &WorkItem, lines: &[LogLine]) {
            self.lines.fetch_add(lines.len(), Ordering::SeqCst);
        }
    }

    #[test]
    fn every_observer_of_a_list_receives_every_event() {
        let span = |id: char| {
            let text = format!("00-{}-{}-01", "a".repeat(32), id.to_string().repeat(16));
            TraceParent::new(&text)
        };
        let counters = [None, span('b'), span('c')].map(|span| {
            Arc::new(EventCounter {
                span,
                ..EventCounter::default()
            })
        });
        let observers = counters
            .iter()
            .map(|counter| Arc::clone(counter) as Arc<dyn EffectObserver>);
        let list = ObserverList::new(observers.collect());

        let item = item(&EffectName::new("job.t").unwrap(), 1);
        let line = LogLine {
            at: Timestamp::from_millis(1),
            text: "started".to_owned(),
        };
        let started = list.attempt_started(&item);
        list.job_logged(&item, &[line]);

        assert_eq!(
            started,
            span('b'),
            "the first span is the one of the attempt"
        );
        for counter in &counters {
            assert_eq!(counter.started.load(Ordering::SeqCst), 1);
            assert_eq!(counter.lines.load(Ordering::SeqCst), 1);
        }
    }
}
