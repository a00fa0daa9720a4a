//! Executable workflow: a graph, and the functions of its steps.

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "program")]
use crate::context::StepPath;
use crate::function::{Function, TaskFunctions};
use crate::graph::{Graph, Step, StepId};
#[cfg(feature = "program")]
use crate::state::Branch;

/// Executable workflow.
pub(crate) struct Definition {
    pub(crate) graph: Graph,
    pub(crate) hash: Arc<str>,
    pub(crate) name: Arc<str>,
    /// New names of steps: from the name in stored instances to the name in the graph.
    pub(crate) renamed: BTreeMap<String, String>,
    /// Functions by body and index.
    functions: Vec<Vec<Function>>,
    names: Vec<Vec<Arc<str>>>,
}

impl Definition {
    pub(crate) fn new(
        graph: Graph,
        functions: Vec<Vec<Function>>,
        renamed: BTreeMap<String, String>,
    ) -> Self {
        let names = graph
            .bodies
            .iter()
            .map(|body| {
                body.steps
                    .iter()
                    .map(|step| step.name.as_str().into())
                    .collect()
            })
            .collect();

        Self {
            hash: graph.hash().into(),
            name: graph.name.as_str().into(),
            renamed,
            functions,
            names,
            graph,
        }
    }

    pub(crate) fn step(&self, id: StepId) -> Option<&Step> {
        self.graph.step(id)
    }

    pub(crate) fn function(&self, id: StepId) -> &Function {
        self.functions
            .get(id.body)
            .and_then(|body| body.get(id.index))
            .unwrap_or(&Function::None)
    }

    pub(crate) fn task(&self, id: StepId) -> Option<&TaskFunctions> {
        match self.function(id) {
            Function::Task(functions) => Some(functions),
            _ => None,
        }
    }

    pub(crate) fn step_name(&self, id: StepId) -> Arc<str> {
        self.names
            .get(id.body)
            .and_then(|body| body.get(id.index))
            .cloned()
            .unwrap_or_else(|| "".into())
    }

    /// Returns the path of the current step of a branch.
    #[cfg(feature = "program")]
    pub(crate) fn path(&self, branch: &Branch) -> String {
        self.path_at(branch.at, &branch.indexes)
    }

    /// Returns the path of a step: `weigh[2]`.
    #[cfg(feature = "program")]
    pub(crate) fn path_at(&self, step: StepId, indexes: &[u32]) -> String {
        StepPath {
            step: self.step_name(step),
            indexes: indexes.to_vec(),
        }
        .display()
    }

    /// Returns each step with its function.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (&Step, &Function)> {
        let bodies = self.graph.bodies.iter().zip(&self.functions);
        bodies.flat_map(|(body, functions)| body.steps.iter().zip(functions))
    }

    /// Returns the functions of all steps, by body and index.
    pub(crate) fn function_table(&self) -> &[Vec<Function>] {
        &self.functions
    }
}
