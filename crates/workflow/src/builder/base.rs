//! Builder and the kinds of its last step.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use super::part::Part;

/// Workflow that cannot be built: all problems that were found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("workflow \"{workflow}\" cannot be built: {}", problems.join("; "))]
pub struct BuildError {
    /// Name of the workflow.
    pub workflow: String,
    /// Problems, each with its remedy.
    pub problems: Vec<String>,
}

/// The last step has no policies.
#[derive(Debug)]
pub struct NoPolicy;
/// The last step is a task with the input `In`.
#[derive(Debug)]
pub struct TaskStep<In>(PhantomData<fn(In)>);
/// The last step is a closure.
#[derive(Debug)]
pub struct ClosureStep;
/// The last step waits for a signal.
#[derive(Debug)]
pub struct SignalStep;

/// Step with a timeout.
pub trait HasTimeout {}
impl<In> HasTimeout for TaskStep<In> {}
impl HasTimeout for ClosureStep {}
impl HasTimeout for SignalStep {}

/// Step with attempts.
pub trait HasRetry {}
impl<In> HasRetry for TaskStep<In> {}
impl HasRetry for ClosureStep {}

/// Builder of a workflow with the input `In`, whose last step has the output `Out`. `Last` is the
/// kind of the last step: it decides which policies can follow.
#[must_use = "call `build`"]
pub struct Builder<In, Out, Last = NoPolicy> {
    pub(super) name: String,
    pub(super) part: Part,
    pub(super) renamed: BTreeMap<String, String>,
    pub(super) types: PhantomData<fn(In) -> (Out, Last)>,
}

impl<T> Builder<T, T> {
    pub(super) fn empty(name: String) -> Self {
        Self {
            name,
            part: Part::default(),
            renamed: BTreeMap::new(),
            types: PhantomData,
        }
    }
}

impl<In, Out, Last> Builder<In, Out, Last> {
    pub(super) fn with<Next, L>(self) -> Builder<In, Next, L> {
        Builder {
            name: self.name,
            part: self.part,
            renamed: self.renamed,
            types: PhantomData,
        }
    }
}
