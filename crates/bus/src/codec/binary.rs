//! CloudEvents in binary mode: every attribute is a header, the body is the data.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;

use orlog_model::{Event, EventType};
use percent_encoding::percent_decode_str;

use super::attributes::{self, Attributes, NAMES};
use super::attributes::{DecodeDefaults, MAX_MESSAGE_BYTES, SignalConditions};
use super::data;
use super::error::DecodeError;

const PREFIX: &str = "ce-";

/// Reads an event from headers (`ce-id` …, `traceparent`, `content-type`; names in any case) and a
/// body.
///
/// Header values are percent-decoded, as the HTTP binding of CloudEvents requires.
///
/// # Errors
/// If an attribute is missing, malformed or duplicated, or if the body does not match its content
/// type.
pub fn from_binary<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: &[u8],
    defaults: &DecodeDefaults,
) -> Result<Event, DecodeError> {
    // The HTTP API calls this function directly, without the check of a bus message.
    if body.len() > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLarge {
            size: body.len(),
            limit: MAX_MESSAGE_BYTES,
        });
    }

    let found = Headers::read(headers)?;
    let data = data::of_bytes("the body", found.content_type, body)?;
    attributes::event(&found, data, defaults)
}

/// Reads the conditions of a signal.
pub(super) fn conditions<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<SignalConditions, DecodeError> {
    let found = Headers::read(headers)?;
    attributes::conditions(&found)
}

/// Checks the required attributes and the tenant, and returns the event type.
pub(super) fn event_type<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    defaults: &DecodeDefaults,
) -> Result<EventType, DecodeError> {
    let found = Headers::read(headers)?;
    attributes::event_type(&found, defaults)
}

/// Returns whether a header contains a CloudEvents attribute.
pub(super) fn is_attribute(header: &str) -> bool {
    attribute(header).is_some()
}

fn attribute(header: &str) -> Option<&str> {
    let prefix = header.get(..PREFIX.len())?;
    prefix
        .eq_ignore_ascii_case(PREFIX)
        .then(|| &header[PREFIX.len()..])
}

/// Returns the index of a header in [`NAMES`]. The W3C header counts as the attribute of the same
/// name.
fn index(header: &str) -> Option<usize> {
    let attribute = match attribute(header) {
        Some(attribute) => attribute,
        None if header.eq_ignore_ascii_case("traceparent") => header,
        None => return None,
    };
    NAMES
        .iter()
        .position(|name| name.eq_ignore_ascii_case(attribute))
}

#[derive(Default)]
struct Headers<'a> {
    known: [Option<&'a str>; NAMES.len()],
    content_type: &'a str,
    /// Other attributes: names without the prefix, as received, and values.
    extensions: Vec<(&'a str, &'a str)>,
}

impl<'a> Headers<'a> {
    fn read(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, DecodeError> {
        let mut found = Self::default();
        for (name, value) in headers {
            if name.eq_ignore_ascii_case("content-type") {
                found.content_type = value;
            } else if let Some(index) = index(name) {
                put(&mut found.known[index], name, value)?;
            } else if let Some(extension) =
                attribute(name).filter(|name| attributes::is_extension(name))
            {
                found.extensions.push((extension, value));
            }
        }

        Ok(found)
    }
}

fn put<'a>(slot: &mut Option<&'a str>, name: &str, value: &'a str) -> Result<(), DecodeError> {
    match slot.replace(value) {
        // Equal duplicates are harmless: `traceparent` and `ce-traceparent` are one attribute.
        Some(first) if first != value => Err(duplicate(name, first, value)),
        _ => Ok(()),
    }
}

fn duplicate(name: impl Display, first: &str, value: &str) -> DecodeError {
    DecodeError::invalid(
        name,
        format!("duplicate attribute, first value {first:?}"),
        value,
    )
}

impl Attributes for Headers<'_> {
    const PREFIX: &'static str = PREFIX;

    fn get(&self, attribute: &str) -> Result<Option<Cow<'_, str>>, DecodeError> {
        let index = NAMES.iter().position(|name| *name == attribute);
        let value = index.and_then(|index| self.known[index]);
        value
            .map(|value| header_text(self.label(attribute), value))
            .transpose()
    }

    fn content_type(&self) -> Result<Option<&str>, DecodeError> {
        Ok(Some(self.content_type))
    }

    fn extensions(&self) -> Result<BTreeMap<String, String>, DecodeError> {
        let mut extensions = BTreeMap::<String, String>::new();
        for (name, value) in &self.extensions {
            // Proxies and clients change the case of header names; names of extensions are lower
            // case.
            let name = name.to_ascii_lowercase();
            let label = self.label(&name);
            let text = header_text(label, value)?;
            let text = attributes::extension(label, &name, &text)?;
            if let Some(first) = extensions.get(&name).filter(|first| **first != text) {
                return Err(duplicate(label, first, &text));
            }
            extensions.insert(name, text);
        }
        Ok(extensions)
    }
}

/// Returns the text of a header value: quotes removed, percent-decoded. A `%` without a valid
/// escape is literal.
pub(crate) fn header_text(label: impl Display, value: &str) -> Result<Cow<'_, str>, DecodeError> {
    let value = value.trim();
    let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
    let value = quoted.map_or(Cow::Borrowed(value), |inner| Cow::Owned(unquote(inner)));

    if !value.contains('%') {
        return Ok(value);
    }
    let decoded = percent_decode_str(&value)
        .decode_utf8()
        .map(|text| Cow::Owned(text.into_owned()));
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
