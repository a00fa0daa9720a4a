//! Program of a workflow: its names, effects and drawing, prepared once.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{DefinitionRef, EffectName, EventType};
use orlog_program::{Definition as Drawing, Manifest};
use serde::{Deserialize, Serialize};

use crate::definition::Definition;
use crate::error::TaskError;
use crate::graph::{Graph, StepId, StepKind, TaskPolicy};
use crate::value::Value;
use crate::version;

/// Program of a workflow.
pub(super) struct WorkflowProgram {
    pub(super) reference: DefinitionRef,
    pub(super) manifest: Manifest,
    pub(super) definition: Arc<Definition>,
    pub(super) check_input: fn(&mut Value) -> Result<(), TaskError>,
    pub(super) start_event: EventType,
    pub(super) completed_event: EventType,
    pub(super) failed_event: EventType,
    pub(super) correlate: Option<String>,
    pub(super) check_identifier: fn(&str) -> Result<(), String>,
    pub(super) effects: BTreeMap<StepId, TaskEffects>,
    pub(super) drawing: Drawing,
    pub(super) stored_graph: Vec<u8>,
}

/// Effects of a task.
#[derive(Debug, Clone)]
pub(super) struct TaskEffects {
    pub(super) task: TaskEffect,
    pub(super) undo: Option<TaskEffect>,
    pub(super) undo_unknown: Option<TaskEffect>,
    /// Success event of a contract.
    pub(super) ok: Option<EventType>,
    /// Failure event of a contract.
    pub(super) fail: Option<EventType>,
}

/// Effect of a task or of a compensation.
#[derive(Debug, Clone)]
pub(super) struct TaskEffect {
    pub(super) name: EffectName,
    /// Whether an upstream or a worker performs it, not a function of the workflow.
    pub(super) is_remote: bool,
}

impl WorkflowProgram {
    pub(super) fn policy(&self, step: StepId) -> TaskPolicy {
        match self.definition.step(step).map(|step| &step.kind) {
            Some(StepKind::Task(policy)) => policy.clone(),
            _ => TaskPolicy::default(),
        }
    }

    pub(super) fn effects(&self, step: StepId) -> &TaskEffects {
        self.effects.get(&step).expect("each task has its effects")
    }
}

/// Graph as a node stores it. The field names the kind of the record.
#[derive(Serialize, Deserialize)]
struct StoredGraph {
    workflow: Graph,
}

/// Returns the record of a graph.
pub(super) fn stored_graph(graph: &Graph) -> Result<Vec<u8>, String> {
    serde_json::to_vec(&StoredGraph {
        workflow: graph.clone(),
    })
    .map_err(|error| error.to_string())
}

/// Returns the first difference between a stored graph and a workflow; `None` if the record is no
/// graph, or is equal.
pub(super) fn difference(record: &[u8], definition: &Definition) -> Option<String> {
    let stored: StoredGraph = serde_json::from_slice(record).ok()?;
    (stored.workflow != definition.graph)
        .then(|| version::difference(&stored.workflow, &definition.graph))
}

/// Returns whether a stored definition is the graph of a workflow, whose functions only a process
/// has.
#[must_use]
pub fn is_stored_graph(source: &[u8]) -> bool {
    source.starts_with(b"{\"workflow\":")
}
