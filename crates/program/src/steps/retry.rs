//! Retries of an action: the policy in the language, and its compiled form.

use orlog_model::{RetryPolicy, Timestamp};

use super::time_limit::{CompiledTimeLimit, TimeLimit};
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::expression::{Bindings, EvalError};
use crate::language::{Count, language_map};

language_map! {
    /// Retries of an action.
    pub struct RetrySpec as "retry" {
        may "max_attempts" max_attempts: Option<u32> = Count<1>, "Maximum number of attempts.";
        may "initial_backoff" initial_backoff: Option<TimeLimit> = TimeLimit,
            "Delay before the second attempt, a duration or an expression; it doubles for each \
             further attempt.";
    }
}

/// Compiled retry policy.
#[derive(Debug, Default)]
pub(crate) struct CompiledRetry {
    pub(crate) max_attempts: Option<u32>,
    pub(crate) initial_backoff: Option<CompiledTimeLimit>,
}

impl CompiledRetry {
    pub(crate) fn compile(
        compiler: &mut ExpressionCompiler<'_>,
        site: Site<'_>,
        retry: Option<&RetrySpec>,
    ) -> Option<Self> {
        let retry = retry?;
        let backoff = retry.initial_backoff.as_ref();
        let initial_backoff =
            CompiledTimeLimit::compile(compiler, site, "retry.initial_backoff", backoff);
        Some(Self {
            max_attempts: retry.max_attempts,
            initial_backoff,
        })
    }

    /// Returns the policy of work that is requested now.
    pub(crate) fn evaluate(
        &self,
        now: Timestamp,
        bindings: &Bindings<'_>,
    ) -> Result<RetryPolicy, EvalError> {
        let backoff = self
            .initial_backoff
            .as_ref()
            .map(|backoff| backoff.evaluate(now, bindings))
            .transpose()?;
        Ok(RetryPolicy {
            max_attempts: self.max_attempts,
            initial_backoff: backoff,
        })
    }
}
