//! A saga over typed events and handlers.

use std::marker::PhantomData;
use std::sync::Arc;

use orlog_model::{CorrelationId, EventId, EventType, IdError, TenantId, Timestamp};
use orlog_program::{Builder, Compiled, Definition, Do, Problem};
use serde_json::Value;

use super::handler::{Compensation, Event, Handler, Identifier, Trigger};

/// Builds a saga that `T` begins. What `undo` says is about the step named last.
#[derive(Debug)]
pub struct Saga<T> {
    builder: Builder,
    trigger: PhantomData<fn(T)>,
}

impl<T: Trigger> Saga<T> {
    /// Begins a definition with version 1.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let builder = Definition::builder(name).start(T::TYPE).correlate(T::Id::FIELD);
        Self { builder, trigger: PhantomData }
    }

    /// A step that a handler does; `command` is the template of what it is told.
    #[must_use]
    pub fn step<H: Handler>(self, id: &str, command: Value) -> Self {
        let fail = H::Fail::TYPE;
        let step = |builder: Builder| builder.step(id, Do::effect(H::EFFECT).data(command)).ok(H::Ok::TYPE);
        self.tune(|builder| if fail.is_empty() { step(builder) } else { step(builder).fail(fail) })
    }

    /// What undoes the step; `command` is the template of what it is told.
    #[must_use]
    pub fn undo<C: Compensation>(self, command: Value) -> Self {
        self.tune(|builder| builder.undo(Do::effect(C::EFFECT).data(command)))
    }

    /// The fact that every step is done.
    #[must_use]
    pub fn completed<E: Event>(self, data: Value) -> Self {
        self.tune(|builder| builder.completed(E::TYPE, data))
    }

    /// The fact that a step failed and everything done was undone.
    #[must_use]
    pub fn failed<E: Event>(self, data: Value) -> Self {
        self.tune(|builder| builder.failed(E::TYPE, data))
    }

    /// Everything else that the language knows: versions, variables, timeouts, the order of steps.
    #[must_use]
    pub fn tune(self, change: impl FnOnce(Builder) -> Builder) -> Self {
        Self { builder: change(self.builder), ..self }
    }

    /// Compiles it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn build(self) -> Result<Arc<Compiled>, Vec<Problem>> {
        self.builder.build().map(Arc::new)
    }
}

/// A trigger as an event to publish.
///
/// # Errors
/// When its identifier is empty or too long.
pub fn event<T: Trigger>(
    trigger: &T,
    id: EventId,
    source: &str,
    time: Timestamp,
) -> Result<orlog_model::Event, IdError> {
    Ok(orlog_model::Event {
        id,
        tenant: TenantId::default(),
        kind: EventType::new(T::TYPE)?,
        source: source.to_owned(),
        subject: None,
        time,
        correlation: Some(CorrelationId::new(trigger.id().text())?),
        causation: None,
        trace: None,
        schema_version: 1,
        data: serde_json::to_value(trigger).expect("an event is plain data with text keys"),
    })
}
