//! Limits that bound the cost of a malicious definition or payload.

use std::time::Duration;

use serde_json::Value;

use crate::budget;
use crate::diagnostic::{RawDiagnostic, RawDiagnostics};

/// Maximum number of indexed variables of a saga.
pub const MAX_INDEXES: usize = 8;
/// Maximum number of parts of a business reference.
pub(crate) const MAX_REFERENCE_PARTS: usize = 8;
/// Maximum number of elements of a `foreach` step.
pub const MAX_ELEMENTS: usize = 1000;

/// Maximum number of rounds of a loop.
pub const MAX_ROUNDS: usize = 1000;
/// Maximum number of steps that the loops of a definition may start: the sum of their rounds times
/// their steps.
pub const MAX_LOOP_STEPS: usize = 10_000;
/// Maximum size of the variables that a loop keeps for the compensation of its rounds, in bytes.
pub(crate) const MAX_LOOP_VALUES_BYTES: usize = MAX_PAYLOAD_BYTES / 2;

/// Maximum number of events that a step collects.
pub(crate) const MAX_COLLECTED_EVENTS: usize = 1000;
/// Maximum size of the payloads of the events that a step collects, in bytes.
pub(crate) const MAX_COLLECTED_BYTES: usize = MAX_PAYLOAD_BYTES / 4;
/// Maximum number of open child sagas that the event handlers of an instance started.
pub(crate) const MAX_HANDLER_CHILDREN: usize = 256;

/// Maximum number of reminders of a step that waits.
pub const MAX_REMINDERS: u32 = 1000;

/// Default number of elements of a `foreach` step in progress at the same time.
pub const DEFAULT_FOREACH_CONCURRENCY: u32 = 10;

/// Maximum length of a definition, in bytes of text.
pub const MAX_SOURCE_BYTES: usize = 1024 * 1024;
/// Maximum number of steps of a definition.
pub const MAX_STEPS: usize = 1000;
/// Maximum length of an expression, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 4096;
/// Maximum nesting of `map`, `filter`, `all` and `exists`.
pub const MAX_COMPREHENSIONS: usize = 2;
/// Maximum length of a regular expression, in bytes.
pub const MAX_PATTERN_BYTES: usize = 512;
/// Maximum memory of a compiled regular expression, in bytes.
pub(crate) const MAX_PATTERN_PROGRAM_BYTES: usize = 256 * 1024;
/// Maximum units of work of one expression, or of one template with all its expressions. An element
/// of a list or a map that is read is one unit, and so is every 64 bytes of text that is read or
/// produced.
pub const MAX_EVALUATION_COST: u32 = 100_000;
/// Maximum size of an incoming or outgoing payload, and of the state, in bytes of JSON or
/// MessagePack.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;
/// Maximum nesting of JSON.
pub const MAX_JSON_DEPTH: usize = 64;

/// Maximum number of diagnostics per definition. Beyond it, expressions are not checked and
/// diagnostics are not located in the text.
pub(crate) const MAX_DIAGNOSTICS: usize = 1000;
/// Maximum size of a WebAssembly module, in bytes.
pub const MAX_MODULE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum fuel of a module per transition, including its start function; about one unit per
/// instruction.
pub const MAX_FUEL: u64 = 50_000_000;
/// Maximum memory of a module, in pages of 64 KiB.
pub const MAX_MEMORY_PAGES: usize = 256;

const MAX_DURATION: Duration = Duration::from_hours(24 * 36_525);

/// Reports a timeout of zero or of more than 100 years.
pub(crate) fn check_duration(
    path: &str,
    duration: Option<Duration>,
    findings: &mut RawDiagnostics,
) {
    let problem = duration.and_then(duration_problem);
    findings.extend(problem.map(|problem| RawDiagnostic::new(path, problem)));
}

/// Returns why a duration cannot be a timeout: it is zero, or exceeds 100 years.
pub(crate) fn duration_problem(duration: Duration) -> Option<&'static str> {
    match duration {
        Duration::ZERO => Some("a timeout must be longer than zero"),
        duration if duration > MAX_DURATION => Some("a timeout must not exceed 100 years"),
        _ => None,
    }
}

/// Value that exceeds the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadTooLarge {
    /// Arrays and objects are nested too deeply.
    #[error("payload exceeds {MAX_JSON_DEPTH} nesting levels")]
    TooDeep,
    /// The value has too many bytes.
    #[error("payload exceeds {MAX_PAYLOAD_BYTES} bytes")]
    TooLong,
}

/// Checks a payload against [`MAX_JSON_DEPTH`] and [`MAX_PAYLOAD_BYTES`]. Uses a lower bound of the
/// size, without encoding the JSON.
///
/// # Errors
/// If it exceeds either.
pub fn check_payload(value: &Value) -> Result<(), PayloadTooLarge> {
    let mut left = MAX_PAYLOAD_BYTES;
    check_payload_within(value, &mut left)
}

/// Checks a value as [`check_payload`], against the bytes `left` for several values.
pub(crate) fn check_payload_within(value: &Value, left: &mut usize) -> Result<(), PayloadTooLarge> {
    let before = *left;
    let fits = walk(value, MAX_JSON_DEPTH, left);
    // Each value that a transition reads, copies or writes is checked, so its size is charged here.
    budget::spend_bytes(before - *left);
    fits
}

fn walk(value: &Value, depth: usize, left: &mut usize) -> Result<(), PayloadTooLarge> {
    let depth = depth.checked_sub(1).ok_or(PayloadTooLarge::TooDeep)?;
    spend(left, 1)?;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) => spend(left, text.len()),
        Value::Array(items) => items.iter().try_for_each(|item| walk(item, depth, left)),
        Value::Object(fields) => fields.iter().try_for_each(|(key, item)| {
            spend(left, key.len())?;
            walk(item, depth, left)
        }),
    }
}

fn spend(left: &mut usize, bytes: usize) -> Result<(), PayloadTooLarge> {
    *left = left.checked_sub(bytes).ok_or(PayloadTooLarge::TooLong)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accepts_payloads_within_limits_only() {
        assert_eq!(check_payload(&json!({"a": [1, {"b": "c"}]})), Ok(()));
        let deep = (0..64).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(check_payload(&deep), Err(PayloadTooLarge::TooDeep));
        assert_eq!(
            check_payload(&json!("x".repeat(MAX_PAYLOAD_BYTES))),
            Err(PayloadTooLarge::TooLong)
        );
    }
}
