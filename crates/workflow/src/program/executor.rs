//! Provider of a node that performs tasks and compensations with the functions of the workflows.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use orlog_effect::{Attempt, Provider, ProviderError, Reply};
use orlog_model::{Effect, EffectName, Failure, WorkItem, format_duration};
use serde_json::Value as Json;

use super::effects::{COMPENSATE, millis};
use crate::context::{Context, StepPath};
use crate::definition::Definition;
use crate::error::TaskError;
use crate::graph::{StepId, StepKind};
use crate::machine::panic_message;
use crate::value::Value;

/// Function of an effect.
pub(super) struct LocalFunction {
    pub(super) definition: Arc<Definition>,
    pub(super) step: StepId,
    pub(super) role: Role,
}

/// Role of a function in its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Task,
    Undo,
    UndoUnknown,
}

/// Functions by effect and version of the workflow.
#[derive(Default)]
pub(super) struct TaskProvider {
    pub(super) functions: BTreeMap<(EffectName, u32), LocalFunction>,
}

#[async_trait]
impl Provider for TaskProvider {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let effect =
            item.work.effect().ok_or_else(|| ProviderError::permanent("no_effect", "not an effect"))?;
        let function =
            self.functions.get(&(effect.name.clone(), effect.schema_version)).ok_or_else(|| {
                let (name, version) = (&effect.name, effect.schema_version);
                let message = format!(
                    "no workflow of version {version} that performs {name} is deployed; deploy it too"
                );
                ProviderError::permanent("effect_unknown", message)
            })?;
        function.execute(item, effect, attempt).await
    }
}

impl LocalFunction {
    async fn execute(
        &self,
        item: &WorkItem,
        effect: &Effect,
        attempt: Attempt,
    ) -> Result<Reply, ProviderError> {
        let call = AssertUnwindSafe(self.call(item, effect, attempt)).catch_unwind();
        let result = match self.timeout() {
            None => call.await,
            Some(timeout) => {
                tokio::time::timeout(timeout, call).await.map_err(|_| self.timed_out(timeout))?
            }
        };
        let result = result.unwrap_or_else(|panic| Err(TaskError::retryable(panic_message(&*panic))));
        let output = result.map_err(|error| failed(&error, effect, attempt))?;
        let output = output.json().map_err(|error| ProviderError::permanent("invalid_result", error))?;
        Ok(Reply::from(output))
    }

    fn call(
        &self,
        item: &WorkItem,
        effect: &Effect,
        attempt: Attempt,
    ) -> BoxFuture<'static, Result<Value, TaskError>> {
        let functions = self.definition.task(self.step).expect("only tasks are registered").clone();
        let context = self.context(item, effect, attempt);
        let payload = |field: &str| Value::Json(effect.payload.get(field).cloned().unwrap_or_default());
        let (undo, output) = match self.role {
            Role::Task => return functions.task.run(context, Value::Json(effect.payload.clone())),
            Role::Undo => (functions.undo, Some(payload("output"))),
            Role::UndoUnknown => (functions.undo_unknown, None),
        };
        let undo = undo.expect("only compensations that exist are registered");
        let result = undo.run(context, payload("input"), output);
        result.map(|result| result.map(|()| Value::Json(Json::Null))).boxed()
    }

    fn context(&self, item: &WorkItem, effect: &Effect, attempt: Attempt) -> Context {
        let step = self.definition.step_name(self.step);
        let tag = effect.tag.as_str();
        let indexes = StepPath::indexes(tag.strip_prefix(COMPENSATE).unwrap_or(tag), &step);
        Context {
            instance: item.instance.correlation.as_str().into(),
            workflow: Arc::clone(&self.definition.name),
            path: StepPath { step, indexes },
            attempt: attempt.number,
            deadline_ms: self.timeout().map(|timeout| millis(attempt.at.saturating_add(timeout))),
            key: Some(item.id),
        }
    }

    /// Returns the limit of one attempt.
    fn timeout(&self) -> Option<Duration> {
        match self.definition.step(self.step).map(|step| &step.kind) {
            Some(StepKind::Task(policy)) => policy.timeout_ms.map(Duration::from_millis),
            _ => None,
        }
    }

    /// Returns the error of an attempt that did not end in time. The outcome of a task is unknown then, so it has no further attempt;
    /// a compensation is repeated.
    fn timed_out(&self, timeout: Duration) -> ProviderError {
        let step = self.definition.step_name(self.step);
        let message = format!("\"{step}\" did not end within {}", format_duration(timeout));
        match self.role {
            Role::Task => {
                ProviderError::Abandoned { failure: Failure { code: "timeout".to_owned(), message } }
            }
            Role::Undo | Role::UndoUnknown => ProviderError::response_lost("timeout", message),
        }
    }
}

/// Returns the error of an attempt. The last attempt keeps its message.
fn failed(error: &TaskError, effect: &Effect, attempt: Attempt) -> ProviderError {
    let max_attempts = effect.retry.and_then(|retry| retry.max_attempts);
    let is_last = max_attempts.is_some_and(|max| attempt.number >= max);
    if error.is_permanent() || is_last {
        ProviderError::permanent("task_failed", error.message())
    } else {
        ProviderError::unavailable("task_failed", error.message())
    }
}
