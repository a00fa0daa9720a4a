//! Values of templates as what they are wanted for: payloads, ids.

use orlog_model::Name;
use serde_json::Value;

use crate::expression::{Bindings, EvalError, kind_of};
use crate::limits::check_payload;
use crate::template::Template;

pub(super) fn payload(data: &Template, tag: &Name, bindings: &Bindings<'_>) -> Result<Value, EvalError> {
    checked(data.evaluate(bindings)?, tag)
}

pub(super) fn checked(payload: Value, tag: &Name) -> Result<Value, EvalError> {
    match check_payload(&payload) {
        Ok(()) => Ok(payload),
        Err(large) => Err(wrong(tag.as_str(), format!("its payload: {large}"))),
    }
}

pub(super) fn identifier(what: &str, value: &Value) -> Result<String, EvalError> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(wrong("id", format!("{what} is a text or a number, this is {}", kind_of(other)))),
    }
}

pub(super) fn wrong(expression: &str, reason: String) -> EvalError {
    EvalError { expression: expression.to_owned(), reason }
}
