//! Tasks without types: of handlers, and of effects that are performed elsewhere.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::context::Context;
use crate::error::TaskError;
use crate::event::Event;
#[cfg(feature = "program")]
use crate::handler::ProbeOutcome;
use crate::handler::{Contract, Handler, HandlerError};
use crate::task::{ErasedTask, ErasedUndo};
#[cfg(feature = "program")]
use crate::task::{Probed, TaskContract};
use crate::value::{Data, Value};

/// Task that a handler performs.
pub(crate) struct Handled<H>(H);

impl<H: Handler> Handled<H> {
    pub(crate) fn new(handler: H) -> Arc<Self> {
        Arc::new(Self(handler))
    }
}

impl<H: Handler> ErasedTask for Handled<H> {
    fn run(
        self: Arc<Self>,
        context: Context,
        input: Value,
    ) -> BoxFuture<'static, Result<Value, TaskError>> {
        Box::pin(async move {
            match self.0.handle(&context, input.take()?).await {
                Ok(event) => Ok(Value::new(event)),
                // A decision of the handler is permanent, and a node publishes its event.
                Err(HandlerError::Failure(event)) => Err(TaskError::event(&event)),
                Err(HandlerError::Fault(error)) => Err(error),
            }
        })
    }

    #[cfg(feature = "program")]
    fn check(&self, output: &mut Value) -> Result<(), TaskError> {
        output.typed::<H::Ok>().map(drop)
    }

    #[cfg(feature = "program")]
    fn contract(&self) -> Option<TaskContract> {
        Some(TaskContract::of::<H>())
    }

    #[cfg(feature = "program")]
    fn probe(
        self: Arc<Self>,
        context: Context,
        input: Value,
    ) -> Option<BoxFuture<'static, Result<Probed, TaskError>>> {
        Some(Box::pin(async move {
            Ok(match self.0.probe(&context, input.take()?).await? {
                ProbeOutcome::Executed(event) => Probed::Executed(Value::new(event)),
                ProbeOutcome::Failed(event) => Probed::Failed(TaskError::event(&event)),
                ProbeOutcome::NotExecuted => Probed::NotExecuted,
                ProbeOutcome::Unknown => Probed::Unknown,
            })
        }))
    }
}

/// Task or compensation that is performed elsewhere, with the output of a task.
pub(crate) struct Remote<Out> {
    effect: String,
    #[cfg(feature = "program")]
    contract: Option<TaskContract>,
    output: PhantomData<fn() -> Out>,
}

impl<Out> Remote<Out> {
    pub(crate) fn new(effect: String) -> Arc<Self> {
        Arc::new(Self {
            effect,
            #[cfg(feature = "program")]
            contract: None,
            output: PhantomData,
        })
    }

    fn error(&self) -> TaskError {
        TaskError::permanent(format!(
            "the effect {} is performed elsewhere; deploy the workflow to a node with `on_node`",
            self.effect
        ))
    }
}

impl<Out: Event> Remote<Out> {
    /// Returns the task of a contract.
    pub(crate) fn of<C: Contract<Ok = Out>>() -> Arc<Self> {
        Arc::new(Self {
            effect: C::EFFECT.to_owned(),
            #[cfg(feature = "program")]
            contract: Some(TaskContract::of::<C>()),
            output: PhantomData,
        })
    }
}

impl<Out: Data> ErasedTask for Remote<Out> {
    fn run(self: Arc<Self>, _: Context, _: Value) -> BoxFuture<'static, Result<Value, TaskError>> {
        Box::pin(async move { Err(self.error()) })
    }

    #[cfg(feature = "program")]
    fn check(&self, output: &mut Value) -> Result<(), TaskError> {
        output.typed::<Out>().map(drop)
    }

    #[cfg(feature = "program")]
    fn remote(&self) -> Option<&str> {
        Some(&self.effect)
    }

    #[cfg(feature = "program")]
    fn contract(&self) -> Option<TaskContract> {
        self.contract
    }
}

impl ErasedUndo for Remote<()> {
    fn run(
        self: Arc<Self>,
        _: Context,
        _: Value,
        _: Option<Value>,
    ) -> BoxFuture<'static, Result<(), TaskError>> {
        Box::pin(async move { Err(self.error()) })
    }

    #[cfg(feature = "program")]
    fn remote(&self) -> Option<&str> {
        Some(&self.effect)
    }
}
