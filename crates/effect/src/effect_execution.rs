//! Execution state of a work item, and its result.

use std::time::Duration;

use orlog_model::{
    AttemptLog, AttemptOutcome, Fact, Failure, IN_DOUBT, SteadyTime, TraceParent, WorkItem,
    WorkOutcome, format_duration,
};

use crate::limits::breaker::{BreakerState, CallHealth};
use crate::observer::AttemptReport;
use crate::provider::{
    ProbeResult, ProviderError, RejectionScope, RemoteResult, Reply, TransientCause,
};
use crate::receipt::ResultReceipt;
use crate::retry::{self, Backoff, FailedAttempt, RetryDecision, RetryLimits};

/// Maximum number of probes without an answer after one attempt. With the default backoff, they
/// take 2 minutes.
const MAX_PROBES: u8 = 10;

/// Progress of a work item under an earlier executor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionProgress {
    /// Number of attempts so far.
    pub attempts: u32,
    /// Whether an earlier attempt is in doubt.
    pub in_doubt: bool,
    /// Number of probes without an answer since the last attempt.
    pub probes: u8,
    /// Deadline, from the first executor of this process; `None`: not known yet, or no deadline.
    pub deadline: Option<SteadyTime>,
    /// How these attempts ended.
    pub attempt_log: Option<Box<AttemptLog>>,
}

/// Result of the execution of a work item.
#[derive(Debug, PartialEq)]
pub struct ExecutionResult {
    /// Outcome of the work item.
    pub outcome: WorkOutcome,
    /// Number of attempts of this call.
    pub attempts: u32,
    /// Facts to publish with the result.
    pub facts: Vec<Fact>,
    /// Span of the last attempt, if tracing is enabled.
    pub trace: Option<TraceParent>,
    /// Receipt of the last attempt, to be settled when the result is stored.
    pub receipt: Option<ResultReceipt>,
    /// How the attempts ended, if the first one did not succeed.
    pub attempt_log: Option<Box<AttemptLog>>,
    /// Whether the provider has published the result as an event.
    pub is_published: bool,
}

impl ExecutionResult {
    /// Creates a result without an attempt.
    #[must_use]
    pub fn without_attempt(outcome: WorkOutcome) -> Self {
        Self {
            outcome,
            attempts: 0,
            facts: Vec::new(),
            trace: None,
            receipt: None,
            attempt_log: None,
            is_published: false,
        }
    }
}

pub(crate) struct EffectExecution {
    pub(crate) limits: RetryLimits,
    pub(crate) attempts: u32,
    pub(crate) delay: Option<Duration>,
    /// Whether an earlier attempt is in doubt.
    pub(crate) in_doubt: bool,
    /// Number of probes without an answer since the last attempt.
    pub(crate) probes: u8,
    pub(crate) last: Option<Failure>,
    pub(crate) trace: Option<TraceParent>,
    pub(crate) receipt: Option<ResultReceipt>,
    /// How the attempts ended; `None` as long as the first one has not failed.
    pub(crate) attempt_log: Option<Box<AttemptLog>>,
    /// The process that executed the last attempt recorded its own attempts.
    pub(crate) is_recorded: bool,
}

impl EffectExecution {
    /// Continues an execution from the progress of an earlier executor.
    pub(crate) fn new(
        limits: RetryLimits,
        trace: Option<TraceParent>,
        progress: ExecutionProgress,
    ) -> Self {
        let ExecutionProgress {
            attempts,
            in_doubt,
            probes,
            attempt_log,
            ..
        } = progress;

        Self {
            limits,
            attempts,
            delay: None,
            in_doubt,
            probes,
            last: None,
            trace,
            receipt: None,
            attempt_log,
            is_recorded: false,
        }
    }

    pub(crate) fn into_progress(self) -> ExecutionProgress {
        ExecutionProgress {
            attempts: self.attempts,
            in_doubt: self.in_doubt,
            probes: self.probes,
            deadline: self.limits.deadline,
            attempt_log: self.attempt_log,
        }
    }

