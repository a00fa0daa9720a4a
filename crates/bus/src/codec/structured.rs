//! CloudEvents in structured mode: one JSON object with all attributes and the data.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orlog_model::Event;
use serde_json::{Map, Value};

use super::attributes::{self, Attributes, NAMES};
use super::attributes::{DecodeDefaults, SignalConditions};
use super::data;
use super::error::DecodeError;

/// Reads an event from a parsed JSON object in the CloudEvents JSON format.
///
/// # Errors
/// If it is not an object, if an attribute is missing, malformed or of the wrong type, or if both
/// `data` and `data_base64` are present.
pub fn from_structured(value: &Value, defaults: &DecodeDefaults) -> Result<Event, DecodeError> {
    let Value::Object(members) = value else {
        return Err(DecodeError::Format("a CloudEvent must be a JSON object".to_owned()));
    };
    attributes::event(&Members(members), data(members)?, defaults)
}

/// Reads the conditions of a signal; none if it is not an object.
pub(super) fn conditions(value: &Value) -> Result<SignalConditions, DecodeError> {
    value
        .as_object()
        .map_or_else(|| Ok(SignalConditions::default()), |members| attributes::conditions(&Members(members)))
}

struct Members<'a>(&'a Map<String, Value>);

impl Attributes for Members<'_> {
    const PREFIX: &'static str = "";

    fn get(&self, attribute: &str) -> Result<Option<Cow<'_, str>>, DecodeError> {
        match self.0.get(attribute) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(Cow::Borrowed(text))),
            Some(Value::Number(number))
                if matches!(attribute, "dataversion" | attributes::EXPECTED_VERSION) =>
            {
                Ok(Some(Cow::Owned(number.to_string())))
            }
            Some(other) => Err(DecodeError::invalid_type(attribute, "it must be a string", other)),
        }
    }

    fn content_type(&self) -> Result<Option<&str>, DecodeError> {
        content_type(self.0)
    }

    fn extensions(&self) -> Result<BTreeMap<String, String>, DecodeError> {
        let members = self.0.iter().filter(|(name, value)| {
            !value.is_null() && !NAMES.contains(&name.as_str()) && attributes::is_extension(name)
        });
        let extension = |(name, value): (&String, &Value)| {
            let text = match value {
                Value::String(text) => Cow::Borrowed(text.as_str()),
                Value::Bool(flag) => Cow::Owned(flag.to_string()),
                Value::Number(number) if number.is_i64() || number.is_u64() => Cow::Owned(number.to_string()),
                other => {
                    let rule = "an extension is a string, a whole number or a boolean; move other values into the data";
                    return Err(DecodeError::invalid_type(name, rule, other));
                }
            };
            Ok((name.clone(), attributes::extension(self.label(name), name, &text)?))
        };
        members.map(extension).collect()
    }
}

fn content_type(members: &Map<String, Value>) -> Result<Option<&str>, DecodeError> {
    match members.get("datacontenttype") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(DecodeError::invalid_type("datacontenttype", "it must be a string", other)),
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
    let rule = "it must be a base64 string";
    let text = encoded.as_str().ok_or_else(|| DecodeError::invalid_type("data_base64", rule, encoded))?;
    let bytes = STANDARD.decode(text).map_err(|_| DecodeError::invalid("data_base64", rule, text))?;
    data::of_bytes("data_base64", content_type, &bytes)
}
