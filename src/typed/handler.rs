//! The traits of what a typed saga is made of.

use async_trait::async_trait;
use orlog_effect::{Attempt, NativeCall, Refusal};
use orlog_model::{EventType, Fact, TenantId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// An event as a Rust type.
pub trait Event: Serialize + DeserializeOwned + Send + 'static {
    /// Its name, for example `OrderPlaced`.
    const TYPE: &'static str;
}

/// What the events of one saga instance share.
pub trait Identifier {
    /// The field, a path with dots, in which events carry it.
    const FIELD: &'static str;

    /// It as text, at most 256 bytes.
    fn text(&self) -> String;
}

/// An event that begins a saga.
pub trait Trigger: Event {
    /// The type of its identifier.
    type Id: Identifier;

    /// To which instance it belongs.
    fn id(&self) -> Self::Id;
}

/// Does a step. It may be asked again for what it has done already and must then answer the same.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// The name of the effect it performs, for example `payments.charge`.
    const EFFECT: &'static str;
    /// What it is told.
    type Command: DeserializeOwned + Send;
    /// The event of its success.
    type Ok: Event;
    /// The event of its failure; [`NoFailure`] where it has none.
    type Fail: Event;

    /// Does it.
    ///
    /// # Errors
    /// [`Declined::Event`] when it decides against it; [`Declined::Fault`] when something is in the way.
    async fn handle(&self, command: Self::Command, call: &mut Call)
    -> Result<Self::Ok, Declined<Self::Fail>>;
}

/// The call that a handler answers: what there is to know of it, and a way to tell everybody something besides the answer.
#[derive(Debug)]
pub struct Call {
    native: NativeCall,
    facts: Vec<Fact>,
}

impl Call {
    pub(super) fn new(native: NativeCall) -> Self {
        Self { native, facts: Vec::new() }
    }

    /// The idempotency key: the same for all attempts.
    #[must_use]
    pub fn key(&self) -> Uuid {
        self.native.key
    }

    /// Whose call it is.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.native.instance.tenant
    }

    /// Which attempt, and how long it may take.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.native.attempt
    }

    /// Tells everybody of something that is not the answer. It goes out exactly once, when the answer is stored, whatever
    /// the saga makes of that; what is told before a fault is not told.
    ///
    /// # Errors
    /// A final refusal, when the event is no JSON.
    pub fn tell<E: Event>(&mut self, event: E) -> Result<(), Refusal> {
        let kind =
            EventType::new(E::TYPE).map_err(|error| Refusal::failed("bad_answer", error.to_string()))?;
        self.facts.push(Fact { kind, data: data(event)? });
        Ok(())
    }

    pub(super) fn command<C: DeserializeOwned>(&self) -> Result<C, Refusal> {
        C::deserialize(&self.native.payload).map_err(|error| {
            Refusal::failed("bad_payload", format!("arguments of {}: {error}", self.native.effect))
        })
    }

    pub(super) fn into_facts(self) -> Vec<Fact> {
        self.facts
    }
}

pub(super) fn data(event: impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(event).map_err(|error| Refusal::failed("bad_answer", error.to_string()))
}

/// Undoes a step. It may be asked again for what it has undone already.
#[async_trait]
pub trait Compensation: Send + Sync + 'static {
    /// The name of the effect it performs, for example `payments.refund`.
    const EFFECT: &'static str;
    /// What it is told: identifiers.
    type Command: DeserializeOwned + Send;

    /// Undoes it.
    ///
    /// # Errors
    /// When something is in the way. A final refusal leaves the saga stuck, for a person to decide.
    async fn undo(&self, command: Self::Command) -> Result<(), Refusal>;
}

/// Why a handler did not do its step.
#[derive(Clone, Debug, PartialEq)]
pub enum Declined<F> {
    /// It was decided: the step failed, and the event says so.
    Event(F),
    /// A fault of the world; by its kind it is tried again or the step fails.
    Fault(Refusal),
}

impl<F> From<Refusal> for Declined<F> {
    fn from(fault: Refusal) -> Self {
        Self::Fault(fault)
    }
}

/// The failure of what cannot be declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoFailure {}

impl Event for NoFailure {
    const TYPE: &'static str = "";
}
