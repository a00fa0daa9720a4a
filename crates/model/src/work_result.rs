//! Results of work: the outcome and its attempts.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{AttemptLog, EventType, Fact, Failure, OutboxKey, Timestamp, TraceParent};

/// Result of a work item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkResult {
    /// Id of the work item.
    pub work_id: Uuid,
    /// Position in the outbox. The commit that stores the result removes the row.
    pub outbox_key: OutboxKey,
    /// Outcome of the work.
    pub outcome: WorkOutcome,
    /// Time of the transition that requested the work.
    pub requested_at: Timestamp,
    /// Number of attempts since the last start of the process.
    pub attempts: u32,
    /// Time of the result.
    pub at: Timestamp,
    /// Facts that are published with the result.
    #[serde(default)]
    pub facts: Vec<Fact>,
    /// Span of the last attempt, if it is traced.
    #[serde(default)]
    pub trace: Option<TraceParent>,
    /// Attempts, if the first one did not succeed. It is the last field, because rows are read by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_log: Option<Box<AttemptLog>>,
}

/// Outcome of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkOutcome {
    /// The gateway accepted the command; the result follows as an event.
    Accepted,
    /// The work succeeded.
    Succeeded {
        /// Success event of the handler, if any.
        event: Option<EventType>,
        /// Response of the upstream.
        payload: Value,
    },
    /// The work was not executed: it was rejected, failed permanently, or its deadline passed.
    Failed {
        /// Failure event of the handler, if any.
        event: Option<EventType>,
        /// Failure.
        failure: Failure,
        /// Response of the upstream.
        payload: Value,
    },
    /// The deadline passed or the attempts are used up, and the work may have been executed.
    TimedOut {
        /// Last reported failure.
        failure: Failure,
    },
}

impl WorkOutcome {
    /// Returns the failure, if it is one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            WorkOutcome::Accepted | WorkOutcome::Succeeded { .. } => None,
            WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => Some(failure),
        }
    }

    /// Returns the response of the upstream, if there is one.
    #[must_use]
    pub fn payload(&self) -> Option<&Value> {
        match self {
            WorkOutcome::Accepted | WorkOutcome::TimedOut { .. } => None,
            WorkOutcome::Succeeded { payload, .. } | WorkOutcome::Failed { payload, .. } => Some(payload),
        }
    }

    /// Returns `accepted`, `succeeded`, `failed` or `timed out`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            WorkOutcome::Accepted => "accepted",
            WorkOutcome::Succeeded { .. } => "succeeded",
            WorkOutcome::Failed { .. } => "failed",
            WorkOutcome::TimedOut { .. } => "timed out",
        }
    }
}
