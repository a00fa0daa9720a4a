//! State of an instance as users see it, and the values in it that no text may quote.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_model::{Instance, InstanceKey};
use serde_json::{Value, json};

use crate::reads::StoreScope;
use crate::redact::HiddenValues;

/// Returns the state of an instance as rendered by its program, or as JSON if it is readable; not
/// redacted.
#[must_use]
pub fn displayed_state(scope: &StoreScope, instance: &Instance) -> Value {
    // By hash: a retired definition still renders the instances that are pinned to it.
    let program = scope.programs().by_hash(&instance.definition.hash);
    program
        .and_then(|program| program.view_state(&instance.state))
        .unwrap_or_else(|| state(&instance.state))
}

/// Returns the values of a stored instance that no text about it may quote; none if it cannot be
/// read.
#[must_use]
pub fn stored_hidden_values(scope: &StoreScope, key: &InstanceKey) -> HiddenValues {
    if !scope.redact().is_active() {
        return HiddenValues::default();
    }

    let instance = scope
        .reader(key)
        .and_then(|reader| reader.instance(key).ok().flatten());
    instance
        .map(|instance| hidden_values(scope, &instance))
        .unwrap_or_default()
}

/// Returns the values of an instance that no text about it may quote.
#[must_use]
pub fn hidden_values(scope: &StoreScope, instance: &Instance) -> HiddenValues {
    let redact = scope.redact();
    if !redact.is_active() {
        return HiddenValues::default();
    }
    // The data of tasks is not part of the state, but texts can quote it.
    let state = displayed_state(scope, instance);
    redact.hidden_values(task_data(instance).chain([&state]))
}

/// Returns the data of the open tasks of an instance.
pub fn task_data(instance: &Instance) -> impl Iterator<Item = &Value> {
    instance.tasks.iter().map(|task| &task.spec.data)
}

/// Decodes a state that no program renders. If the decoder stops before the end, the result is
/// invalid.
fn state(bytes: &[u8]) -> Value {
    // JSON first: a single digit is also valid MessagePack, but with another value.
    if let Ok(value) = serde_json::from_slice(bytes) {
        return value;
    }
    let mut rest = bytes;
    match rmp_serde::from_read(&mut rest) {
        Ok(value) if rest.is_empty() => value,
        _ => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodable_state_is_rendered_as_json() {
        assert_eq!(state(br#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(
            state(&rmp_serde::to_vec(&json!(["x", 1, null])).unwrap()),
            json!(["x", 1, null])
        );
        assert_eq!(state(b"{\xff"), json!({"base64": "e/8="}));
        assert_eq!(state(b""), json!({"base64": ""}));
    }
}
