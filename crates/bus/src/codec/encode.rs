//! Encoder of events: CloudEvents in binary mode.

use std::borrow::Cow;

use bytes::Bytes;
use compact_str::{CompactString, ToCompactString, format_compact};
use orlog_model::count::{Operation, count};
use orlog_model::{Event, EventAttributes, TenantId, Timestamp, TraceParent};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

use super::data;
use super::envelope::SOURCE_PREFIX;
use crate::subject::{SubjectKind, format_subject, push_token, token_length};
use crate::{Headers, Message};

/// ASCII characters that are invalid in a header value.
const INVALID_IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Maximum number of headers of an event, and space for its signature.
const MAX_HEADERS: usize = 14;

/// Borrowed parts of an event; see [`Event`]. A publisher that has only the parts encodes them
/// without copies.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    /// Id of the event.
    pub id: &'a str,
    /// Tenant of the event.
    pub tenant: &'a TenantId,
    /// Event type.
    pub kind: &'a str,
    /// Source of the event.
    pub source: &'a str,
    /// Subject of the event.
    pub subject: Option<&'a str>,
    /// Time of the event.
    pub time: Timestamp,
    /// Correlation id.
    pub correlation: Option<&'a str>,
    /// Id of the command or event that caused this event.
    pub causation: Option<&'a str>,
    /// W3C trace context.
    pub trace: Option<&'a TraceParent>,
    /// Version of the payload schema.
    pub schema_version: u32,
    /// Payload.
    pub data: &'a Value,
    /// Authenticated user who published the event.
    pub user: Option<&'a str>,
    /// Further attributes.
    pub attributes: Option<&'a EventAttributes>,
}

impl<'a> From<&'a Event> for EventRef<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            id: event.id.as_str(),
            tenant: &event.tenant,
            kind: event.kind.as_str(),
            source: &event.source,
            subject: event.subject.as_deref(),
            time: event.time,
            correlation: event.correlation.as_ref().map(AsRef::as_ref),
            causation: event.causation.as_deref(),
            trace: event.trace.as_ref(),
            schema_version: event.schema_version,
            data: &event.data,
            user: event.user.as_deref(),
            attributes: event.attributes.as_deref(),
        }
    }
}

/// Encodes an event as a message: attributes as headers, the data as a JSON body.
///
/// The deduplication id consists of tenant, source and event id, so that no publisher can suppress
/// the event of another publisher.
///
/// # Panics
/// Never: a JSON value can always be serialized.
#[must_use]
pub fn encode<'a>(event: impl Into<EventRef<'a>>, subject: impl Into<String>) -> Message {
    count(Operation::EventEncode);
    let event = event.into();
    let (content_type, body) = data(&event);
    Message {
        subject: subject.into(),
        id: Some(message_id(&event)),
        headers: headers(&event, content_type),
        payload: Bytes::from(body),
    }
}

/// Returns the subject of an event: `[tenant.<t>.]aggregate.<type>.<id>`.
///
/// The type is the aggregate type if the event came from an Aggregate envelope (source
/// `urn:aggregate:<type>`), else `event`, because CloudEvents has no aggregates. The id is the id
/// of the aggregate, else the correlation id, else the `subject`, else the id of the event.
#[must_use]
pub fn aggregate_subject(event: &Event) -> String {
    subject_with_kind(event, SubjectKind::Aggregate)
}

/// Returns the subject as [`aggregate_subject`] does, with another kind: for submitted events, if
/// another system owns the aggregate subjects.
#[must_use]
pub fn subject_with_kind(event: &Event, kind: SubjectKind) -> String {
    let aggregate = event
        .source
        .strip_prefix(SOURCE_PREFIX)
        .filter(|_| event.subject.is_some());
    let correlation = event.correlation.as_ref().map(AsRef::as_ref);
    let about = event.subject.as_deref();

    // The id is the unit of order: events of one aggregate, or else of one correlation, share a
    // subject.
    let id = if aggregate.is_some() {
        about.or(correlation)
    } else {
        correlation.or(about)
    };

    let id = id.unwrap_or(event.id.as_str());
    format_subject(&event.tenant, kind, aggregate.unwrap_or("event"), id)
}

/// Returns `<tenant>:<source>:<id>` as tokens, so that no part can contain a separator.
fn message_id(event: &EventRef<'_>) -> String {
    let [tenant, source, id] = [event.tenant.as_str(), event.source, event.id];
    let tokens: usize = [tenant, source, id].into_iter().map(token_length).sum();
    let mut message_id = String::with_capacity(tokens + "::".len());

    push_token(&mut message_id, tenant);
    for part in [source, id] {
        message_id.push(':');
        push_token(&mut message_id, part);
    }
    message_id
}

/// Returns the content type and the data. Data that is not valid for its content type is JSON.
fn data(event: &EventRef<'_>) -> (CompactString, Vec<u8>) {
    let json = || serde_json::to_vec(event.data).expect("a JSON value has string keys only");
    let stated = event
        .attributes
        .and_then(|attributes| attributes.content_type.as_deref());

    match stated.map(|stated| (stated, data::to_bytes(stated, event.data))) {
        Some((stated, Some(bytes))) => (stated.into(), bytes),
        Some((stated, None)) if data::is_json(stated) => (stated.into(), json()),
        Some((_, None)) | None => (CompactString::const_new("application/json"), json()),
    }
}

fn headers(event: &EventRef<'_>, content_type: CompactString) -> Headers {
    let mut headers = Headers::with_capacity(MAX_HEADERS);
    let mut put = |name, value| headers.push((CompactString::const_new(name), value));

    put("ce-specversion", CompactString::const_new("1.0"));
    put("ce-id", header_value(event.id));
    put("ce-type", header_value(event.kind));
    put("ce-source", header_value(event.source));
    put("ce-time", event.time.to_compact_string());
    put("ce-dataversion", event.schema_version.to_compact_string());

    // The default tenant has no attribute, as it has no prefix in a subject.
    if !event.tenant.as_str().is_empty() {
        put("ce-tenantid", header_value(event.tenant.as_str()));
    }
    for (name, value) in [
        ("ce-subject", event.subject),
        ("ce-correlationid", event.correlation),
        ("ce-causationid", event.causation),
        ("ce-orloguser", event.user),
        ("traceparent", event.trace.map(TraceParent::as_str)),
    ] {
        if let Some(value) = value {
            put(name, header_value(value));
        }
    }

    put("content-type", content_type);

    if let Some(EventAttributes {
        data_schema,
        extensions,
        content_type: _,
    }) = event.attributes
    {
        if let Some(schema) = data_schema {
            put("ce-dataschema", header_value(schema));
        }
        for (name, value) in extensions {
            headers.push((format_compact!("ce-{name}"), header_value(value)));
        }
    }
    headers
}

/// Percent-encodes characters that are invalid in a header: space, `"`, `%`, controls and all
/// non-ASCII.
#[must_use]
pub fn header_value(text: &str) -> CompactString {
    Cow::from(utf8_percent_encode(text, INVALID_IN_HEADER)).into()
}
