//! Single messages of a stream as the servers store them, read without the header parser of the
//! client.
//!
//! The servers store messages whose headers the client cannot parse. The client closes its
//! connection when it receives such a message, each time. The response to a request for one message
//! is JSON, which does not close the connection.

use std::str::FromStr as _;
use std::sync::Arc;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::RawMessage;
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::connection::{chain, unavailable};
use super::message::{from_parts, timestamp};
use crate::Error;
use crate::consumer::StoredMessage;

/// Maximum length of the unreadable header lines in a defect, in characters.
const MAX_SHOWN_CHARS: usize = 1000;

/// Reads of single messages of one stream.
#[derive(Clone, Debug)]
pub(super) struct RawMessages {
    jetstream: Context,
    stream: String,
}

#[derive(Serialize)]
struct GetRequest<'a> {
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_by_subj: Option<&'a str>,
}

#[derive(Deserialize)]
struct GetResponse {
    message: RawMessage,
}

/// Headers of a message that the client cannot parse.
#[derive(Default)]
struct RecoveredHeaders {
    readable: HeaderMap,
    unreadable: Vec<String>,
}

impl RawMessages {
    /// Creates the reads of a stream. Sends no request.
    pub(super) fn new(jetstream: &Context, stream: &str) -> Self {
        Self {
            jetstream: jetstream.clone(),
            stream: stream.to_owned(),
        }
    }

    /// Returns the client of the connection.
    pub(super) fn client(&self) -> async_nats::Client {
        self.jetstream.client()
    }

    /// Returns the first message from `sequence` to `end` that matches a filter (no filter: any);
    /// `None` if there is none. `end` is a sequence that the stream had already reached.
    pub(super) async fn first_from(
        &self,
        sequence: u64,
        end: u64,
        filters: &[String],
    ) -> Result<Option<StoredMessage>, Error> {
        let all = [">".to_owned()];
        let filters = if filters.is_empty() {
            &all[..]
        } else {
            filters
        };

        let mut first: Option<RawMessage> = None;
        // A request names one subject, so each filter needs its own.
        for filter in filters {
            let request = GetRequest {
                seq: sequence,
                next_by_subj: Some(filter),
            };
            first = earlier(first, self.get(&request).await?, end);
        }
        first.as_ref().map(stored_message).transpose()
    }

    /// Returns the publish time of a message; `None` if the stream does not have it any more.
    pub(super) async fn time_of(&self, sequence: u64) -> Result<Option<Timestamp>, Error> {
        let request = GetRequest {
            seq: sequence,
            next_by_subj: None,
        };
        let found = self.get(&request).await?;
        Ok(found.map(|message| timestamp(message.time)))
    }

    async fn get(&self, request: &GetRequest<'_>) -> Result<Option<RawMessage>, Error> {
        let subject = format!("STREAM.MSG.GET.{}", self.stream);
        let response: Response<GetResponse> = self
            .jetstream
            .request(subject, request)
            .await
            .map_err(unavailable)?;
        match response {
            Response::Ok(found) => Ok(Some(found.message)),
            Response::Err { error } if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => {
                Ok(None)
            }
            Response::Err { error } => Err(unavailable(error)),
        }
    }
}

/// Returns the earlier of two messages, without those after `end`.
///
/// The messages of two filters are requested at different times. A message after the end may follow
/// one of the other filter that was stored after the request for that filter: a reader that
/// continues after it would lose the other one.
fn earlier(first: Option<RawMessage>, found: Option<RawMessage>, end: u64) -> Option<RawMessage> {
    first
        .into_iter()
        .chain(found)
        .filter(|message| message.sequence <= end)
        .min_by_key(|message| message.sequence)
}

/// Converts a message as the client does. If the client cannot, the message has a defect, and the
/// headers that are readable.
fn stored_message(raw: &RawMessage) -> Result<StoredMessage, Error> {
    let parsed = StreamMessage::try_from(raw.clone());
    convert(raw, parsed.map_err(|error| chain(&*error)))
}

