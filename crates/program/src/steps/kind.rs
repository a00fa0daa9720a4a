//! What the compiler, the lints and the step machine require of a kind of action.

use orlog_model::{
    CorrelationId, EffectName, EventType, InDoubtPolicy, InstanceKey, Name, ParentEndPolicy,
    RetryPolicy, SagaName, TaskSpec, Timestamp, WaitKind, Work,
};
use serde_json::{Map, Value};
use std::time::Duration;

use super::priority::CompiledPriority;
use super::retry::CompiledRetry;
use super::time_limit::CompiledTimeLimit;
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::expression::{Bindings, EvalError, Expression};
use crate::language::{Decoder, FieldSchema, Fields};
use crate::template::Template;
use crate::versions::CompiledVersions;

/// What completes an action.
///
/// | completion | success | failure | in a compensation |
/// |---|---|---|---|
/// | acceptance | an `ok` event, else acceptance | rejection, `fail` event, timeout | the same |
/// | outcome | the result of its work | the result of its work | without `ok` and `fail` |
/// | user | an outcome that a user selects | the same, timeout | the same |
/// | event | an event | a `fail` event, timeout | never |
/// | timer | the timer | never | never |
/// | none | completes when it starts | no case matches | never |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    Acceptance,
    Outcome,
    User,
    Event,
    Timer,
    None,
}

/// Properties of a kind of action.
#[derive(Debug)]
pub(crate) struct KindTraits {
    /// Display name with its article.
    pub(crate) label: &'static str,
    pub(crate) completion: Completion,
    /// A provider or a worker executes it: it is retried by them, and its outcome can be in doubt.
    pub(crate) is_effect: bool,
    /// It changes something outside the saga.
    pub(crate) changes: bool,
    /// Event handlers may request it.
    pub(crate) in_handlers: bool,
    /// What an instance displays while it waits for the action, unless it waits for events.
    pub(crate) wait: WaitKind,
}

impl KindTraits {
    /// Creates the properties of a kind that neither is an effect nor changes anything outside.
    pub(crate) const fn new(label: &'static str, completion: Completion) -> Self {
        let wait = match completion {
            Completion::User => WaitKind::Task,
            Completion::Timer => WaitKind::Timer,
            Completion::Acceptance | Completion::Outcome | Completion::Event | Completion::None => {
                WaitKind::WorkResult
            }
        };
        Self {
            label,
            completion,
            is_effect: false,
            changes: false,
            in_handlers: false,
            wait,
        }
    }

    /// Returns true if actions of the kind ignore this field of a step.
    pub(crate) fn lacks(&self, field: &str) -> bool {
        match self.completion {
            Completion::Acceptance | Completion::Outcome | Completion::User => false,
            Completion::Event => field == "ok",
            Completion::Timer => matches!(
                field,
                "ok" | "fail" | "save" | "timeout" | "on_timeout" | "on_failure"
            ),
            Completion::None => {
                matches!(
                    field,
                    "ok" | "fail"
                        | "save"
                        | "timeout"
                        | "on_timeout"
                        | "on_failure"
                        | "undo"
                        | "foreach"
                )
            }
        }
    }

    pub(crate) fn is_retried(&self) -> bool {
        self.completion == Completion::Acceptance || self.is_effect
    }

    /// Returns true if the saga publishes its named results, because no other component does.
    pub(crate) fn reports_named_result(&self) -> bool {
        self.is_effect || self.completion == Completion::User
    }

    /// Returns true if nothing happens that a compensation could reverse.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.completion, Completion::Timer | Completion::None)
    }
}

/// Name that an action contains.
pub(crate) struct UsedName<'a> {
    /// Kind of the name: `command`, `effect`.
    pub(crate) kind: &'static str,
    pub(crate) name: &'a str,
    /// Field of the action.
    pub(crate) field: String,
}

impl<'a> UsedName<'a> {
    pub(crate) fn new(kind: &'static str, name: &'a str, field: &str) -> Self {
        Self {
            kind,
            name,
            field: field.to_owned(),
        }
    }
}

/// Kind of action in the language.
pub(crate) trait ActionForm {
    const TRAITS: KindTraits;
    /// Label in diagnostics of the decoder, with its article.
    const LABEL: &'static str = Self::TRAITS.label;
    /// Fields of its map; the first names the kind.
    const FIELDS: &'static [FieldSchema];
    type Compiled: CompiledKind;

    /// Decodes the fields of a map.
    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self>
    where
        Self: Sized;

    /// Compiles the templates and checks the constants.
    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> Self::Compiled;
}

/// Action of a definition.
pub(crate) trait DefinedAction {
    /// Returns its names, for subjects.
    fn names(&self) -> Vec<UsedName<'_>> {
        Vec::new()
    }

    /// Returns the steps that must be finished first, each with its field.
    fn required_steps(&self) -> Vec<(&'static str, &Name)> {
        Vec::new()
    }

    /// Returns the duration if it is known.
    fn duration(&self) -> Option<Duration> {
        None
    }
}