    pub(crate) fn into_result(
        self,
        finished: FinishedExecution,
        is_published: bool,
    ) -> ExecutionResult {
        let FinishedExecution { outcome, facts } = finished;
        let Self {
            attempts,
            trace,
            receipt,
            attempt_log,
            ..
        } = self;

        ExecutionResult {
            outcome,
            attempts,
            facts,
            trace,
            receipt,
            attempt_log,
            is_published,
        }
    }

    /// Records how an attempt ended. A success at the first attempt is not recorded and allocates
    /// nothing.
    pub(crate) fn record_attempt(&mut self, report: &AttemptReport<'_>) {
        let has_failed = report.outcome != AttemptOutcome::Succeeded || self.attempt_log.is_some();

        // A remote process that sent its own log has recorded the attempt there.
        if has_failed && !self.is_recorded {
            self.attempt_log
                .get_or_insert_default()
                .push(report.record());
        }
    }

    /// Forgets the last attempt, which executed nothing.
    pub(crate) fn undo_attempt(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
        if let Some(log) = &mut self.attempt_log {
            log.records.pop();
        }

        // An empty log would cause that a success at the next attempt is recorded.
        drop(self.attempt_log.take_if(|log| log.records.is_empty()));
    }

    /// Returns whether all attempts are used up.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.attempts > 0
            && self
                .limits
                .max_attempts
                .is_some_and(|max| self.attempts >= max)
    }

    /// Returns the outcome of an attempt in doubt that is not retried. `probe` is why the probe has
    /// no answer.
    pub(crate) fn unknown(
        &mut self,
        item: &WorkItem,
        upstream: &str,
        probe: Option<&Failure>,
    ) -> WorkOutcome {
        let last = self.last.take().map_or_else(
            || "the process stopped while an attempt was in flight".to_owned(),
            |last| format!("{}: {}", last.code, last.message),
        );

        let probe = probe.map(|probe| {
            let plural = if self.probes == 1 { "" } else { "s" };
            format!(
                "; {} probe{plural} without an answer: {}: {}",
                self.probes, probe.code, probe.message
            )
        });

        let message = format!(
            "unknown whether {upstream} executed the effect under the key {}; not retried: \
            {last}{}",
            item.id,
            probe.unwrap_or_default()
        );

        WorkOutcome::TimedOut {
            failure: Failure {
                code: IN_DOUBT.to_owned(),
                message,
            },
        }
    }

    /// Keeps the receipt and the doubt of an attempt, and returns its result and the span of the
    /// process that executed it; `None`: the attempt has no result.
    pub(crate) fn receive(
        &mut self,
        remote: Option<RemoteResult>,
    ) -> (Option<Result<Reply, ProviderError>>, Option<TraceParent>) {
        self.is_recorded = false;
        let Some(remote) = remote else {
            return (None, None);
        };

        let RemoteResult {
            result,
            trace,
            receipt,
            attempt_log,
            in_doubt,
        } = remote;

        // The doubt of an earlier attempt stays: a later one says nothing about it.
        self.in_doubt |= in_doubt;
        self.receipt = receipt;
        self.is_recorded = attempt_log.is_some();
        if let Some(theirs) = attempt_log {
            self.attempt_log.get_or_insert_default().extend(*theirs);
        }
        (Some(result), trace)
    }

    /// Settles the receipt of a result that causes a retry.
    pub(crate) fn result_needs_no_commit(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.stored();
        }
    }

    /// Records the span of the last attempt. A remote span is accepted only if it belongs to the
    /// same trace.
    pub(crate) fn record_span(&mut self, own: Option<&TraceParent>, theirs: Option<TraceParent>) {
        // A span of another trace would connect the traces of unrelated instances.
        let theirs =
            theirs.filter(|theirs| own.is_some_and(|own| own.trace_id() == theirs.trace_id()));
        self.trace = theirs.or_else(|| own.cloned());
    }

    /// Returns the delay of a retry without budget; it counts as the delay before the next attempt.
    pub(crate) fn budget_delay(&mut self, backoff: &Backoff, item: &WorkItem) -> Duration {
        let delay = retry::draw_delay(backoff, self.delay, &mut self.rng(item));
        self.delay = Some(delay);
        delay
    }

    fn rng(&self, item: &WorkItem) -> fastrand::Rng {
        let (high, low) = item.id.as_u64_pair();
        let attempts =
            u64::from(self.attempts.wrapping_add(u32::from(self.probes) << 16)).rotate_right(16);
        fastrand::Rng::with_seed(high.rotate_left(17) ^ low ^ attempts)
    }

    /// Decides about another probe after one without an answer, within the deadline of the item.
    pub(crate) fn next_probe(
        &self,
        backoff: &Backoff,
        retry_after: Option<Duration>,
        item: &WorkItem,
        now: SteadyTime,
    ) -> RetryDecision {
        let tried = FailedAttempt {
            attempts: self.probes.into(),
            delay: self.delay,
            retry_after,
        };

        let limits = RetryLimits {
            // The limits of attempts do not apply to probes, but the deadline does.
            max_attempts: Some(MAX_PROBES.into()),
            ..self.limits
        };
        retry::decide_retry(backoff, tried, limits, now, &mut self.rng(item))
    }

    /// Decides about a retry. The jitter is derived from the item and the attempt number: items
    /// differ, and repeated runs have equal delays.
    pub(crate) fn next_attempt(
        &self,
        backoff: &Backoff,
        tried: FailedAttempt,
        item: &WorkItem,
        now: SteadyTime,
    ) -> RetryDecision {
        retry::decide_retry(backoff, tried, self.limits, now, &mut self.rng(item))
    }
}

