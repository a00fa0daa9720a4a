//! Results of work: the outcome and its attempts.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{AttemptLog, Fact, OutboxKey, Timestamp, TraceParent, WorkOutcome};

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
    /// Whether the commit of the result publishes it as an event. It is not stored: the commit that
    /// buffers or dead-letters a result has published it.
    #[serde(skip)]
    pub publishes: bool,
    /// Span of the last attempt, if it is traced.
    #[serde(default)]
    pub trace: Option<TraceParent>,
    /// Attempts, if the first one did not succeed. It is the last field, because rows are read by
    /// position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_log: Option<Box<AttemptLog>>,
}
