//! Registry of tasks and workflows: the functions that a process has.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::backend::{Backend, StoredInstance};
use crate::builder::Branches;
use crate::definition::Definition;
use crate::error::TaskError;
use crate::function::{Function, TaskFunctions};
use crate::graph::{Graph, Step, StepKind, TaskPolicy};
use crate::outcome::RunError;
use crate::task::{Closure, Compensation, Task, Typed};
use crate::value::{Data, Value, short_name};
use crate::version;
use crate::workflow::Workflow;

/// Functions that a process can execute, by name.
///
/// A registry with the functions executes any workflow that consists of them, also one that another
/// process built: the backend stores its graph. A function is found under `workflow/step`, then
/// under `step`.
///
/// ```
/// use orlog_workflow::{Context, Graph, InProcessRunner, TaskError, TaskRegistry, Workflow};
///
/// async fn double(_: &Context, number: u32) -> Result<u32, TaskError> {
///     Ok(number * 2)
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workflow = Workflow::builder("double").then("double", double).build()?;
/// let text = serde_json::to_string(workflow.graph())?;
///
/// // In another process:
/// let registry = TaskRegistry::new().task("double", double);
/// let graph: Graph = serde_json::from_str(&text)?;
/// let same: Workflow<u32, u32> = registry.assemble(graph)?;
/// assert_eq!(same.hash(), workflow.hash());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct TaskRegistry {
    functions: HashMap<String, Registered>,
    /// Workflows by hash.
    workflows: BTreeMap<Arc<str>, Arc<Definition>>,
}

#[derive(Clone)]
struct Registered {
    signature: String,
    function: Function,
}

/// Workflow that the functions of a registry cannot execute: all problems that were found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("workflow \"{workflow}\" cannot be executed: {}", problems.join("; "))]
pub struct AssembleError {
    /// Name of the workflow.
    pub workflow: String,
    /// Problems, each with its remedy.
    pub problems: Vec<String>,
}

impl TaskRegistry {
    /// Returns an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a workflow and its functions. Several versions of a workflow can be registered: each
    /// instance continues with the version that it started with.
    #[must_use]
    pub fn workflow<In, Out>(mut self, workflow: &Workflow<In, Out>) -> Self {
        let definition = &workflow.definition;
        for (step, function) in definition
            .functions()
            .filter(|(_, function)| !matches!(function, Function::None))
        {
            // Under the name of the workflow, so that steps of the same name in other workflows
            // remain.
            let registered = Registered {
                signature: step.signature.clone(),
                function: function.clone(),
            };
            self.functions
                .insert(format!("{}/{}", definition.name, step.name), registered);
        }

        self.workflows
            .insert(Arc::clone(&definition.hash), Arc::clone(definition));
        self
    }

    /// Adds a task.
    #[must_use]
    pub fn task<In: Data, T: Task<In>>(self, name: impl Into<String>, task: T) -> Self
    where
        T::Out: Data,
    {
        let function = Function::task(Typed::<T, In, ()>::new(task));
        self.add(
            name,
            format!("{} -> {}", short_name::<In>(), short_name::<T::Out>()),
            function,
        )
    }

    /// Adds a task with its compensation.
    #[must_use]
    pub fn task_with_undo<In: Data, T: Task<In>, U>(
        self,
        name: impl Into<String>,
        task: T,
        undo: U,
    ) -> Self
    where
        T::Out: Data,
        U: Compensation<In, T::Out>,
    {
        let task = Typed::<T, In, ()>::new(task);
        let undo = Typed::<U, In, T::Out>::new(undo);
        let functions = TaskFunctions {
            task,
            undo: Some(undo),
            undo_unknown: None,
        };

        let signature = format!("{} -> {}", short_name::<In>(), short_name::<T::Out>());
        self.add(name, signature, Function::Task(functions))
    }

    /// Adds the closure that joins the branches of a fork.
    #[must_use]
    pub fn join<R: Branches, F, Fut, Out: Data>(self, name: impl Into<String>, closure: F) -> Self
    where
        F: Fn(R) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, TaskError>> + Send,
    {
        let closure = Closure {
            closure,
            take: |value: Value| value.into_list().and_then(R::take),
        };

        let signature = format!("{} -> {}", short_name::<R>(), short_name::<Out>());
        self.add(name, signature, Function::task(Arc::new(closure)))
    }

    /// Adds the condition of a `when` from `In` to `Out`.
    #[must_use]
    pub fn when<In: Data, Out: Data>(
        self,
        name: impl Into<String>,
        holds: impl Fn(&In) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.add(name, short_name::<(In, Out)>(), Function::condition(holds))
    }

    /// Adds the condition of a loop.
    #[must_use]
    pub fn repeat<In: Data>(
        self,
        name: impl Into<String>,
        holds: impl Fn(&In) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.add(name, short_name::<In>(), Function::condition(holds))
    }

    /// Adds the list of an `each`, whose body has the output `Out`.
    #[must_use]
    pub fn each<In: Data, Element: Data, Out: Data>(
        self,
        name: impl Into<String>,
        elements: impl Fn(&In) -> Vec<Element> + Send + Sync + 'static,
    ) -> Self {
        self.add(
            name,
            short_name::<(In, Element, Out)>(),
            Function::each::<In, Element, Out>(elements),
        )
    }

    /// Adds the types of a wait for a signal.
    #[must_use]
    pub fn signal<In: Data, Payload: Data>(self, name: impl Into<String>) -> Self {
        self.add(
            name,
            short_name::<(In, Payload)>(),
            Function::signal::<In, Payload>(),
        )
    }