pub(crate) enum NextStep {
    Finish(FinishedExecution),
    Retry(Duration),
    /// The dispatcher stops its executions.
    Stop,
}

pub(crate) struct FinishedExecution {
    pub(crate) outcome: WorkOutcome,
    pub(crate) facts: Vec<Fact>,
}

impl From<WorkOutcome> for FinishedExecution {
    fn from(outcome: WorkOutcome) -> Self {
        Self {
            outcome,
            facts: Vec::new(),
        }
    }
}

pub(crate) fn success(item: &WorkItem, reply: Reply) -> FinishedExecution {
    let Reply {
        event,
        payload,
        schema_version,
        facts,
    } = reply;
    match item.work.effect() {
        Some(_) => {
            let outcome = WorkOutcome::Succeeded {
                event,
                payload,
                schema_version,
            };
            FinishedExecution { outcome, facts }
        }

        // A gateway reports only that it has accepted the command.
        None => WorkOutcome::Accepted.into(),
    }
}

/// Returns the final result of a permanent error; a transient error is returned as `Err`.
pub(crate) fn final_result(
    error: ProviderError,
) -> Result<FinishedExecution, (Failure, TransientCause, Option<Duration>)> {
    match error {
        ProviderError::Permanent {
            failure,
            event,
            payload,
            facts,
            scope: _,
        } => Ok(FinishedExecution {
            outcome: WorkOutcome::Failed {
                event,
                failure,
                payload,
            },
            facts: facts.map_or_else(Vec::new, |facts| facts.0),
        }),
        // The remote executor does not retry, and the effect may have been executed: a timeout,
        // which is compensated.
        ProviderError::Abandoned { failure } => Ok(WorkOutcome::TimedOut { failure }.into()),
        ProviderError::Transient {
            failure,
            trouble,
            retry_after,
            ..
        } => Err((failure, trouble, retry_after)),
    }
}

