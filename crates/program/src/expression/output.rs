//! Conversion of CEL values to JSON, and of CEL errors to messages.

use cel::ExecutionError;
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelNull, CelString, CelType, CelUInt, Kind,
};
use cel::common::value::{CowVal, Val};
use serde_json::{Map, Number, Value};

use super::functions::{environment, to_base64};
use crate::limits::{MAX_JSON_DEPTH, MAX_PAYLOAD_BYTES};

/// Converts a CEL value to JSON as CEL specifies: a time in RFC 3339, a duration in seconds
/// (`1.5s`), bytes in base64, a type by its name, map keys as texts. Integers keep every digit.
/// Infinities are an error, because JSON does not support them.
pub(super) fn to_json(value: &dyn Val) -> Result<Value, String> {
    let mut left = MAX_PAYLOAD_BYTES;
    convert(value, MAX_JSON_DEPTH, &mut left)
}

fn convert(value: &dyn Val, depth: usize, left: &mut usize) -> Result<Value, String> {
    let depth = depth
        .checked_sub(1)
        .ok_or_else(|| format!("the value exceeds {MAX_JSON_DEPTH} nesting levels"))?;
    spend(left, 1)?;

    if let Some(text) = value.downcast_ref::<CelString>() {
        return charge_text(left, text.inner().to_owned());
    }
    if let Some(integer) = value.downcast_ref::<CelInt>() {
        return Ok(Value::from(*integer.inner()));
    }
    if let Some(b) = value.downcast_ref::<CelBool>() {
        return Ok(Value::Bool(*b.inner()));
    }
    if let Some(double) = value.downcast_ref::<CelDouble>() {
        let number = Number::from_f64(*double.inner());
        return number
            .map(Value::Number)
            .ok_or_else(|| format!("{} is not a JSON number", double.inner()));
    }
    if let Some(unsigned) = value.downcast_ref::<CelUInt>() {
        return Ok(Value::from(*unsigned.inner()));
    }
    if value.downcast_ref::<CelNull>().is_some() {
        return Ok(Value::Null);
    }
    // The encoded text is charged, which is a third longer than the bytes.
    if let Some(bytes) = value.downcast_ref::<CelBytes>() {
        return charge_text(left, to_base64(bytes.inner()));
    }
    if let Some(kind) = value.downcast_ref::<CelType>() {
        return charge_text(left, kind.name().to_owned());
    }

    match value.get_type().kind() {
        Kind::List => list(value, depth, left),
        Kind::Map => map(value, depth, left),
        Kind::Timestamp | Kind::Duration => charge_text(left, text_of(value)?),
        _ => Err(match value.get_type().name() {
            "optional_type" => {
                "the value is an optional; end the expression with .orValue(…)".to_owned()
            }
            other => format!("the value has the type {other}, which JSON does not support"),
        }),
    }
}

fn list(value: &dyn Val, depth: usize, left: &mut usize) -> Result<Value, String> {
    let mut items = value.as_iterable().ok_or("unreadable list")?.iter();
    let mut out = Vec::new();
    while let Some(item) = items.next() {
        out.push(convert(item, depth, left)?);
    }
    Ok(Value::Array(out))
}

/// Converts a map.
fn map(value: &dyn Val, depth: usize, left: &mut usize) -> Result<Value, String> {
    let unreadable = "unreadable map";
    let fields = value.as_indexer().ok_or(unreadable)?;
    let mut keys = value.as_iterable().ok_or(unreadable)?.iter();

    let mut named = Vec::new();
    while let Some(key) = keys.next() {
        named.push((key_text(key)?, key));
    }

    // CEL maps have no key order; without one, the reported error would differ between runs.
    named.sort_by(|a, b| a.0.cmp(&b.0));

    let mut out = Map::new();
    for (name, key) in named {
        spend(left, name.len())?;
        let field = fields.get(key).map_err(|e| reason(&e))?;
        let field = convert(field.as_ref(), depth, left)?;
        if out.insert(name.clone(), field).is_some() {
            return Err(format!("two keys of the map are `{name}` in JSON"));
        }
    }
    Ok(Value::Object(out))
}

fn key_text(key: &dyn Val) -> Result<String, String> {
    match key.downcast_ref::<CelString>() {
        Some(text) => Ok(text.inner().to_owned()),
        None => text_of(key),
    }
}

/// Returns the text that CEL's `string()` produces.
fn text_of(value: &dyn Val) -> Result<String, String> {
    let args = vec![CowVal::Borrowed(value)];
    let unreadable = || {
        format!(
            "the value has the type {}, which JSON does not support",
            value.get_type().name()
        )
    };
    // CEL's own conversion, so that the text equals that of `string()` in an expression.
    let string = environment()
        .find_overload("string", &args)
        .ok_or_else(unreadable)?;

    let text = string(args).map_err(|error| reason(&error))?;
    text.downcast_ref::<CelString>()
        .map(|text| text.inner().to_owned())
        .ok_or_else(unreadable)
}

/// Charges for a text at its JSON size.
fn charge_text(left: &mut usize, text: String) -> Result<Value, String> {
    spend(left, text.len())?;
    Ok(Value::String(text))
}

fn spend(left: &mut usize, bytes: usize) -> Result<(), String> {
    *left = left
        .checked_sub(bytes)
        .ok_or_else(|| format!("the value exceeds {MAX_PAYLOAD_BYTES} bytes"))?;
    Ok(())
}

/// Maximum length of a reason in bytes: it can contain keys and texts of the payload, and the
/// instance stores the error.
const MAX_REASON_BYTES: usize = 300;

/// Converts a CEL error to a short message.
pub(super) fn reason(error: &ExecutionError) -> String {
    let mut text = sentence(error);
    // The instance stores the message, which can contain keys and texts of the payload.
    text.truncate(text.floor_char_boundary(MAX_REASON_BYTES));
    text
}

fn sentence(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("`{key}` does not exist"),
        ExecutionError::IndexOutOfBounds(_) => "the index is out of bounds".to_owned(),
        // Without the value: CEL maps print in a different order each time.
        ExecutionError::UnsupportedKeyType(_) => "this value cannot be a map key".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "remainder by zero".to_owned(),
        ExecutionError::Overflow(operator, ..) => format!("overflow in {operator}"),
        ExecutionError::UnsupportedBinaryOperator(operator, ..) => {
            format!("`{operator}` does not support these types; int() and double() convert numbers")
        }
        ExecutionError::ValuesNotComparable(..) => {
            "values of these types cannot be compared".to_owned()
        }
        ExecutionError::NoSuchOverload(overload) => overload.to_string().replace('@', ""),
        ExecutionError::FunctionError { function, message } => format!("{function}: {message}"),
        ExecutionError::UnexpectedType { got, want } => format!("expected {want}, found {got}"),
        ExecutionError::UndeclaredReference(name) => format!("unknown name `{name}`"),
        ExecutionError::DuplicateKey(_) => "a map has a duplicate key".to_owned(),
        other => other.to_string(),
    }
}
