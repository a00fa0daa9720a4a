//! Observer of attempts and circuit breakers, implemented by the metrics.

use std::time::Duration;

use orlog_model::{TraceParent, WorkItem};

use crate::limits::breaker::BreakerState;

/// Receives events of the executor. Calls are synchronous: they must be fast and must not block.
pub trait EffectObserver: Send + Sync + 'static {
    /// Called before an attempt. Returns the span of the attempt, a child of the item's span; `None` if
    /// tracing is disabled or the item has no span.
    fn attempt_started(&self, _item: &WorkItem) -> Option<TraceParent> {
        None
    }

    /// Called after an attempt.
    fn attempt_finished(&self, _attempted: &AttemptReport<'_>) {}

    /// Called after the breaker of an upstream changes its state.
    fn breaker_changed(&self, _upstream: &str, _state: BreakerState) {}
}

/// Observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopObserver;

impl EffectObserver for NoopObserver {}

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
    /// Failure code.
    pub code: Option<&'a str>,
    /// Outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// Duration of the attempt.
    pub duration: Duration,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptOutcome {
    /// The effect was executed.
    Succeeded,
    /// A permanent error.
    Rejected,
    /// The upstream throttled the call.
    Throttled,
    /// The upstream was unavailable.
    Unavailable,
    /// The response was lost.
    ResponseLost,
    /// There was no response in time.
    TimedOut,
}

impl AttemptOutcome {
    /// Returns the label for users and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptOutcome::Succeeded => "succeeded",
            AttemptOutcome::Rejected => "rejected",
            AttemptOutcome::Throttled => "throttled",
            AttemptOutcome::Unavailable => "unavailable",
            AttemptOutcome::ResponseLost => "response_lost",
            AttemptOutcome::TimedOut => "timed_out",
        }
    }
}