/// Returns the failure of a permanent error that says nothing about earlier attempts.
pub(crate) fn rejection_of_attempt(error: &ProviderError) -> Option<Failure> {
    match error {
        ProviderError::Permanent {
            failure,
            scope: RejectionScope::Attempt,
            ..
        } => Some(failure.clone()),
        _ => None,
    }
}

/// Returns the result that the upstream reports for the item; `None` if it has none.
pub(crate) fn probed_result(item: &WorkItem, probe: ProbeResult) -> Option<FinishedExecution> {
    match probe {
        ProbeResult::Done(reply) => Some(success(item, reply)),
        ProbeResult::Failed(error) => final_result(error).ok(),
        ProbeResult::NotDone
        | ProbeResult::Pending
        | ProbeResult::Unanswered { .. }
        | ProbeResult::Unknown => None,
    }
}

/// Returns the failure of an item whose deadline has passed before its first attempt.
pub(crate) fn not_started(upstream: &str, breaker: Option<(BreakerState, u64)>) -> Failure {
    let reason = match breaker {
        Some((BreakerState::Open | BreakerState::HalfOpen, _)) => {
            format!("the breaker of {upstream} is open")
        }
        Some((BreakerState::Closed, _)) | None => format!("{upstream} was never called"),
    };
    Failure {
        code: "deadline_passed".to_owned(),
        message: format!("deadline exceeded: {reason}"),
    }
}

/// Returns the error of an attempt without a response in time.
pub(crate) fn no_response(upstream: &str, timeout: Duration) -> ProviderError {
    ProviderError::response_lost(
        "timeout",
        format!(
            "{upstream} did not respond within {}",
            format_duration(timeout)
        ),
    )
}

/// Returns the failure of an item whose attempts are used up or whose deadline has passed:
/// `hotel: timed out after 7 attempts; last: POST /rooms returned HTTP 503: no rooms`.
pub(crate) fn attempts_exhausted(
    upstream: &str,
    last: Failure,
    attempts: u32,
    in_doubt: bool,
) -> Failure {
    let plural = if attempts == 1 { "" } else { "s" };
    // The words of the outcomes: a failed effect was not executed, one that timed out may have
    // been.
    let outcome = if in_doubt { "timed out" } else { "failed" };

    // Providers begin their messages with the upstream. It is named once.
    let reason = last
        .message
        .strip_prefix(upstream)
        .and_then(|rest| rest.strip_prefix(": "));
    let reason = reason.unwrap_or(&last.message);

    Failure {
        message: format!("{upstream}: {outcome} after {attempts} attempt{plural}; last: {reason}"),
        code: last.code,
    }
}

pub(crate) fn attempt_outcome(result: &Result<Reply, ProviderError>) -> AttemptOutcome {
    match result {
        Ok(_) => AttemptOutcome::Succeeded,
        Err(ProviderError::Permanent { .. } | ProviderError::Abandoned { .. }) => {
            AttemptOutcome::Rejected
        }
        Err(ProviderError::Transient { trouble, .. }) => match trouble {
            TransientCause::Throttled | TransientCause::ReportedThrottled => {
                AttemptOutcome::Throttled
            }
            TransientCause::Unavailable | TransientCause::ReportedUnavailable => {
                AttemptOutcome::Unavailable
            }
            TransientCause::ResponseLost | TransientCause::Undetermined => {
                AttemptOutcome::ResponseLost
            }
        },
    }
}

pub(crate) fn call_health(result: &Result<Reply, ProviderError>) -> CallHealth {
    match attempt_outcome(result) {
        // The upstream has responded, whatever it has decided.
        AttemptOutcome::Succeeded | AttemptOutcome::Rejected | AttemptOutcome::Throttled => {
            CallHealth::Healthy
        }
        AttemptOutcome::Unavailable | AttemptOutcome::ResponseLost | AttemptOutcome::TimedOut => {
            CallHealth::Unhealthy
        }
    }
}
