//! Forks: branches that are executed concurrently, and the join of their results.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::base::{Builder, ClosureStep, NoPolicy, TaskStep};
use super::part::Part;
use crate::error::TaskError;
use crate::function::Function;
use crate::graph::{StepKind, TaskPolicy};
use crate::retry::Retry;
use crate::task::{Closure, Compensation, Task, Typed, WithoutOutput};
use crate::value::{Data, Value, short_name};

impl<In, Out: Data, Last> Builder<In, Out, Last> {
    /// Executes branches concurrently, each with a copy of the value. [`Joining::join`] receives
    /// their results as a tuple.
    pub fn fork<R>(self, branches: impl FnOnce(Fork<Out, ()>) -> R) -> Joining<In, R::Results>
    where
        R: IntoFork,
    {
        Joining::new(
            self.name,
            self.part,
            self.renamed,
            branches(Fork::empty()).into_parts(),
        )
    }
}

/// Branches of a fork with the input `In` and the tuple `Results` of their outputs. `Last` is the
/// output of the last branch, if it is a task.
#[must_use = "return it from the closure of `fork`"]
pub struct Fork<In, Results, Last = NoPolicy> {
    branches: Vec<(String, Part)>,
    types: PhantomData<fn(In) -> (Results, Last)>,
}

impl<In> Fork<In, ()> {
    fn empty() -> Self {
        Self {
            branches: Vec::new(),
            types: PhantomData,
        }
    }
}

impl<In: Data, Results, Last> Fork<In, Results, Last> {
    /// Adds a branch with one task.
    pub fn branch<T: Task<In>>(
        self,
        name: impl Into<String>,
        task: T,
    ) -> Fork<In, Results::Pushed, TaskStep<T::Out>>
    where
        T::Out: Data,
        Results: PushBranch<T::Out>,
    {
        let name = name.into();
        let mut part = Part::default();
        part.task::<In, T::Out>(name.clone(), Function::task(Typed::<T, In, ()>::new(task)));
        self.push(name, part)
    }

    /// Adds a branch with several steps.
    pub fn branch_with<Out: Data, L>(
        self,
        name: impl Into<String>,
        body: impl FnOnce(Builder<In, In>) -> Builder<In, Out, L>,
    ) -> Fork<In, Results::Pushed>
    where
        Results: PushBranch<Out>,
    {
        let name = name.into();
        let part = body(Builder::empty(name.clone())).part;
        self.push(name, part)
    }

    fn push<R, L>(mut self, name: String, part: Part) -> Fork<In, R, L> {
        self.branches.push((name, part));
        Fork {
            branches: self.branches,
            types: PhantomData,
        }
    }

    fn last(&mut self) -> &mut Part {
        &mut self
            .branches
            .last_mut()
            .expect("the type of a fork states that it has a branch")
            .1
    }
}

impl<In: Data, Results, Out: Data> Fork<In, Results, TaskStep<Out>> {
    /// Like [`Builder::timeout`], for the last branch.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.last().timeout(timeout);
        self
    }

    /// Like [`Builder::retry`], for the last branch.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.last().policy(|policy| policy.retry = retry);
        self
    }

    /// Like [`Builder::undo`], for the last branch.
    pub fn undo<U: Compensation<In, Out>>(mut self, compensation: U) -> Self {
        self.last().undo(Typed::<U, In, Out>::new(compensation));
        self
    }

    /// Like [`Builder::undo_unknown`], for the last branch.
    pub fn undo_unknown<U: Task<In, Out = ()>>(mut self, compensation: U) -> Self {
        self.last()
            .undo_unknown(WithoutOutput::<U, In>::new(compensation));
        self
    }

    /// Like [`Builder::undo_retry`], for the last branch.
    pub fn undo_retry(mut self, retry: Retry) -> Self {
        self.last().undo_retry(retry);
        self
    }
}

