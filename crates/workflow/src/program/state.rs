//! State of an instance on a node: that of the state machine, and what people see of ended steps.
//! Stored as JSON.

use std::collections::BTreeMap;

use orlog_model::{Failure as NodeFailure, Status};
use orlog_program::{MAX_PAYLOAD_BYTES, ProgramError};
use serde::{Deserialize, Serialize};

use crate::definition::Definition;
use crate::error::Failure;
use crate::progress::Progress;
use crate::state::{Phase, State, Work};

/// Format of stored states.
const FORMAT: u8 = 1;

/// State of an instance on a node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NodeState {
    format: u8,
    pub(super) workflow: State,
    /// How the steps ended, by name; of a step in a list or a loop, the last end.
    pub(super) ended: BTreeMap<String, StepEnd>,
    /// Reason why the instance does not run forward.
    pub(super) cause: Option<Cause>,
}

/// End of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepEnd {
    Completed,
    Failed,
    Compensated,
    CompensationFailed,
}

/// Reason why an instance does not run forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cause {
    pub(super) code: String,
    pub(super) message: String,
    /// Path of the failed step; `None` if no step failed.
    pub(super) step: Option<String>,
}

impl NodeState {
    pub(super) fn new(workflow: State) -> Self {
        Self {
            format: FORMAT,
            workflow,
            ended: BTreeMap::new(),
            cause: None,
        }
    }

    /// Decodes a state. Started tasks, and the compensation in progress, are pending work.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ProgramError> {
        let mut state: Self = serde_json::from_slice(bytes)
            .map_err(|error| ProgramError::InvalidState(error.to_string()))?;
        // A state of a newer release may have fields that this one would lose when it stores the
        // state again.
        if state.format > FORMAT {
            let message = format!(
                "format {} is newer than this release, which reads {FORMAT}",
                state.format
            );
            return Err(ProgramError::InvalidState(message));
        }

        // Whether an attempt runs is not part of the snapshots of the runners. On a node, each
        // started task is pending work.
        for branch in &mut state.workflow.branches {
            branch.is_running = matches!(
                branch.work,
                Work::Task {
                    is_started: true,
                    ..
                }
            );
        }

        // Also between two attempts: the node repeats them.
        state.workflow.undo.is_running = state.workflow.phase == Phase::Compensating;
        Ok(state)
    }

    /// Encodes the state.
    pub(super) fn encode(&self) -> Result<Vec<u8>, ProgramError> {
        let bytes = serde_json::to_vec(self)
            .map_err(|error| ProgramError::Evaluation(error.to_string()))?;
        if bytes.len() > MAX_PAYLOAD_BYTES {
            let message = format!(
                "the state has {} bytes; the limit is {MAX_PAYLOAD_BYTES}",
                bytes.len()
            );
            return Err(ProgramError::Evaluation(message));
        }
        Ok(bytes)
    }

    /// Records the ends of steps.
    pub(super) fn record(&mut self, progress: &[Progress]) {
        for event in progress {
            let (step, end) = match event {
                Progress::TaskCompleted { step } | Progress::StepCompleted { step } => {
                    (step, StepEnd::Completed)
                }
                Progress::TaskFailed {
                    step,
                    retry_in: None,
                    ..
                } => (step, StepEnd::Failed),
                Progress::Compensated { step } => (step, StepEnd::Compensated),
                Progress::CompensationFailed {
                    step,
                    retry_in: None,
                    ..
                } => (step, StepEnd::CompensationFailed),
                _ => continue,
            };
            self.ended.insert(name_of(step).to_owned(), end);
        }
    }

    /// Returns the delays and limited waits with their due times, by path of the step.
    pub(super) fn due_times(&self, definition: &Definition) -> Vec<(String, u64)> {
        let mut due = Vec::new();
        for branch in &self.workflow.branches {
            let until = match branch.work {
                Work::Delay { until_ms } => Some(until_ms),
                Work::Signal { until_ms } => until_ms,
                Work::Task { .. } | Work::Children { .. } => None,
            };
            if let Some(until) = until {
                due.push((definition.path(branch), until));
            }
        }
        due
    }
}

impl Cause {
    /// Returns the cause of a failure, with code and message of the result that caused it.
    pub(super) fn of(failure: &Failure, result: Option<&NodeFailure>) -> Self {
        let (code, step) = match failure {
            Failure::TaskFailed { step, .. } => ("task_failed", step),
            Failure::TaskTimedOut { step, .. } => ("task_timed_out", step),
            Failure::SignalTimedOut { step, .. } => ("signal_timed_out", step),
            Failure::LoopBound { step, .. } => ("too_many_rounds", step),
            Failure::Invalid { step, .. } => ("invalid_step", step),
        };

        // The result has the code of the upstream, which says more than that of the state machine.
        let (code, message) = match (failure, result) {
            (Failure::TaskFailed { .. } | Failure::TaskTimedOut { .. }, Some(result)) => {
                (result.code.clone(), result.message.clone())
            }
            _ => (code.to_owned(), failure.to_string()),
        };

        Self {
            code,
            message,
            step: Some(step.clone()),
        }
    }
}

/// Returns the name of the step of a path: `weigh` of `weigh[2]`.
pub(super) fn name_of(path: &str) -> &str {
    path.split_once('[').map_or(path, |(name, _)| name)
}

/// Returns the status of an instance in a phase.
pub(super) fn status(phase: Phase) -> Status {
    match phase {
        Phase::Running => Status::Running,
        Phase::Draining | Phase::Compensating => Status::Compensating,
        Phase::Completed => Status::Completed,
        Phase::Failed => Status::Failed,
        Phase::Cancelled => Status::Cancelled,
        Phase::Stuck => Status::Stuck,
    }
}
