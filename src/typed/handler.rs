//! Traits of the parts of a typed saga.

use async_trait::async_trait;
use orlog_effect::{Attempt, FunctionCall, ProviderError};
use orlog_model::{EventType, Fact, TenantId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// Event as a Rust type.
pub trait Event: Serialize + DeserializeOwned + Send + 'static {
    /// Event type, for example `OrderPlaced`.
    const TYPE: &'static str;
}

/// Correlation id that the events of one saga instance share.
pub trait Identifier {
    /// Event field of the identifier, a path with dots.
    const FIELD: &'static str;

    /// Returns the identifier as text, at most 256 bytes.
    fn text(&self) -> String;
}

/// Start event of a saga.
pub trait Trigger: Event {
    /// Type of the identifier.
    type Id: Identifier;

    /// Returns the identifier of the instance.
    fn id(&self) -> Self::Id;
}

/// Handler of a step. It must be idempotent: a repeated call returns the same result.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Name of its effect, for example `payments.charge`.
    const EFFECT: &'static str;
    /// Command payload.
    type Command: DeserializeOwned + Send;
    /// Success event.
    type Ok: Event;
    /// Failure event; [`NoFailure`] if the step cannot fail.
    type Fail: Event;

    /// Executes the step.
    ///
    /// # Errors
    /// [`HandlerError::Failure`] if the step fails by decision; [`HandlerError::Provider`] on a provider
    /// error.
    async fn handle(
        &self,
        command: Self::Command,
        call: &mut HandlerContext,
    ) -> Result<Self::Ok, HandlerError<Self::Fail>>;

    /// Returns whether an earlier call under the same idempotency key was executed, without executing the step.
    /// Called after a crash and after an error with an unknown outcome. Facts that the earlier call emitted must
    /// be emitted again. Default: unknown, so that the `in_doubt` policy decides.
    ///
    /// # Errors
    /// A transient error repeats the probe. After a permanent error the outcome is unknown.
    async fn probe(
        &self,
        _command: Self::Command,
        _call: &mut HandlerContext,
    ) -> Result<ProbeOutcome<Self::Ok, Self::Fail>, ProviderError> {
        Ok(ProbeOutcome::Unknown)
    }
}

/// Outcome of an earlier call of a handler.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeOutcome<O, F> {
    /// The step was executed.
    Executed(O),
    /// The step failed by decision.
    Failed(F),
    /// The step was not executed.
    NotExecuted,
    /// The outcome is unknown.
    Unknown,
}

/// Context of a handler call: its metadata, and a method to emit facts in addition to the result.
#[derive(Debug)]
pub struct HandlerContext {
    call: FunctionCall,
    facts: Vec<Fact>,
}

impl HandlerContext {
    pub(super) fn new(native: FunctionCall) -> Self {
        Self { call: native, facts: Vec::new() }
    }

    /// Returns the idempotency key, which is equal for all attempts.
    #[must_use]
    pub fn idempotency_key(&self) -> Uuid {
        self.call.idempotency_key
    }

    /// Returns the tenant of the instance.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.call.instance.tenant
    }

    /// Returns the attempt with its number and time limit.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.call.attempt
    }

    /// Emits a fact in addition to the result. It is published exactly once, when the result is stored,
    /// even if the saga rejects the result. Facts of an attempt that ends with a provider error are
    /// discarded.
    ///
    /// # Errors
    /// Returns a permanent provider error if the event cannot be serialized as JSON.
    pub fn emit<E: Event>(&mut self, event: E) -> Result<(), ProviderError> {
        let kind = EventType::new(E::TYPE)
            .map_err(|error| ProviderError::permanent("invalid_result", error.to_string()))?;
        self.facts.push(Fact::new(kind, data(event)?));
        Ok(())
    }

    pub(super) fn command<C: DeserializeOwned>(&self) -> Result<C, ProviderError> {
        C::deserialize(&self.call.payload).map_err(|error| {
            ProviderError::permanent("invalid_payload", format!("arguments of {}: {error}", self.call.effect))
        })
    }

    pub(super) fn into_facts(self) -> Vec<Fact> {
        self.facts
    }
}

pub(super) fn data(event: impl Serialize) -> Result<Value, ProviderError> {
    serde_json::to_value(event).map_err(|error| ProviderError::permanent("invalid_result", error.to_string()))
}

/// Handler that compensates a step. It must be idempotent.
#[async_trait]
pub trait Compensation: Send + Sync + 'static {
    /// Name of its effect, for example `payments.refund`.
    const EFFECT: &'static str;
    /// Command payload: identifiers.
    type Command: DeserializeOwned + Send;

    /// Compensates the step.
    ///
    /// # Errors
    /// Fails on a provider error. After a permanent error the saga is stuck and needs an operator.
    async fn compensate(&self, command: Self::Command) -> Result<(), ProviderError>;
}

/// Reason why a handler did not complete its step.
#[derive(Clone, Debug, PartialEq)]
pub enum HandlerError<F> {
    /// The step failed by decision, as the event states.
    Failure(F),
    /// A provider error; its kind determines whether the step is retried or fails.
    Provider(ProviderError),
}

impl<F> From<ProviderError> for HandlerError<F> {
    fn from(fault: ProviderError) -> Self {
        Self::Provider(fault)
    }
}

/// Failure event of a step that cannot fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoFailure {}

impl Event for NoFailure {
    const TYPE: &'static str = "";
}