    fn add(mut self, name: impl Into<String>, signature: String, function: Function) -> Self {
        self.functions.insert(
            name.into(),
            Registered {
                signature,
                function,
            },
        );
        self
    }

    /// Returns the workflow of a graph, with the functions of the registry. The types are those of
    /// the caller.
    ///
    /// # Errors
    /// All functions that are missing or have other types than the graph, and all problems of the
    /// graph.
    pub fn assemble<In, Out>(&self, graph: Graph) -> Result<Workflow<In, Out>, AssembleError> {
        self.definition(graph).map(Workflow::new)
    }

    fn definition(&self, graph: Graph) -> Result<Definition, AssembleError> {
        // All problems are collected, so that they are corrected in one pass.
        let mut problems = graph.problems();
        let mut functions = Vec::with_capacity(graph.bodies.len());

        for body in &graph.bodies {
            functions.push(
                body.steps
                    .iter()
                    .map(|step| {
                        self.function(&graph.name, step).unwrap_or_else(|problem| {
                            problems.push(problem);
                            Function::None
                        })
                    })
                    .collect(),
            );
        }

        if problems.is_empty() {
            Ok(Definition::new(graph, functions, BTreeMap::new()))
        } else {
            Err(AssembleError {
                workflow: graph.name,
                problems,
            })
        }
    }

    fn function(&self, workflow: &str, step: &Step) -> Result<Function, String> {
        let name = &step.name;
        if matches!(
            step.kind,
            StepKind::Delay { .. } | StepKind::Fork { .. } | StepKind::Child { .. }
        ) {
            return Ok(Function::None);
        }

        // A function of this workflow precedes one that all workflows share.
        let found = self
            .functions
            .get(&format!("{workflow}/{name}"))
            .or_else(|| self.functions.get(name));
        let found = found.ok_or_else(|| {
            format!("no function \"{name}\" is registered; add it to the registry")
        })?;
        if found.signature != step.signature {
            return Err(format!(
                "function \"{name}\" is registered as `{}`, the workflow needs `{}`; register it \
                under another name",
                found.signature, step.signature
            ));
        }

        match (&step.kind, &found.function) {
            (StepKind::Task(policy), Function::Task(functions)) => {
                check_undo(name, policy, functions)?;
            }
            (StepKind::When { .. } | StepKind::Repeat { .. }, Function::Condition(_))
            | (StepKind::Each { .. }, Function::Each { .. })
            | (StepKind::Signal { .. }, Function::Signal(_)) => {}
            (_, other) => {
                return Err(format!(
                    "function \"{name}\" has the wrong kind: {}",
                    other.kind()
                ));
            }
        }
        Ok(found.function.clone())
    }

    /// Returns the definition with which a stored instance continues.
    pub(crate) async fn resolve(
        &self,
        stored: &StoredInstance,
        backend: &dyn Backend,
    ) -> Result<Arc<Definition>, RunError> {
        // The usual case needs no request to the backend: the version is registered.
        if let Some(definition) = self.workflows.get(&stored.hash) {
            return Ok(Arc::clone(definition));
        }

        let graph = stored_graph(stored, backend).await?;
        let incompatible = |reason| RunError::Incompatible {
            id: stored.id.to_string(),
            reason,
        };

        let versions = self
            .workflows
            .values()
            .filter(|definition| definition.name == stored.workflow);
        let mut reason = None;
        for definition in versions {
            match version::check(&graph, definition) {
                Ok(()) => return Ok(Arc::clone(definition)),
                Err(difference) => reason = Some(difference),
            }
        }

        // Without a registered version, the single functions may still have the types of its steps.
        let assembled = self.definition(graph).map(Arc::new);
        assembled.map_err(|error| incompatible(reason.unwrap_or_else(|| error.to_string())))
    }
}

/// Returns the definition of a workflow, if a stored instance can continue with it.
pub(crate) async fn check_version(
    stored: &StoredInstance,
    definition: &Arc<Definition>,
    backend: &dyn Backend,
) -> Result<(), RunError> {
    if stored.hash == definition.hash {
        return Ok(());
    }
    let graph = stored_graph(stored, backend).await?;
    version::check(&graph, definition).map_err(|reason| RunError::Incompatible {
        id: stored.id.to_string(),
        reason,
    })
}

async fn stored_graph(stored: &StoredInstance, backend: &dyn Backend) -> Result<Graph, RunError> {
    let incompatible = |reason| RunError::Incompatible {
        id: stored.id.to_string(),
        reason,
    };

    let bytes = backend.graph(&stored.hash).await?;
    let bytes =
        bytes.ok_or_else(|| incompatible(format!("the backend has no graph {}", stored.hash)))?;

    rmp_serde::from_slice(&bytes)
        .map_err(|error| incompatible(format!("its graph cannot be read: {error}")))
}

fn check_undo(name: &str, policy: &TaskPolicy, functions: &TaskFunctions) -> Result<(), String> {
    let is_missing = policy.undo.is_some() && functions.undo.is_none()
        || policy.undo_unknown.is_some() && functions.undo_unknown.is_none();
    if is_missing {
        Err(format!(
            "task \"{name}\" has no compensation; register it with `task_with_undo`"
        ))
    } else {
        Ok(())
    }
}

impl std::fmt::Debug for TaskRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: Vec<_> = self.functions.keys().collect();
        names.sort();
        f.debug_struct("TaskRegistry")
            .field("functions", &names)
            .finish_non_exhaustive()
    }
}
