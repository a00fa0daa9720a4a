//! Provider of a node that performs tasks and compensations with the functions of the workflows.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use orlog_effect::{Attempt, Probe, ProbeResult, Provider, ProviderError, Reply};
use orlog_model::{Effect, EffectName, EventType, Fact, Failure, WorkItem, format_duration};
use serde_json::Value as Json;

use super::effects::{COMPENSATE, millis};
use crate::context::{Context, Facts, StepPath};
use crate::definition::Definition;
use crate::error::TaskError;
use crate::function::TaskFunctions;
use crate::graph::{StepId, StepKind};
use crate::machine::panic_message;
use crate::task::{Probed, TaskContract};
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
        let (function, effect) = self.function(item)?;
        function.execute(item, effect, attempt).await
    }

    fn can_probe(&self, effect: &EffectName) -> bool {
        let mut functions = self
            .functions
            .iter()
            .filter(|((name, _), _)| name == effect);
        // Each handler has a probe. Without an own one, it states that the outcome is unknown.
        functions.any(|(_, function)| function.functions().task.contract().is_some())
    }

    async fn probe(&self, item: &WorkItem, probe: Probe) -> ProbeResult {
        let attempt = Attempt {
            number: 0,
            timeout: probe.timeout,
            at: probe.at,
            in_doubt: true,
        };

        match self.function(item) {
            Ok((function, effect)) => function
                .probe(item, effect, attempt)
                .await
                .unwrap_or_else(ProbeResult::from_error),
            Err(error) => ProbeResult::from_error(error),
        }
    }
}

impl TaskProvider {
    fn function<'a>(
        &self,
        item: &'a WorkItem,
    ) -> Result<(&LocalFunction, &'a Effect), ProviderError> {
        let effect = item
            .work
            .effect()
            .ok_or_else(|| ProviderError::permanent("no_effect", "not an effect"))?;

        let function = self
            .functions
            .get(&(effect.name.clone(), effect.schema_version));
        let function = function.ok_or_else(|| {
            let name = &effect.name;
            let version = effect.schema_version;
            let message = format!(
                "no workflow of version {version} that performs {name} is deployed; deploy it too"
            );
            ProviderError::permanent("effect_unknown", message)
        })?;

        Ok((function, effect))
    }
}

impl LocalFunction {
    async fn execute(
        &self,
        item: &WorkItem,
        effect: &Effect,
        attempt: Attempt,
    ) -> Result<Reply, ProviderError> {
        let facts = Facts::default();
        let ok = self.contract().map(|contract| contract.ok);

        let call = AssertUnwindSafe(self.call(effect, self.context(item, effect, attempt, &facts)))
            .catch_unwind();

        let result = match self.timeout() {
            None => call.await,
            Some(timeout) => tokio::time::timeout(timeout, call)
                .await
                .map_err(|_| self.timed_out(timeout))?,
        };

        // A panic says nothing about the effect of the task, so the attempt can be repeated.
        let result =
            result.unwrap_or_else(|panic| Err(TaskError::retryable(panic_message(&*panic))));

        match result {
            Ok(output) => reply(ok, &output, &facts),
            Err(error) => Err(failed(&error, effect, attempt, &facts)),
        }
    }

    /// Asks the handler whether an earlier attempt was executed.
    async fn probe(
        &self,
        item: &WorkItem,
        effect: &Effect,
        attempt: Attempt,
    ) -> Result<ProbeResult, ProviderError> {
        let facts = Facts::default();
        let ok = self.contract().map(|contract| contract.ok);
        let context = self.context(item, effect, attempt, &facts);
        let task = self.functions().task.clone();
        let Some(probe) = task.probe(context, Value::Json(effect.payload.clone())) else {
            return Ok(ProbeResult::Unknown);
        };

        let probed = AssertUnwindSafe(probe).catch_unwind().await;
        let probed =
            probed.unwrap_or_else(|panic| Err(TaskError::retryable(panic_message(&*panic))));

        Ok(
            match probed.map_err(|error| failed(&error, effect, attempt, &facts))? {
                Probed::Executed(output) => ProbeResult::Done(reply(ok, &output, &facts)?),
                Probed::Failed(error) => {
                    ProbeResult::Failed(failed(&error, effect, attempt, &facts))
                }
                Probed::NotExecuted => ProbeResult::NotDone,
                Probed::Unknown => ProbeResult::Unknown,
            },
        )
    }

    fn call(
        &self,
        effect: &Effect,
        context: Context,
    ) -> BoxFuture<'static, Result<Value, TaskError>> {
        let functions = self.functions().clone();
        let payload =
            |field: &str| Value::Json(effect.payload.get(field).cloned().unwrap_or_default());

