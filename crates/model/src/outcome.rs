//! Outcome of a work item.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{EventType, Failure};

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
        /// Schema version of the payload; [`CURRENT_SCHEMA`]: the one that the definition expects.
        /// It is the last field and absent if it is 1, because rows are read by position.
        #[serde(default = "first_version", skip_serializing_if = "is_first_version")]
        schema_version: u32,
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

/// Schema version of a payload that was created for the definition, by a user or a simulation.
pub const CURRENT_SCHEMA: u32 = 0;

pub(crate) const fn first_version() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_first_version(version: &u32) -> bool {
    *version == 1
}

impl WorkOutcome {
    /// Creates a success whose payload has the first schema version.
    #[must_use]
    pub const fn succeeded(event: Option<EventType>, payload: Value) -> Self {
        Self::Succeeded {
            event,
            payload,
            schema_version: 1,
        }
    }

    /// Returns the failure, if it is one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            WorkOutcome::Accepted | WorkOutcome::Succeeded { .. } => None,
            WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
                Some(failure)
            }
        }
    }

    /// Returns the response of the upstream, if there is one.
    #[must_use]
    pub fn payload(&self) -> Option<&Value> {
        match self {
            WorkOutcome::Accepted | WorkOutcome::TimedOut { .. } => None,
            WorkOutcome::Succeeded { payload, .. } | WorkOutcome::Failed { payload, .. } => {
                Some(payload)
            }
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
