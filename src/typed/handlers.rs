//! Handlers by the effects they perform, and how they run.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_effect::{Native, NativeCall, Policy, Refusal, Reply};
use orlog_model::{EffectName, EventType};
use orlog_program::{Compiled, Program};
use serde_json::Value;

use super::handler::{Call, Compensation, Declined, Event, Handler, data};
use super::mapping::{Declared, Mapping, Misfits, map};
use crate::app::Seams;

/// The handlers of a program.
#[derive(Default)]
pub struct Handlers {
    native: Native,
    declared: BTreeMap<EffectName, Declared>,
}

impl Handlers {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler of steps.
    ///
    /// # Panics
    /// When its effect or one of its events has no valid name, or the effect is taken: mistakes in the calling program.
    #[must_use]
    #[track_caller]
    pub fn handler<H: Handler>(self, handler: H) -> Self {
        let kind = |name| EventType::new(name).expect("handlers declare events under valid names");
        let (ok, fail) = (kind(H::Ok::TYPE), (!H::Fail::TYPE.is_empty()).then(|| kind(H::Fail::TYPE)));
        let declared = Declared::Step { ok: ok.clone(), fail: fail.clone() };
        let handler = Arc::new(handler);
        self.add(H::EFFECT, declared, move |call| {
            let (handler, ok, fail) = (Arc::clone(&handler), ok.clone(), fail.clone());
            async move {
                let mut call = Call::new(call);
                let answer = handler.handle(call.command()?, &mut call).await;
                let facts = call.into_facts();
                match answer {
                    Ok(event) => Ok(Reply::event(ok, data(event)?).telling(facts)),
                    Err(Declined::Event(event)) => Err(declined(fail, data(event)?).telling(facts)),
                    Err(Declined::Fault(refusal)) => Err(refusal.telling(facts)),
                }
            }
        })
    }

    /// Adds a handler of undos.
    ///
    /// # Panics
    /// As [`Handlers::handler`].
    #[must_use]
    #[track_caller]
    pub fn compensation<C: Compensation>(self, compensation: C) -> Self {
        let compensation = Arc::new(compensation);
        self.add(C::EFFECT, Declared::Undo, move |call| {
            let compensation = Arc::clone(&compensation);
            async move { compensation.undo(Call::new(call).command()?).await.map(|()| Reply::default()) }
        })
    }

    #[track_caller]
    fn add<F, Fut>(mut self, effect: &str, declared: Declared, run: F) -> Self
    where
        F: Fn(NativeCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, Refusal>> + Send + 'static,
    {
        self.native = self.native.effect(effect, run);
        self.declared.insert(EffectName::new(effect).expect("it was registered under it just now"), declared);
        self
    }

    /// Which handler serves which saga and steps.
    ///
    /// # Errors
    /// Everything that does not fit.
    pub fn mapping(&self, sagas: &[Arc<Compiled>]) -> Result<Mapping, Misfits> {
        map(&self.declared, sagas)
    }

    /// What [`crate::App::start_with`] needs to run these sagas with these handlers, which are one upstream.
    ///
    /// # Errors
    /// As [`Handlers::mapping`].
    pub fn seams(self, sagas: Vec<Arc<Compiled>>, policy: Policy) -> Result<Seams, Misfits> {
        self.mapping(&sagas)?;
        let programs = sagas.into_iter().map(|saga| saga as Arc<dyn Program>).collect();
        Ok(Seams { programs, upstreams: vec![self.native.upstream("handlers", policy)], ..Seams::default() })
    }
}

/// The event's type is the code; its `message` or `reason` says why.
fn declined(fail: Option<EventType>, data: Value) -> Refusal {
    let kind = fail.expect("an event of failure without a name is `NoFailure`, which nobody can make");
    let why = ["message", "reason"].iter().find_map(|field| data.get(field)?.as_str());
    let why = why.map_or_else(|| kind.to_string(), str::to_owned);
    Refusal::declined(kind.clone(), kind.to_string(), why).with_payload(data)
}
