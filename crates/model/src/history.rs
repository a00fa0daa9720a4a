//! History entries: one for each transition of an instance, with what caused it, what it requested
//! and why it failed.

use compact_str::CompactString;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::{
    AttemptLog, EventAttributes, EventId, Failure, Input, InputKind, RecordedPayloads, Status,
    Timestamp,
};

/// Entry in the history of an instance.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HistoryEntry {
    /// State version after the transition.
    pub version: u64,
    /// Time of the transition.
    pub at: Timestamp,
    /// Id of the input.
    pub input_id: EventId,
    /// Label of the input: event type, timer name or action.
    pub input_label: CompactString,
    /// Short description of the transition.
    pub note: String,
    /// Status after the transition.
    pub status: Status,
    /// Requested work: label and id.
    pub work: Vec<(CompactString, Uuid)>,
    /// Origin of the input, and the node that decided it.
    #[serde(default)]
    pub origin: InputOrigin,
    /// Data of the input, changed variables, and payloads of the requested work.
    #[serde(default)]
    pub payloads: RecordedPayloads,
    /// Reason of the failure, if the input is a failure or the transition caused one.
    #[serde(default)]
    pub failure: Option<Box<RecordedFailure>>,
    /// Whole input, if the instance is recorded for a shadow.
    #[serde(default)]
    pub input: Option<Box<Input>>,
}

/// Rows are read by position: absent fields at the end are not written.
impl Serialize for HistoryEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The last fields are absent if they are empty. A present field needs all fields before it,
        // because the decoder has only their positions.
        let fields = 9 + if self.input.is_some() {
            2
        } else {
            usize::from(self.failure.is_some())
        };

        let mut entry = serializer.serialize_struct("HistoryEntry", fields)?;
        entry.serialize_field("version", &self.version)?;
        entry.serialize_field("at", &self.at)?;
        entry.serialize_field("input_id", &self.input_id)?;
        entry.serialize_field("input_label", &self.input_label)?;
        entry.serialize_field("note", &self.note)?;
        entry.serialize_field("status", &self.status)?;
        entry.serialize_field("work", &self.work)?;
        entry.serialize_field("origin", &self.origin)?;
        entry.serialize_field("payloads", &self.payloads)?;

        if fields > 9 {
            entry.serialize_field("failure", &self.failure)?;
        }
        if fields > 10 {
            entry.serialize_field("input", &self.input)?;
        }

        entry.end()
    }
}

/// Failure in a history entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFailure {
    /// Failure of the work or of the instance; `None` if the work succeeded after failed attempts.
    pub failure: Option<Failure>,
    /// Attempts of the work whose result is the input.
    pub attempts: Option<AttemptLog>,
}

/// Origin of an input, with the node and the delay of its decision. It is empty in entries of older
/// stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputOrigin {
    /// Kind of the input.
    pub kind: Option<InputKind>,
    /// Node that decided the input.
    pub node: CompactString,
    /// Delay between the input and its decision, in milliseconds; for a timer, the delay after its
    /// due time.
    pub delay_ms: Option<u64>,
    /// Further attributes of an event, if there are any. It is the last field, because rows are
    /// read by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Box<EventAttributes>>,
}

impl InputOrigin {
    /// Returns the origin of an input that this node decides now.
    #[must_use]
    pub fn new(input: &Input, node: &str, now: Timestamp) -> Self {
        // The clock of the sender can be ahead. The delay is then zero.
        let waited = u64::try_from(now.duration_since(input.at()).as_millis()).unwrap_or(u64::MAX);
        let attributes = input.event().and_then(|event| event.attributes.clone());

        Self {
            kind: Some(input.kind()),
            node: node.into(),
            delay_ms: Some(waited),
            attributes,
        }
    }
}
