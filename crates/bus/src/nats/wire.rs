//! Messages as the client has them, and as the contract does.

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;

use crate::Message;

pub(super) fn headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &message.headers {
        headers.append(name.as_str(), value.as_str());
    }
    headers
}

pub(super) fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let all = headers
        .iter()
        .flat_map(|(name, values)| values.iter().map(move |value| (name.to_string(), value.to_string())));
    let mut pairs: Vec<_> = all.collect();
    // The client keeps them in a hash map.
    pairs.sort();
    pairs
}

pub(super) fn of_stream(message: StreamMessage) -> Message {
    let headers = pairs(&message.headers);
    Message { subject: message.subject.to_string(), id: None, headers, payload: message.payload }
}
