//! State of an instance: data that a snapshot contains.
//!
//! An instance is a tree of branches. Each branch executes the steps of one body; a step with
//! bodies starts child branches and waits for their results. The state refers to steps by position,
//! and is valid only for graphs with the hash that it started with.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::graph::StepId;
use crate::value::Value;

/// Format of snapshots.
const FORMAT: u8 = 1;

/// Capacity of the buffer that receives a snapshot: that of a small one.
const ENCODED_BYTES: usize = 256;

/// State of an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// Branches in the order of their ids.
    pub(crate) branches: Vec<Branch>,
    pub(crate) next_branch: u32,
    /// Tasks to compensate, in the order of their completion.
    pub(crate) compensations: Vec<Completed>,
    pub(crate) undo: UndoAttempt,
    pub(crate) cancelled: bool,
    pub(crate) failure: Option<Failure>,
    pub(crate) output: Option<Value>,
    /// Signals that no step has received yet: name and payload.
    pub(crate) buffered: Vec<(String, Value)>,
    /// Number of the last signal that the state contains.
    pub(crate) last_signal: u64,
}

/// Phase of an instance.
///
/// | phase | next phase |
/// |---|---|
/// | running | completed; draining (a step failed); compensating (cancelled) |
/// | draining: started tasks end, no other task starts | compensating |
/// | compensating | failed, cancelled, stuck |
/// | stuck | compensating (an operator retries or skips the compensation) |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    Running,
    Draining,
    Compensating,
    Completed,
    Failed,
    Cancelled,
    Stuck,
}

impl Phase {
    /// Returns whether no task and no compensation follows without an operator.
    pub(crate) fn is_ended(self) -> bool {
        match self {
            Self::Running | Self::Draining | Self::Compensating => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Stuck => true,
        }
    }
}

/// Execution of one body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Branch {
    pub(crate) id: u32,
    /// Parent branch, and the number of this branch among the results of the parent.
    pub(crate) parent: Option<(u32, usize)>,
    /// Indexes of the elements and rounds that contain the branch, outermost first.
    pub(crate) indexes: Vec<u32>,
    pub(crate) at: StepId,
    /// Input of the current step.
    pub(crate) value: Value,
    /// Rounds of the current loop.
    pub(crate) rounds: u32,
    pub(crate) work: Work,
    /// Whether this process executes the task.
    #[serde(skip)]
    pub(crate) is_running: bool,
}

/// Work of a branch at its current step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Work {
    Task {
        /// Attempt, counted from 1.
        attempt: u32,
        /// Whether the attempt may have had an effect.
        is_started: bool,
        deadline_ms: Option<u64>,
        not_before_ms: Option<u64>,
    },
    Delay {
        until_ms: u64,
    },
    Signal {
        until_ms: Option<u64>,
    },
    Children {
        results: Vec<Option<Value>>,
        open: usize,
    },
}

/// Task that a compensation can reverse.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Completed {
    pub(crate) step: StepId,
    pub(crate) indexes: Vec<u32>,
    pub(crate) input: Value,
    /// Output; `None` if the outcome is unknown.
    pub(crate) output: Option<Value>,
}

/// Attempt of the last compensation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct UndoAttempt {
    /// Number of failed attempts.
    pub(crate) failed: u32,
    pub(crate) not_before_ms: Option<u64>,
    /// Error of the last attempt.
    pub(crate) error: Option<Failure>,
    #[serde(skip)]
    pub(crate) is_running: bool,
}

impl State {
    pub(crate) fn branch(&self, id: u32) -> Option<&Branch> {
        let at = self
            .branches
            .binary_search_by_key(&id, |branch| branch.id)
            .ok()?;
        Some(&self.branches[at])
    }

    pub(crate) fn branch_mut(&mut self, id: u32) -> Option<&mut Branch> {
        let at = self
            .branches
            .binary_search_by_key(&id, |branch| branch.id)
            .ok()?;
        Some(&mut self.branches[at])
    }

    pub(crate) fn remove_branch(&mut self, id: u32) -> Option<Branch> {
        let at = self
            .branches
            .binary_search_by_key(&id, |branch| branch.id)
            .ok()?;
        Some(self.branches.remove(at))
    }

    /// Returns the next time at which something is due.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        if self.phase == Phase::Compensating {
            return if self.undo.is_running {
                None
            } else {
                Some(self.undo.not_before_ms.unwrap_or(0))
            };
        }

        self.branches
            .iter()
            .filter_map(|branch| match branch.work {
                Work::Task { .. } if branch.is_running => None,
                Work::Task { not_before_ms, .. } => Some(not_before_ms.unwrap_or(0)),
                Work::Delay { until_ms } => Some(until_ms),
                Work::Signal { until_ms } => until_ms,
                Work::Children { .. } => None,
            })
            .min()
    }

    /// Encodes the state.
    ///
    /// # Errors
    /// If a value cannot be serialized.
    pub(crate) fn encode(&self) -> Result<Bytes, String> {
        let mut bytes = Vec::with_capacity(ENCODED_BYTES);
        bytes.push(FORMAT);
        rmp_serde::encode::write(&mut bytes, self).map_err(|error| error.to_string())?;

        // Without spare capacity: backends keep the snapshots of all instances in memory.
        Ok(bytes.into_boxed_slice().into())
    }

    /// Decodes a state.
    ///
    /// # Errors
    /// If it is damaged, or a newer release stored it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.split_first() {
            Some((&FORMAT, bytes)) => {
                rmp_serde::from_slice(bytes).map_err(|error| error.to_string())
            }
            Some((format, _)) => Err(format!(
                "format {format}, this release reads format {FORMAT}; upgrade orlog-workflow"
            )),
            None => Err("the snapshot is empty".to_owned()),
        }
    }
}
