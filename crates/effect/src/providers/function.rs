//! Effects that are Rust functions in this process.
//!
//! A function that only computes or writes to memory is registered with
//! [`FunctionProvider::sync_effect`] and borrows the work item. An async function is registered
//! with [`FunctionProvider::effect`] and owns its call. A panic counts as a failure that may be
//! retried: it does not stop the process.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use orlog_model::{Effect, EffectName, InstanceKey, Timestamp, TraceParent, WorkItem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::policy::Policy;
use crate::provider::{Attempt, Probe, ProbeResult, Provider, ProviderError, Reply, effect_of};
use crate::upstream::Upstream;

/// Call of an asynchronous function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionCall {
    /// Idempotency key: equal for all attempts.
    pub idempotency_key: Uuid,
    /// Instance that requested the effect.
    pub instance: InstanceKey,
    /// Name of the effect.
    pub effect: EffectName,
    /// Arguments.
    pub payload: Value,
    /// Schema version of the arguments.
    pub schema_version: u32,
    /// Current attempt; its number is 0 in a probe.
    pub attempt: Attempt,
    /// No attempt starts after this time.
    pub deadline: Option<Timestamp>,
    /// W3C trace context.
    pub trace: Option<TraceParent>,
}

/// Call of a synchronous function.
#[derive(Clone, Copy, Debug)]
pub struct SyncFunctionCall<'a> {
    /// Complete work item; its id is the idempotency key.
    pub item: &'a WorkItem,
    /// Effect with its arguments.
    pub effect: &'a Effect,
    /// Current attempt.
    pub attempt: Attempt,
}

