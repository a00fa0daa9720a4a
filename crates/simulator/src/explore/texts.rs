//! Texts of definitions, and the literals that they contain.

use serde::Serialize;
use serde_json::{Value, json};

/// Maximum number of candidates for a field; more candidates do not improve coverage.
pub(super) const MAX_CANDIDATES: usize = 24;

/// Returns every text of a definition or a part of it. An optional field access reads a field too.
pub(crate) fn texts(form: &impl Serialize) -> Vec<String> {
    let mut texts = Vec::new();
    collect(&serde_json::to_value(form).unwrap_or_default(), &mut texts);
    texts.iter().map(|text| text.replace(".?", ".")).collect()
}

/// Collects every text of the form.
fn collect(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        Value::Object(fields) => fields.values().for_each(|item| collect(item, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the literals of an expression: texts, numbers, booleans.
pub(crate) fn literals(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        // A digit or a word within a name is no literal.
        let in_identifier = before.is_alphanumeric() || matches!(before, '_' | '.');
        let parsed = match c {
            '\'' | '"' => rest[1..]
                .find(c)
                .map(|end| (Value::from(&rest[1..=end]), end + 2)),
            c if c.is_ascii_digit() && !in_identifier => {
                let end = rest
                    .find(|c: char| !(c.is_ascii_digit() || c == '.'))
                    .unwrap_or(rest.len());
                serde_json::from_str(&rest[..end])
                    .ok()
                    .map(|number| (number, end))
            }
            't' if !in_identifier && rest.starts_with("true") => Some((json!(true), 4)),
            'f' if !in_identifier && rest.starts_with("false") => Some((json!(false), 5)),
            _ => None,
        };

        let length = match parsed {
            Some((value, length)) => {
                found.push(value);
                length
            }
            None => c.len_utf8(),
        };

        before = rest[..length].chars().next_back().unwrap_or(' ');
        rest = &rest[length..];
    }
    found.truncate(MAX_CANDIDATES);
    found
}
