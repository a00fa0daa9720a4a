//! Registry of handlers by effect, and their execution.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProbeResult, ProviderError, Reply};
use orlog_model::{EffectName, EventType};
use orlog_program::{CompiledDefinition, Program};
use serde_json::Value;

use super::handler::{Compensation, Event, Handler, HandlerContext, HandlerError, ProbeOutcome, data};
use super::mapping::{HandlerDeclaration, HandlerSagaMapping, MappingErrors, build_mapping};
use crate::app::AppOverrides;

/// Handlers of a program.
#[derive(Default)]
pub struct Handlers {
    native: FunctionProvider,
    declared: BTreeMap<EffectName, HandlerDeclaration>,
}

impl Handlers {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step handler.
    ///
    /// # Panics
    /// Panics if its effect or an event has an invalid name, or if the effect already has a handler. Both
    /// are programming errors.
    #[must_use]
    #[track_caller]
    pub fn handler<H: Handler>(self, handler: H) -> Self {
        let kind = |name| EventType::new(name).expect("handlers declare events with valid names");
        let (ok, fail) = (kind(H::Ok::TYPE), (!H::Fail::TYPE.is_empty()).then(|| kind(H::Fail::TYPE)));
        let declared = HandlerDeclaration::Step { ok: ok.clone(), fail: fail.clone() };
        let handler = Arc::new(handler);
        let (probed, probed_ok, probed_fail) = (Arc::clone(&handler), ok.clone(), fail.clone());
        let mut handlers = self.add(H::EFFECT, declared, move |call| {
            let (handler, ok, fail) = (Arc::clone(&handler), ok.clone(), fail.clone());
            async move {
                let mut call = HandlerContext::new(call);
                let result = handler.handle(call.command()?, &mut call).await;
                let facts = call.into_facts();
                match result {
                    Ok(event) => Ok(Reply::with_event(ok, data(event)?).with_facts(facts)),
                    Err(HandlerError::Failure(event)) => {
                        Err(provider_error(fail, data(event)?).with_facts(facts))
                    }
                    Err(HandlerError::Provider(error)) => Err(error.with_facts(facts)),
                }
            }
        });
        handlers.native =
            handlers.native.probe(H::EFFECT, move |call| {
                let (handler, ok, fail) = (Arc::clone(&probed), probed_ok.clone(), probed_fail.clone());
                async move {
                    probe(handler.as_ref(), ok, fail, call).await.unwrap_or_else(ProbeResult::from_error)
                }
            });
        handlers
    }

    /// Adds a compensation handler.
    ///
    /// # Panics
    /// Same as [`Handlers::handler`].
    #[must_use]
    #[track_caller]
    pub fn compensation<C: Compensation>(self, compensation: C) -> Self {
        let compensation = Arc::new(compensation);
        self.add(C::EFFECT, HandlerDeclaration::Compensation, move |call| {
            let compensation = Arc::clone(&compensation);
            async move {
                compensation.compensate(HandlerContext::new(call).command()?).await.map(|()| Reply::default())
            }
        })
    }

    #[track_caller]
    fn add<F, Fut>(mut self, effect: &str, declared: HandlerDeclaration, run: F) -> Self
    where
        F: Fn(FunctionCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, ProviderError>> + Send + 'static,
    {
        self.native = self.native.effect(effect, run);
        self.declared.insert(
            EffectName::new(effect).expect("the effect name was validated at registration"),
            declared,
        );
        self
    }

    /// Returns the sagas and steps of each handler.
    ///
    /// # Errors
    /// Returns all mapping errors.
    pub fn mapping(&self, sagas: &[Arc<CompiledDefinition>]) -> Result<HandlerSagaMapping, MappingErrors> {
        build_mapping(&self.declared, sagas)
    }

    /// Returns the overrides for [`crate::App::start_with`] that run these sagas with these handlers as one
    /// upstream.
    ///
    /// # Errors
    /// Same as [`Handlers::mapping`].
    pub fn overrides(
        self,
        sagas: Vec<Arc<CompiledDefinition>>,
        policy: Policy,
    ) -> Result<AppOverrides, MappingErrors> {
        self.mapping(&sagas)?;
        let programs = sagas.into_iter().map(|saga| saga as Arc<dyn Program>).collect();
        Ok(AppOverrides {
            programs,
            upstreams: vec![self.native.upstream("handlers", policy)],
            ..AppOverrides::default()
        })
    }
}

/// Probes a handler, and converts the outcome.
async fn probe<H: Handler>(
    handler: &H,
    ok: EventType,
    fail: Option<EventType>,
    call: FunctionCall,
) -> Result<ProbeResult, ProviderError> {
    let mut call = HandlerContext::new(call);
    let outcome = handler.probe(call.command()?, &mut call).await?;
    let facts = call.into_facts();
    Ok(match outcome {
        ProbeOutcome::Executed(event) => {
            ProbeResult::Done(Reply::with_event(ok, data(event)?).with_facts(facts))
        }
        ProbeOutcome::Failed(event) => {
            ProbeResult::Failed(provider_error(fail, data(event)?).with_facts(facts))
        }
        ProbeOutcome::NotExecuted => ProbeResult::NotDone,
        ProbeOutcome::Unknown => ProbeResult::Unknown,
    })
}

/// Converts a failure event: its type is the code; its `message` or `reason` is the reason.
fn provider_error(fail: Option<EventType>, data: Value) -> ProviderError {
    let kind = fail.expect("a failure event without a name is `NoFailure`, which has no values");
    let reason = ["message", "reason"].iter().find_map(|field| data.get(field)?.as_str());
    let reason = reason.map_or_else(|| kind.to_string(), str::to_owned);
    ProviderError::permanent_with_event(kind.clone(), kind.to_string(), reason).with_payload(data)
}
