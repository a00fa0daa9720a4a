//! CloudEvents in binary mode: every attribute is a header, the body is the data.

use std::borrow::Cow;
use std::fmt::Display;

use orlog_model::{Event, EventType};
use percent_encoding::percent_decode_str;

use super::attributes::{self, Attributes};
use super::attributes::{DecodeDefaults, MAX_MESSAGE_BYTES, SignalConditions};
use super::data;
use super::error::DecodeError;

const PREFIX: &str = "ce-";

/// Attributes that the codec reads; it discards all others.
const NAMES: [&str; 15] = [
    "specversion",
    "id",
    "type",
    "source",
    "time",
    "subject",
    "tenantid",
    "correlationid",
    "causationid",
    "dataversion",
    "orloguser",
    "traceparent",
    attributes::EXPECTED_VERSION,
    attributes::WAIT_TOKEN,
    attributes::DUE_AT,
];

/// Reads an event from headers (`ce-id` …, `traceparent`, `content-type`; names in any case) and a
/// body.
///
/// Header values are percent-decoded, as the HTTP binding of CloudEvents requires.
///
/// # Errors
/// If an attribute is missing, malformed or duplicated, or if the body does not match its content type.
pub fn from_binary<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: &[u8],
    defaults: &DecodeDefaults,
) -> Result<Event, DecodeError> {
    if body.len() > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLarge { size: body.len(), limit: MAX_MESSAGE_BYTES });
    }
    let (found, content_type) = Headers::read(headers)?;
    let data = data::of_bytes("the body", content_type, body)?;
    attributes::event(&found, data, defaults)
}

/// Reads the conditions of a signal.
pub(super) fn conditions<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<SignalConditions, DecodeError> {
    let (found, _) = Headers::read(headers)?;
    attributes::conditions(&found)
}

/// Checks the required attributes and the tenant, and returns the event type.
pub(super) fn event_type<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    defaults: &DecodeDefaults,
) -> Result<EventType, DecodeError> {
    let (found, _) = Headers::read(headers)?;
    attributes::event_type(&found, defaults)
}

/// Returns whether a header contains a CloudEvents attribute.
pub(super) fn is_attribute(header: &str) -> bool {
    attribute(header).is_some()
}

fn attribute(header: &str) -> Option<&str> {
    let prefix = header.get(..PREFIX.len())?;
    prefix.eq_ignore_ascii_case(PREFIX).then(|| &header[PREFIX.len()..])
}

/// Returns the index of a header in [`NAMES`]. The W3C header counts as the attribute of the same name.
fn index(header: &str) -> Option<usize> {
    let attribute = match attribute(header) {
        Some(attribute) => attribute,
        None if header.eq_ignore_ascii_case("traceparent") => header,
        None => return None,
    };
    NAMES.iter().position(|name| name.eq_ignore_ascii_case(attribute))
}

#[derive(Default)]
struct Headers<'a>([Option<&'a str>; NAMES.len()]);

impl<'a> Headers<'a> {
    /// Returns the attributes and the content type.
    fn read(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(Self, &'a str), DecodeError> {
        let mut found = Self::default();
        let mut content_type = "";
        for (name, value) in headers {
            if name.eq_ignore_ascii_case("content-type") {
                content_type = value;
            } else if let Some(index) = index(name) {
                found.put(index, name, value)?;
            }
        }
        Ok((found, content_type))
    }

    fn put(&mut self, index: usize, name: &str, value: &'a str) -> Result<(), DecodeError> {
        match self.0[index].replace(value) {
            Some(first) if first != value => {
                Err(DecodeError::invalid(name, format!("duplicate attribute, first value {first:?}"), value))
            }
            _ => Ok(()),
        }
    }
}

impl Attributes for Headers<'_> {
    const PREFIX: &'static str = PREFIX;

    fn get(&self, attribute: &str) -> Result<Option<Cow<'_, str>>, DecodeError> {
        let index = NAMES.iter().position(|name| *name == attribute);
        let value = index.and_then(|index| self.0[index]);
        value.map(|value| header_text(self.label(attribute), value)).transpose()
    }
}

/// Returns the text of a header value: quotes removed, percent-decoded. A `%` without a valid escape is
/// literal.
pub(crate) fn header_text(label: impl Display, value: &str) -> Result<Cow<'_, str>, DecodeError> {
    let value = value.trim();
    let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
    let value = quoted.map_or(Cow::Borrowed(value), |inner| Cow::Owned(unquote(inner)));
    if !value.contains('%') {
        return Ok(value);
    }
    let decoded = percent_decode_str(&value).decode_utf8().map(|text| Cow::Owned(text.into_owned()));
    decoded.map_err(|_| DecodeError::invalid(label, "it must be percent-encoded UTF-8", &value))
}

fn unquote(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        text.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    text
}
