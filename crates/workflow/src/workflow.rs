//! Workflow that a program built: typed, immutable and cheap to clone.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::definition::Definition;
use crate::graph::Graph;
use crate::mermaid::to_mermaid;

/// Workflow from `In` to `Out`. [`Workflow::builder`] builds one.
///
/// ```
/// use orlog_workflow::{Context, InProcessRunner, TaskError, Workflow};
///
/// async fn double(_: &Context, number: u32) -> Result<u32, TaskError> {
///     Ok(number * 2)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workflow = Workflow::builder("double").then("double", double).build()?;
/// assert_eq!(InProcessRunner::new().run(&workflow, 21).await?, 42);
/// # Ok(())
/// # }
/// ```
pub struct Workflow<In = (), Out = ()> {
    pub(crate) definition: Arc<Definition>,
    types: PhantomData<fn(In) -> Out>,
}

impl<In, Out> Workflow<In, Out> {
    pub(crate) fn new(definition: Definition) -> Self {
        Self {
            definition: Arc::new(definition),
            types: PhantomData,
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Returns the workflow as data.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.definition.graph
    }

    /// Returns the hash of names, types and structure. A stored instance continues only under the
    /// hash that it started with.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.definition.hash
    }

    /// Returns the workflow as a flowchart in the language of Mermaid.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        to_mermaid(&self.definition.graph)
    }
}

impl<In, Out> Clone for Workflow<In, Out> {
    fn clone(&self) -> Self {
        Self {
            definition: Arc::clone(&self.definition),
            types: PhantomData,
        }
    }
}

impl<In, Out> std::fmt::Debug for Workflow<In, Out> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workflow")
            .field("name", &self.name())
            .field("hash", &self.hash())
            .finish_non_exhaustive()
    }
}
