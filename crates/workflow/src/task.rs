//! Tasks and compensations: the functions of a workflow, and their form without types.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::context::Context;
use crate::error::TaskError;
#[cfg(feature = "program")]
use crate::event::Event as _;
#[cfg(feature = "program")]
use crate::handler::Contract;
use crate::value::{Data, Value};

/// Task that takes `In`: an `async fn(&Context, In) -> Result<Out, TaskError>`, or a type with
/// state.
///
/// A task can be executed more than once: after an error according to its retry policy, and after a
/// crash. Use [`Context::idempotency_key`] for calls that must have one effect.
///
/// ```
/// use orlog_workflow::{Context, Task, TaskError};
///
/// async fn double(_: &Context, number: u32) -> Result<u32, TaskError> {
///     Ok(number * 2)
/// }
///
/// struct Add(u32);
///
/// impl Task<u32> for Add {
///     type Out = u32;
///
///     async fn run(&self, _: &Context, number: u32) -> Result<u32, TaskError> {
///         Ok(number + self.0)
///     }
/// }
///
/// let _ = orlog_workflow::Workflow::builder("sum")
///     .then("double", double)
///     .then("add", Add(1))
///     .build()?;
/// # Ok::<(), orlog_workflow::BuildError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "this step receives `{In}`, but `{Self}` is not a task for `{In}`",
    label = "not a task with the input `{In}`",
    note = "a task is `async fn(&Context, {In}) -> Result<Out, TaskError>`; its input is the \
            output of the step before it"
)]
pub trait Task<In>: Send + Sync + 'static {
    /// Output of the task.
    type Out;

    /// Executes the task.
    fn run(
        &self,
        context: &Context,
        input: In,
    ) -> impl Future<Output = Result<Self::Out, TaskError>> + Send;
}

/// Function whose future may borrow the context:
/// `async fn(&Context, In) -> Result<Out, TaskError>`.
pub trait TaskFn<'a, In>: Send + Sync + 'static {
    /// Output of the function.
    type Out;
    /// Future of the function.
    type Future: Future<Output = Result<Self::Out, TaskError>> + Send + 'a;

    /// Calls the function.
    fn call(&self, context: &'a Context, input: In) -> Self::Future;
}

impl<'a, F, In, Fut, Out> TaskFn<'a, In> for F
where
    F: Fn(&'a Context, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, TaskError>> + Send + 'a,
{
    type Out = Out;
    type Future = Fut;

    fn call(&self, context: &'a Context, input: In) -> Fut {
        self(context, input)
    }
}

#[diagnostic::do_not_recommend]
impl<F, In, Out> Task<In> for F
where
    F: for<'a> TaskFn<'a, In, Out = Out> + Send + Sync + 'static,
    In: Send,
{
    type Out = Out;

    fn run(
        &self,
        context: &Context,
        input: In,
    ) -> impl Future<Output = Result<Out, TaskError>> + Send {
        self.call(context, input)
    }
}

/// Compensation of a task: an `async fn(&Context, In, Out) -> Result<(), TaskError>` with input and
/// output of the task, or a type with state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a compensation of a task from `{In}` to `{Out}`",
    label = "not a compensation with the input `{In}` and the output `{Out}`",
    note = "a compensation is `async fn(&Context, {In}, {Out}) -> Result<(), TaskError>`"
)]
pub trait Compensation<In, Out>: Send + Sync + 'static {
    /// Compensates the task.
    fn run(
        &self,
        context: &Context,
        input: In,
        output: Out,
    ) -> impl Future<Output = Result<(), TaskError>> + Send;
}

/// Function with three arguments whose future may borrow the context.
pub trait CompensationFn<'a, In, Out>: Send + Sync + 'static {
    /// Future of the function.
    type Future: Future<Output = Result<(), TaskError>> + Send + 'a;

    /// Calls the function.
    fn call(&self, context: &'a Context, input: In, output: Out) -> Self::Future;
}

impl<'a, F, In, Out, Fut> CompensationFn<'a, In, Out> for F
where
    F: Fn(&'a Context, In, Out) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), TaskError>> + Send + 'a,
{
    type Future = Fut;

    fn call(&self, context: &'a Context, input: In, output: Out) -> Fut {
        self(context, input, output)
    }
}

#[diagnostic::do_not_recommend]
impl<F, In, Out> Compensation<In, Out> for F
where
    F: for<'a> CompensationFn<'a, In, Out> + Send + Sync + 'static,
    In: Send,
    Out: Send,
{
    fn run(
        &self,
        context: &Context,
        input: In,
        output: Out,
    ) -> impl Future<Output = Result<(), TaskError>> + Send {
        self.call(context, input, output)
    }
}

/// Task without types.
pub(crate) trait ErasedTask: Send + Sync {
    fn run(
        self: Arc<Self>,
        context: Context,
        input: Value,
    ) -> BoxFuture<'static, Result<Value, TaskError>>;

    /// Returns whether an output has the type of the task.
    #[cfg(feature = "program")]
    fn check(&self, output: &mut Value) -> Result<(), TaskError>;

    /// Returns the effect that performs the task elsewhere; `None`: this process performs it.
    #[cfg(feature = "program")]
    fn remote(&self) -> Option<&str> {
        None
    }

    /// Returns the contract of the task, if it has one.
    #[cfg(feature = "program")]
    fn contract(&self) -> Option<TaskContract> {
        None
    }

    /// Returns whether an earlier attempt was executed; `None` if the task cannot tell.
    #[cfg(feature = "program")]
    fn probe(
        self: Arc<Self>,
        _context: Context,
        _input: Value,
    ) -> Option<BoxFuture<'static, Result<Probed, TaskError>>> {
        None
    }
}

/// Contract without types.
#[cfg(feature = "program")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskContract {
    pub(crate) effect: &'static str,
    pub(crate) ok: &'static str,
    /// Type of the failure event; `None` if the task cannot fail by decision.
    pub(crate) fail: Option<&'static str>,
}

