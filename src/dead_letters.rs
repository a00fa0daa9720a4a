//! Dead letters as people and the bus see them: redacted.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_actors::ShowLetter;
use orlog_model::{DeadLetter, Input, Original};
use serde_json::{Value, json};

use crate::redact::Redact;

/// What of a letter is published.
#[must_use]
pub fn published(redact: Redact) -> ShowLetter {
    Arc::new(move |letter| shown(letter, &redact))
}

fn shown(letter: &DeadLetter, redact: &Redact) -> Value {
    json!({
        "id": letter.id,
        "tenant": letter.tenant,
        "saga": letter.instance.as_ref().map(|key| &key.saga),
        "correlation": letter.instance.as_ref().map(|key| &key.correlation),
        "reason": letter.reason.as_str(),
        "message": letter.message,
        "label": label(letter),
        "attempts": letter.attempts,
        "node": letter.node,
        "at": letter.at.to_string(),
        "original": original(&letter.original, redact),
    })
}

/// What the original is called: an event's type, a subject.
pub(crate) fn label(letter: &DeadLetter) -> &str {
    match &letter.original {
        Original::Input(input) => input.label(),
        Original::Message { subject, .. } => subject,
    }
}

/// Events as CloudEvents; other inputs as they are kept; messages with their body as text where it is, or as what of it may
/// be shown.
pub(crate) fn original(original: &Original, redact: &Redact) -> Value {
    match original {
        Original::Input(input) => match input.as_ref() {
            Input::Event(event) => json!({ "event": {
                "specversion": "1.0",
                "id": event.id,
                "type": event.kind,
                "source": event.source,
                "subject": event.subject,
                "time": event.time.to_string(),
                "correlationid": event.correlation,
                "causationid": event.causation,
                "traceparent": event.trace,
                "dataversion": event.schema_version,
                "data": redact.shown(event.data.clone()),
            }}),
            other => redact.shown(json!({ "input": other })),
        },
        Original::Message { subject, headers, payload } => {
            let headers: BTreeMap<&str, &str> =
                headers.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let payload = match std::str::from_utf8(payload) {
                Ok(text) => redact.shown_text(text),
                Err(_) => redact.shown(json!({ "base64": STANDARD.encode(payload) })),
            };
            json!({ "message": { "subject": subject, "headers": headers, "payload": payload }})
        }
    }
}
