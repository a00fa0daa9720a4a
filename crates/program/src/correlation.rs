//! Correlation id of an event: a field of its payload, or its envelope.

use orlog_model::{CorrelationId, Event};
use serde_json::Value;

use crate::contract::ProgramError;

/// Returns the text or whole number `value` at `path` as the correlation id; without a path, the
/// correlation id of the envelope.
///
/// # Errors
/// [`ProgramError::SchemaMismatch`] if neither exists, or the identifier is invalid.
pub(crate) fn of(
    event: &Event,
    path: Option<&str>,
    value: Option<&Value>,
) -> Result<CorrelationId, ProgramError> {
    match (path, value, &event.correlation) {
        (Some(path), Some(value), _) => identifier(event, path, value),
        // Also for an event without the field: its publisher can address an instance directly.
        (_, _, Some(envelope)) => Ok(envelope.clone()),
        (path, _, None) => Err(ProgramError::SchemaMismatch(match path {
            Some(path) => format!("{} has no correlation field `{path}`", event.kind),
            None => format!("{} has no correlation id", event.kind),
        })),
    }
}

/// Returns the text or whole number at a path of the payload as the correlation id; without a path,
/// the correlation id of the envelope.
///
/// # Errors
/// [`ProgramError::SchemaMismatch`] if neither exists, or the identifier is invalid.
pub fn correlation_by_field(
    event: &Event,
    path: Option<&str>,
) -> Result<CorrelationId, ProgramError> {
    of(event, path, path.and_then(|path| field(&event.data, path)))
}

/// Returns the value at a path of fields (`order.id`); `None` if it is null.
pub(crate) fn field<'a>(data: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(data, |value, field| value.get(field))
        .filter(|value| !value.is_null())
}

fn identifier(event: &Event, path: &str, value: &Value) -> Result<CorrelationId, ProgramError> {
    let text = match value {
        Value::String(text) => text.clone(),
        // A number with decimals can be written in several ways, so it identifies no instance.
        Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
        other => {
            let kind = crate::expression::kind_of(other);
            return Err(ProgramError::SchemaMismatch(format!(
                "`{path}` of {} must be a text or a whole number, but is {kind}",
                event.kind
            )));
        }
    };

    CorrelationId::for_path(text).map_err(|error| {
        ProgramError::SchemaMismatch(format!("`{path}` of {}: {error}", event.kind))
    })
}

#[cfg(test)]
mod tests {
    use orlog_model::{EventId, EventType, TenantId, Timestamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_with_dots_is_no_correlation_id() {
        let event = Event {
            id: EventId::new("e-1").unwrap(),
            tenant: TenantId::default(),
            kind: EventType::new("OrderPlaced").unwrap(),
            source: "test".to_owned(),
            subject: None,
            time: Timestamp::from_millis(0),
            correlation: None,
            causation: None,
            trace: None,
            schema_version: 1,
            data: json!({}),
            user: None,
            attributes: None,
        };
        let of = |value| super::of(&event, Some("orderId"), Some(&value));
        for dots in [".", ".."] {
            let error = of(json!(dots)).unwrap_err().to_string();
            assert!(
                error.contains("`orderId` of OrderPlaced: correlation id must not be"),
                "{error}"
            );
        }
        assert_eq!(of(json!("...")).unwrap().as_str(), "...");
    }
}
