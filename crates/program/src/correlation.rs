//! Which instance an event belongs to: a field of its payload, or what its envelope says.

use orlog_model::{CorrelationId, Event};
use serde_json::Value;

use crate::contract::Fault;

/// The text or whole number `value`, which stands at `path`; where there is none, the event's own correlation id.
///
/// # Errors
/// [`Fault::Schema`] when there is neither, or it is no valid identifier.
pub(crate) fn of(event: &Event, path: Option<&str>, value: Option<&Value>) -> Result<CorrelationId, Fault> {
    match (path, value, &event.correlation) {
        (Some(path), Some(value), _) => identifier(event, path, value),
        (_, _, Some(envelope)) => Ok(envelope.clone()),
        (path, _, None) => Err(Fault::Schema(match path {
            Some(path) => format!("{} has no `{path}`, which says to which instance it belongs", event.kind),
            None => format!("{} carries no correlation id", event.kind),
        })),
    }
}

/// What stands under a path of fields (`order.id`); null is nothing.
pub(crate) fn field<'a>(data: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(data, |value, field| value.get(field)).filter(|value| !value.is_null())
}

fn identifier(event: &Event, path: &str, value: &Value) -> Result<CorrelationId, Fault> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
        other => {
            let kind = crate::expression::kind_of(other);
            return Err(Fault::Schema(format!(
                "`{path}` of {} must be a text or a whole number, it is {kind}",
                event.kind
            )));
        }
    };
    CorrelationId::new(text).map_err(|error| Fault::Schema(format!("`{path}` of {}: {error}", event.kind)))
}
