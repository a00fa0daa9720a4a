//! Builder of sagas over typed events and handlers.

use std::marker::PhantomData;
use std::sync::Arc;

use orlog_model::{CorrelationId, EventId, EventType, IdError, TenantId, Timestamp};
use orlog_program::{CompiledDefinition, Definition, DefinitionBuilder, Diagnostic, StepAction};
use serde_json::Value;

use super::handler::{Compensation, Event, Handler, Identifier, Trigger};

/// Builder of a saga with the start event `T`. `compensate` applies to the last added step.
#[derive(Debug)]
pub struct Saga<T> {
    builder: DefinitionBuilder,
    trigger: PhantomData<fn(T)>,
}

impl<T: Trigger> Saga<T> {
    /// Creates a definition with version 1.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let builder = Definition::builder(name).start(T::TYPE).correlate(T::Id::FIELD);
        Self { builder, trigger: PhantomData }
    }

    /// Adds a step with its handler; `command` is the template of the command payload.
    #[must_use]
    pub fn step<H: Handler>(self, id: &str, command: Value) -> Self {
        let fail = H::Fail::TYPE;
        let step = |builder: DefinitionBuilder| {
            builder.step(id, StepAction::effect(H::EFFECT).data(command)).ok(H::Ok::TYPE)
        };
        self.with_builder(|builder| if fail.is_empty() { step(builder) } else { step(builder).fail(fail) })
    }

    /// Adds the compensation of the step; `command` is the template of the command payload.
    #[must_use]
    pub fn compensate<C: Compensation>(self, command: Value) -> Self {
        self.with_builder(|builder| builder.undo(StepAction::effect(C::EFFECT).data(command)))
    }

    /// Sets the fact that is published after all steps complete.
    #[must_use]
    pub fn completed<E: Event>(self, data: Value) -> Self {
        self.with_builder(|builder| builder.completed(E::TYPE, data))
    }

    /// Sets the fact that is published after a step failed and the completed steps are compensated.
    #[must_use]
    pub fn failed<E: Event>(self, data: Value) -> Self {
        self.with_builder(|builder| builder.failed(E::TYPE, data))
    }

    /// Applies other builder settings: versions, variables, timeouts, the order of steps.
    #[must_use]
    pub fn with_builder(self, change: impl FnOnce(DefinitionBuilder) -> DefinitionBuilder) -> Self {
        Self { builder: change(self.builder), ..self }
    }

    /// Compiles the definition.
    ///
    /// # Errors
    /// Returns all diagnostics of the definition.
    pub fn build(self) -> Result<Arc<CompiledDefinition>, Vec<Diagnostic>> {
        self.builder.build().map(Arc::new)
    }
}

/// Converts a start event into an event to publish.
///
/// # Errors
/// Fails if its identifier is empty or too long.
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
        correlation: Some(CorrelationId::for_path(trigger.id().text())?),
        causation: None,
        trace: None,
        schema_version: 1,
        data: serde_json::to_value(trigger).expect("an event serializes to JSON with text keys"),
        user: None,
        attributes: None,
    })
}
