//! Results of effects that a node publishes as events.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{AttemptLog, EffectName, Timestamp, WorkOutcome, derive_child_id};

/// Result of an effect that the node publishes on behalf of its instance. It is stored in the
/// outbox by the commit that receives the result; the time of the result is the time of that
/// transition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultEvent {
    /// Id of the work item of the effect.
    pub work_id: Uuid,
    /// Time of the transition that requested the effect.
    pub requested_at: Timestamp,
    /// Name of the effect.
    pub effect: EffectName,
    /// Outcome of the effect; without its payload if that is the data of the fact.
    pub outcome: WorkOutcome,
    /// Whether the payload of the outcome is the data of the fact that is published with it.
    pub has_payload_of_fact: bool,
    /// Number of attempts since the last start of the process.
    pub attempts: u32,
    /// Attempts, if the first one did not succeed. It is the last field, because rows are read by
    /// position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_log: Option<Box<AttemptLog>>,
}

impl ResultEvent {
    /// Returns the id of the event. A work item that is requested again under its id has another
    /// result.
    #[must_use]
    pub fn id(&self) -> Uuid {
        derive_child_id(
            self.work_id,
            &[b"result", &self.requested_at.as_millis().to_le_bytes()],
        )
    }
}
