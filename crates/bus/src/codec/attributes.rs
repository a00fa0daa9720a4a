//! Attributes of an event and their rules, equal for all formats.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use compact_str::CompactString;
use orlog_model::{
    CorrelationId, Event, EventAttributes, EventId, EventType, IdError, TenantId, Timestamp,
    TraceParent, WaitToken, WaitTokenError, is_direction_control,
};
use serde_json::Value;

use super::data;
use super::error::DecodeError;

/// Version that the instance of a signal must have.
pub(super) const EXPECTED_VERSION: &str = "orlogexpectedversion";
/// Token of the wait in which the instance of a signal must be.
pub(super) const WAIT_TOKEN: &str = "orlogwaittoken";
/// Time at which a signal is delivered.
pub(super) const DUE_AT: &str = "orlogdueat";

/// Attributes that are read by name; others are extensions. The content type of the data is no
/// header `ce-…`.
pub(super) const NAMES: [&str; 16] = [
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
    DATA_SCHEMA,
    EXPECTED_VERSION,
    WAIT_TOKEN,
    DUE_AT,
];

/// URI of the schema of the data.
const DATA_SCHEMA: &str = "dataschema";
/// Prefix of attributes that only Orlog sets; they are never extensions.
const RESERVED: &str = "orlog";
/// Signature of the publisher, the only reserved attribute that is kept as an extension.
pub const EVENT_SIGNATURE: &str = "orlogsignature";
/// Members of the JSON format that are no extensions, next to the attributes that are read.
pub(super) const NO_EXTENSIONS: [&str; 3] = ["data", "data_base64", "datacontenttype"];
/// Maximum number of extensions.
const MAX_EXTENSIONS: usize = 64;
/// Maximum length of the value of an extension, and of `dataschema`, in bytes.
const MAX_EXTENSION_BYTES: usize = 4096;

/// Conditions of a signal, and the time of its delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalConditions {
    /// Version that the instance must have.
    pub expected_version: Option<u64>,
    /// Wait in which the instance must be.
    pub wait_token: Option<WaitToken>,
    /// Time of the delivery; `None`: at once.
    pub due_at: Option<Timestamp>,
}

/// Lookup of attributes by their CloudEvents names.
pub(super) trait Attributes {
    /// Returns the text of an attribute, `None` if it is absent or null.
    fn get(&self, attribute: &str) -> Result<Option<Cow<'_, str>>, DecodeError>;

    /// Returns the content type of the data, if it is stated.
    fn content_type(&self) -> Result<Option<&str>, DecodeError>;

    /// Returns the checked extensions by name.
    fn extensions(&self) -> Result<BTreeMap<String, String>, DecodeError>;

    /// Prefix of the names of attributes in this format.
    const PREFIX: &'static str;

    /// Returns the name of the attribute in this format, for errors.
    fn label<'a>(&self, attribute: &'a str) -> AttributeLabel<'a> {
        AttributeLabel {
            prefix: Self::PREFIX,
            attribute,
        }
    }
}

/// Name of an attribute in a format. Only an error formats it.
#[derive(Clone, Copy)]
pub(super) struct AttributeLabel<'a> {
    prefix: &'static str,
    attribute: &'a str,
}

impl Display for AttributeLabel<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix)?;
        f.write_str(self.attribute)
    }
}

/// Builds the event from the attributes and the data.
pub(super) fn event(
    from: &impl Attributes,
    data: Value,
    defaults: &DecodeDefaults,
) -> Result<Event, DecodeError> {
    spec_version(from)?;
    let tenant = optional(from, "tenantid", TenantId::for_input)?;

    Ok(Event {
        id: required(from, "id", EventId::for_input)?,
        tenant: resolve_tenant(tenant, defaults)?,
        kind: required(from, "type", EventType::for_input)?,
        source: text(from, "source")?.ok_or_else(|| missing(from, "source"))?,
        subject: text(from, "subject")?,
        time: optional_time(from)?.unwrap_or(defaults.now),
        correlation: optional(from, "correlationid", CorrelationId::for_path)?,
        causation: text(from, "causationid")?,
        // A malformed trace context is dropped: it must not reject the event.
        trace: from
            .get("traceparent")?
            .and_then(|text| TraceParent::new(&text)),
        schema_version: match from.get("dataversion")? {
            Some(text) => version(from.label("dataversion"), &text)?,
            None => 1,
        },
        data,
        user: text(from, "orloguser")?,
        attributes: other_attributes(from)?,
    })
}

