//! Steps that start and end: sequence, forks, conditions, lists, loops and waits.

use super::base::{Machine, guarded};
use crate::error::{Failure, TaskError};
use crate::function::Function;
use crate::graph::{StepId, StepKind};
use crate::progress::Progress;
use crate::state::{Branch, Phase, Work};
use crate::value::Value;

impl Machine<'_> {
    /// Starts the workflow with its input.
    pub(crate) fn begin(&mut self, input: Value) {
        self.spawn(None, None, 0, input);
        self.settle();
    }

    /// Continues with the next step of a branch.
    pub(super) fn next(&mut self, branch: u32) {
        let step = self
            .state
            .branch(branch)
            .and_then(|found| self.kind(found.at));

        if self.progress.is_some() && !matches!(step, None | Some(StepKind::Task(_))) {
            let step = self.path(branch).display();
            self.emit(Progress::StepCompleted { step });
        }

        if let Some(found) = self.state.branch_mut(branch) {
            found.at.index += 1;
            // The next step can be another loop.
            found.rounds = 0;
            self.queue.push(branch);
        }
    }

    /// Starts all steps that can start, then compensation if it is due.
    pub(super) fn settle(&mut self) {
        // A queue instead of recursion: a long chain of steps without a task must not exhaust the
        // stack.
        while self.state.phase == Phase::Running {
            let Some(branch) = self.queue.pop() else {
                break;
            };
            if let Err(error) = self.enter(branch) {
                let step = self.path(branch).display();
                let message = error.message().to_owned();
                self.fail(Failure::Invalid { step, message });
            }
        }

        // A step that failed can leave other branches in the queue. They start nothing any more.
        self.queue.clear();

        if self.state.phase == Phase::Draining && self.state.branches.is_empty() {
            self.start_compensation();
        }
    }

    /// Applies a signal to the branch that waits for it.
    pub(super) fn receive(&mut self, branch: u32, payload: Value) {
        let definition = self.definition;
        let Some(found) = self.state.branch_mut(branch) else {
            return;
        };

        let value = found.value.clone();
        let received = match definition.function(found.at) {
            Function::Signal(signal) => guarded(|| (signal.add)(value, payload)),
            other => Err(wrong_function("signal", other)),
        };

        match received {
            Ok(value) => {
                found.value = value;
                self.next(branch);
            }
            Err(error) => {
                let step = self.path(branch).display();
                let message = error.message().to_owned();
                self.fail(Failure::Invalid { step, message });
            }
        }
    }

    /// Starts the current step of a branch.
    fn enter(&mut self, branch: u32) -> Result<(), TaskError> {
        let now = self.now_ms;
        let Some(found) = self.state.branch(branch) else {
            return Ok(());
        };

        let at = found.at;
        // Without a step, the branch has reached the end of its body.
        let Some(kind) = self.kind(at) else {
            self.end(branch);
            return Ok(());
        };

        match kind {
            // The start of the task sets the deadline: the instance may wait for a worker before.
            StepKind::Task(_) => self.work(
                branch,
                Work::Task {
                    attempt: 1,
                    is_started: false,
                    deadline_ms: None,
                    not_before_ms: None,
                },
            ),
            StepKind::Delay { ms } => {
                self.work(
                    branch,
                    Work::Delay {
                        until_ms: now.saturating_add(*ms),
                    },
                );
                self.waits(branch);
            }
            StepKind::Signal { timeout_ms } => self.await_signal(branch, *timeout_ms),
            StepKind::Fork { branches } => {
                let value = found.value.clone();
                let children = branches.iter().map(|body| (*body, value.clone())).collect();
                self.children(branch, children, false);
            }
            StepKind::When { then, otherwise } => {
                let body = if self.holds(branch)? {
                    *then
                } else {
                    *otherwise
                };
                self.single_child(branch, body, None);
            }
            StepKind::Child { body, .. } => self.single_child(branch, *body, None),
            StepKind::Repeat { body, max_rounds } => self.repeat(branch, *body, *max_rounds)?,
            StepKind::Each { body } => {
                let elements = self.elements(branch)?;
                let children = elements
                    .into_iter()
                    .map(|element| (*body, element))
                    .collect();
                self.children(branch, children, true);
            }
        }
        Ok(())
    }

    fn await_signal(&mut self, branch: u32, timeout_ms: Option<u64>) {
        let Some(found) = self.state.branch(branch) else {
            return;
        };

        let name = self.definition.step_name(found.at);
        let buffered = self
            .state
            .buffered
            .iter()
            .position(|(signal, _)| **signal == *name);

        if let Some(at) = buffered {
            let (_, payload) = self.state.buffered.remove(at);
            self.receive(branch, payload);
        } else {
            let until_ms = timeout_ms.map(|timeout| self.now_ms.saturating_add(timeout));
            self.work(branch, Work::Signal { until_ms });
            self.waits(branch);
        }
    }

    fn repeat(&mut self, branch: u32, body: usize, max_rounds: u32) -> Result<(), TaskError> {
        if !self.holds(branch)? {
            self.next(branch);
            return Ok(());
        }

        let Some(found) = self.state.branch_mut(branch) else {
            return Ok(());
        };

        // The condition is evaluated first, so a loop that ends with its last round does not fail.
        if found.rounds == max_rounds {
            let step = self.path(branch).display();
            self.fail(Failure::LoopBound {
                step,
                rounds: max_rounds,
            });
            return Ok(());
        }

        let round = found.rounds;
        found.rounds += 1;
        self.single_child(branch, body, Some(round));
        Ok(())
    }

    /// Evaluates the condition of the current step.
    fn holds(&mut self, branch: u32) -> Result<bool, TaskError> {
        let definition = self.definition;
        let Some(found) = self.state.branch_mut(branch) else {
            return Ok(false);
        };
        match definition.function(found.at) {
            Function::Condition(holds) => guarded(|| holds(&mut found.value)),
            other => Err(wrong_function("condition", other)),
        }
    }

    /// Evaluates the list of the current step.
    fn elements(&mut self, branch: u32) -> Result<Vec<Value>, TaskError> {
        let definition = self.definition;
        let Some(found) = self.state.branch_mut(branch) else {
            return Ok(Vec::new());
        };
        match definition.function(found.at) {
            Function::Each { split, .. } => guarded(|| split(&mut found.value)),
            other => Err(wrong_function("list", other)),
        }
    }

    fn single_child(&mut self, branch: u32, body: usize, index: Option<u32>) {
        let Some(found) = self.state.branch_mut(branch) else {
            return;
        };

        let value = found.value.clone();
        found.work = Work::Children {
            results: vec![None],
            open: 1,
        };

        self.spawn(Some((branch, 0)), index, body, value);
    }

    fn children(&mut self, branch: u32, children: Vec<(usize, Value)>, are_elements: bool) {
        let open = children.len();
        self.work(
            branch,
            Work::Children {
                results: vec![None; open],
                open,
            },
        );

        for (slot, (body, value)) in children.into_iter().enumerate() {
            // The branches of a fork have distinct steps, so their paths need no index.
            let index = u32::try_from(slot).ok().filter(|_| are_elements);
            self.spawn(Some((branch, slot)), index, body, value);
        }

        // An empty list has no branch that could end.
        if open == 0 {
            self.joined(branch);
        }
    }

    fn spawn(
        &mut self,
        parent: Option<(u32, usize)>,
        index: Option<u32>,
        body: usize,
        value: Value,
    ) {
        // Ids only increase, so the list of branches stays sorted.
        let id = self.state.next_branch;
        self.state.next_branch += 1;

        let above = parent.and_then(|(parent, _)| self.state.branch(parent));
        let mut indexes = above
            .map(|parent| parent.indexes.clone())
            .unwrap_or_default();
        indexes.extend(index);

        // Until it enters its first step, a branch waits for no child.
        let work = Work::Children {
            results: Vec::new(),
            open: 0,
        };
        let at = StepId { body, index: 0 };

        self.state.branches.push(Branch {
            id,
            parent,
            indexes,
            at,
            value,
            rounds: 0,
            work,
            is_running: false,
        });

        self.queue.push(id);
    }

    /// Ends a branch: its value is a result of its parent, or of the workflow.
    fn end(&mut self, branch: u32) {
        let Some(Branch { parent, value, .. }) = self.state.remove_branch(branch) else {
            return;
        };

        let Some((parent, slot)) = parent else {
            self.state.output = Some(value);

            // A workflow that has completed is not compensated.
            self.state.compensations.clear();
            self.state.buffered.clear();
            self.state.phase = Phase::Completed;
            self.emit(Progress::Completed);
            return;
        };

        let Some(Work::Children { results, open }) =
            self.state.branch_mut(parent).map(|parent| &mut parent.work)
        else {
            return;
        };

        // By position, so that the order of the results does not depend on which child ends first.
        results[slot] = Some(value);
        *open -= 1;
        if *open == 0 {
            self.joined(parent);
        }
    }

    /// Continues a branch whose children have ended.
    fn joined(&mut self, branch: u32) {
        let Some(found) = self.state.branch_mut(branch) else {
            return;
        };
        let Work::Children { results, .. } = &mut found.work else {
            return;
        };

        let mut values: Vec<Value> = std::mem::take(results).into_iter().flatten().collect();
        let at = found.at;

        let value = match (self.kind(at), self.definition.function(at)) {
            (Some(StepKind::Fork { .. }), _) => Ok(Value::List(values)),
            (Some(StepKind::Each { .. }), Function::Each { collect, .. }) => collect(values),
            _ => values
                .pop()
                .ok_or_else(|| TaskError::permanent("a body has no result")),
        };

        match value {
            Err(error) => {
                let step = self.path(branch).display();
                let message = error.message().to_owned();
                self.fail(Failure::Invalid { step, message });
            }
            Ok(value) => {
                let is_loop = matches!(self.kind(at), Some(StepKind::Repeat { .. }));
                if let Some(found) = self.state.branch_mut(branch) {
                    found.value = value;
                }
                // A loop evaluates its condition again, a step that ended does not.
                if is_loop {
                    self.queue.push(branch);
                } else {
                    self.next(branch);
                }
            }
        }
    }

    fn work(&mut self, branch: u32, work: Work) {
        if let Some(found) = self.state.branch_mut(branch) {
            found.work = work;
        }
    }

    fn waits(&mut self, branch: u32) {
        if self.progress.is_some() {
            let step = self.path(branch).display();
            self.emit(Progress::Waiting { step });
        }
    }
}

fn wrong_function(expected: &str, found: &Function) -> TaskError {
    TaskError::permanent(format!(
        "the step has a function of kind {}, not {expected}",
        found.kind()
    ))
}
