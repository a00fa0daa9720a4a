//! Steps of one body, and of the bodies inside it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::function::{Function, TaskFunctions};
use crate::graph::{Body, Graph, Step, StepKind, TaskPolicy};
use crate::retry::{Retry, UNDO, millis};
use crate::task::ErasedUndo;
use crate::value::short_name;

/// Bodies, of which the first one gets the next step.
pub(crate) struct Part {
    pub(crate) bodies: Vec<Body>,
    pub(crate) functions: Vec<Vec<Function>>,
    pub(crate) problems: Vec<String>,
}

impl Default for Part {
    fn default() -> Self {
        let body = Body {
            label: String::new(),
            steps: Vec::new(),
        };

        Self {
            bodies: vec![body],
            functions: vec![Vec::new()],
            problems: Vec::new(),
        }
    }
}

impl Part {
    pub(crate) fn step(
        &mut self,
        name: impl Into<String>,
        kind: StepKind,
        signature: String,
        function: Function,
    ) {
        let step = Step {
            name: name.into(),
            kind,
            signature,
            metadata: BTreeMap::new(),
        };
        self.bodies[0].steps.push(step);
        self.functions[0].push(function);
    }

    /// Adds a task with the types of its input and output.
    pub(super) fn task<In, Out>(&mut self, name: impl Into<String>, function: Function) {
        let signature = format!("{} -> {}", short_name::<In>(), short_name::<Out>());
        self.step(
            name,
            StepKind::Task(TaskPolicy::default()),
            signature,
            function,
        );
    }

    /// Adds the bodies of another part; returns the number of its first body.
    pub(crate) fn attach(&mut self, label: &str, part: Self) -> usize {
        // The numbers of the other bodies are shifted behind the own ones.
        let first = self.bodies.len();
        self.bodies
            .extend(part.bodies.into_iter().map(|body| shifted(body, first)));
        label.clone_into(&mut self.bodies[first].label);
        self.functions.extend(part.functions);
        self.problems.extend(part.problems);
        first
    }

    /// Adds the bodies of another workflow, with a prefix of the names.
    pub(crate) fn attach_child(
        &mut self,
        name: &str,
        graph: &Graph,
        functions: &[Vec<Function>],
    ) -> usize {
        let mut bodies = graph.bodies.clone();
        // The prefix keeps the names unique if a workflow is used twice.
        for step in bodies.iter_mut().flat_map(|body| &mut body.steps) {
            step.name = format!("{name}/{}", step.name);
        }
        self.attach(
            name,
            Self {
                bodies,
                functions: functions.to_vec(),
                problems: Vec::new(),
            },
        )
    }

    pub(crate) fn last(&mut self) -> Option<&mut Step> {
        self.bodies[0].steps.last_mut()
    }

    pub(crate) fn policy(&mut self, set: impl FnOnce(&mut TaskPolicy)) {
        if let Some(StepKind::Task(policy)) = self.last().map(|step| &mut step.kind) {
            set(policy);
        }
    }

    pub(crate) fn timeout(&mut self, timeout: Duration) {
        match self.last().map(|step| &mut step.kind) {
            Some(StepKind::Task(policy)) => policy.timeout_ms = Some(millis(timeout)),
            Some(StepKind::Signal { timeout_ms }) => *timeout_ms = Some(millis(timeout)),
            _ => {}
        }
    }

    pub(crate) fn undo(&mut self, undo: Arc<dyn ErasedUndo>) {
        self.policy(|policy| policy.undo = Some(UNDO));
        if let Some(functions) = self.last_task() {
            functions.undo = Some(undo);
        }
    }

    pub(crate) fn undo_unknown(&mut self, undo: Arc<dyn ErasedUndo>) {
        self.policy(|policy| policy.undo_unknown = Some(UNDO));
        if let Some(functions) = self.last_task() {
            functions.undo_unknown = Some(undo);
        }
    }

    pub(crate) fn undo_retry(&mut self, retry: Retry) {
        let mut has_undo = false;
        self.policy(|policy| {
            for undo in [&mut policy.undo, &mut policy.undo_unknown]
                .into_iter()
                .flatten()
            {
                *undo = retry;
                has_undo = true;
            }
        });

        if !has_undo {
            let name = self
                .last()
                .map(|step| step.name.clone())
                .unwrap_or_default();
            self.problems.push(format!(
                "step \"{name}\" has no compensation; call `undo` before `undo_retry`"
            ));
        }
    }

    fn last_task(&mut self) -> Option<&mut TaskFunctions> {
        match self.functions[0].last_mut() {
            Some(Function::Task(functions)) => Some(functions),
            _ => None,
        }
    }
}

/// Returns a body whose references to other bodies are shifted.
fn shifted(mut body: Body, by: usize) -> Body {
    for step in &mut body.steps {
        match &mut step.kind {
            StepKind::Task(_) | StepKind::Delay { .. } | StepKind::Signal { .. } => {}
            StepKind::Fork { branches } => branches.iter_mut().for_each(|branch| *branch += by),
            StepKind::When { then, otherwise } => {
                *then += by;
                *otherwise += by;
            }
            StepKind::Each { body }
            | StepKind::Repeat { body, .. }
            | StepKind::Child { body, .. } => {
                *body += by;
            }
        }
    }
    body
}