/// Fork that is complete: it has at least one branch.
pub trait IntoFork {
    /// Tuple of the outputs of the branches.
    type Results: Branches;

    #[doc(hidden)]
    fn into_parts(self) -> ForkParts;
}

/// Branches of a fork without types.
pub struct ForkParts(Vec<(String, Part)>);

impl<In, Results: Branches, Last> IntoFork for Fork<In, Results, Last> {
    type Results = Results;

    fn into_parts(self) -> ForkParts {
        ForkParts(self.branches)
    }
}

/// Fork whose results are not joined yet.
#[must_use = "call `join`"]
pub struct Joining<In, Results> {
    name: String,
    part: Part,
    renamed: BTreeMap<String, String>,
    branches: Vec<usize>,
    types: PhantomData<fn(In) -> Results>,
}

impl<In, Results: Branches> Joining<In, Results> {
    fn new(
        name: String,
        mut part: Part,
        renamed: BTreeMap<String, String>,
        fork: ForkParts,
    ) -> Self {
        let branches = fork
            .0
            .into_iter()
            .map(|(name, branch)| part.attach(&name, branch))
            .collect();

        Self {
            name,
            part,
            renamed,
            branches,
            types: PhantomData,
        }
    }

    /// Continues with the tuple of the results, in the order of the branches.
    pub fn join<F, Fut, Next>(
        mut self,
        name: impl Into<String>,
        closure: F,
    ) -> Builder<In, Next, ClosureStep>
    where
        F: Fn(Results) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Next, TaskError>> + Send,
        Next: Data,
    {
        let name = name.into();
        // A step of its own, whose name is derived because names are unique.
        let fork = StepKind::Fork {
            branches: self.branches,
        };
        self.part.step(
            format!("{name}-fork"),
            fork,
            short_name::<Results>(),
            Function::None,
        );

        let closure = Closure {
            closure,
            take: |value| value.into_list().and_then(Results::take),
        };
        let signature = format!("{} -> {}", short_name::<Results>(), short_name::<Next>());
        let kind = StepKind::Task(TaskPolicy::default());
        self.part
            .step(name, kind, signature, Function::task(Arc::new(closure)));

        Builder {
            name: self.name,
            part: self.part,
            renamed: self.renamed,
            types: PhantomData,
        }
    }
}

/// Tuple to which a branch adds its output. Implemented for tuples of up to 7 elements.
#[diagnostic::on_unimplemented(
    message = "a fork has at most 8 branches",
    note = "use `each` for a list"
)]
pub trait PushBranch<Out> {
    /// Tuple with the output.
    type Pushed;
}

/// Tuple of the outputs of branches. Implemented for tuples of 1 to 8 elements.
#[diagnostic::on_unimplemented(
    message = "a fork needs 1 to 8 branches",
    note = "add one with `branch`"
)]
pub trait Branches: Sized + Send + 'static {
    #[doc(hidden)]
    fn take(values: Vec<Value>) -> Result<Self, TaskError>;
}

macro_rules! tuples {
    ($($name:ident)*) => { tuples!(@ [] $($name)*); };
    (@ [$($done:ident)*]) => { tuples!(# $($done)*); };
    (@ [$($done:ident)*] $next:ident $($rest:ident)*) => {
        impl<$($done,)* $next> PushBranch<$next> for ($($done,)*) {
            type Pushed = ($($done,)* $next,);
        }
        tuples!(# $($done)*);
        tuples!(@ [$($done)* $next] $($rest)*);
    };
    (#) => {};
    (# $($name:ident)+) => {
        impl<$($name: Data),+> Branches for ($($name,)+) {
            fn take(values: Vec<Value>) -> Result<Self, TaskError> {
                let mut values = values.into_iter();
                let mut next = || {
                    values
                        .next()
                        .ok_or_else(|| TaskError::permanent("a branch has no result"))
                };
                Ok(($(next()?.take::<$name>()?,)+))
            }
        }
    };
}

tuples!(A B C D E F G H);
