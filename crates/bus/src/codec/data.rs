//! Data of an event: conversion of a content type and bytes to a JSON value.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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

/// Parses a body as JSON.
pub(super) fn json(body: &[u8]) -> Result<Value, DecodeError> {
    json_part("the body", body)
}

/// Parses a named part as JSON.
pub(super) fn json_part(part: &'static str, text: &[u8]) -> Result<Value, DecodeError> {
    serde_json::from_slice(text).map_err(|e| DecodeError::Json { part, reason: e.to_string() })
}

/// Converts raw bytes to a value: parses JSON, keeps text as a string, encodes anything else as base64.
pub(super) fn of_bytes(part: &'static str, content_type: &str, bytes: &[u8]) -> Result<Value, DecodeError> {
    let essence = essence(content_type);
    if bytes.is_empty() {
        Ok(Value::Null)
    } else if is_json(&essence) {
        json_part(part, bytes)
    } else if essence.starts_with("text/") {
        let text = std::str::from_utf8(bytes)
            .map_err(|e| DecodeError::Format(format!("{part} is {essence} but not UTF-8: {e}")))?;
        Ok(Value::String(text.to_owned()))
    } else {
        Ok(Value::String(STANDARD.encode(bytes)))
    }
}

fn is_json(essence: &str) -> bool {
    essence.is_empty() || essence.ends_with("/json") || essence.ends_with("+json")
}
