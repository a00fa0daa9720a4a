//! Codec between bus messages and events.
//!
//! - CloudEvents 1.0 binary: attributes are headers (`ce-id`, `ce-type`, …), the body is the data.
//! - CloudEvents 1.0 structured: one JSON object, `content-type: application/cloudevents+json`.
//! - Envelope of the Aggregate service: one JSON object with `event_id`, `aggregate_id`,
//!   `event_type` ….
//!
//! The codec never panics on any input. An error names the attribute, the rule and the actual
//! value. Decoding is a pure function of its arguments: a redelivered message decodes to an equal
//! event.

mod attributes;
mod binary;
mod data;
mod encode;
mod envelope;
mod error;
mod structured;

use orlog_model::count::{Operation, count};
use orlog_model::{Event, EventType, Timestamp};
use serde_json::Value;

use crate::{Message, subject};

pub use attributes::{
    DecodeDefaults, EVENT_SIGNATURE, MAX_MESSAGE_BYTES, MAX_TEXT_BYTES, SignalConditions,
};
pub use binary::from_binary;
pub(crate) use binary::header_text;
pub use encode::{EventRef, aggregate_subject, encode, header_value, subject_with_kind};
pub use envelope::from_envelope;
pub use error::DecodeError;
pub use structured::{from_structured, to_binary, to_structured};

/// Header of a fact that carries the result of an effect: the name of the effect.
pub(crate) const CARRIED_RESULT: &str = "ce-orlogeffect";

/// Decodes the event in a bus message; `published_at` is the time of an event without a time.
///
/// The subject determines the tenant. The format is determined by
/// `content-type: application/cloudevents+json`, else by a `ce-…` header, else by the members of
/// the JSON body (`specversion` or `event_id`).
///
/// # Errors
/// If the message is not a valid event; the text gives the reason.
pub fn decode(message: &Message, published_at: Timestamp) -> Result<Event, DecodeError> {
    read(message, published_at, |_| Ok(SignalConditions::default())).map(|(event, _)| event)
}

/// Decodes the event of a signal and its conditions. An Aggregate envelope has no conditions.
///
/// # Errors
/// Those of [`decode`], or if a condition is malformed.
pub fn decode_signal(
    message: &Message,
    published_at: Timestamp,
) -> Result<(Event, SignalConditions), DecodeError> {
    read(message, published_at, |part| match part {
        MessagePart::Headers => binary::conditions(headers(message)),
        MessagePart::Body(body) => structured::conditions(body),
    })
}

/// Part of a message that contains the attributes.
enum MessagePart<'a> {
    Headers,
    Body(&'a Value),
}

/// Decodes an event; `conditions` reads the conditions of a signal from the part with the
/// attributes.
fn read(
    message: &Message,
    published_at: Timestamp,
    conditions: impl Fn(MessagePart<'_>) -> Result<SignalConditions, DecodeError>,
) -> Result<(Event, SignalConditions), DecodeError> {
    count(Operation::EventDecode);
    let defaults = defaults_for(message, published_at)?;

    match &*data::essence(content_type(message)) {
        "application/cloudevents+json" => {
            let body = data::json(&message.payload)?;
            Ok((
                from_structured(&body, &defaults)?,
                conditions(MessagePart::Body(&body))?,
            ))
        }
        "application/cloudevents-batch+json" => Err(DecodeError::Format(
            "a batch is not accepted here; a message contains one event (POST /v1/events accepts \
             batches)"
                .to_owned(),
        )),
        _ if headers(message).any(|(name, _)| binary::is_attribute(name)) => {
            let event = from_binary(headers(message), &message.payload, &defaults)?;
            Ok((event, conditions(MessagePart::Headers)?))
        }
        _ => {
            let body = data::json(&message.payload)?;
            Ok((
                from_json(&body, &defaults)?,
                conditions(MessagePart::Body(&body))?,
            ))
        }
    }
}

/// Returns the type of the event in a message in binary mode, without decoding the event.
///
/// `None` if only [`decode`] can read the message or report its error: it is in another format or
/// too large, its tenant is invalid, or a required attribute is missing, duplicated or not
/// percent-encoded UTF-8. The other attributes and the body are not checked.
#[must_use]
pub fn event_type(message: &Message) -> Option<EventType> {
    let defaults = defaults_for(message, Timestamp::default()).ok()?;
    // In structured mode the type is in the body, which this function does not parse.
    let is_binary = !data::essence(content_type(message)).starts_with("application/cloudevents");
    is_binary.then(|| binary::event_type(headers(message), &defaults).ok())?
}

fn defaults_for(message: &Message, published_at: Timestamp) -> Result<DecodeDefaults, DecodeError> {
    // Before anything is parsed: the limit bounds the cost of decoding.
    let size = message.size();
    if size > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLarge {
            size,
            limit: MAX_MESSAGE_BYTES,
        });
    }

    let tenant =
        subject::tenant_of(&message.subject).map_err(|e| DecodeError::Subject(e.to_string()))?;
    Ok(DecodeDefaults {
        tenant: Some(tenant),
        now: published_at,
    })
}

fn headers(message: &Message) -> impl Iterator<Item = (&str, &str)> {
    message
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
}

fn content_type(message: &Message) -> &str {
    let found = headers(message).find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    found.map_or("", |(_, value)| value)
}

/// Reads an event from JSON without a content type: CloudEvents if it has a `specversion`, the
/// envelope of the Aggregate service if it has an `event_id`.
///
/// # Errors
/// If it is neither, or violates a rule of its format.
pub fn from_json(value: &Value, defaults: &DecodeDefaults) -> Result<Event, DecodeError> {
    if value.get("specversion").is_some() {
        from_structured(value, defaults)
    } else if value.get("event_id").is_some() {
        from_envelope(value, defaults)
    } else {
        Err(DecodeError::Format(
            "it has neither a specversion (CloudEvents) nor an event_id (Aggregate envelope)"
                .to_owned(),
        ))
    }
}

#[cfg(test)]
mod attribute_tests;
#[cfg(test)]
mod tests;