fn other_attributes(from: &impl Attributes) -> Result<Option<Box<EventAttributes>>, DecodeError> {
    let content_type = from
        .content_type()?
        .map(str::trim)
        .filter(|text| !data::is_default(text));
    // The encoder writes the content type as a header without percent-encoding.
    if let Some(other) = content_type.filter(|text| !text.is_ascii()) {
        let rule = "it must be a media type such as application/xml, in ASCII";
        return Err(DecodeError::invalid(
            from.label("datacontenttype"),
            rule,
            other,
        ));
    }

    let content_type = content_type
        .map(|text| bounded_text(from.label("datacontenttype"), text, MAX_TEXT_BYTES))
        .transpose()?;

    let data_schema = from.get(DATA_SCHEMA)?;
    let data_schema = data_schema
        .map(|text| bounded_text(from.label(DATA_SCHEMA), &text, MAX_EXTENSION_BYTES))
        .transpose()?;

    let extensions = from.extensions()?;
    if extensions.len() > MAX_EXTENSIONS {
        let count = extensions.len();
        return Err(DecodeError::Format(format!(
            "it has {count} extension attributes, the limit is {MAX_EXTENSIONS}; move some into \
             the data"
        )));
    }

    Ok(EventAttributes {
        content_type,
        data_schema,
        extensions,
    }
    .boxed())
}

