//! Handlers: they perform steps, answer with events and know nothing of workflows.

use crate::context::Context;
use crate::error::TaskError;
use crate::event::Event;
use crate::value::Data;

/// Contract of a step: its effect, and the types of its command and its events.
pub trait Contract: Send + Sync + 'static {
    /// Name of the effect, for example `payments.charge`.
    const EFFECT: &'static str;
    /// Command: the input of the step.
    type Command: Data;
    /// Success event: the output of the step.
    type Ok: Event;
    /// Failure event; [`crate::NoFailure`] if the step cannot fail by decision.
    type Fail: Event;
}

/// Handler of a step. It must be idempotent: a repeated call returns the same result. One handler
/// performs one step of one workflow; a node checks it at the start.
///
/// ```
/// use orlog_workflow::{Context, Contract, Event, Handler, HandlerError, Workflow};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Charged { receipt: String }
/// impl Event for Charged { const TYPE: &'static str = "Charged"; }
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Declined { reason: String }
/// impl Event for Declined { const TYPE: &'static str = "Declined"; }
///
/// struct Charge;
///
/// impl Contract for Charge {
///     const EFFECT: &'static str = "payments.charge";
///     type Command = u32;
///     type Ok = Charged;
///     type Fail = Declined;
/// }
///
/// impl Handler for Charge {
///     async fn handle(
///         &self,
///         _: &Context,
///         amount: u32,
///     ) -> Result<Charged, HandlerError<Declined>> {
///         if amount > 100 {
///             return Err(HandlerError::Failure(Declined { reason: "limit exceeded".to_owned() }));
///         }
///         Ok(Charged { receipt: format!("receipt for {amount}") })
///     }
/// }
///
/// let _ = Workflow::builder("order").handle("charge", Charge).build()?;
/// # Ok::<(), orlog_workflow::BuildError>(())
/// ```
pub trait Handler: Contract {
    /// Performs the step.
    ///
    /// # Errors
    /// [`HandlerError::Failure`] if the step fails by decision, [`HandlerError::Fault`] for any
    /// other reason.
    fn handle(
        &self,
        context: &Context,
        command: Self::Command,
    ) -> impl Future<Output = Result<Self::Ok, HandlerError<Self::Fail>>> + Send;

    /// Returns whether an earlier call under the same idempotency key was executed, without
    /// executing the step. A node calls it after a crash and after an attempt with an unknown
    /// outcome. Facts of the earlier call must be emitted again. Default: unknown.
    ///
    /// # Errors
    /// A retryable error repeats the probe. After a permanent one the outcome is unknown.
    fn probe(
        &self,
        _context: &Context,
        _command: Self::Command,
    ) -> impl Future<Output = Result<ProbeOutcome<Self::Ok, Self::Fail>, TaskError>> + Send {
        async { Ok(ProbeOutcome::Unknown) }
    }
}

/// Reason why a handler did not complete its step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerError<F> {
    /// The step failed by decision, as the event states. It is not retried.
    Failure(F),
    /// The step could not be performed.
    Fault(TaskError),
}

impl<F> From<TaskError> for HandlerError<F> {
    fn from(error: TaskError) -> Self {
        Self::Fault(error)
    }
}

impl<F, E: std::error::Error> From<E> for HandlerError<F> {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

/// Outcome of an earlier call of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
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
