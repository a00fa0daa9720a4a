//! Conversion of template values to payloads and ids.

use orlog_model::Name;
use serde_json::Value;

use crate::expression::{Bindings, EvalError, kind_of};
use crate::limits::check_payload;
use crate::template::Template;

pub(crate) fn payload(
    data: &Template,
    tag: &Name,
    bindings: &Bindings<'_>,
) -> Result<Value, EvalError> {
    checked(data.evaluate(bindings)?, tag)
}

pub(crate) fn checked(payload: Value, tag: &Name) -> Result<Value, EvalError> {
    match check_payload(&payload) {
        Ok(()) => Ok(payload),
        Err(large) => Err(eval_error(tag.as_str(), format!("payload: {large}"))),
    }
}

pub(crate) fn identifier(label: &str, value: &Value) -> Result<String, EvalError> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(eval_error(
            "id",
            format!(
                "{label} must be a text or a number, but is {}",
                kind_of(other)
            ),
        )),
    }
}

pub(crate) fn eval_error(expression: &str, reason: String) -> EvalError {
    EvalError {
        expression: expression.to_owned(),
        reason,
        lacks_value: false,
    }
}
