//! Effects that are Rust functions in this process.
//!
//! A function that only computes or writes to memory is registered with [`Native::plain`] and sees the work item by
//! reference; one that awaits is registered with [`Native::effect`] and owns its call. A function that panics counts as
//! one that failed and may be tried again: one bad call does not fell the process.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use orlog_model::{Effect, EffectName, InstanceKey, Timestamp, TraceParent, Work, WorkItem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::policy::Policy;
use crate::provider::{Attempt, Provider, Refusal, Reply};
use crate::upstream::Upstream;

/// What an asynchronous function is given.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeCall {
    /// The idempotency key: the same for all attempts.
    pub key: Uuid,
    /// Who asked.
    pub instance: InstanceKey,
    /// Which effect.
    pub effect: EffectName,
    /// Arguments.
    pub payload: Value,
    /// Which attempt.
    pub attempt: Attempt,
    /// Not begun after this.
    pub deadline: Option<Timestamp>,
    /// W3C trace context.
    pub trace: Option<TraceParent>,
}

/// What a plain function is given.
#[derive(Clone, Copy, Debug)]
pub struct PlainCall<'a> {
    /// The whole item; its id is the idempotency key.
    pub item: &'a WorkItem,
    /// Its effect, with the arguments.
    pub effect: &'a Effect,
    /// Which attempt.
    pub attempt: Attempt,
}

type Plain = dyn Fn(PlainCall<'_>) -> Result<Reply, Refusal> + Send + Sync;
type Awaiting = dyn Fn(NativeCall) -> BoxFuture<'static, Result<Reply, Refusal>> + Send + Sync;

enum Function {
    Plain(Box<Plain>),
    Awaiting(Box<Awaiting>),
}

/// Functions by the names of the effects they perform.
#[derive(Default)]
pub struct Native {
    functions: BTreeMap<EffectName, Function>,
}

impl Native {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an asynchronous function. It answers with a JSON value or a [`Reply`], or refuses.
    ///
    /// # Panics
    /// When `name` is no effect name or is taken: both are mistakes in the program that calls this.
    #[must_use]
    #[track_caller]
    pub fn effect<F, Fut, R>(self, name: &str, function: F) -> Self
    where
        F: Fn(NativeCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Refusal>> + Send + 'static,
        R: Into<Reply>,
    {
        self.add(
            name,
            Function::Awaiting(Box::new(move |call| function(call).map(|r| r.map(Into::into)).boxed())),
        )
    }

    /// Adds an asynchronous function with typed arguments and answer. Arguments that do not fit are refused for good with
    /// the code `bad_payload`.
    ///
    /// # Panics
    /// As [`Native::effect`].
    #[must_use]
    #[track_caller]
    pub fn typed<I, O, F, Fut>(self, name: &str, function: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(I, NativeCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Refusal>> + Send + 'static,
    {
        let function = Arc::new(function);
        self.effect(name, move |mut call| {
            let function = Arc::clone(&function);
            async move {
                let input = I::deserialize(&call.payload).map_err(|error| {
                    Refusal::failed("bad_payload", format!("arguments of {}: {error}", call.effect))
                })?;
                call.payload = Value::Null;
                let output = function(input, call).await?;
                serde_json::to_value(output).map_err(|error| Refusal::failed("bad_answer", error.to_string()))
            }
        })
    }

    /// Adds a function that is done as soon as it returns. It must not block.
    ///
    /// # Panics
    /// As [`Native::effect`].
    #[must_use]
    #[track_caller]
    pub fn plain<F, R>(self, name: &str, function: F) -> Self
    where
        F: Fn(PlainCall<'_>) -> Result<R, Refusal> + Send + Sync + 'static,
        R: Into<Reply>,
    {
        self.add(name, Function::Plain(Box::new(move |call| function(call).map(Into::into))))
    }

    /// The effects, in the order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.functions.keys().cloned().collect()
    }

    /// An upstream of these functions.
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
impl Provider for Native {
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal> {
        let Work::Effect(effect) = &item.work else {
            return Err(Refusal::failed("not_an_effect", format!("{} is no effect", item.work.label())));
        };
        let outcome = match self.functions.get(&effect.name) {
            Some(Function::Plain(function)) => {
                catch_unwind(AssertUnwindSafe(|| function(PlainCall { item, effect, attempt })))
            }
            Some(Function::Awaiting(function)) => {
                let begun = AssertUnwindSafe(async { function(owned(item, effect, attempt)).await });
                begun.catch_unwind().await
            }
            None => {
                return Err(Refusal::failed(
                    "effect_unknown",
                    format!("no function performs {}", effect.name),
                ));
            }
        };
        outcome.unwrap_or_else(|panic| Err(panicked(effect, panic.as_ref())))
    }
}

fn owned(item: &WorkItem, effect: &Effect, attempt: Attempt) -> NativeCall {
    NativeCall {
        key: item.id,
        instance: item.instance.clone(),
        effect: effect.name.clone(),
        payload: effect.payload.clone(),
        attempt,
        deadline: item.deadline,
        trace: item.trace.clone(),
    }
}

/// How far it came is not known, hence lost.
fn panicked(effect: &Effect, panic: &(dyn std::any::Any + Send)) -> Refusal {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Refusal::lost("panicked", format!("the function of {} panicked: {text}", effect.name))
}
