//! Envelope of the Aggregate service: one JSON object in snake case.
//!
//! ```text
//! {
//!   tenant_id, event_id, aggregate_id, aggregate_type, event_type, timestamp, version,
//!   payload | payload_json,
//!   metadata { correlation_id, causation_id, trace_id }
//! }
//! ```
//!
//! The aggregate type becomes the source `urn:aggregate:<type>`, the aggregate id the subject, the
//! version the schema version of the payload.

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Name, TenantId, Timestamp, TraceParent,
};
use serde_json::{Map, Value};

use super::attributes::DecodeDefaults;
use super::attributes::{free_text, id, resolve_tenant, time, version};
use super::data;
use super::error::DecodeError;

/// Prefix of the source of an aggregate event; the aggregate type follows.
pub(super) const SOURCE_PREFIX: &str = "urn:aggregate:";

/// Reads an event from a parsed envelope.
///
/// # Errors
/// If it is not an object, or if a member is missing, malformed or of the wrong type.
pub fn from_envelope(value: &Value, defaults: &DecodeDefaults) -> Result<Event, DecodeError> {
    let Value::Object(members) = value else {
        return Err(DecodeError::Format(
            "an Aggregate envelope must be a JSON object".to_owned(),
        ));
    };

    let none = Map::new();
    let metadata = match members.get("metadata") {
        None | Some(Value::Null) => &none,
        Some(Value::Object(metadata)) => metadata,
        Some(other) => {
            return Err(DecodeError::invalid_type(
                "metadata",
                "it must be an object",
                other,
            ));
        }
    };

    let tenant = text(members, "tenant_id")?
        .map(|t| id("tenant_id", t, TenantId::for_input))
        .transpose()?;
    let aggregate_type = id(
        "aggregate_type",
        required(members, "aggregate_type")?,
        Name::for_input,
    )?;

    let correlation = text(metadata, "correlation_id")?;
    let causation = text(metadata, "causation_id")?;

    Ok(Event {
        id: id(
            "event_id",
            required(members, "event_id")?,
            EventId::for_input,
        )?,
        tenant: resolve_tenant(tenant, defaults)?,
        kind: id(
            "event_type",
            required(members, "event_type")?,
            EventType::for_input,
        )?,
        source: format!("{SOURCE_PREFIX}{aggregate_type}"),
        subject: Some(free_text(
            "aggregate_id",
            required(members, "aggregate_id")?,
        )?),
        time: timestamp(members)?.unwrap_or(defaults.now),
        correlation: correlation
            .map(|t| id("metadata.correlation_id", t, CorrelationId::for_path))
            .transpose()?,
        causation: causation
            .map(|t| free_text("metadata.causation_id", t))
            .transpose()?,
        trace: text(metadata, "trace_id")?.and_then(trace),
        schema_version: schema_version(members)?,
        data: payload(members)?,
        user: None,
        attributes: None,
    })
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, DecodeError> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(DecodeError::invalid_type(
            name,
            "it must be a string",
            other,
        )),
    }
}

fn required<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a str, DecodeError> {
    let rule = "the Aggregate envelope requires it";
    text(members, name)?.ok_or_else(|| DecodeError::Missing {
        attribute: name.to_owned(),
        rule,
    })
}

/// Parses an RFC 3339 time or milliseconds since 1970.
fn timestamp(members: &Map<String, Value>) -> Result<Option<Timestamp>, DecodeError> {
    match members.get("timestamp") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => time("timestamp", text).map(Some),
        Some(other) => {
            let rule = "it must be an RFC 3339 time or whole milliseconds since 1970";
            let millis = other.as_i64().map(Timestamp::from_foreign_millis);
            // Milliseconds outside the range of RFC 3339 have no text that a decoder reads again.
            let valid = millis.filter(|t| Timestamp::parse(&t.to_string()).is_ok());
            valid
                .map(Some)
                .ok_or_else(|| DecodeError::invalid_type("timestamp", rule, other))
        }
    }
}

/// Parses a complete `traceparent` or a bare trace id. The latter half of a bare id replaces the
/// unknown parent span.
fn trace(text: &str) -> Option<TraceParent> {
    TraceParent::new(text)
        .or_else(|| TraceParent::new(&format!("00-{text}-{}-01", text.get(16..)?)))
}

fn schema_version(members: &Map<String, Value>) -> Result<u32, DecodeError> {
    match members.get("version") {
        None | Some(Value::Null) => Ok(1),
        Some(Value::String(text)) => version("version", text),
        Some(other) => version("version", &other.to_string()),
    }
}

fn payload(members: &Map<String, Value>) -> Result<Value, DecodeError> {
    match (members.get("payload"), members.get("payload_json")) {
        (Some(Value::Null) | None, Some(Value::String(text))) => {
            data::json_part("payload_json", text.as_bytes())
        }
        (Some(Value::Null) | None, Some(json)) => Ok(json.clone()),
        (payload, None | Some(Value::Null)) => Ok(payload.cloned().unwrap_or(Value::Null)),
        (Some(_), Some(json)) => {
            let rule = "payload and payload_json are mutually exclusive";
            Err(DecodeError::invalid_type("payload_json", rule, json))
        }
    }
}