/// Compiled action of one kind, without its result options.
pub(crate) trait CompiledKind {
    /// Creates the request that starts the action or the compensation.
    fn request(&self, context: &RequestContext<'_>) -> Result<Request, EvalError>;

    /// Returns what cancels an outstanding request.
    fn cancellation(&self, outstanding: &OutstandingRequest<'_>) -> Option<Cancellation> {
        let _ = outstanding;
        None
    }

    /// Returns the policy for its child saga if the step is abandoned.
    fn on_parent_end(&self) -> ParentEndPolicy {
        ParentEndPolicy::Stop
    }

    /// Returns the effect that it requests and its arguments.
    fn effect(&self) -> Option<(&EffectName, &Template)> {
        None
    }

    /// Returns the accepted versions of its responses; `None`: all.
    fn responses(&self) -> Option<&CompiledVersions> {
        None
    }
}

/// Limits and result options of an action.
#[derive(Debug, Default)]
pub(crate) struct ActionOptions {
    pub(crate) timeout: Option<CompiledTimeLimit>,
    pub(crate) ok: Vec<CompiledMatcher>,
    pub(crate) fail: Vec<CompiledMatcher>,
    pub(crate) retry: Option<CompiledRetry>,
    pub(crate) in_doubt: Option<InDoubtPolicy>,
    pub(crate) priority: CompiledPriority,
}

/// Named result and its condition.
#[derive(Debug)]
pub(crate) struct CompiledMatcher {
    pub(crate) event: EventType,
    pub(crate) when: Option<Expression>,
}

/// Values from which a request is created.
pub(crate) struct RequestContext<'a> {
    pub(crate) key: &'a InstanceKey,
    pub(crate) now: Timestamp,
    pub(crate) step: &'a Name,
    pub(crate) tag: &'a Name,
    pub(crate) round: u64,
    /// Version with which a start request began the runs of this state in an ended instance.
    pub(crate) start_version: Option<u64>,
    /// Number of the run of the instance, from 1.
    pub(crate) run: u32,
    /// Attempts after the first.
    pub(crate) retries: u32,
    pub(crate) options: &'a ActionOptions,
    pub(crate) limits: RequestLimits,
    /// Environment of all jobs.
    pub(crate) env: &'a [(String, Template)],
    /// Results of jobs, by step.
    pub(crate) results: Option<&'a Map<String, Value>>,
    pub(crate) bindings: &'a Bindings<'a>,
}

/// Limits of one request: the values of the time limits of its options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestLimits {
    pub(crate) timeout: Option<Duration>,
    /// Hint to the provider.
    pub(crate) retry: Option<RetryPolicy>,
}

impl ActionOptions {
    /// Returns the limits of a request that begins now.
    pub(crate) fn limits(
        &self,
        is_effect: bool,
        now: Timestamp,
        bindings: &Bindings<'_>,
    ) -> Result<RequestLimits, EvalError> {
        // The machine itself retries other actions than effects and jobs, and evaluates the delay
        // when it schedules the retry.
        let retry = self.retry.as_ref().filter(|_| is_effect);

        Ok(RequestLimits {
            timeout: self
                .timeout
                .as_ref()
                .map(|timeout| timeout.evaluate(now, bindings))
                .transpose()?,
            retry: retry
                .map(|retry| retry.evaluate(now, bindings))
                .transpose()?,
        })
    }
}

/// Request of an action.
pub(crate) enum Request {
    Work(Box<Work>),
    Task(Box<OpenedTask>),
    /// The action completes at this time.
    Until(Timestamp),
    Nothing,
}

/// An opened task, and its escalation time.
pub(crate) struct OpenedTask {
    pub(crate) spec: TaskSpec,
    pub(crate) escalates: Option<Timestamp>,
}

/// Outstanding request of a step.
pub(crate) struct OutstandingRequest<'a> {
    pub(crate) saga: &'a SagaName,
    pub(crate) step: &'a Name,
    /// Child saga in progress.
    pub(crate) child: Option<CorrelationId>,
}

/// Cancellation of an outstanding request.
pub(crate) enum Cancellation {
    CloseTask,
    Work(Work),
}

/// Reason why a step cannot start.
pub(crate) struct StartError {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// Failure code of an expression error in the definition; a retry would not help.
pub(crate) const EXPRESSION_ERROR: &str = "expression_error";

/// Failure code of a compensation that would be requested with null instead of the value of a step.
pub const UNDO_WITHOUT_VALUE: &str = "undo_without_value";

impl From<EvalError> for StartError {
    fn from(error: EvalError) -> Self {
        Self {
            code: EXPRESSION_ERROR.to_owned(),
            message: error.to_string(),
        }
    }
}
