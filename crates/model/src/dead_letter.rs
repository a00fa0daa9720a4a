//! Dead letters: inputs and messages that cannot be applied, stored in full with the reason.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Input, InstanceKey, TenantId, Timestamp};

/// Input or message that was dead-lettered, so that later inputs can be processed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Id, derived from the content: the same dead letter is stored once.
    pub id: Uuid,
    /// Tenant of the dead letter.
    pub tenant: TenantId,
    /// Target instance, if known.
    pub instance: Option<InstanceKey>,
    /// Reason, for programs.
    pub reason: DeadLetterReason,
    /// Message for operators, with location and values.
    pub message: String,
    /// Original input or message.
    pub original: DeadLetterOriginal,
    /// Number of attempts.
    pub attempts: u32,
    /// Node that dead-lettered it.
    pub node: String,
    /// Time of the dead letter.
    pub at: Timestamp,
}

/// Reason why an input or message cannot be applied.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeadLetterReason {
    /// The message is not an event.
    Undecodable,
    /// The program rejected the payload.
    SchemaMismatch,
    /// The program failed: an expression, a limit, a bug.
    ProgramError,
    /// The definition to which the instance is pinned is missing.
    DefinitionMissing,
    /// The program cannot read the stored snapshot.
    SnapshotInconsistent,
    /// The input crashed its actor too often.
    RetriesExhausted,
    /// The input arrived before its instance, and the buffer of early inputs was full.
    EarlyBufferFull,
    /// The stored data of the instance cannot be read: the instance is quarantined.
    InstanceUnreadable,
    /// The state after the input would be larger than `limits.max_state_size`.
    StateTooLarge,
    /// The bus rejects the message permanently, for example because it is too large.
    BusRejected,
    /// The instance rejects a signal of the bus, or one that was buffered: a condition of the
    /// signal does not hold.
    SignalRejected,
    /// The context requires signed events, and the message has no valid signature.
    Unauthenticated,
    /// The node that read the message does not accept its tenant.
    TenantNotAllowed,
    /// The transition would cost more than `limits.max_transition_cost`.
    TransitionTooCostly,
}

impl DeadLetterReason {
    /// Returns the name used in the API and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Content of a dead letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DeadLetterOriginal {
    /// Decoded and routed input.
    Input(Box<Input>),
    /// Message, as received from the bus.
    Message {
        /// Subject of the message.
        subject: String,
        /// Headers of the message.
        headers: Vec<(CompactString, CompactString)>,
        /// Body of the message.
        payload: Vec<u8>,
    },
}
