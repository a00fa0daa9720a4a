//! Contract of effect providers.
//!
//! A provider makes one attempt of one work item. It may be called again with the same
//! [`WorkItem::id`], after a crash also for an item that it has already executed. The id is the
//! idempotency key and must reach the upstream if it supports keys. Retries, deadlines, circuit
//! breaking and limits are not part of the provider.

use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{
    AttemptLog, Effect, EffectName, EventType, Fact, Failure, Timestamp, TraceParent, WorkItem,
    WorkOutcome,
};
use serde_json::Value;

use crate::attempt_start::AttemptStart;
use crate::decisions::Decision;
use crate::receipt::ResultReceipt;

/// Adapter that executes effects in an external system.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Makes one attempt. Dropping the future cancels it; the caller does so after the timeout.
    ///
    /// # Errors
    /// [`ProviderError::Permanent`] if a retry is pointless, [`ProviderError::Transient`] if it may
    /// succeed.
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError>;

    /// Returns whether an attempt never waits, so that no task is necessary for it.
    fn completes_at_once(&self, _item: &WorkItem) -> bool {
        false
    }

    /// Returns the provider as one whose attempts run in another process; `None`: they do not.
    fn remote(&self) -> Option<&dyn RemoteProvider> {
        None
    }

    /// Returns whether the provider has published each result as an event when it returns it.
    fn publishes_results(&self) -> bool {
        false
    }

    /// Invalidates data that was fetched from the upstream. Called after a configuration reload,
    /// even if nothing changed here.
    fn refresh(&self) {}

    /// Checks at the start of a node whether the system supports what the configuration requires.
    ///
    /// # Errors
    /// If the node must not start: the missing part and the remedy.
    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns whether [`Provider::probe`] can determine the result of an earlier attempt of this
    /// effect.
    fn can_probe(&self, _effect: &EffectName) -> bool {
        false
    }

    /// Probes the upstream for the result of an earlier attempt whose response was lost. It must
    /// not execute the effect. Called any number of times; the caller enforces the timeout of an
    /// attempt.
    async fn probe(&self, _item: &WorkItem, _probe: Probe) -> ProbeResult {
        ProbeResult::Unknown
    }

    /// Called with the final outcome when the item is not retried any more. If a result already
    /// exists elsewhere, the provider returns it, and it replaces the outcome.
    async fn abandon(&self, _item: &WorkItem, _outcome: &WorkOutcome) -> ProbeResult {
        ProbeResult::Unknown
    }
}

/// Provider whose attempts run in another process, which may report its own span.
#[async_trait]
pub trait RemoteProvider: Send + Sync {
    /// Makes one attempt, as [`Provider::execute`]. Its timeout counts from the last call of
    /// [`AttemptStart::start`]; without a call, only the deadline of the item ends the attempt, and
    /// the item was not executed. When the future is dropped, the work cannot start any more.
    async fn execute_remotely(
        &self,
        item: &WorkItem,
        attempt: Attempt,
        start: &AttemptStart,
    ) -> RemoteResult;

    /// Ends the current attempt of an item if its work has not started: another process continues
    /// with the item.
    fn recall(&self, _item: &WorkItem) {}
}

/// Result of an attempt in another process.
#[derive(Debug, PartialEq)]
pub struct RemoteResult {
    /// Reply or error.
    pub result: Result<Reply, ProviderError>,
    /// Span of the execution, if the process reports it.
    pub trace: Option<TraceParent>,
    /// Receipt, if the process waits until the result is stored.
    pub receipt: Option<ResultReceipt>,
    /// Attempts of the other process, if its first one did not succeed.
    pub attempt_log: Option<Box<AttemptLog>>,
    /// Whether the other process may have executed the attempt before, without a result.
    pub in_doubt: bool,
}

impl RemoteResult {
    /// Returns the facts to publish with the result.
    #[must_use]
    pub fn facts(&self) -> &[Fact] {
        match &self.result {
            Ok(reply) => &reply.facts,
            Err(ProviderError::Permanent { facts, .. }) => {
                facts.as_ref().map_or(&[][..], |facts| &facts.0)
            }
            Err(ProviderError::Abandoned { .. } | ProviderError::Transient { .. }) => &[],
        }
    }
}

impl From<Result<Reply, ProviderError>> for RemoteResult {
    fn from(result: Result<Reply, ProviderError>) -> Self {
        Self {
            result,
            trace: None,
            receipt: None,
            attempt_log: None,
            in_doubt: false,
        }
    }
}

/// Current attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Attempt number, from 1 for the first since the process started; a reload of the upstream
    /// does not reset it.
    pub number: u32,
    /// Timeout of this attempt; the caller enforces it.
    pub timeout: Duration,
    /// Start time.
    pub at: Timestamp,
    /// Whether an earlier attempt may have been executed.
    pub in_doubt: bool,
}

/// Current probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Timeout of this probe; the caller enforces it.
    pub timeout: Duration,
    /// Start time.
    pub at: Timestamp,
}

