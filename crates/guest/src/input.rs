//! Inputs that the runner passes to a saga.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Input of an instance, with its context.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawInput")]
pub struct Input {
    /// Instance and time.
    pub context: Context,
    /// Body of the input.
    pub body: InputBody,
}

/// Instance and time of the transition. It is the only clock.
#[derive(Clone, Debug, Deserialize)]
pub struct Context {
    /// Tenant of the instance; empty in a deployment without tenants.
    pub tenant: String,
    /// Name of the saga.
    pub saga: String,
    /// Correlation id: identifier that all events of the instance share.
    pub correlation: String,
    /// State version after this transition.
    pub version: u64,
    /// Time of the transition, in milliseconds since 1970.
    pub now: i64,
}

/// Body of an input.
#[derive(Clone, Debug)]
pub enum InputBody {
    /// Event from the bus, or signal.
    Event(Event),
    /// Work result.
    WorkResult(WorkResult),
    /// A timer fired.
    Timer {
        /// Name of the timer.
        name: String,
    },
    /// Cancel the instance and compensate its completed steps.
    Cancel {
        /// Reason, for the record.
        reason: String,
    },
    /// Retry the failed compensation of a stuck instance.
    Retry,
    /// Skip the failed compensation of a stuck instance and continue.
    Skip,
    /// End the instance without further steps or compensations.
    ForceComplete,
}

/// Event that the saga consumes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Id, unique per source.
    pub id: String,
    /// Event type, for example `OrderPlaced`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Source of the event.
    pub source: String,
    /// Subject of the event.
    pub subject: Option<String>,
    /// Time of the event, in milliseconds since 1970.
    pub time: i64,
    /// Version of the payload schema.
    pub schema_version: u32,
    /// Content type of the data, if it is not JSON.
    #[serde(default)]
    pub content_type: Option<String>,
    /// URI of the schema of the data.
    #[serde(default)]
    pub data_schema: Option<String>,
    /// Extension attributes.
    #[serde(default)]
    pub extensions: BTreeMap<String, String>,
    data: Box<RawValue>,
}

/// Result of a work item.
#[derive(Clone, Debug, Deserialize)]
pub struct WorkResult {
    /// Tag of the work.
    pub tag: String,
    /// Outcome of the work.
    pub outcome: WorkOutcome,
    /// Event that the handler names, if any.
    pub event: Option<String>,
    payload: Box<RawValue>,
    /// Failure, if the work failed.
    pub failure: Option<Failure>,
}

/// Outcome of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkOutcome {
    /// The gateway accepted the command; the result follows as an event.
    Accepted,
    /// The work succeeded.
    Succeeded,
    /// The work was rejected, or failed permanently.
    Failed,
    /// The deadline passed; it is unknown whether the work was executed.
    TimedOut,
}

/// Failure of work or of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct Failure {
    /// Code, for programs.
    pub code: String,
    /// Message, for operators.
    pub message: String,
}

impl Event {
    /// Returns the payload.
    ///
    /// # Errors
    /// The payload does not match the type.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.data.get())
    }
}

impl WorkResult {
    /// Returns the response of the upstream.
    ///
    /// # Errors
    /// The response does not match the type.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.get())
    }
}

/// Serialized form of an input: `kind` selects the field that is present. (A tagged enum would copy
/// the payload.)
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawInput {
    kind: RawInputKind,
    context: Context,
    event: Option<Event>,
    work_result: Option<WorkResult>,
    timer: Option<Timer>,
    cancel: Option<Cancel>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum RawInputKind {
    Event,
    WorkResult,
    Timer,
    Cancel,
    Retry,
    Skip,
    ForceComplete,
}

#[derive(Deserialize)]
struct Timer {
    name: String,
}

#[derive(Deserialize)]
struct Cancel {
    reason: String,
}

impl TryFrom<RawInput> for Input {
    type Error = String;

    fn try_from(raw: RawInput) -> Result<Self, String> {
        let body = match raw.kind {
            RawInputKind::Event => raw.event.map(InputBody::Event),
            RawInputKind::WorkResult => raw.work_result.map(InputBody::WorkResult),
            RawInputKind::Timer => raw.timer.map(|timer| InputBody::Timer { name: timer.name }),
            RawInputKind::Cancel => raw.cancel.map(|cancel| InputBody::Cancel {
                reason: cancel.reason,
            }),
            RawInputKind::Retry => Some(InputBody::Retry),
            RawInputKind::Skip => Some(InputBody::Skip),
            RawInputKind::ForceComplete => Some(InputBody::ForceComplete),
        };

        let body =
            body.ok_or_else(|| format!("an input of kind {:?} lacks its field", raw.kind))?;

        Ok(Self {
            context: raw.context,
            body,
        })
    }
}