fn convert(
    raw: &RawMessage,
    parsed: Result<StreamMessage, String>,
) -> Result<StoredMessage, Error> {
    let sequence = raw.sequence;
    let published_at = timestamp(raw.time);

    // The parser of the client decides, so that a readable message is equal to one of a consumer.
    let error = match parsed {
        Ok(parsed) => {
            let message = from_parts(&raw.subject, Some(&parsed.headers), parsed.payload);
            return Ok(StoredMessage::new(
                sequence,
                published_at,
                Arc::new(message),
            ));
        }
        Err(error) => error,
    };

    let payload = STANDARD.decode(&raw.payload).map_err(unavailable)?;
    let headers = STANDARD
        .decode(raw.headers.as_deref().unwrap_or_default())
        .map_err(unavailable)?;
    let headers = RecoveredHeaders::of(&headers);
    let message = from_parts(&raw.subject, Some(&headers.readable), Bytes::from(payload));
    let defect = headers.describe(&error);
    Ok(StoredMessage::new(sequence, published_at, Arc::new(message)).with_defect(defect))
}

impl RecoveredHeaders {
    fn of(bytes: &[u8]) -> Self {
        let mut recovered = Self::default();
        let text = String::from_utf8_lossy(bytes);
        let lines = text.lines().filter(|line| !line.is_empty());
        for line in lines.skip_while(|line| line.starts_with("NATS/")) {
            match readable(line) {
                Some((name, value)) => recovered.readable.append(name, value),
                None => recovered.unreadable.push(line.to_owned()),
            }
        }
        recovered
    }

    fn describe(&self, error: &str) -> String {
        let lines = format!("{:?}", self.unreadable);
        let shown: String = lines.chars().take(MAX_SHOWN_CHARS).collect();
        format!("the NATS client cannot parse its headers: {error}; unreadable lines: {shown}")
    }
}

fn readable(line: &str) -> Option<(HeaderName, HeaderValue)> {
    // A replaced character is not the one that the publisher sent.
    if line.contains(char::REPLACEMENT_CHARACTER) {
        return None;
    }
    let (name, value) = line.split_once(':')?;
    let name = HeaderName::from_str(name).ok()?;
    let value = HeaderValue::from_str(value.trim()).ok()?;
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(headers: &str) -> RawMessage {
        serde_json::from_value(serde_json::json!({
            "subject": "tenant.acme.aggregate.order.o-1", "seq": 7, "time": "2026-01-02T03:04:05.006Z",
            "hdrs": STANDARD.encode(headers), "data": STANDARD.encode("body"),
        }))
        .unwrap()
    }

    #[test]
    fn readable_message_is_converted_like_a_delivered_one() {
        let stored = stored_message(&raw(
            "NATS/1.0\r\nNats-Msg-Id: m\r\nce-type: Placed\r\n\r\n",
        ))
        .unwrap();
        assert_eq!(stored.sequence, 7);
        assert_eq!(stored.published_at.as_millis(), 1_767_323_045_006);
        assert_eq!(stored.defect, None);
        let message = &stored.message;
        assert_eq!(message.id.as_deref(), Some("m"));
        assert_eq!(message.headers, [("ce-type".into(), "Placed".into())]);
        assert_eq!(&*message.payload, b"body");
    }

    #[test]
    fn message_after_the_known_end_is_not_first() {
        let at = |sequence| {
            Some(RawMessage {
                sequence,
                ..raw("NATS/1.0\r\n\r\n")
            })
        };
        let first = |first, found| earlier(first, found, 10).map(|message| message.sequence);
        // Message 11 of the first filter may have been stored after its request found none.
        assert_eq!(first(None, at(12)), None);
        assert_eq!(first(at(9), at(12)), Some(9));
        assert_eq!(first(at(9), at(8)), Some(8));
        assert_eq!(first(None, at(10)), Some(10));
    }

    #[test]
    fn message_that_the_client_cannot_parse_has_a_defect_and_its_readable_headers() {
        // The parser of the client is replaced: its result alone decides.
        let parsed = Err("malformed header line".to_owned());
        let raw = raw("NATS/1.0\r\nce-type: Placed\r\n\r\n");
        let stored = convert(&raw, parsed).unwrap();
        let defect = stored.defect.as_deref().unwrap();
        assert!(defect.contains("malformed header line"), "{defect}");
        let message = &stored.message;
        assert_eq!(message.subject, "tenant.acme.aggregate.order.o-1");
        assert_eq!(message.headers, [("ce-type".into(), "Placed".into())]);
        assert_eq!(&*message.payload, b"body");
    }
}
