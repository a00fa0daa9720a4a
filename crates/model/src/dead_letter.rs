//! Dead letters: what could not be applied, kept whole with the reason.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Input, InstanceKey, TenantId, Timestamp};

/// An input or a message that was set aside so that others can go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Derived from what it holds: the same letter is kept once.
    pub id: Uuid,
    /// Whose it is.
    pub tenant: TenantId,
    /// The instance it was meant for, where that is known.
    pub instance: Option<InstanceKey>,
    /// Why it is here.
    pub reason: DeadLetterReason,
    /// A sentence for people, with the place and the values.
    pub message: String,
    /// What it was.
    pub original: Original,
    /// How often it was tried.
    pub attempts: u32,
    /// The node that gave up.
    pub node: String,
    /// When.
    pub at: Timestamp,
}

/// Why something could not be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterReason {
    /// The message is no event.
    Undecodable,
    /// The program refused the payload.
    SchemaMismatch,
    /// The program failed: an expression, a limit, a bug.
    ProgramError,
    /// The definition that the instance is pinned to is not here.
    DefinitionMissing,
    /// The stored snapshot cannot be read by its program.
    SnapshotInconsistent,
    /// It killed its actor too often.
    RetriesExhausted,
    /// It came before its instance, for which too much was kept already.
    TooManyEarly,
}

impl DeadLetterReason {
    /// The word people and metrics see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            DeadLetterReason::Undecodable => "undecodable",
            DeadLetterReason::SchemaMismatch => "schema_mismatch",
            DeadLetterReason::ProgramError => "program_error",
            DeadLetterReason::DefinitionMissing => "definition_missing",
            DeadLetterReason::SnapshotInconsistent => "snapshot_inconsistent",
            DeadLetterReason::RetriesExhausted => "retries_exhausted",
            DeadLetterReason::TooManyEarly => "too_many_early",
        }
    }
}

/// What a dead letter holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Original {
    /// An input that was decoded and routed.
    Input(Box<Input>),
    /// A message as it came from the bus.
    Message {
        /// Its subject.
        subject: String,
        /// Its headers.
        headers: Vec<(String, String)>,
        /// Its body.
        payload: Vec<u8>,
    },
}
