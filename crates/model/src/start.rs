//! Start of an instance by a request, instead of an event on the bus.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{EventType, Timestamp};

/// Request to start one instance, optionally with a signal that follows the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartRequest {
    /// Start event. Default: the first start event of the saga.
    pub event: Option<EventType>,
    /// Data of that event.
    pub data: Value,
    /// Version of the schema of the data.
    pub schema_version: u32,
    /// Subject of the start event.
    pub subject: Option<String>,
    /// Policy if the instance exists.
    pub on_existing: OnExisting,
    /// Signal to deliver: after the start, or at once if the instance exists.
    pub signal: Option<StartSignal>,
}

/// Signal that a start request delivers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartSignal {
    /// Event type.
    pub kind: EventType,
    /// Payload.
    pub data: Value,
    /// Time of the delivery; `None`: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

/// Policy of a start request for an instance that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExisting {
    /// Start nothing; the request joins the instance, which may have ended.
    #[default]
    Return,
    /// Reject the request.
    Fail,
    /// Start a new run if the instance has ended and has no pending work, else reject the request.
    Restart,
}
