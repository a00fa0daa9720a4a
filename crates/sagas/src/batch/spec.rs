//! Specification of a batch: which instances, which instruction, and how fast.

use std::ops::Range;

use orlog_model::{ControlAction, CorrelationId, EventType, SagaName, Status, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum length of the id of a batch, in bytes: the ids of its control requests contain it.
pub const MAX_ID_BYTES: usize = 100;
/// Maximum number of instances per second.
pub const MAX_RATE: u32 = 1_000;
/// Maximum number of instances of a canary.
pub const MAX_CANARY: u32 = 100;

/// Specification of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchSpec {
    /// Instances.
    pub selection: Selection,
    /// Instruction.
    pub action: BatchAction,
    /// Number of instances per second.
    pub rate: u32,
    /// Number of instances after which the batch waits for an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<u32>,
    /// User, for the history of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Reason, for the history of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Slots of each shard, if the instances of the tenant are in several shards; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Range<u16>>,
}

/// Selection of instances of one saga. All conditions apply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Saga.
    pub saga: SagaName,
    /// Statuses; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<Status>,
    /// Prefix of the correlation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Start of the range of the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_from: Option<Timestamp>,
    /// End of the range of the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_until: Option<Timestamp>,
    /// Start of the range of the creation time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_from: Option<Timestamp>,
    /// End of the range of the creation time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_until: Option<Timestamp>,
    /// CEL condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// Instruction of a batch: a control request to each instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BatchAction {
    /// Cancel the instance and compensate its completed steps.
    Cancel,
    /// Buffer inputs and apply none.
    Pause,
    /// Apply the buffered inputs and continue.
    Resume,
    /// Retry the failed action of a stuck instance.
    Retry,
    /// Skip the failed compensation of a stuck instance.
    Skip,
    /// End a stuck instance without further steps or compensations.
    ForceComplete,
    /// Send an event to the instance.
    Signal {
        /// Event type.
        signal: EventType,
        /// Payload.
        #[serde(default)]
        data: Value,
    },
    /// Move the instance to another definition of its saga.
    Migrate {
        /// Version of the definition, for display.
        version: u32,
        /// Hash of the definition.
        hash: [u8; 16],
    },
}

impl BatchAction {
    /// Returns the action of the control request to each instance.
    #[must_use]
    pub fn control(&self, reason: Option<&str>) -> ControlAction {
        match self {
            Self::Cancel => ControlAction::Cancel {
                reason: reason.unwrap_or_default().to_owned(),
            },
            Self::Pause => ControlAction::Pause,
            Self::Resume => ControlAction::Resume,
            Self::Retry => ControlAction::Retry,
            Self::Skip => ControlAction::Skip,
            Self::ForceComplete => ControlAction::ForceComplete,
            Self::Signal { signal, data } => ControlAction::Signal {
                kind: signal.clone(),
                data: data.clone(),
                due_at: None,
            },
            Self::Migrate { hash, .. } => ControlAction::Migrate { to: *hash },
        }
    }

    /// Returns the name of the instruction.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::ForceComplete => "force_complete",
            Self::Signal { .. } => "signal",
            Self::Migrate { .. } => "migrate",
        }
    }
}

/// Checks the id of a batch.
///
/// # Errors
/// If it cannot be a correlation id, or is too long.
pub fn check_id(id: &str) -> Result<CorrelationId, String> {
    let checked = CorrelationId::for_path(id)
        .map_err(|error| error.to_string().replace("correlation id", "batch id"))?;
    if id.len() > MAX_ID_BYTES {
        return Err(format!(
            "batch id has {} bytes, the limit is {MAX_ID_BYTES}",
            id.len()
        ));
    }
    Ok(checked)
}
