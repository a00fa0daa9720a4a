//! From messages to events and back: which formats are accepted, and what is said about one that is not.
//!
//! - CloudEvents 1.0 binary: attributes are headers (`ce-id`, `ce-type`, …), the body is the data.
//! - CloudEvents 1.0 structured: one JSON object, `content-type: application/cloudevents+json`.
//! - The Aggregate service's own envelope: one JSON object with `event_id`, `aggregate_id`, `event_type` ….
//!
//! Nothing that arrives makes the codec panic. A refusal names the attribute, the rule and what was found. Decoding is a
//! function of its arguments: a message that is delivered twice makes the same event twice.

mod attributes;
mod binary;
mod data;
mod encode;
mod envelope;
mod error;
mod structured;

use orlog_model::{Event, Timestamp};
use serde_json::Value;

use crate::{Message, subject};

pub use attributes::{Defaults, MAX_MESSAGE_BYTES, MAX_TEXT_BYTES};
pub use binary::from_binary;
pub(crate) use encode::header_value;
pub use encode::{encode, subject_of, subject_under};
pub use envelope::from_envelope;
pub use error::DecodeError;
pub use structured::from_structured;

/// Reads the event in a message of the bus; `published_at` is the time of an event that states none.
///
/// The subject decides whose event it is. The format is told by `content-type: application/cloudevents+json`, else by a
/// `ce-…` header, else by what the JSON body holds (`specversion`, or `event_id`).
///
/// # Errors
/// When the message is no event; the text says why.
pub fn decode(message: &Message, published_at: Timestamp) -> Result<Event, DecodeError> {
    let size = message.size();
    if size > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLarge { size, limit: MAX_MESSAGE_BYTES });
    }
    let tenant = subject::tenant_of(&message.subject).map_err(|e| DecodeError::Subject(e.to_string()))?;
    let defaults = Defaults { tenant: Some(tenant), now: published_at };
    let headers = || message.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let content_type = headers().find(|(name, _)| name.eq_ignore_ascii_case("content-type")).map(|(_, v)| v);
    match data::essence(content_type.unwrap_or_default()).as_str() {
        "application/cloudevents+json" => from_structured(&data::json(&message.payload)?, &defaults),
        "application/cloudevents-batch+json" => Err(DecodeError::Format(
            "it is a batch; a message holds one event (POST /v1/events takes batches)".to_owned(),
        )),
        _ if headers().any(|(name, _)| binary::is_attribute(name)) => {
            from_binary(headers(), &message.payload, &defaults)
        }
        _ => from_json(&data::json(&message.payload)?, &defaults),
    }
}

/// Reads an event from JSON whose format is not told by a content type: CloudEvents when it has a `specversion`, the
/// Aggregate service's envelope when it has an `event_id`.
///
/// # Errors
/// When it is neither, or breaks a rule of its format.
pub fn from_json(value: &Value, defaults: &Defaults) -> Result<Event, DecodeError> {
    if value.get("specversion").is_some() {
        from_structured(value, defaults)
    } else if value.get("event_id").is_some() {
        from_envelope(value, defaults)
    } else {
        Err(DecodeError::Format(
            "it has neither a specversion (CloudEvents) nor an event_id (Aggregate envelope)".to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests;
