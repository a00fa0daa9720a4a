//! From a CEL value back to JSON, and from a CEL error to a sentence.

use cel::ExecutionError;
use cel::common::types::{CelBool, CelDouble, CelInt, CelNull, CelString, CelUInt, Kind};
use cel::common::value::Val;
use serde_json::{Map, Number, Value};

use crate::limits::{MAX_JSON_DEPTH, MAX_PAYLOAD_BYTES};

/// A CEL value as JSON. What JSON cannot say is an error, not a text that looks like it.
pub(super) fn to_json(value: &dyn Val) -> Result<Value, String> {
    let mut left = MAX_PAYLOAD_BYTES;
    convert(value, MAX_JSON_DEPTH, &mut left)
}

fn convert(value: &dyn Val, depth: usize, left: &mut usize) -> Result<Value, String> {
    let depth =
        depth.checked_sub(1).ok_or_else(|| format!("its value nests deeper than {MAX_JSON_DEPTH} levels"))?;
    spend(left, 1)?;
    if let Some(text) = value.downcast_ref::<CelString>() {
        spend(left, text.inner().len())?;
        return Ok(Value::String(text.inner().to_owned()));
    }
    if let Some(integer) = value.downcast_ref::<CelInt>() {
        return Ok(Value::from(*integer.inner()));
    }
    if let Some(b) = value.downcast_ref::<CelBool>() {
        return Ok(Value::Bool(*b.inner()));
    }
    if let Some(double) = value.downcast_ref::<CelDouble>() {
        let number = Number::from_f64(*double.inner());
        return number.map(Value::Number).ok_or_else(|| format!("{} is no JSON number", double.inner()));
    }
    if let Some(unsigned) = value.downcast_ref::<CelUInt>() {
        return Ok(Value::from(*unsigned.inner()));
    }
    if value.downcast_ref::<CelNull>().is_some() {
        return Ok(Value::Null);
    }
    match value.get_type().kind() {
        Kind::List => list(value, depth, left),
        Kind::Map => map(value, depth, left),
        Kind::Bytes => Err("its value is bytes, which JSON does not have; use string()".to_owned()),
        _ => Err(match value.get_type().name() {
            "optional_type" => "its value is an optional; end it with .orValue(…)".to_owned(),
            other => format!("its value is of type {other}, which JSON does not have"),
        }),
    }
}

fn list(value: &dyn Val, depth: usize, left: &mut usize) -> Result<Value, String> {
    let mut items = value.as_iterable().ok_or("a list that cannot be read")?.iter();
    let mut out = Vec::new();
    while let Some(item) = items.next() {
        out.push(convert(item, depth, left)?);
    }
    Ok(Value::Array(out))
}

/// Keys come in any order from CEL's own maps; the JSON object sorts them.
fn map(value: &dyn Val, depth: usize, left: &mut usize) -> Result<Value, String> {
    let unreadable = "a map that cannot be read";
    let fields = value.as_indexer().ok_or(unreadable)?;
    let mut keys = value.as_iterable().ok_or(unreadable)?.iter();
    let mut out = Map::new();
    while let Some(key) = keys.next() {
        let Some(name) = key.downcast_ref::<CelString>() else {
            return Err(format!(
                "a key of its map is of type {}, JSON has only texts",
                key.get_type().name()
            ));
        };
        spend(left, name.inner().len())?;
        let field = fields.get(key).map_err(|e| reason(&e))?;
        out.insert(name.inner().to_owned(), convert(field.as_ref(), depth, left)?);
    }
    Ok(Value::Object(out))
}

fn spend(left: &mut usize, bytes: usize) -> Result<(), String> {
    *left = left
        .checked_sub(bytes)
        .ok_or_else(|| format!("its value holds more than {MAX_PAYLOAD_BYTES} bytes"))?;
    Ok(())
}

/// A CEL error as a short sentence. The debug form of whole values, which CEL puts into some, stays out.
pub(super) fn reason(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("there is no `{key}`"),
        ExecutionError::IndexOutOfBounds(_) => "the index is outside the list".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "remainder by zero".to_owned(),
        ExecutionError::Overflow(operator, ..) => format!("overflow in {operator}"),
        ExecutionError::UnsupportedBinaryOperator(operator, ..) => {
            format!("`{operator}` does not take these types; int() and double() convert numbers")
        }
        ExecutionError::ValuesNotComparable(..) => "values of these types cannot be compared".to_owned(),
        ExecutionError::NoSuchOverload(overload) => overload.to_string(),
        ExecutionError::FunctionError { function, message } => format!("{function}: {message}"),
        ExecutionError::UnexpectedType { got, want } => format!("it needs {want}, this is {got}"),
        ExecutionError::UndeclaredReference(name) => format!("`{name}` is not known here"),
        ExecutionError::DuplicateKey(_) => "a map names a key twice".to_owned(),
        other => {
            let mut text = other.to_string();
            text.truncate(text.floor_char_boundary(200));
            text
        }
    }
}