/// Returns whether an attribute that is not read is an extension; the others are dropped.
pub(super) fn is_extension(name: &str) -> bool {
    // Compared without case: headers have none, and `ce-OrlogEffect` must not forge a result.
    let is_reserved = name
        .get(..RESERVED.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
        && !name.eq_ignore_ascii_case(EVENT_SIGNATURE);

    !is_reserved
        && !NO_EXTENSIONS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
}

/// Checks the name and the value of an extension. The value may be empty.
pub(super) fn extension(
    label: AttributeLabel<'_>,
    name: &str,
    text: &str,
) -> Result<String, DecodeError> {
    let is_valid = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !is_valid {
        let rule = "the name of an extension consists of a to z and 0 to 9; rename it, or \
                    move it into the data";
        return Err(DecodeError::invalid(label, rule, name));
    }

    if text.is_empty() {
        Ok(String::new())
    } else {
        bounded_text(label, text, MAX_EXTENSION_BYTES)
    }
}

/// Reads the conditions of a signal.
pub(super) fn conditions(from: &impl Attributes) -> Result<SignalConditions, DecodeError> {
    Ok(SignalConditions {
        expected_version: from
            .get(EXPECTED_VERSION)?
            .map(|text| {
                let rule =
                    "it must be a whole number from 0, the version that the instance must have";
                text.parse()
                    .map_err(|_| DecodeError::invalid(from.label(EXPECTED_VERSION), rule, &text))
            })
            .transpose()?,
        wait_token: from
            .get(WAIT_TOKEN)?
            .map(|text| {
                text.parse().map_err(|e: WaitTokenError| {
                    DecodeError::invalid(from.label(WAIT_TOKEN), e.to_string(), &text)
                })
            })
            .transpose()?,
        due_at: from
            .get(DUE_AT)?
            .map(|text| time(from.label(DUE_AT), &text))
            .transpose()?,
    })
}

/// Checks that the required attributes are present and that the tenant matches, and returns the
/// event type.
pub(super) fn event_type(
    from: &impl Attributes,
    defaults: &DecodeDefaults,
) -> Result<EventType, DecodeError> {
    spec_version(from)?;
    resolve_tenant(optional(from, "tenantid", TenantId::for_input)?, defaults)?;
    // A message without them is malformed. With a type alone, the ingester would skip it as one
    // that no program consumes.
    for attribute in ["id", "source"] {
        from.get(attribute)?
            .ok_or_else(|| missing(from, attribute))?;
    }
    required(from, "type", EventType::for_input)
}

/// Returns the tenant if the tenant of the event matches the expected tenant.
pub(super) fn resolve_tenant(
    claimed: Option<TenantId>,
    defaults: &DecodeDefaults,
) -> Result<TenantId, DecodeError> {
    match (claimed, &defaults.tenant) {
        (Some(claimed), Some(expected)) if claimed != *expected => Err(DecodeError::Tenant {
            claimed: claimed.to_string(),
            expected: expected.to_string(),
        }),
        // The tenant of a subject was only parsed. The rules of input are stricter.
        (_, Some(expected)) => id("tenantid", expected.as_str(), TenantId::for_input),
        (Some(claimed), None) => Ok(claimed),
        (None, None) => Ok(TenantId::default_tenant()),
    }
}

/// Parses an id and checks its rules.
pub(super) fn id<T>(
    label: impl Display,
    text: &str,
    new: impl Fn(CompactString) -> Result<T, IdError>,
) -> Result<T, DecodeError> {
    new(text.into()).map_err(|e| DecodeError::invalid(label, e.to_string(), text))
}

/// Checks free text: bounded length, no control characters and no bidirectional controls.
pub(super) fn free_text(label: impl Display, text: &str) -> Result<String, DecodeError> {
    bounded_text(label, text, MAX_TEXT_BYTES)
}

fn bounded_text(label: impl Display, text: &str, limit: usize) -> Result<String, DecodeError> {
    let rule = if text.is_empty() {
        "it must not be empty".to_owned()
    } else if text.len() > limit {
        format!("it is {} bytes long, the limit is {limit}", text.len())
    } else if text.chars().any(char::is_control) {
        "it must not contain control characters".to_owned()
    } else if text.chars().any(is_direction_control) {
        "it must not contain bidirectional controls".to_owned()
    } else {
        return Ok(text.to_owned());
    };
    Err(DecodeError::invalid(label, rule, text))
}

/// Parses an RFC 3339 time.
pub(super) fn time(label: impl Display, text: &str) -> Result<Timestamp, DecodeError> {
    let rule = "it must be an RFC 3339 time such as 2026-11-21T08:30:00Z";
    Timestamp::parse(text).map_err(|_| DecodeError::invalid(label, rule, text))
}

/// Parses the schema version of a payload: 1 or more.
pub(super) fn version(label: impl Display, text: &str) -> Result<u32, DecodeError> {
    let version = text.parse::<u32>().ok().filter(|version| *version > 0);
    version.ok_or_else(|| {
        DecodeError::invalid(
            label,
            "it must be a whole number from 1 to 4294967295",
            text,
        )
    })
}

fn spec_version(from: &impl Attributes) -> Result<(), DecodeError> {
    match from.get("specversion")? {
        None => Err(missing(from, "specversion")),
        Some(text) if text == "1.0" => Ok(()),
        Some(text) => Err(DecodeError::invalid(
            from.label("specversion"),
            "it must be \"1.0\"",
            &text,
        )),
    }
}

fn required<T>(
    from: &impl Attributes,
    attribute: &str,
    new: impl Fn(CompactString) -> Result<T, IdError>,
) -> Result<T, DecodeError> {
    optional(from, attribute, new)?.ok_or_else(|| missing(from, attribute))
}

fn optional<T>(
    from: &impl Attributes,
    attribute: &str,
    new: impl Fn(CompactString) -> Result<T, IdError>,
) -> Result<Option<T>, DecodeError> {
    from.get(attribute)?
        .map(|text| id(from.label(attribute), &text, new))
        .transpose()
}

fn text(from: &impl Attributes, attribute: &str) -> Result<Option<String>, DecodeError> {
    from.get(attribute)?
        .map(|text| free_text(from.label(attribute), &text))
        .transpose()
}

fn optional_time(from: &impl Attributes) -> Result<Option<Timestamp>, DecodeError> {
    from.get("time")?
        .map(|text| time(from.label("time"), &text))
        .transpose()
}

fn missing(from: &impl Attributes, attribute: &str) -> DecodeError {
    let rule = match attribute {
        "specversion" => "it must be \"1.0\"",
        "id" => "it identifies the event and makes repeated publishes idempotent",
        "type" => "it names the event type, for example OrderPlaced",
        _ => "it identifies the publisher of the event, for example urn:shop",
    };
    DecodeError::Missing {
        attribute: from.label(attribute).to_string(),
        rule,
    }
}

/// Maximum size of a message that is read or built, in bytes: subject, id, headers and body
/// together.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// Maximum length of `source`, `subject` and `causationid`, in bytes.
pub const MAX_TEXT_BYTES: usize = 512;

/// Defaults for attributes that an event omits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeDefaults {
    /// Tenant of the subject or of the `x-tenant-id` header. An event with another tenant is
    /// rejected. `None`: no tenant is expected; the event specifies its tenant or belongs to the
    /// default tenant.
    pub tenant: Option<TenantId>,
    /// Time of an event without a time. For a delivery this is the publish time, so that decoding
    /// the message again returns an equal event.
    pub now: Timestamp,
}
