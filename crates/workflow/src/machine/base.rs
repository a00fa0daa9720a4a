//! State machine: its data, and the parts that all events use.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::context::StepPath;
use crate::definition::Definition;
use crate::error::{Failure, TaskError};
use crate::graph::{StepId, StepKind, TaskPolicy};
use crate::progress::Progress;
use crate::state::{Completed, Phase, State, Work};
use crate::value::Value;

/// Way in which an attempt of a task failed.
#[derive(Debug)]
pub(crate) enum Fault {
    Error(TaskError),
    /// The deadline expired; the future is dropped.
    TimedOut,
}

/// One event of an instance, applied to its state.
pub(crate) struct Machine<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) state: &'a mut State,
    pub(crate) now_ms: u64,
    /// Receives the progress, if there is a consumer.
    pub(crate) progress: Option<&'a mut Vec<Progress>>,
    /// Branches whose current step starts.
    pub(super) queue: Vec<u32>,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(
        definition: &'a Definition,
        state: &'a mut State,
        now_ms: u64,
        progress: Option<&'a mut Vec<Progress>>,
    ) -> Self {
        Self {
            definition,
            state,
            now_ms,
            progress,
            queue: Vec::new(),
        }
    }

    /// Ends the forward execution. Tasks that have started end first: their outcome decides about
    /// their compensation.
    pub(super) fn fail(&mut self, failure: Failure) {
        // The first failure is the cause. Later ones mostly follow from it.
        self.state.failure.get_or_insert(failure);
        self.drain();
    }

    /// Starts no further task and ends all waits.
    pub(super) fn drain(&mut self) {
        self.state.phase = Phase::Draining;
        self.state.branches.retain(|branch| {
            matches!(
                branch.work,
                Work::Task {
                    is_started: true,
                    ..
                }
            )
        });
    }

    /// Stores a task for its compensation, if it has one.
    pub(super) fn record(&mut self, branch: u32, output: Option<Value>) {
        let Some(found) = self.state.branch(branch) else {
            return;
        };

        let Some(functions) = self.definition.task(found.at) else {
            return;
        };

        let has_undo = if output.is_some() {
            functions.undo.is_some()
        } else {
            functions.undo_unknown.is_some()
        };
        if has_undo {
            self.state.compensations.push(Completed {
                step: found.at,
                indexes: found.indexes.clone(),
                input: found.value.clone(),
                output,
            });
        }
    }

    pub(super) fn record_unknown(&mut self, branch: u32) {
        self.record(branch, None);
    }

    pub(super) fn kind(&self, step: StepId) -> Option<&'a StepKind> {
        self.definition.step(step).map(|step| &step.kind)
    }

    pub(super) fn policy(&self, branch: u32) -> TaskPolicy {
        match self
            .state
            .branch(branch)
            .and_then(|branch| self.kind(branch.at))
        {
            Some(StepKind::Task(policy)) => policy.clone(),
            _ => TaskPolicy::default(),
        }
    }

    pub(super) fn path(&self, branch: u32) -> StepPath {
        match self.state.branch(branch) {
            Some(found) => StepPath {
                step: self.definition.step_name(found.at),
                indexes: found.indexes.clone(),
            },
            None => StepPath {
                step: "".into(),
                indexes: Vec::new(),
            },
        }
    }

    pub(crate) fn path_of(&self, completed: &Completed) -> StepPath {
        StepPath {
            step: self.definition.step_name(completed.step),
            indexes: completed.indexes.clone(),
        }
    }

    pub(super) fn emit(&mut self, progress: Progress) {
        if let Some(all) = &mut self.progress {
            all.push(progress);
        }
    }
}

/// Calls a function of the workflow; a panic is an error.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, TaskError>) -> Result<T, TaskError> {
    // A panic in a function of the user must fail the instance, not the runner.
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|panic| Err(TaskError::permanent(panic_message(&*panic))))
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());

    format!(
        "panicked: {}",
        text.unwrap_or_else(|| "no message".to_owned())
    )
}
