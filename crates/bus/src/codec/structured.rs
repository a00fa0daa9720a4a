//! CloudEvents in structured mode: one JSON object with all attributes and the data.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use compact_str::format_compact;
use orlog_model::Event;
use serde_json::{Map, Value};

use super::attributes::{self, Attributes, NAMES, NO_EXTENSIONS};
use super::attributes::{DecodeDefaults, SignalConditions};
use super::binary::header_text;
use super::data;
use super::encode::header_value;
use super::error::DecodeError;
use crate::Headers;

/// Reads an event from a parsed JSON object in the CloudEvents JSON format.
///
/// # Errors
/// If it is not an object, if an attribute is missing, malformed or of the wrong type, or if both
/// `data` and `data_base64` are present.
pub fn from_structured(value: &Value, defaults: &DecodeDefaults) -> Result<Event, DecodeError> {
    let Value::Object(members) = value else {
        return Err(DecodeError::Format(
            "a CloudEvent must be a JSON object".to_owned(),
        ));
    };
    attributes::event(&Members(members), data(members)?, defaults)
}

/// Reads the conditions of a signal; none if it is not an object.
pub(super) fn conditions(value: &Value) -> Result<SignalConditions, DecodeError> {
    value.as_object().map_or_else(
        || Ok(SignalConditions::default()),
        |members| attributes::conditions(&Members(members)),
    )
}

/// Returns an event that is signed in structured mode as its headers and body in binary mode. A
/// signature covers these: the text of each attribute, percent-encoded, and the bytes of the data.
///
/// # Errors
/// If the data is not in `data_base64`, which keeps its bytes, or if an attribute is no text or can
/// only be set by Orlog.
pub fn to_binary(members: &Map<String, Value>) -> Result<(Headers, Bytes), DecodeError> {
    if let Some(data) = members.get("data").filter(|data| !data.is_null()) {
        let rule = "a signed event has its data in data_base64, so that its bytes stay the same";
        return Err(DecodeError::invalid_type("data", rule, data));
    }

    let mut headers = Headers::with_capacity(members.len());
    for (name, value) in members
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "data" | "data_base64"))
    {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => Cow::Borrowed(text.as_str()),
            Value::Bool(_) | Value::Number(_) => Cow::Owned(value.to_string()),
            other => {
                return Err(DecodeError::invalid_type(
                    name,
                    "it must be a string",
                    other,
                ));
            }
        };

        // The signature covers the attribute, and Orlog would replace it.
        if !NAMES.contains(&name.as_str())
            && !NO_EXTENSIONS.contains(&name.as_str())
            && !attributes::is_extension(name)
        {
            return Err(DecodeError::invalid(
                name,
                "only Orlog sets this attribute; remove it",
                &text,
            ));
        }

        headers.push(match name.as_str() {
            "datacontenttype" => ("content-type".into(), text.into()),
            "traceparent" => ("traceparent".into(), header_value(&text)),
            name => (format_compact!("ce-{name}"), header_value(&text)),
        });
    }

    Ok((headers, base64(members)?.into()))
}

/// Returns an event in binary mode as the members of the structured mode, from which [`to_binary`]
/// returns the same headers and body. Other headers are omitted.
///
/// # Errors
/// If a header is not percent-encoded UTF-8.
pub fn to_structured(headers: &Headers, body: &[u8]) -> Result<Map<String, Value>, DecodeError> {
    let mut members = Map::new();
    for (name, value) in headers {
        let (name, text) = match name.as_str() {
            "content-type" => ("datacontenttype", Cow::Borrowed(value.as_str())),
            "traceparent" => ("traceparent", header_text(name, value)?),
            header => match header.strip_prefix("ce-") {
                Some(attribute) => (attribute, header_text(name, value)?),
                None => continue,
            },
        };
        members.insert(name.to_owned(), text.into_owned().into());
    }

    members.insert("data_base64".to_owned(), STANDARD.encode(body).into());
    Ok(members)
}

struct Members<'a>(&'a Map<String, Value>);

impl Attributes for Members<'_> {
    const PREFIX: &'static str = "";

    fn get(&self, attribute: &str) -> Result<Option<Cow<'_, str>>, DecodeError> {
        match self.0.get(attribute) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(Cow::Borrowed(text))),
            // These two are integers, which JSON publishers write as numbers. Binary mode has only
            // text.
            Some(Value::Number(number))
                if matches!(attribute, "dataversion" | attributes::EXPECTED_VERSION) =>
            {
                Ok(Some(Cow::Owned(number.to_string())))
            }
            Some(other) => Err(DecodeError::invalid_type(
                attribute,
                "it must be a string",
                other,
            )),
        }
    }

    fn content_type(&self) -> Result<Option<&str>, DecodeError> {
        content_type(self.0)
    }

    fn extensions(&self) -> Result<BTreeMap<String, String>, DecodeError> {
        let mut extensions = BTreeMap::new();
        for (name, value) in self.0 {
            if value.is_null() || NAMES.contains(&name.as_str()) || !attributes::is_extension(name)
            {
                continue;
            }

            let text = match value {
                Value::String(text) => Cow::Borrowed(text.as_str()),
                Value::Bool(flag) => Cow::Owned(flag.to_string()),
                // CloudEvents attributes have no floats, and their text would differ between JSON
                // libraries.
                Value::Number(number) if number.is_i64() || number.is_u64() => {
                    Cow::Owned(number.to_string())
                }
                other => {
                    let rule = "an extension is a string, a whole number or a boolean; move \
                                other values into the data";
                    return Err(DecodeError::invalid_type(name, rule, other));
                }
            };
            let text = attributes::extension(self.label(name), name, &text)?;
            extensions.insert(name.clone(), text);
        }
        Ok(extensions)
    }
}

fn content_type(members: &Map<String, Value>) -> Result<Option<&str>, DecodeError> {
    match members.get("datacontenttype") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(DecodeError::invalid_type(
            "datacontenttype",
            "it must be a string",
            other,
        )),
    }
}

fn data(members: &Map<String, Value>) -> Result<Value, DecodeError> {
    let content_type = content_type(members)?.unwrap_or_default();
    let encoded = match (members.get("data"), members.get("data_base64")) {
        (data, None | Some(Value::Null)) => {
            return data.map_or(Ok(Value::Null), |data| data::of_member(content_type, data));
        }
        (None | Some(Value::Null), Some(encoded)) => encoded,
        (Some(_), Some(encoded)) => {
            let rule = "data and data_base64 are mutually exclusive";
            return Err(DecodeError::invalid_type("data_base64", rule, encoded));
        }
    };

    data::of_bytes("data_base64", content_type, &decoded(encoded)?)
}

/// Returns the bytes of the data in base64; none if there is no data.
fn base64(members: &Map<String, Value>) -> Result<Vec<u8>, DecodeError> {
    let encoded = members
        .get("data_base64")
        .filter(|encoded| !encoded.is_null());
    encoded.map_or_else(|| Ok(Vec::new()), decoded)
}

fn decoded(encoded: &Value) -> Result<Vec<u8>, DecodeError> {
    let rule = "it must be a base64 string";
    let text = encoded
        .as_str()
        .ok_or_else(|| DecodeError::invalid_type("data_base64", rule, encoded))?;
    STANDARD
        .decode(text)
        .map_err(|_| DecodeError::invalid("data_base64", rule, text))
}
