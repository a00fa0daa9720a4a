//! Data of an event: conversion of a content type and bytes to a JSON value.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orlog_model::{ForeignJson, parse_foreign_json};
use serde_json::Value;

use super::error::DecodeError;

/// Returns a content type without its parameters, in lower case.
pub(super) fn essence(content_type: &str) -> Cow<'_, str> {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(essence.to_ascii_lowercase())
    } else {
        Cow::Borrowed(essence)
    }
}

/// Parses the body of a message, which contains the attributes and the data of an event. Text that
/// is not Unicode is replaced in the data only: two ids must not become equal.
pub(super) fn json(body: &[u8]) -> Result<Value, DecodeError> {
    let part = "the body";
    let parsed = parse(part, body)?;
    if !parsed.is_repaired {
        return Ok(parsed.value);
    }

    let mut members = parsed.value.as_object().into_iter().flatten();
    let replaced = members.find(|(name, value)| is_replaced(name, value));
    if let Some((name, _)) = replaced {
        let reason = format!("attribute {name} is not valid Unicode");
        return Err(DecodeError::Json { part, reason });
    }

    log_repair(part);
    Ok(parsed.value)
}

/// Returns whether a member other than the data may have replaced text. Text that had the character
/// before is rejected as well: both look the same, and two ids must not become equal.
fn is_replaced(name: &str, value: &Value) -> bool {
    let is_data = matches!(name, "data" | "payload" | "payload_json");
    let replacement = char::REPLACEMENT_CHARACTER;
    !is_data && (name.contains(replacement) || value.to_string().contains(replacement))
}

/// Parses a named part of the data as JSON.
pub(super) fn json_part(part: &'static str, text: &[u8]) -> Result<Value, DecodeError> {
    let parsed = parse(part, text)?;
    if parsed.is_repaired {
        log_repair(part);
    }
    Ok(parsed.value)
}

fn parse(part: &'static str, text: &[u8]) -> Result<ForeignJson<Value>, DecodeError> {
    parse_foreign_json(text).map_err(|error| DecodeError::Json {
        part,
        reason: error.to_string(),
    })
}

fn log_repair(part: &'static str) {
    tracing::warn!(
        part,
        "an event has text that is not Unicode; it was replaced by U+FFFD"
    );
}

/// Returns whether a content type is not kept: that of data without one, JSON, and those of events,
/// because a message with them is an event in another mode.
pub(super) fn is_default(content_type: &str) -> bool {
    let essence = essence(content_type);
    matches!(&*essence, "" | "application/json") || essence.starts_with("application/cloudevents")
}

/// Returns whether data of a content type is JSON.
pub(super) fn is_json(content_type: &str) -> bool {
    DataFormat::of(&essence(content_type)) == DataFormat::Json
}

/// Converts raw bytes to a value: parses JSON, keeps text and XML as a string, encodes anything
/// else as base64.
pub(super) fn of_bytes(
    part: &'static str,
    content_type: &str,
    bytes: &[u8],
) -> Result<Value, DecodeError> {
    // In binary mode, an event without data has an empty body under any content type.
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let essence = essence(content_type);
    match DataFormat::of(&essence) {
        DataFormat::Json => json_part(part, bytes),
        DataFormat::Text => {
            let text = std::str::from_utf8(bytes).map_err(|e| {
                DecodeError::Format(format!(
                    "{part} is {essence} but not UTF-8: {e}; convert it, or send it as \
                     application/octet-stream"
                ))
            })?;
            Ok(Value::String(text.to_owned()))
        }
        DataFormat::Binary => Ok(Value::String(STANDARD.encode(bytes))),
    }
}

/// Converts the member `data` of the JSON format to the value that the same bytes have in binary
/// mode. Data that is not JSON is a string.
pub(super) fn of_member(content_type: &str, data: &Value) -> Result<Value, DecodeError> {
    match data {
        Value::Null => Ok(Value::Null),
        data if is_json(content_type) => Ok(data.clone()),
        // Text takes the path of raw bytes, so that both modes decode to one value.
        Value::String(text) => of_bytes("data", content_type, text.as_bytes()),
        other => {
            let rule = "it must be a string, because datacontenttype is not JSON; \
                        for JSON data, omit datacontenttype or use application/json";
            Err(DecodeError::invalid_type("data", rule, other))
        }
    }
}

/// Converts a value to the bytes that [`of_bytes`] reads as this value. Returns `None` if the
/// content type has none.
pub(super) fn to_bytes(content_type: &str, data: &Value) -> Option<Vec<u8>> {
    match (DataFormat::of(&essence(content_type)), data) {
        (DataFormat::Json, _) => None,
        (_, Value::Null) => Some(Vec::new()),
        (DataFormat::Text, Value::String(text)) => Some(text.clone().into_bytes()),
        (DataFormat::Binary, Value::String(text)) => STANDARD.decode(text).ok(),
        (DataFormat::Text | DataFormat::Binary, _) => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DataFormat {
    Json,
    Text,
    Binary,
}

impl DataFormat {
    fn of(essence: &str) -> Self {
        // CloudEvents define data without a content type as JSON.
        if essence.is_empty() || essence.ends_with("/json") || essence.ends_with("+json") {
            Self::Json
        } else if essence.starts_with("text/")
            || essence == "application/xml"
            || essence.ends_with("+xml")
        {
            Self::Text
        } else {
            Self::Binary
        }
    }
}
