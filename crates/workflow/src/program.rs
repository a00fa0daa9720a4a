//! Workflows on a node: a workflow is a program of its registry, and each of its tasks is an
//! effect.
//!
//! The program applies inputs with the same state machine as the runners. Retries, attempts,
//! deadlines, timers, signals and history are those of the node, so that an instance appears in the
//! API, the web UI and the command line like any other.

mod compiled;
mod decide;
mod drawing;
mod effects;
mod executor;
mod instance;
mod parts;
mod state;
mod view;

use std::sync::Arc;

use orlog_model::{
    CorrelationId, Event as NodeEvent, EventId, EventType, IdError, TenantId, Timestamp,
};

pub use self::compiled::is_stored_graph;
pub use self::parts::{DeployError, NodeParts, StepRef};
use crate::definition::Definition;
use crate::error::TaskError;
use crate::event::{Identifier as _, Trigger};
use crate::value::{Data, Value};
use crate::workflow::Workflow;

/// Workflow with the settings of its deployment to a node.
///
/// ```
/// use orlog_workflow::{Context, NodeParts, TaskError, Workflow};
///
/// async fn double(_: &Context, number: u32) -> Result<u32, TaskError> {
///     Ok(number * 2)
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workflow = Workflow::builder("double").then("double", double).build()?;
/// let parts = NodeParts::of([workflow.on_node().start_event("NumberSent")])?;
/// assert_eq!(parts.programs.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "deploy it with `NodeParts::of`"]
pub struct NodeWorkflow {
    pub(crate) definition: Arc<Definition>,
    pub(crate) check_input: fn(&mut Value) -> Result<(), TaskError>,
    pub(crate) version: u32,
    pub(crate) start_event: String,
    pub(crate) correlate: Option<String>,
    pub(crate) check_identifier: fn(&str) -> Result<(), String>,
    pub(crate) completed_event: String,
    pub(crate) failed_event: String,
}

impl<In: Data, Out: Data> Workflow<In, Out> {
    /// Returns the workflow for a deployment to a node, as version 1 of a saga with its name.
    ///
    /// Inputs, outputs and values are JSON on a node: their types must survive it.
    pub fn on_node(&self) -> NodeWorkflow {
        let name = self.name();
        NodeWorkflow {
            definition: Arc::clone(&self.definition),
            check_input: |input| input.typed::<In>().map(drop),
            version: 1,
            start_event: format!("{name}.start"),
            correlate: None,
            check_identifier: |_| Ok(()),
            completed_event: format!("{name}.completed"),
            failed_event: format!("{name}.failed"),
        }
    }
}

impl<In: Trigger, Out: Data> Workflow<In, Out> {
    /// Returns the workflow for a deployment to a node, like [`Workflow::on_node`]. Its input is
    /// the start event, with the identifier in its field as the correlation id.
    pub fn on_node_by_event(&self) -> NodeWorkflow {
        NodeWorkflow {
            check_identifier: |text| In::Id::from_text(text).map(drop),
            ..self
                .on_node()
                .start_event(In::TYPE)
                .correlate(In::Id::FIELD)
        }
    }
}

/// Returns a start event to publish.
///
/// # Errors
/// If its identifier or its type is invalid.
///
/// # Panics
/// If its data has no JSON form.
pub fn start_event<T: Trigger>(
    trigger: &T,
    id: EventId,
    source: impl Into<String>,
    time: Timestamp,
) -> Result<NodeEvent, IdError> {
    Ok(NodeEvent {
        id,
        tenant: TenantId::default(),
        kind: EventType::for_input(T::TYPE)?,
        source: source.into(),
        subject: None,
        time,
        correlation: Some(CorrelationId::for_path(trigger.id().text())?),
        causation: None,
        trace: None,
        schema_version: 1,
        data: serde_json::to_value(trigger).expect("an event has a JSON form"),
        user: None,
        attributes: None,
    })
}

impl NodeWorkflow {
    /// Sets the version. Instances continue with the version that they started with: increase it
    /// when names, types or structure change, and deploy the previous version too while it has
    /// instances.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets the type of the event whose data is the input of the workflow. Default:
    /// `<workflow>.start`.
    pub fn start_event(mut self, kind: impl Into<String>) -> Self {
        self.start_event = kind.into();
        self
    }

    /// Sets the field of the start event that is the correlation id, a path with dots. Default: the
    /// correlation id of the envelope.
    pub fn correlate(mut self, field: impl Into<String>) -> Self {
        self.correlate = Some(field.into());
        self
    }

    /// Sets the type of the event that is published when an instance has completed; its data is the
    /// output. Default: `<workflow>.completed`.
    pub fn completed_event(mut self, kind: impl Into<String>) -> Self {
        self.completed_event = kind.into();
        self
    }

    /// Sets the type of the event that is published when an instance has failed and its tasks are
    /// compensated; its data has `step`, `code` and `message`. Default: `<workflow>.failed`.
    pub fn failed_event(mut self, kind: impl Into<String>) -> Self {
        self.failed_event = kind.into();
        self
    }
}

impl std::fmt::Debug for NodeWorkflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeWorkflow")
            .field("name", &self.definition.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