        let (undo, output) = match self.role {
            Role::Task => {
                return functions
                    .task
                    .run(context, Value::Json(effect.payload.clone()));
            }
            Role::Undo => (functions.undo, Some(payload("output"))),
            Role::UndoUnknown => (functions.undo_unknown, None),
        };

        let undo = undo.expect("only compensations that exist are registered");
        let result = undo.run(context, payload("input"), output);
        result
            .map(|result| result.map(|()| Value::Json(Json::Null)))
            .boxed()
    }

    fn functions(&self) -> &TaskFunctions {
        self.definition
            .task(self.step)
            .expect("only tasks are registered")
    }

    fn contract(&self) -> Option<TaskContract> {
        self.functions()
            .task
            .contract()
            .filter(|_| self.role == Role::Task)
    }

    fn context(
        &self,
        item: &WorkItem,
        effect: &Effect,
        attempt: Attempt,
        facts: &Facts,
    ) -> Context {
        let step = self.definition.step_name(self.step);
        let tag = effect.tag.as_str();
        let indexes = StepPath::indexes(tag.strip_prefix(COMPENSATE).unwrap_or(tag), &step);

        Context {
            instance: item.instance.correlation.as_str().into(),
            workflow: Arc::clone(&self.definition.name),
            path: StepPath { step, indexes },
            attempt: attempt.number,
            deadline_ms: self
                .timeout()
                .map(|timeout| millis(attempt.at.saturating_add(timeout))),
            // The id of the work item, so that all attempts use one key.
            key: Some(item.id),
            facts: Some(Arc::clone(facts)),
        }
    }

    /// Returns the limit of one attempt.
    fn timeout(&self) -> Option<Duration> {
        match self.definition.step(self.step).map(|step| &step.kind) {
            Some(StepKind::Task(policy)) => policy.timeout_ms.map(Duration::from_millis),
            _ => None,
        }
    }

    /// Returns the error of an attempt that did not end in time. The outcome of a task is unknown
    /// then, so it has no further attempt; a compensation is repeated.
    fn timed_out(&self, timeout: Duration) -> ProviderError {
        let step = self.definition.step_name(self.step);
        let message = format!("\"{step}\" did not end within {}", format_duration(timeout));

        match self.role {
            Role::Task => ProviderError::Abandoned {
                failure: Failure {
                    code: "timeout".to_owned(),
                    message,
                },
            },
            Role::Undo | Role::UndoUnknown => ProviderError::response_lost("timeout", message),
        }
    }
}

/// Returns the reply of a task, with its success event if it has a contract.
fn reply(ok: Option<&str>, output: &Value, facts: &Facts) -> Result<Reply, ProviderError> {
    let payload = output
        .json()
        .map_err(|error| ProviderError::permanent("invalid_result", error))?;

    let reply = Reply {
        event: ok.map(event_type).transpose()?,
        ..Reply::from(payload)
    };

    Ok(reply.with_facts(taken(facts)?))
}

/// Returns the error of an attempt. The last attempt keeps its message.
fn failed(error: &TaskError, effect: &Effect, attempt: Attempt, facts: &Facts) -> ProviderError {
    let max_attempts = effect.retry.and_then(|retry| retry.max_attempts);
    let is_last = max_attempts.is_some_and(|max| attempt.number >= max);

    let facts = match taken(facts) {
        Ok(facts) => facts,
        Err(error) => return error,
    };

    match error.failure_event() {
        Some((kind, data)) => match event_type(kind) {
            Ok(event) => ProviderError::permanent_with_event(event, kind, error.message())
                .with_payload(data.clone())
                .with_facts(facts),
            Err(error) => error,
        },
        None if error.is_permanent() || is_last => {
            ProviderError::permanent("task_failed", error.message()).with_facts(facts)
        }
        // Facts of an attempt that is repeated are dropped: the next attempt emits them again.
        None => ProviderError::unavailable("task_failed", error.message()),
    }
}

/// Returns the emitted facts.
fn taken(facts: &Facts) -> Result<Vec<Fact>, ProviderError> {
    let facts = std::mem::take(&mut *facts.lock());
    facts
        .into_iter()
        .map(|(kind, data)| Ok(Fact::new(event_type(kind)?, data)))
        .collect()
}

fn event_type(kind: &str) -> Result<EventType, ProviderError> {
    EventType::for_input(kind)
        .map_err(|error| ProviderError::permanent("invalid_event", error.to_string()))
}
