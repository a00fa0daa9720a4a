//! Conversion of messages for NATS: the id is the header `Nats-Msg-Id`; other headers are
//! unchanged.

use async_nats::jetstream::message::StreamMessage;
use std::str::FromStr as _;
use std::sync::Arc;

use async_nats::jetstream::message::PublishMessage;
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use orlog_model::Timestamp;

use crate::{Error, Headers, Message};

const ID: &str = "Nats-Msg-Id";
/// Prefix of headers that are reserved for the servers.
const OWN: &str = "Nats-";

/// Converts a message for publishing.
///
/// # Errors
/// If a header is not valid in NATS.
pub(super) fn to_nats(message: &Message) -> Result<PublishMessage, Error> {
    let mut built = PublishMessage::build().payload(message.payload.clone());
    if !message.headers.is_empty() {
        let mut headers = HeaderMap::new();
        for (name, value) in &message.headers {
            if name.is_empty() {
                return Err(invalid_header(name, "the name is empty"));
            }
            headers.append(
                HeaderName::from_str(name).map_err(|error| invalid_header(name, error))?,
                HeaderValue::from_str(value).map_err(|error| invalid_header(name, error))?,
            );
        }
        built = built.headers(headers);
    }

    if let Some(id) = &message.id {
        let id = HeaderValue::from_str(id).map_err(|error| invalid_header(ID, error))?;
        built = built.header(ID, id);
    }

    Ok(built)
}

fn invalid_header(name: &str, reason: impl std::fmt::Display) -> Error {
    Error::InvalidSubject {
        subject: name.to_owned(),
        kind: "header",
        reason: reason.to_string(),
    }
}

/// Converts a received message. Headers of the servers are omitted. The client does not keep the
/// order of the others, so they are sorted.
pub(super) fn from_nats(message: async_nats::Message) -> Arc<Message> {
    Arc::new(from_parts(
        &message.subject,
        message.headers.as_ref(),
        message.payload,
    ))
}

/// Converts the parts of a message, as [`from_nats`] does.
pub(super) fn from_parts(
    subject: &str,
    nats_headers: Option<&HeaderMap>,
    payload: Bytes,
) -> Message {
    let mut id = None;
    let mut headers = Headers::new();
    for (name, values) in nats_headers.into_iter().flat_map(HeaderMap::iter) {
        let name: &str = name.as_ref();
        if name.eq_ignore_ascii_case(ID) {
            id = values.first().map(|value| value.as_str().to_owned());
        // Reserved headers, for example the expected sequence of a publish, are no part of the
        // message.
        } else if !name.starts_with(OWN) {
            headers.extend(
                values
                    .iter()
                    .map(|value| (name.into(), value.as_str().into())),
            );
        }
    }

    headers.sort_by(|a, b| a.0.cmp(&b.0));
    Message {
        subject: subject.to_owned(),
        id,
        headers,
        payload,
    }
}

/// Converts a time to milliseconds.
pub(super) fn timestamp(time: async_nats::datetime::DateTime) -> Timestamp {
    let millis = time.unix_timestamp_nanos() / 1_000_000;
    Timestamp::from_millis(i64::try_from(millis).unwrap_or_default())
}

pub(super) fn header_map(headers: &Headers) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name.as_str(), value.as_str());
    }
    map
}

#[expect(clippy::iter_over_hash_type, reason = "the pairs are sorted")]
pub(super) fn header_pairs(headers: &HeaderMap) -> Headers {
    let mut pairs = Headers::new();
    for (name, values) in headers.iter() {
        for value in values {
            pairs.push((AsRef::<str>::as_ref(name).into(), value.as_str().into()));
        }
    }
    // The client stores them in a hash map.
    pairs.sort();
    pairs
}

pub(super) fn from_stream_message(message: StreamMessage) -> Message {
    let headers = header_pairs(&message.headers);
    Message {
        subject: message.subject.to_string(),
        id: None,
        headers,
        payload: message.payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(headers: &[(&str, &str)]) -> Message {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        Message {
            subject: "a".to_owned(),
            id: Some("1".to_owned()),
            headers,
            payload: Bytes::new(),
        }
    }

    #[test]
    fn header_injection_is_rejected() {
        for (name, value) in [
            ("a", "b\r\nNats-Expected-Stream: X"),
            ("a: b\r\n", "c"),
            ("", "c"),
        ] {
            let result = to_nats(&message(&[(name, value)])).map(|_| ());
            assert!(
                matches!(result, Err(Error::InvalidSubject { kind: "header", .. })),
                "{name:?} {result:?}"
            );
        }
        to_nats(&message(&[
            ("ce-type", "OrderPlaced"),
            ("ce-type", "twice"),
        ]))
        .unwrap();
    }
}
