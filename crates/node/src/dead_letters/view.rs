//! Redacted dead letters for users and the bus.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_actors::DeadLetterEncoder;
use orlog_model::{DeadLetter, DeadLetterOriginal, Event, EventAttributes, Input};
use serde_json::{Value, json};

use crate::redact::Redaction;

/// Returns the function that redacts a dead letter for publication.
#[must_use]
pub fn publishable(redact: Redaction) -> DeadLetterEncoder {
    Arc::new(move |dead_letter| to_json(dead_letter, &redact))
}

fn to_json(dead_letter: &DeadLetter, redact: &Redaction) -> Value {
    json!({
        "id": dead_letter.id,
        "tenant": dead_letter.tenant,
        "saga": dead_letter.instance.as_ref().map(|key| &key.saga),
        "correlation": dead_letter.instance.as_ref().map(|key| &key.correlation),
        "reason": dead_letter.reason.as_str(),
        "message": message(dead_letter, redact),
        "label": label(dead_letter),
        "attempts": dead_letter.attempts,
        "node": dead_letter.node,
        "at": dead_letter.at.to_string(),
        "original": original(&dead_letter.original, redact),
    })
}

/// Returns the error message without the hidden values of the original.
#[must_use]
pub fn message(dead_letter: &DeadLetter, redact: &Redaction) -> String {
    // An error message can repeat values of the original without the names of their fields.
    let values = match &dead_letter.original {
        _ if !redact.is_active() => None,
        DeadLetterOriginal::Input(input) => serde_json::to_value(input).ok(),
        DeadLetterOriginal::Message { payload, .. } => serde_json::from_slice(payload).ok(),
    };
    redact
        .hidden_values(&values)
        .remove_from(&dead_letter.message)
}

/// Returns the label of the original: the event type or the subject.
#[must_use]
pub fn label(dead_letter: &DeadLetter) -> &str {
    match &dead_letter.original {
        DeadLetterOriginal::Input(input) => input.label(),
        DeadLetterOriginal::Message { subject, .. } => subject,
    }
}

fn cloud_event(event: &Event, redact: &Redaction) -> Value {
    let mut rendered = json!({
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
        "data": redact.redact(event.data.clone()),
    });
    if let (Some(attributes), Value::Object(members)) = (&event.attributes, &mut rendered) {
        let EventAttributes {
            content_type,
            data_schema,
            extensions,
        } = &**attributes;
        let known = [
            ("datacontenttype", content_type),
            ("dataschema", data_schema),
        ];
        let known = known
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));

        // As in the JSON format of CloudEvents, extensions are members of the event itself.
        let extensions = redact.redact(json!(extensions));
        members.extend(known.chain(extensions.as_object().cloned().unwrap_or_default()));
    }

    rendered
}

/// Renders the original: events as CloudEvents; other inputs as stored; messages with their body as
/// text if it is text, redacted.
#[must_use]
pub fn original(original: &DeadLetterOriginal, redact: &Redaction) -> Value {
    match original {
        DeadLetterOriginal::Input(input) => match input.as_ref() {
            Input::Event(event) => json!({ "event": cloud_event(event, redact) }),
            other => redact.redact(json!({ "input": other })),
        },
        DeadLetterOriginal::Message {
            subject,
            headers,
            payload,
        } => {
            let headers: BTreeMap<&str, &str> = headers
                .iter()
                .map(|(k, v)| (k.as_str(), v.as_str()))
                .collect();
            let payload = match std::str::from_utf8(payload) {
                Ok(text) => redact.redact_text(text),
                // Bytes that are no text cannot be searched for fields: they are hidden if any rule
                // exists.
                Err(_) => redact.redact(json!({ "base64": STANDARD.encode(payload) })),
            };

            json!({ "message": { "subject": subject, "headers": headers, "payload": payload }})
        }
    }
}
