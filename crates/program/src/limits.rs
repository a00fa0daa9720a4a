//! The bounds that keep a hostile definition or payload from costing more than it may.

use serde_json::Value;

/// Elements a `foreach` step goes through at most.
pub const MAX_ELEMENTS: usize = 1000;

/// Elements of a `foreach` step under way at once, where it says nothing.
pub const DEFAULT_CONCURRENT: u32 = 10;

/// The longest definition, in bytes of text.
pub const MAX_SOURCE_BYTES: usize = 1024 * 1024;
/// The most steps a definition may have.
pub const MAX_STEPS: usize = 1000;
/// The longest expression, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 4096;
/// How deep `map`, `filter`, `all`, `exists` may stand in one another.
pub const MAX_COMPREHENSIONS: usize = 2;
/// The longest regular expression, in bytes.
pub const MAX_PATTERN_BYTES: usize = 512;
/// The most memory a regular expression may take once it is compiled, in bytes.
pub(crate) const MAX_PATTERN_PROGRAM_BYTES: usize = 256 * 1024;
/// The most units of work one expression, or one template with all of its expressions, may spend: an element of a list or a
/// map gone through is one, and so is every 64 bytes of text read or made.
pub const MAX_EVALUATION: u32 = 100_000;
/// The largest payload that comes in or goes out, and the largest state, in bytes of JSON or MessagePack.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;
/// How deep JSON may nest.
pub const MAX_JSON_DEPTH: usize = 64;

/// After so many mistakes in one definition no more are looked for in expressions, and only so many are placed in its text.
pub(crate) const MAX_FINDINGS: usize = 1000;
/// The largest WebAssembly module, in bytes.
pub const MAX_MODULE_BYTES: usize = 8 * 1024 * 1024;
/// The fuel a module may burn in one transition, start function included; about one unit an instruction.
pub const MAX_FUEL: u64 = 50_000_000;
/// The most memory a module may have, in pages of 64 KiB.
pub const MAX_MEMORY_PAGES: usize = 256;
/// The most elements a table of a module may have.
pub(crate) const MAX_TABLE_ELEMENTS: usize = 10_000;
/// The most local variables a function of a module may have: a call clears them all for the price of one.
pub(crate) const MAX_LOCALS: u64 = 1_000;
/// How deep the functions of a module may call one another.
pub(crate) const MAX_CALL_DEPTH: usize = 1_000;
/// The cells that the functions of a module may have on the stack at a time, 8 bytes each.
pub(crate) const MAX_STACK_CELLS: usize = 256 * 1024;
/// The longest manifest of a module, in bytes.
pub(crate) const MAX_MANIFEST_BYTES: usize = 64 * 1024;
/// The longest answer of a module, in bytes: its state and its work.
pub(crate) const MAX_ANSWER_BYTES: usize = 4 * MAX_PAYLOAD_BYTES;
/// The most work items, timers, and waits each that one answer may hold; also the most names a manifest may list of a kind.
pub(crate) const MAX_ORDERS: usize = 1_000;
/// The longest text for people in an answer, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 4 * 1024;

/// A value that is larger than the runner handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// Arrays and objects stand too deep in one another.
    #[error("it nests deeper than {MAX_JSON_DEPTH} levels")]
    Deep,
    /// It holds too many bytes.
    #[error("it holds more than {MAX_PAYLOAD_BYTES} bytes")]
    Long,
}

/// Checks a payload against [`MAX_JSON_DEPTH`] and [`MAX_PAYLOAD_BYTES`]. The size is estimated from below, without
/// writing the JSON.
///
/// # Errors
/// When it exceeds either.
pub fn check_payload(value: &Value) -> Result<(), TooLarge> {
    let mut left = MAX_PAYLOAD_BYTES;
    take_payload(value, &mut left)
}

/// As [`check_payload`], of what is `left` for several values.
pub(crate) fn take_payload(value: &Value, left: &mut usize) -> Result<(), TooLarge> {
    walk(value, MAX_JSON_DEPTH, left)
}

fn walk(value: &Value, depth: usize, left: &mut usize) -> Result<(), TooLarge> {
    let depth = depth.checked_sub(1).ok_or(TooLarge::Deep)?;
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

fn spend(left: &mut usize, bytes: usize) -> Result<(), TooLarge> {
    *left = left.checked_sub(bytes).ok_or(TooLarge::Long)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn takes_what_fits_and_refuses_what_is_deep_or_long() {
        assert_eq!(check_payload(&json!({"a": [1, {"b": "c"}]})), Ok(()));
        let deep = (0..64).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(check_payload(&deep), Err(TooLarge::Deep));
        assert_eq!(check_payload(&json!("x".repeat(MAX_PAYLOAD_BYTES))), Err(TooLarge::Long));
    }
}