/// Reply of a successful attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Success event, if the provider specifies one.
    pub event: Option<EventType>,
    /// Response of the upstream.
    pub payload: Value,
    /// Schema version of the response.
    pub schema_version: u32,
    /// Facts to publish with the result.
    pub facts: Vec<Fact>,
}

impl Default for Reply {
    fn default() -> Self {
        Self::from(Value::Null)
    }
}

impl Reply {
    /// Creates a reply with this success event.
    #[must_use]
    pub fn with_event(event: EventType, payload: Value) -> Self {
        Self {
            event: Some(event),
            ..Self::from(payload)
        }
    }

    /// Sets the schema version of the response. Default: 1.
    #[must_use]
    pub fn with_version(self, schema_version: u32) -> Self {
        Self {
            schema_version,
            ..self
        }
    }

    /// Adds facts to publish. The facts of the final attempt are published exactly once when its
    /// result is stored, even if the saga rejects the result.
    #[must_use]
    pub fn with_facts(mut self, facts: impl IntoIterator<Item = Fact>) -> Self {
        self.facts.extend(facts);
        self
    }
}

impl From<Value> for Reply {
    fn from(payload: Value) -> Self {
        Self {
            event: None,
            payload,
            schema_version: 1,
            facts: Vec::new(),
        }
    }
}

/// Error of an attempt that failed or is in doubt.
#[derive(Clone, Debug, PartialEq)]
pub enum ProviderError {
    /// A retry is pointless.
    Permanent {
        /// Failure.
        failure: Failure,
        /// Failure event, if the provider specifies one.
        event: Option<EventType>,
        /// Response of the upstream.
        payload: Value,
        /// Facts to publish with the result; `None`: no facts.
        facts: Option<Box<ErrorFacts>>,
        /// What the error decides.
        scope: RejectionScope,
    },
    /// The remote executor abandoned the effect: the outcome is unknown, and a retry is pointless.
    Abandoned {
        /// Failure.
        failure: Failure,
    },
    /// A retry may succeed.
    Transient {
        /// Failure.
        failure: Failure,
        /// Cause of the error.
        trouble: TransientCause,
        /// Delay that the upstream requested.
        retry_after: Option<Duration>,
        /// Response of the upstream, for the record of the attempt.
        payload: Value,
    },
}

/// Facts of a permanent error. Boxed, because most errors have none and each attempt returns a
/// result of their size.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorFacts(pub(crate) Vec<Fact>);

impl ErrorFacts {
    /// Returns the facts of an error; `None` if there are none.
    #[must_use]
    pub fn of(facts: Vec<Fact>) -> Option<Box<Self>> {
        (!facts.is_empty()).then(|| Box::new(Self(facts)))
    }
}

/// What a permanent error decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionScope {
    /// The effect: no attempt under its idempotency key was executed. Functions, workers, scripts,
    /// databases with markers, and rules about responses decide so.
    Effect,
    /// The attempt: an earlier one in doubt may have been executed. A proxy can reject the later
    /// one, or the upstream rejects what it has already executed.
    Attempt,
}

/// Cause of a transient error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransientCause {
    /// The upstream works but throttles the call: not executed, and not counted by the breaker.
    Throttled,
    /// The upstream is unreachable, or its own rules say that it did not execute the call.
    Unavailable,
    /// The response says that the upstream is unavailable. A proxy in front of it may have sent the
    /// response after it forwarded the call: in doubt.
    ReportedUnavailable,
    /// The response says that a limit is exceeded, and may follow the execution: in doubt, and not
    /// counted by the breaker.
    ReportedThrottled,
    /// The response was lost: in doubt. The executor probes before the next attempt.
    ResponseLost,
    /// The attempt could not determine whether an earlier one was executed, and executed nothing:
    /// in doubt. The `in_doubt` policy decides.
    Undetermined,
}

impl TransientCause {
    /// Returns whether the call may have been executed.
    pub(crate) fn is_in_doubt(self) -> bool {
        match self {
            Self::Throttled | Self::Unavailable => false,
            Self::ReportedThrottled
            | Self::ReportedUnavailable
            | Self::ResponseLost
            | Self::Undetermined => true,
        }
    }
}