#[cfg(feature = "program")]
impl TaskContract {
    pub(crate) fn of<C: Contract>() -> Self {
        let fail = Some(C::Fail::TYPE).filter(|kind| !kind.is_empty());
        Self {
            effect: C::EFFECT,
            ok: C::Ok::TYPE,
            fail,
        }
    }
}

/// Outcome of an earlier attempt, without types.
#[cfg(feature = "program")]
pub(crate) enum Probed {
    Executed(Value),
    Failed(TaskError),
    NotExecuted,
    Unknown,
}

/// Compensation without types. The output is `None` if the outcome of the task is unknown.
pub(crate) trait ErasedUndo: Send + Sync {
    /// Returns the effect that performs the compensation elsewhere; `None`: this process performs
    /// it.
    #[cfg(feature = "program")]
    fn remote(&self) -> Option<&str> {
        None
    }

    fn run(
        self: Arc<Self>,
        context: Context,
        input: Value,
        output: Option<Value>,
    ) -> BoxFuture<'static, Result<(), TaskError>>;
}

/// Task with the types that it is called with.
pub(crate) struct Typed<T, In, Out>(pub(crate) T, pub(crate) PhantomData<fn(In) -> Out>);

impl<T, In, Out> Typed<T, In, Out> {
    pub(crate) fn new(task: T) -> Arc<Self> {
        Arc::new(Self(task, PhantomData))
    }
}

impl<T: Task<In>, In: Data> ErasedTask for Typed<T, In, ()>
where
    T::Out: Data,
{
    fn run(
        self: Arc<Self>,
        context: Context,
        input: Value,
    ) -> BoxFuture<'static, Result<Value, TaskError>> {
        Box::pin(async move { self.0.run(&context, input.take()?).await.map(Value::new) })
    }

    #[cfg(feature = "program")]
    fn check(&self, output: &mut Value) -> Result<(), TaskError> {
        output.typed::<T::Out>().map(drop)
    }
}

/// Closure without context, whose input is taken from a value by a function.
pub(crate) struct Closure<F, In> {
    pub(crate) closure: F,
    pub(crate) take: fn(Value) -> Result<In, TaskError>,
}

impl<F, In, Fut, Out> ErasedTask for Closure<F, In>
where
    F: Fn(In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, TaskError>> + Send,
    In: Send + 'static,
    Out: Data,
{
    fn run(
        self: Arc<Self>,
        _: Context,
        input: Value,
    ) -> BoxFuture<'static, Result<Value, TaskError>> {
        Box::pin(async move { (self.closure)((self.take)(input)?).await.map(Value::new) })
    }

    #[cfg(feature = "program")]
    fn check(&self, output: &mut Value) -> Result<(), TaskError> {
        output.typed::<Out>().map(drop)
    }
}

impl<U: Compensation<In, Out>, In: Data, Out: Data> ErasedUndo for Typed<U, In, Out> {
    fn run(
        self: Arc<Self>,
        context: Context,
        input: Value,
        output: Option<Value>,
    ) -> BoxFuture<'static, Result<(), TaskError>> {
        Box::pin(async move {
            // Only the compensation for an unknown outcome is called without an output.
            let output = output
                .ok_or_else(|| TaskError::permanent("the output of the task is not stored"))?;
            self.0.run(&context, input.take()?, output.take()?).await
        })
    }
}

/// Compensation of a task with an unknown outcome: it has no output.
pub(crate) struct WithoutOutput<T, In>(T, PhantomData<fn(In)>);

impl<T, In> WithoutOutput<T, In> {
    pub(crate) fn new(task: T) -> Arc<Self> {
        Arc::new(Self(task, PhantomData))
    }
}

impl<T: Task<In, Out = ()>, In: Data> ErasedUndo for WithoutOutput<T, In> {
    fn run(
        self: Arc<Self>,
        context: Context,
        input: Value,
        _: Option<Value>,
    ) -> BoxFuture<'static, Result<(), TaskError>> {
        Box::pin(async move { self.0.run(&context, input.take()?).await })
    }
}
