//! What the runner tells a saga.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// What happened, and to which instance.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Wire")]
pub struct Input {
    /// Which instance, and when.
    pub context: Context,
    /// What happened.
    pub what: What,
}

/// Which instance, and when. There is no other clock.
#[derive(Clone, Debug, Deserialize)]
pub struct Context {
    /// Whose instance it is; empty in a deployment without tenants.
    pub tenant: String,
    /// The saga's name.
    pub saga: String,
    /// What the events of the instance share.
    pub correlation: String,
    /// The state version that this transition leads to.
    pub version: u64,
    /// The time of the transition, in milliseconds since 1970.
    pub now: i64,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    /// An event, from the bus or as a signal.
    Event(Event),
    /// What became of work.
    Outcome(Outcome),
    /// A timer fell due.
    Timer {
        /// The name it was armed under.
        name: String,
    },
    /// Stop going forward and undo what was done.
    Cancel {
        /// For the record.
        reason: String,
    },
    /// Try again what ended in `stuck`.
    Retry,
    /// Leave undone what ended in `stuck`, and go on.
    Skip,
    /// Nothing more is done or undone; it ends.
    ForceComplete,
}

/// A fact from outside.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Unique per source.
    pub id: String,
    /// What happened, for example `OrderPlaced`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Who says so.
    pub source: String,
    /// What it is about.
    pub subject: Option<String>,
    /// When it happened, in milliseconds since 1970.
    pub time: i64,
    /// Version of the payload's schema.
    pub schema_version: u32,
    data: Box<RawValue>,
}

/// What became of work.
#[derive(Clone, Debug, Deserialize)]
pub struct Outcome {
    /// The tag the work was asked for under.
    pub tag: String,
    /// How it ended.
    pub verdict: Verdict,
    /// The event that the handler names, where it does.
    pub event: Option<String>,
    payload: Box<RawValue>,
    /// Why it failed, where it did.
    pub failure: Option<Failure>,
}

/// How work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The Gateway took the command; the answer proper will be an event.
    Accepted,
    /// It was done.
    Succeeded,
    /// It was refused, or it failed for good.
    Failed,
    /// The deadline passed; whether it was done is not known.
    TimedOut,
}

/// Why something did not go well.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct Failure {
    /// A short word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

impl Event {
    /// The payload.
    ///
    /// # Errors
    /// When it is not what the type expects.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.data.get())
    }
}

impl Outcome {
    /// What the upstream answered.
    ///
    /// # Errors
    /// When it is not what the type expects.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.get())
    }
}

/// The input as it travels: `kind` says which of the fields is there. (A tagged enum would copy the payload.)
#[derive(Deserialize)]
struct Wire {
    kind: Kind,
    context: Context,
    event: Option<Event>,
    outcome: Option<Outcome>,
    timer: Option<Timer>,
    cancel: Option<Cancel>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Event,
    Outcome,
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

impl TryFrom<Wire> for Input {
    type Error = String;

    fn try_from(wire: Wire) -> Result<Self, String> {
        let what = match wire.kind {
            Kind::Event => wire.event.map(What::Event),
            Kind::Outcome => wire.outcome.map(What::Outcome),
            Kind::Timer => wire.timer.map(|timer| What::Timer { name: timer.name }),
            Kind::Cancel => wire.cancel.map(|cancel| What::Cancel { reason: cancel.reason }),
            Kind::Retry => Some(What::Retry),
            Kind::Skip => Some(What::Skip),
            Kind::ForceComplete => Some(What::ForceComplete),
        };
        let what = what.ok_or_else(|| format!("an input of kind {:?} without its field", wire.kind))?;
        Ok(Self { context: wire.context, what })
    }
}
