//! Attempts that are ready to start.

use std::sync::Arc;

use super::base::Machine;
use crate::context::{Context, StepPath};
use crate::definition::Definition;
use crate::graph::{StepKind, TaskPolicy};
use crate::progress::Progress;
use crate::state::{Phase, State, UndoAttempt, Work};
use crate::task::{ErasedTask, ErasedUndo};
use crate::value::Value;

/// Attempt of a task or of a compensation.
pub(crate) enum Attempt {
    Task(TaskAttempt),
    Undo(UndoRun),
}

/// Attempt of a task.
pub(crate) struct TaskAttempt {
    pub(crate) branch: u32,
    pub(crate) task: Arc<dyn ErasedTask>,
    pub(crate) context: Context,
    pub(crate) input: Value,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) deadline_ms: Option<u64>,
    /// Whether no snapshot contains a deadline of the attempt yet.
    pub(crate) is_deadline_new: bool,
}

/// Attempt of a compensation.
pub(crate) struct UndoRun {
    pub(crate) undo: Arc<dyn ErasedUndo>,
    pub(crate) context: Context,
    pub(crate) input: Value,
    pub(crate) output: Option<Value>,
    pub(crate) deadline_ms: Option<u64>,
}

impl State {
    /// Returns the state of a new instance, whose first steps have started.
    pub(crate) fn start(definition: &Definition, input: Value, now_ms: u64) -> Self {
        let mut state = Self::empty();
        Machine::new(definition, &mut state, now_ms, None).begin(input);
        state
    }

    /// Returns the state before the first step.
    pub(crate) fn empty() -> Self {
        Self {
            phase: Phase::Running,
            branches: Vec::with_capacity(1),
            next_branch: 0,
            compensations: Vec::new(),
            undo: UndoAttempt::default(),
            cancelled: false,
            failure: None,
            output: None,
            buffered: Vec::new(),
            last_signal: 0,
        }
    }
}

impl Machine<'_> {
    /// Marks the attempts that can start now as started, refreshes their deadlines, and returns
    /// them.
    pub(crate) fn start_ready(&mut self, instance: &Arc<str>) -> Vec<Attempt> {
        match self.state.phase {
            Phase::Running | Phase::Draining => (0..self.state.branches.len())
                .filter_map(|at| self.start_task(at, instance))
                .map(Attempt::Task)
                .collect(),
            Phase::Compensating => self
                .start_undo(instance)
                .map(Attempt::Undo)
                .into_iter()
                .collect(),
            Phase::Completed | Phase::Failed | Phase::Cancelled | Phase::Stuck => Vec::new(),
        }
    }

    /// Starts the task of a branch, if it is ready.
    fn start_task(&mut self, at: usize, instance: &Arc<str>) -> Option<TaskAttempt> {
        let now = self.now_ms;
        let found = self
            .state
            .branches
            .get_mut(at)
            .filter(|branch| !branch.is_running)?;
        let Work::Task {
            attempt,
            is_started,
            deadline_ms,
            not_before_ms,
        } = &mut found.work
        else {
            return None;
        };

        // The delay of a retry is not over.
        if not_before_ms.is_some_and(|time| time > now) {
            return None;
        }

        // From the definition and not from the state: policies may change without a new version.
        let timeout_ms = match self.definition.step(found.at).map(|step| &step.kind) {
            Some(StepKind::Task(policy)) => policy.timeout_ms,
            _ => None,
        };
        let deadline = timeout_ms.map(|timeout| now.saturating_add(timeout));
        // An attempt that is repeated after a crash has a stored deadline already, which is
        // earlier.
        let is_deadline_new = deadline.is_some() && deadline_ms.is_none();
        *is_started = true;
        *deadline_ms = deadline;
        *not_before_ms = None;
        let attempt = *attempt;
        let input = found.value.clone();
        let branch = found.id;
        let at = found.at;
        found.is_running = true;

        let path = StepPath {
            step: self.definition.step_name(at),
            indexes: found.indexes.clone(),
        };
        if self.progress.is_some() {
            self.emit(Progress::TaskStarted {
                step: path.display(),
                attempt,
            });
        }

        let functions = self
            .definition
            .task(at)
            .expect("a definition has a function for each task");
        let task = Arc::clone(&functions.task);
        let context = self.context(instance, path, attempt, deadline);

        Some(TaskAttempt {
            branch,
            task,
            context,
            input,
            timeout_ms,
            deadline_ms: deadline,
            is_deadline_new,
        })
    }

    fn start_undo(&mut self, instance: &Arc<str>) -> Option<UndoRun> {
        let undo = &self.state.undo;
        if undo.is_running || undo.not_before_ms.is_some_and(|time| time > self.now_ms) {
            return None;
        }

        let attempt = undo.failed + 1;
        // In reverse order: a later task may depend on the effect of an earlier one.
        let last = self.state.compensations.last()?;
        let functions = self
            .definition
            .task(last.step)
            .expect("a definition has a function for each task");

        // Without an output, the outcome of the task is unknown.
        let function = if last.output.is_some() {
            &functions.undo
        } else {
            &functions.undo_unknown
        };
        let function = function
            .as_ref()
            .expect("only tasks with a compensation are recorded");

        let timeout = match self.kind(last.step) {
            Some(StepKind::Task(TaskPolicy { timeout_ms, .. })) => *timeout_ms,
            _ => None,
        };
        let deadline_ms = timeout.map(|timeout| self.now_ms.saturating_add(timeout));
        let context = self.context(instance, self.path_of(last), attempt, deadline_ms);
        let undo = Arc::clone(function);
        let input = last.input.clone();
        let output = last.output.clone();

        self.state.undo.is_running = true;

        Some(UndoRun {
            undo,
            context,
            input,
            output,
            deadline_ms,
        })
    }

    fn context(
        &self,
        instance: &Arc<str>,
        path: StepPath,
        attempt: u32,
        deadline_ms: Option<u64>,
    ) -> Context {
        Context {
            instance: Arc::clone(instance),
            workflow: Arc::clone(&self.definition.name),
            path,
            attempt,
            deadline_ms,
            key: None,
            facts: None,
        }
    }
}
