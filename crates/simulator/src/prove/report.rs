//! Report of a proof.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::options::ProveOptions;
use crate::explore::Counterexample;

/// Result of a proof.
#[derive(Clone, Debug)]
pub struct ProveReport {
    /// Options of the proof.
    pub options: ProveOptions,
    /// Number of visited states.
    pub states: usize,
    /// Number of transitions between them.
    pub transitions: usize,
    /// Number of moves to the farthest state.
    pub depth: usize,
    /// Number of visited ends by status.
    pub ends: BTreeMap<String, usize>,
    /// Steps that completed in no visited state.
    pub never_completed: Vec<String>,
    /// Steps without a compensation whose late success can remain after the saga failed or was
    /// cancelled.
    pub remaining: Vec<String>,
    /// Steps whose compensation can make the instance stuck, because no result has set a value that
    /// it reads.
    pub undo_without_value: Vec<String>,
    /// Parts of the inputs that were not tried, because there are too many combinations.
    pub limits: Vec<String>,
    /// Outcome of the proof.
    pub outcome: ProofOutcome,
}

/// Outcome of a proof.
#[derive(Clone, Debug)]
pub enum ProofOutcome {
    /// All states within the limit of disturbances were visited; none violates an invariant.
    Proved,
    /// No violation was found, but not everything could be checked.
    NotProved {
        /// Reason, and what the user can do.
        reason: String,
    },
    /// An invariant is violated.
    Violated(Box<Counterexample>),
}

impl ProofOutcome {
    /// Returns the displayed name.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            ProofOutcome::Proved => "proved",
            ProofOutcome::NotProved { .. } => "not proved",
            ProofOutcome::Violated(_) => "VIOLATED",
        }
    }
}

impl ProveReport {
    /// Returns the report as JSON, for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (reason, counterexample) = match &self.outcome {
            ProofOutcome::Proved => (None, None),
            ProofOutcome::NotProved { reason } => (Some(reason), None),
            ProofOutcome::Violated(found) => (None, Some(found.to_json())),
        };

        json!({
            "outcome": self.outcome.as_str().to_lowercase().replace(' ', "_"),
            "reason": reason,
            "max_states": self.options.max_states,
            "max_steps": self.options.max_steps,
            "disturbances": self.options.disturbances,
            "states": self.states,
            "transitions": self.transitions,
            "depth": self.depth,
            "ends": self.ends,
            "never_completed": self.never_completed,
            "remaining": self.remaining,
            "undo_without_value": self.undo_without_value,
            "limits": self.limits,
            "counterexample": counterexample,
        })
    }
}
