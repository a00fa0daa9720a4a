//! Builder of workflows: the output of a step is the input of the next, checked by the compiler.

mod base;
mod fork;
mod part;

use std::sync::Arc;
use std::time::Duration;

pub use self::base::{
    BuildError, Builder, ClosureStep, HasRetry, HasTimeout, NoPolicy, SignalStep, TaskStep,
};
pub use self::fork::{Branches, Fork, IntoFork, Joining, PushBranch};
use crate::definition::Definition;
use crate::error::TaskError;
use crate::function::Function;
use crate::graph::{Graph, StepKind};
use crate::handled::{Handled, Remote};
use crate::handler::{Contract, Handler};
use crate::retry::{Retry, millis};
use crate::task::{Closure, Compensation, Task, Typed, WithoutOutput};
use crate::value::{Data, Value, short_name};
use crate::workflow::Workflow;

impl Workflow {
    /// Returns a builder. The input of the workflow is the input of its first step.
    pub fn builder<In>(name: impl Into<String>) -> Builder<In, In> {
        Builder::empty(name.into())
    }
}

impl<In, Out: Data, Last> Builder<In, Out, Last> {
    /// Adds a task.
    pub fn then<T: Task<Out>>(
        mut self,
        name: impl Into<String>,
        task: T,
    ) -> Builder<In, T::Out, TaskStep<Out>>
    where
        T::Out: Data,
    {
        self.part
            .task::<Out, T::Out>(name, Function::task(Typed::<T, Out, ()>::new(task)));
        self.with()
    }

    /// Adds a closure without context as a task.
    ///
    /// ```
    /// # use orlog_workflow::Workflow;
    /// let _ = Workflow::builder("greet").map("greet", |name: String| async move {
    ///     Ok(format!("Hello {name}"))
    /// });
    /// ```
    pub fn map<F, Fut, Next>(
        mut self,
        name: impl Into<String>,
        closure: F,
    ) -> Builder<In, Next, ClosureStep>
    where
        F: Fn(Out) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Next, TaskError>> + Send,
        Next: Data,
    {
        let closure = Closure {
            closure,
            take: Value::take,
        };
        self.part
            .task::<Out, Next>(name, Function::task(Arc::new(closure)));
        self.with()
    }

    /// Adds a step that a handler performs. Its success event is the output; a node publishes the
    /// events of the step.
    pub fn handle<H: Handler<Command = Out>>(
        mut self,
        name: impl Into<String>,
        handler: H,
    ) -> Builder<In, H::Ok, TaskStep<Out>> {
        self.part
            .task::<Out, H::Ok>(name, Function::task(Handled::new(handler)));
        self.with()
    }

    /// Adds a step whose contract is performed elsewhere, like [`Builder::remote`]. A node
    /// publishes the events of the step.
    pub fn handled_elsewhere<C: Contract<Command = Out>>(
        mut self,
        name: impl Into<String>,
    ) -> Builder<In, C::Ok, TaskStep<Out>> {
        self.part
            .task::<Out, C::Ok>(name, Function::task(Remote::<C::Ok>::of::<C>()));
        self.with()
    }

    /// Adds a task that is performed elsewhere: by an upstream or a worker of a node, as the effect
    /// with this name. The payload of the effect is the input of the step, its result the output.
    /// Other runners fail at this step.
    pub fn remote<Next: Data>(
        mut self,
        name: impl Into<String>,
        effect: impl Into<String>,
    ) -> Builder<In, Next, TaskStep<Out>> {
        self.part
            .task::<Out, Next>(name, Function::task(Remote::<Next>::new(effect.into())));
        self.with()
    }

    /// Executes one of two bodies: the first one if the condition holds, [`When::otherwise`] if
    /// not.
    pub fn when<Next: Data, L>(
        mut self,
        name: impl Into<String>,
        holds: impl Fn(&Out) -> bool + Send + Sync + 'static,
        body: impl FnOnce(Builder<Out, Out>) -> Builder<Out, Next, L>,
    ) -> When<In, Out, Next> {
        let name = name.into();
        let then = self
            .part
            .attach("yes", body(Builder::empty(name.clone())).part);
        let condition = Function::condition(holds);
        When {
            name,
            then,
            condition,
            builder: self.with(),
        }
    }

    /// Executes a body concurrently for each element of a list. The output is the list of the
    /// results, in the same order.
    pub fn each<E: Data, Next: Data, L>(
        mut self,
        name: impl Into<String>,
        elements: impl Fn(&Out) -> Vec<E> + Send + Sync + 'static,
        body: impl FnOnce(Builder<E, E>) -> Builder<E, Next, L>,
    ) -> Builder<In, Vec<Next>> {
        let name = name.into();
        let body = self
            .part
            .attach("each", body(Builder::empty(name.clone())).part);

        let function = Function::each::<Out, E, Next>(elements);
        self.part.step(
            name,
            StepKind::Each { body },
            short_name::<(Out, E, Next)>(),
            function,
        );
        self.with()
    }

    /// Executes a body in rounds while a condition holds. If it still holds after `max_rounds`
    /// rounds, the workflow fails.
    pub fn repeat<L>(
        mut self,
        name: impl Into<String>,
        max_rounds: u32,
        holds: impl Fn(&Out) -> bool + Send + Sync + 'static,
        body: impl FnOnce(Builder<Out, Out>) -> Builder<Out, Out, L>,
    ) -> Builder<In, Out> {
        let name = name.into();
        let body = self
            .part
            .attach("repeat", body(Builder::empty(name.clone())).part);

        let kind = StepKind::Repeat { body, max_rounds };
        self.part
            .step(name, kind, short_name::<Out>(), Function::condition(holds));
        self.with()
    }