impl ProviderError {
    /// Creates a permanent error.
    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        let failure = failure(code, message);
        Self::Permanent {
            failure,
            event: None,
            payload: Value::Null,
            facts: None,
            scope: RejectionScope::Effect,
        }
    }

    /// Creates a permanent error with a failure event.
    pub fn permanent_with_event(
        event: EventType,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let failure = failure(code, message);
        Self::Permanent {
            failure,
            event: Some(event),
            payload: Value::Null,
            facts: None,
            scope: RejectionScope::Effect,
        }
    }

    /// Limits a permanent error to its attempt: it says nothing about earlier ones.
    #[must_use]
    pub fn of_attempt(mut self) -> Self {
        if let Self::Permanent { scope, .. } = &mut self {
            *scope = RejectionScope::Attempt;
        }
        self
    }

    /// Creates the error of a decision other than success.
    pub(crate) fn decided(
        decision: Decision,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let trouble = match decision {
            Decision::Failed | Decision::Declined => return Self::permanent(code, message),
            Decision::Abandoned => {
                let failure = failure(code, message);
                return Self::Abandoned { failure };
            }
            Decision::Throttled => TransientCause::Throttled,
            Decision::Unavailable => TransientCause::Unavailable,
            Decision::ReportedThrottled => TransientCause::ReportedThrottled,
            Decision::ReportedUnavailable => TransientCause::ReportedUnavailable,
            // A success that has no result.
            Decision::ResponseLost | Decision::Succeeded => TransientCause::ResponseLost,
        };
        Self::transient(trouble, code, message)
    }

    /// Creates a transient error: not executed; a retry may succeed.
    pub fn unavailable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::transient(TransientCause::Unavailable, code, message)
    }

    /// Creates a transient error: the response says that the upstream is unavailable, and may be
    /// that of a proxy. The outcome is unknown.
    pub fn reported_unavailable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::transient(TransientCause::ReportedUnavailable, code, message)
    }

    /// Creates a transient error: not executed because the upstream throttled the call.
    pub fn throttled(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::transient(TransientCause::Throttled, code, message)
    }

    /// Creates a transient error: the outcome is unknown.
    pub fn response_lost(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::transient(TransientCause::ResponseLost, code, message)
    }

    /// Creates a transient error: unknown whether an earlier attempt was executed; this one
    /// executed nothing.
    pub fn undetermined(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::transient(TransientCause::Undetermined, code, message)
    }

    /// Adds the response of the upstream; an abandoned effect has none.
    #[must_use]
    pub fn with_payload(mut self, response: Value) -> Self {
        if let Self::Permanent { payload, .. } | Self::Transient { payload, .. } = &mut self {
            *payload = response;
        }
        self
    }

    /// Returns the response of the upstream.
    #[must_use]
    pub fn payload(&self) -> Option<&Value> {
        match self {
            Self::Permanent { payload, .. } | Self::Transient { payload, .. } => Some(payload),
            Self::Abandoned { .. } => None,
        }
    }

    /// Adds facts as [`Reply::with_facts`] does; a transient error ignores them.
    #[must_use]
    pub fn with_facts(mut self, emitted: impl IntoIterator<Item = Fact>) -> Self {
        if let Self::Permanent { facts, .. } = &mut self {
            let earlier = facts.take().map_or_else(Vec::new, |facts| facts.0);
            *facts = ErrorFacts::of(earlier.into_iter().chain(emitted).collect());
        }
        self
    }

    /// Sets the minimum delay before the next attempt, if there is one; a permanent error ignores
    /// it.
    #[must_use]
    pub fn with_retry_after(mut self, delay: impl Into<Option<Duration>>) -> Self {
        if let Self::Transient { retry_after, .. } = &mut self {
            *retry_after = delay.into();
        }
        self
    }

    /// Returns the failure.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        match self {
            Self::Permanent { failure, .. }
            | Self::Abandoned { failure }
            | Self::Transient { failure, .. } => failure,
        }
    }

    pub(crate) fn failure_mut(&mut self) -> &mut Failure {
        match self {
            Self::Permanent { failure, .. }
            | Self::Abandoned { failure }
            | Self::Transient { failure, .. } => failure,
        }
    }

    fn transient(
        trouble: TransientCause,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::Transient {
            failure: failure(code, message),
            trouble,
            retry_after: None,
            payload: Value::Null,
        }
    }
}

fn failure(code: impl Into<String>, message: impl Into<String>) -> Failure {
    Failure {
        code: code.into(),
        message: message.into(),
    }
}

/// Returns the effect of an item. The catalog routes no other work to a provider of effects.
pub(crate) fn effect_of(item: &WorkItem) -> Result<&Effect, ProviderError> {
    item.work.effect().ok_or_else(|| {
        ProviderError::permanent(
            "not_an_effect",
            format!("{} is not an effect", item.work.label()),
        )
    })
}

/// Result of a probe for an earlier attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeResult {
    /// The effect was executed.
    Done(Reply),
    /// The effect failed permanently or was abandoned.
    Failed(ProviderError),
    /// The effect was not executed.
    NotDone,
    /// There is no result yet. Another process may execute the effect, and another attempt is
    /// harmless: it determines itself whether an earlier one was executed.
    Pending,
    /// The upstream could not be asked, or has no final answer yet. The executor probes again.
    Unanswered {
        /// Reason.
        failure: Failure,
        /// Delay that the upstream requested.
        retry_after: Option<Duration>,
    },
    /// The outcome is unknown, and another probe is pointless.
    Unknown,
}

impl ProbeResult {
    /// Returns the result of a probe that failed: unanswered after a transient error, otherwise
    /// unknown.
    #[must_use]
    pub fn from_error(error: ProviderError) -> Self {
        match error {
            ProviderError::Transient {
                failure,
                retry_after,
                ..
            } => Self::Unanswered {
                failure,
                retry_after,
            },
            ProviderError::Permanent { .. } | ProviderError::Abandoned { .. } => Self::Unknown,
        }
    }
}