type SyncFunction = dyn Fn(SyncFunctionCall<'_>) -> Result<Reply, ProviderError> + Send + Sync;
type AsyncFunction =
    dyn Fn(FunctionCall) -> BoxFuture<'static, Result<Reply, ProviderError>> + Send + Sync;
type ProbeFunction = dyn Fn(FunctionCall) -> BoxFuture<'static, ProbeResult> + Send + Sync;

enum Function {
    Sync(Box<SyncFunction>),
    Async(Box<AsyncFunction>),
}

/// Functions by effect name.
#[derive(Default)]
pub struct FunctionProvider {
    functions: BTreeMap<EffectName, Function>,
    probes: BTreeMap<EffectName, Box<ProbeFunction>>,
}

impl FunctionProvider {
    /// Creates a provider without functions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an asynchronous function. It returns a JSON value, a [`Reply`] or an error.
    ///
    /// # Panics
    /// If `name` is not a valid effect name or is already registered: both are bugs of the caller.
    #[must_use]
    #[track_caller]
    pub fn effect<F, Fut, R>(self, name: &str, function: F) -> Self
    where
        F: Fn(FunctionCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ProviderError>> + Send + 'static,
        R: Into<Reply>,
    {
        self.add(
            name,
            Function::Async(Box::new(move |call| {
                function(call).map(|r| r.map(Into::into)).boxed()
            })),
        )
    }

    /// Adds an asynchronous function with typed arguments and result. Arguments of another type
    /// fail permanently with the code `invalid_payload`.
    ///
    /// # Panics
    /// As [`FunctionProvider::effect`].
    #[must_use]
    #[track_caller]
    pub fn typed<I, O, F, Fut>(self, name: &str, function: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(I, FunctionCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ProviderError>> + Send + 'static,
    {
        let function = Arc::new(function);
        self.effect(name, move |mut call| {
            let function = Arc::clone(&function);
            async move {
                let input = I::deserialize(&call.payload).map_err(|error| {
                    ProviderError::permanent(
                        "invalid_payload",
                        format!("invalid arguments of {}: {error}", call.effect),
                    )
                })?;
                // Released before the function runs, which can take long.
                call.payload = Value::Null;

                let output = function(input, call).await?;
                serde_json::to_value(output)
                    .map_err(|error| ProviderError::permanent("invalid_result", error.to_string()))
            }
        })
    }

    /// Adds a synchronous function. It must not block.
    ///
    /// # Panics
    /// As [`FunctionProvider::effect`].
    #[must_use]
    #[track_caller]
    pub fn sync_effect<F, R>(self, name: &str, function: F) -> Self
    where
        F: Fn(SyncFunctionCall<'_>) -> Result<R, ProviderError> + Send + Sync + 'static,
        R: Into<Reply>,
    {
        self.add(
            name,
            Function::Sync(Box::new(move |call| function(call).map(Into::into))),
        )
    }

    /// Adds a function that returns whether an earlier call of the effect under the same key was
    /// executed. It must not execute the effect.
    ///
    /// # Panics
    /// If the effect is not registered, or already has such a function: both are bugs of the
    /// caller.
    #[must_use]
    #[track_caller]
    pub fn probe<F, Fut>(mut self, name: &str, function: F) -> Self
    where
        F: Fn(FunctionCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ProbeResult> + Send + 'static,
    {
        let registered = self
            .functions
            .keys()
            .find(|effect| effect.as_str() == name)
            .cloned();

        let effect = registered.expect("a probe belongs to a registered effect");
        let earlier = self
            .probes
            .insert(effect, Box::new(move |call| function(call).boxed()));

        assert!(earlier.is_none(), "the effect {name} has two probes");
        self
    }

    /// Returns the effects in order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.functions.keys().cloned().collect()
    }

    /// Creates an upstream of these functions.
    pub fn upstream(self, name: impl Into<String>, policy: Policy) -> Upstream {
        Upstream::effects(name, self.effects(), Arc::new(self), policy)
    }

    #[track_caller]
    fn add(mut self, name: &str, function: Function) -> Self {
        let name = EffectName::new(name).expect("effects are registered under valid names");
        let earlier = self.functions.insert(name.clone(), function);
        assert!(earlier.is_none(), "the effect {name} is registered twice");
        self
    }
}

#[async_trait]
impl Provider for FunctionProvider {
    fn completes_at_once(&self, item: &WorkItem) -> bool {
        let function = item
            .work
            .effect()
            .and_then(|effect| self.functions.get(&effect.name));
        matches!(function, Some(Function::Sync(_)))
    }

    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let effect = effect_of(item)?;

        // A panic must not stop the process.
        let outcome = match self.functions.get(&effect.name) {
            Some(Function::Sync(function)) => catch_unwind(AssertUnwindSafe(|| {
                function(SyncFunctionCall {
                    item,
                    effect,
                    attempt,
                })
            })),
            Some(Function::Async(function)) => {
                let call = AssertUnwindSafe(async { function(owned(item, effect, attempt)).await });
                call.catch_unwind().await
            }
            None => {
                return Err(ProviderError::permanent(
                    "effect_unknown",
                    format!("no function is registered for {}", effect.name),
                ));
            }
        };

        outcome.unwrap_or_else(|panic| Err(panicked(effect, panic.as_ref())))
    }

    fn can_probe(&self, effect: &EffectName) -> bool {
        self.probes.contains_key(effect)
    }

    async fn probe(&self, item: &WorkItem, probe: Probe) -> ProbeResult {
        let effect = item.work.effect();
        let found = effect.and_then(|effect| Some((effect, self.probes.get(&effect.name)?)));
        let Some((effect, function)) = found else {
            return ProbeResult::Unknown;
        };

        let attempt = Attempt {
            number: 0,
            timeout: probe.timeout,
            at: probe.at,
            in_doubt: true,
        };

        // A panic of the probe says nothing about the effect.
        let call = AssertUnwindSafe(async { function(owned(item, effect, attempt)).await });
        let result = call.catch_unwind().await;
        result.unwrap_or_else(|panic| ProbeResult::from_error(panicked(effect, panic.as_ref())))
    }
}

fn owned(item: &WorkItem, effect: &Effect, attempt: Attempt) -> FunctionCall {
    FunctionCall {
        idempotency_key: item.id,
        instance: item.instance.clone(),
        effect: effect.name.clone(),
        payload: effect.payload.clone(),
        schema_version: effect.schema_version,
        attempt,
        deadline: item.deadline,
        trace: item.trace.clone(),
    }
}

/// Maps a panic. The progress of the function is unknown, so the response counts as lost.
fn panicked(effect: &Effect, panic: &(dyn std::any::Any + Send)) -> ProviderError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");

    ProviderError::response_lost(
        "panicked",
        format!("the function of {} panicked: {text}", effect.name),
    )
}
