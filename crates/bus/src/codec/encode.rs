//! Encoder of events: CloudEvents in binary mode.

use bytes::Bytes;
use orlog_model::Event;
use orlog_model::count::{Operation, count};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::envelope::SOURCE_PREFIX;
use crate::Message;
use crate::subject::{Subject, SubjectKind, encode_token};

/// ASCII characters that are invalid in a header value.
const INVALID_IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Encodes an event as a message: attributes as headers, the data as a JSON body.
///
/// The deduplication id consists of tenant, source and event id, so that no publisher can suppress the
/// event of another publisher.
///
/// # Panics
/// Never: a JSON value can always be serialized.
#[must_use]
pub fn encode(event: &Event, subject: impl Into<String>) -> Message {
    count(Operation::EventEncode);
    let body = serde_json::to_vec(&event.data).expect("a JSON value has string keys only");
    Message {
        subject: subject.into(),
        id: Some(message_id(event)),
        headers: headers(event),
        payload: Bytes::from(body),
    }
}

/// Returns the subject of an event: `[tenant.<t>.]aggregate.<type>.<id>`.
///
/// The type is the aggregate type if the event came from an Aggregate envelope (source
/// `urn:aggregate:<type>`), else `event`, because CloudEvents has no aggregates. The id is the id of
/// the aggregate, else the correlation id, else the `subject`, else the id of the event.
#[must_use]
pub fn aggregate_subject(event: &Event) -> String {
    subject_with_kind(event, SubjectKind::Aggregate)
}

/// Returns the subject as [`aggregate_subject`] does, with another kind: for submitted events, if
/// another system owns the aggregate subjects.
#[must_use]
pub fn subject_with_kind(event: &Event, kind: SubjectKind) -> String {
    let aggregate = event.source.strip_prefix(SOURCE_PREFIX).filter(|_| event.subject.is_some());
    let correlation = event.correlation.as_ref().map(AsRef::as_ref);
    let about = event.subject.as_deref();
    let id = if aggregate.is_some() { about.or(correlation) } else { correlation.or(about) };
    let id = id.unwrap_or(event.id.as_str());
    Subject::new(event.tenant.clone(), kind, aggregate.unwrap_or("event"), id).to_string()
}

fn message_id(event: &Event) -> String {
    let [tenant, source, id] = [event.tenant.as_str(), &event.source, event.id.as_str()].map(encode_token);
    format!("{tenant}:{source}:{id}")
}

fn headers(event: &Event) -> Vec<(String, String)> {
    let mut headers = Vec::with_capacity(12);
    let mut put = |name: &str, value: &str| headers.push((name.to_owned(), header_value(value)));
    put("ce-specversion", "1.0");
    put("ce-id", event.id.as_str());
    put("ce-type", event.kind.as_str());
    put("ce-source", &event.source);
    put("ce-time", &event.time.to_string());
    put("ce-dataversion", &event.schema_version.to_string());
    if !event.tenant.as_str().is_empty() {
        put("ce-tenantid", event.tenant.as_str());
    }
    for (name, value) in [
        ("ce-subject", event.subject.as_deref()),
        ("ce-correlationid", event.correlation.as_ref().map(AsRef::as_ref)),
        ("ce-causationid", event.causation.as_deref()),
        ("ce-orloguser", event.user.as_deref()),
        ("traceparent", event.trace.as_ref().map(orlog_model::TraceParent::as_str)),
    ] {
        if let Some(value) = value {
            put(name, value);
        }
    }
    put("content-type", "application/json");
    headers
}

/// Percent-encodes characters that are invalid in a header: space, `"`, `%`, controls and all
/// non-ASCII.
pub(crate) fn header_value(text: &str) -> String {
    utf8_percent_encode(text, INVALID_IN_HEADER).to_string()
}
