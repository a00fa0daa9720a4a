//! Events of a context that requires signed events: each one is signed itself, or the request is
//! signed.
//!
//! A signed event is published as its publisher signed it. Any other event of a signed request is
//! published by the node, which has verified the request.

use axum::http::HeaderMap;
use orlog_bus::codec::{self, DecodeError};
use orlog_bus::subject::SubjectKind;
use orlog_bus::{Headers, Message};
use orlog_model::{Event, Timestamp};
use serde_json::Value;

use super::decoding::{BodyFormat, problem_detail};
use crate::server::body;
use crate::server::problem::{Code, Problem, ProblemDetail};
use orlog_node::access::{EventRejection, SignedEvents, is_signed};
use orlog_node::auth::Caller;

/// Prefix of the attributes that only Orlog sets.
const RESERVED: &str = "ce-orlog";
/// Reserved attributes that a publisher may set.
const OWN: [&str; 2] = [orlog_signature::EVENT_SIGNATURE, USER];
const USER: &str = "ce-orloguser";

/// Body of a request.
pub(super) struct Received<'a> {
    pub(super) format: BodyFormat,
    pub(super) headers: &'a HeaderMap,
    pub(super) bytes: &'a [u8],
}

/// Verifies the events of a request, and sets the user of each one. Returns the messages of the
/// signed events.
pub(super) fn authenticate(
    signed_events: &SignedEvents,
    caller: &Caller,
    now: Timestamp,
    received: &Received<'_>,
    events: &mut [Event],
) -> Result<Vec<Option<Message>>, Problem> {
    // Parsed a second time: the signature covers the values as they were sent, which decoding has
    // replaced.
    let members = if received.format == BodyFormat::Binary {
        Vec::new()
    } else {
        members(received.bytes)?
    };
    let mut messages = Vec::with_capacity(events.len());

    for (index, event) in events.iter_mut().enumerate() {
        let pointer = if matches!(members.as_slice(), [] | [_]) {
            String::new()
        } else {
            format!("/{index}")
        };
        if !is_signed(event) {
            // The signature of a request covers its body, and thus also events without a signature
            // of their own.
            if caller.key.is_none() {
                return Err(unsigned(&pointer));
            }
            event.user = caller.check_user(event.user.take())?;
            messages.push(None);
            continue;
        }

        let binary = match members.get(index) {
            Some(Value::Object(members)) => codec::to_binary(members),
            _ => binary(received),
        };
        let invalid = |error: &DecodeError| {
            let detail = problem_detail(&pointer, error);
            Problem::new(Code::InvalidEventSignature, error.to_string()).with(vec![detail])
        };
        let (headers, payload) = binary.map_err(|error| invalid(&error))?;

        let subject = codec::subject_with_kind(event, SubjectKind::WorkflowEvent);
        let mut message = Message {
            headers,
            payload,
            ..codec::encode(&*event, subject)
        };
        // At the time of the request: on the embedded bus, shards do not verify the event again.
        let signer = signed_events.verify(&event.tenant, &message, now);
        let signer = signer.map_err(|rejection| rejected(&pointer, &rejection))?;
        // The user of the event is the verified signer; a stated one could be another user.
        message
            .headers
            .retain(|(name, _)| !name.eq_ignore_ascii_case(USER));
        message
            .headers
            .push((USER.into(), codec::header_value(&signer)));
        event.user = Some(signer);

        messages.push(Some(message));
    }

    Ok(messages)
}

/// Returns the members of a body in JSON.
fn members(bytes: &[u8]) -> Result<Vec<Value>, Problem> {
    Ok(match body::parse(bytes)? {
        Value::Array(members) => members,
        single => vec![single],
    })
}

/// Returns the headers and the body of an event in binary mode, as they were sent.
fn binary(received: &Received<'_>) -> Result<(Headers, bytes::Bytes), DecodeError> {
    let mut headers = Headers::new();
    for (name, value) in received.headers {
        let name = name.as_str();
        if !name.starts_with("ce-") && !matches!(name, "content-type" | "traceparent") {
            continue;
        }

        let text = String::from_utf8_lossy(value.as_bytes());
        // Shards trust these attributes, so that no publisher may set them.
        if name.starts_with(RESERVED) && !OWN.contains(&name) {
            return Err(DecodeError::Format(format!(
                "only Orlog sets the attribute {name}; remove it"
            )));
        }
        headers.push((name.into(), text.into()));
    }

    Ok((headers, bytes::Bytes::copy_from_slice(received.bytes)))
}

fn unsigned(pointer: &str) -> Problem {
    let detail = EventRejection::Unsigned.to_string();
    let located = ProblemDetail {
        pointer: pointer.to_owned(),
        detail: detail.clone(),
    };
    Problem::new(Code::SignatureRequired, detail).with(vec![located])
}

fn rejected(pointer: &str, rejection: &EventRejection) -> Problem {
    let detail = rejection.to_string();
    let located = ProblemDetail {
        pointer: format!("{pointer}/{}", codec::EVENT_SIGNATURE),
        detail: detail.clone(),
    };
    Problem::new(Code::InvalidEventSignature, detail).with(vec![located])
}