    /// Waits for a duration. The due time is stored.
    pub fn delay(mut self, name: impl Into<String>, duration: Duration) -> Builder<In, Out> {
        self.part.step(
            name,
            StepKind::Delay {
                ms: millis(duration),
            },
            String::new(),
            Function::None,
        );
        self.with()
    }

    /// Waits for a signal with the name of the step. The output is the value and the payload of the
    /// signal.
    pub fn signal<S: Data>(mut self, name: impl Into<String>) -> Builder<In, (Out, S), SignalStep> {
        let kind = StepKind::Signal { timeout_ms: None };
        let function = Function::signal::<Out, S>();
        self.part
            .step(name, kind, short_name::<(Out, S)>(), function);
        self.with()
    }

    /// Executes another workflow as a part of this one: its steps have the prefix `name/`, and a
    /// failure compensates the steps of both.
    pub fn child<Next: Data>(
        mut self,
        name: impl Into<String>,
        workflow: &Workflow<Out, Next>,
    ) -> Builder<In, Next> {
        let name = name.into();
        let definition = &workflow.definition;
        let body = self
            .part
            .attach_child(&name, &definition.graph, definition.function_table());

        let kind = StepKind::Child {
            workflow: workflow.name().to_owned(),
            body,
        };
        self.part
            .step(name, kind, short_name::<(Out, Next)>(), Function::None);
        self.with()
    }

    /// Sets metadata of the last step.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        if let Some(step) = self.part.last() {
            step.metadata.insert(key.into(), value.into());
        }
        self
    }

    /// States that a step has a new name, so that instances that were stored with the previous name
    /// continue.
    pub fn renamed(mut self, previous: impl Into<String>, name: impl Into<String>) -> Self {
        self.renamed.insert(previous.into(), name.into());
        self
    }

    /// Builds the workflow.
    ///
    /// # Errors
    /// All problems: names that occur twice, policies without an attempt, a workflow without a
    /// step.
    pub fn build(self) -> Result<Workflow<In, Out>, BuildError> {
        let graph = Graph {
            name: self.name,
            bodies: self.part.bodies,
        };

        let problems: Vec<_> = self
            .part
            .problems
            .into_iter()
            .chain(graph.problems())
            .collect();

        if !problems.is_empty() {
            return Err(BuildError {
                workflow: graph.name,
                problems,
            });
        }

        Ok(Workflow::new(Definition::new(
            graph,
            self.part.functions,
            self.renamed,
        )))
    }
}

impl<In, Out, Last: HasTimeout> Builder<In, Out, Last> {
    /// Limits the duration of one attempt of a task, or of the wait for a signal. The deadline is
    /// stored before the task starts. When it expires, the future of the task is dropped and the
    /// workflow fails: no further attempt is made, because it is unknown whether the task had its
    /// effect. [`Builder::undo_unknown`] compensates it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.part.timeout(timeout);
        self
    }
}

impl<In, Out, Last: HasRetry> Builder<In, Out, Last> {
    /// Sets the attempts of the task. Default: one attempt.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.part.policy(|policy| policy.retry = retry);
        self
    }
}

impl<In, Input: Data, Out: Data> Builder<In, Out, TaskStep<Input>> {
    /// Sets the compensation of the task. It is executed if a later step fails or the workflow is
    /// cancelled. Default: 5 attempts ([`Builder::undo_retry`]).
    pub fn undo<U: Compensation<Input, Out>>(mut self, compensation: U) -> Self {
        self.part.undo(Typed::<U, Input, Out>::new(compensation));
        self
    }

    /// Sets a compensation that is performed elsewhere, as the effect with this name. Its payload
    /// is `{input, output}`.
    pub fn undo_remote(mut self, effect: impl Into<String>) -> Self {
        self.part.undo(Remote::new(effect.into()));
        self
    }

    /// Sets the compensation for an unknown outcome: the task timed out, or was cancelled while it
    /// was running. It receives the input only.
    pub fn undo_unknown<U: Task<Input, Out = ()>>(mut self, compensation: U) -> Self {
        self.part
            .undo_unknown(WithoutOutput::<U, Input>::new(compensation));
        self
    }

    /// Sets the attempts of the compensations that precede it. When they fail for good, the
    /// instance is stuck.
    pub fn undo_retry(mut self, retry: Retry) -> Self {
        self.part.undo_retry(retry);
        self
    }
}

/// Condition whose second body is missing.
#[must_use = "call `otherwise`"]
pub struct When<In, Out, Next> {
    name: String,
    then: usize,
    condition: Function,
    builder: Builder<In, (Out, Next)>,
}

impl<In, Out: Data, Next: Data> When<In, Out, Next> {
    /// Sets the body that is executed if the condition does not hold. `|b| b` continues with the
    /// value, if both bodies have the same output.
    pub fn otherwise<L>(
        mut self,
        body: impl FnOnce(Builder<Out, Out>) -> Builder<Out, Next, L>,
    ) -> Builder<In, Next> {
        let otherwise = self
            .builder
            .part
            .attach("no", body(Builder::empty(self.name.clone())).part);
        let kind = StepKind::When {
            then: self.then,
            otherwise,
        };
        self.builder
            .part
            .step(self.name, kind, short_name::<(Out, Next)>(), self.condition);
        self.builder.with()
    }
}
