//! Events on their way out: CloudEvents in binary mode.

use bytes::Bytes;
use orlog_model::Event;

use super::envelope::SOURCE_PREFIX;
use crate::Message;
use crate::subject::{Kind, Subject, encode_token, push_escape};

/// The message that carries an event: attributes as headers, the data as a JSON body.
///
/// Its id for deduplication is made of tenant, source and event id, so that no publisher can displace the event of another.
///
/// # Panics
/// Never: a JSON value always has a text.
#[must_use]
pub fn encode(event: &Event, subject: impl Into<String>) -> Message {
    let body = serde_json::to_vec(&event.data).expect("a JSON value has string keys only");
    Message {
        subject: subject.into(),
        id: Some(message_id(event)),
        headers: headers(event),
        payload: Bytes::from(body),
    }
}

/// The subject an event is published under: `[tenant.<t>.]aggregate.<type>.<id>`.
///
/// The type is the aggregate type where the event came from an Aggregate envelope (source `urn:aggregate:<type>`), else
/// `event`, since CloudEvents knows no aggregates. The id is the aggregate's id, else the correlation id, else the
/// `subject`, else the event's own id.
#[must_use]
pub fn subject_of(event: &Event) -> String {
    subject_under(event, Kind::Aggregate)
}

/// As [`subject_of`], under another kind: for events that are submitted where somebody else owns those of aggregates.
#[must_use]
pub fn subject_under(event: &Event, kind: Kind) -> String {
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
        ("traceparent", event.trace.as_ref().map(orlog_model::TraceParent::as_str)),
    ] {
        if let Some(value) = value {
            put(name, value);
        }
    }
    put("content-type", "application/json");
    headers
}

/// Percent-encodes what must not stand in a header: space, `"`, `%`, controls and all that is not ASCII.
pub(crate) fn header_value(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'%';
    if text.bytes().all(plain) {
        return text.to_owned();
    }
    let mut value = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if plain(byte) {
            value.push(char::from(byte));
        } else {
            push_escape(&mut value, byte);
        }
    }
    value
}
