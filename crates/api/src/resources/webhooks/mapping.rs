//! Mapping of a received webhook to an event.

use axum::http::{HeaderMap, header};
use orlog_bus::codec::{self, DecodeDefaults, DecodeError};
use orlog_model::{Event, Timestamp};
use orlog_program::MessageTemplate;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use orlog_node::config::WebhookScheme;
use orlog_node::webhooks::Webhook;

/// Key whose expression has no usable value, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("webhooks.{webhook}.{key}: {reason}")]
pub(super) struct MappingError {
    webhook: String,
    key: &'static str,
    reason: String,
}

/// Body of a request: as it was signed, and parsed.
#[derive(Clone, Copy)]
pub(super) struct ReceivedBody<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) value: &'a Value,
}

/// Returns the event of a request. Its id derives from the webhook and the delivery id, so that a
/// repetition is a duplicate.
pub(super) fn event(
    webhook: &Webhook,
    headers: &HeaderMap,
    received: ReceivedBody<'_>,
    now: Timestamp,
) -> Result<Event, MappingError> {
    let body = received.value;
    let name = webhook.name.as_str();
    let templates = &webhook.templates;
    let headers = Value::Object(readable(webhook, headers));
    let error = |key, reason| MappingError {
        webhook: name.to_owned(),
        key,
        reason,
    };

    let value = |key, template: &MessageTemplate| {
        template
            .evaluate(body, &headers)
            .map_err(|reason| error(key, reason))
    };
    let required = |key, template| {
        text(value(key, template)?)
            .and_then(|text| text.ok_or_else(|| "the value is null or empty".to_owned()))
            .map_err(|reason| error(key, reason))
    };

    let optional = |key, template: Option<&MessageTemplate>| match template {
        Some(template) => text(value(key, template)?).map_err(|reason| error(key, reason)),
        None => Ok(None),
    };
    let mut delivery = required("id", &templates.id)?;

    if webhook.config.signs_body_only() {
        // A recorded request stays valid with other headers.
        delivery = id_in_body(&templates.id, body).unwrap_or_else(|| digest(received.bytes));
    }

    // The replacements of text that is not Unicode can make the ids of two deliveries equal.
    if delivery.contains(char::REPLACEMENT_CHARACTER) {
        delivery = digest(received.bytes);
    }

    let event = json!({
        "specversion": "1.0",
        "id": format!("webhook:{name}:{delivery}"),
        "source": format!("orlog:webhook:{name}"),
        "type": required("type", &templates.kind)?,
        "correlationid": optional("correlation", templates.correlation.as_ref())?,
        "subject": optional("subject", templates.subject.as_ref())?,
        "data": value("data", &templates.data)?,
    });

    let defaults = DecodeDefaults {
        tenant: Some(webhook.config.tenant.clone()),
        now,
    };
    codec::from_structured(&event, &defaults)
        .map_err(|invalid| error(key_of(&invalid), invalid.to_string()))
}

/// Returns the delivery id if it depends on the signed body only.
fn id_in_body(template: &MessageTemplate, body: &Value) -> Option<String> {
    let without_headers = template.evaluate(body, &json!({})).ok()?;
    text(without_headers).ok().flatten()
}

/// Returns the id of a delivery whose signature covers nothing but its body. It does not depend on
/// the secret, which can be replaced between two attempts.
fn digest(body: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(body)))
}

/// Returns the headers that expressions read, by name in lower case. Credentials are not among
/// them.
fn readable(webhook: &Webhook, headers: &HeaderMap) -> Map<String, Value> {
    let token = webhook
        .config
        .signature
        .as_ref()
        .filter(|_| webhook.config.scheme == WebhookScheme::Token);
    // Expressions copy headers into events, which are stored and shown; a shared token must not be
    // among them.
    let is_credential = |name: &str| {
        let known = [
            header::AUTHORIZATION,
            header::COOKIE,
            header::PROXY_AUTHORIZATION,
        ];
        known.iter().any(|known| known == name)
            || token.is_some_and(|token| token.header.eq_ignore_ascii_case(name))
    };

    let mut readable = Map::new();
    for name in headers.keys().filter(|name| !is_credential(name.as_str())) {
        let values: Vec<_> = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        readable.insert(name.as_str().to_owned(), values.join(", ").into());
    }

    readable
}

/// Returns the text of a value; `None` if it is null or empty.
fn text(value: Value) -> Result<Option<String>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        // Many senders have numeric ids; a fraction has no single text.
        Value::Number(number) if number.is_i64() || number.is_u64() => Ok(Some(number.to_string())),
        other => Err(format!(
            "the value must be a text or a whole number, but is {}",
            kind(&other)
        )),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
        Value::Bool(_) => "true or false",
        _ => "a number with a fraction",
    }
}

/// Returns the key of the expression whose value violates a rule of events.
fn key_of(error: &DecodeError) -> &'static str {
    let attribute = match error {
        DecodeError::Missing { attribute, .. } | DecodeError::Invalid { attribute, .. } => {
            attribute.as_str()
        }
        _ => "",
    };
    match attribute {
        "id" => "id",
        "type" => "type",
        "correlationid" => "correlation",
        "subject" => "subject",
        "tenantid" => "tenant",
        _ => "data",
    }
}
