//! Conversion of PostgreSQL binary values to JSON, and of JSON to the text of a type.
//!
//! | type | JSON |
//! |---|---|
//! | `bool`, integers, `float4`, `float8` | boolean, number; `NaN` and infinities as text |
//! | `numeric` | text with every digit |
//! | texts, `uuid`, enums | text |
//! | `json`, `jsonb` | unchanged |
//! | `timestamptz`; `timestamp`, `date`, `time` | RFC 3339 in UTC; ISO 8601 |
//! | `bytea` | base64 |
//! | arrays of these | list |

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};
use serde_json::Value;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgTypeKind, PgValueRef};
use sqlx::{TypeInfo as _, ValueRef as _};
use uuid::Uuid;

use super::super::database;

/// Returns whether values of the type can be read.
pub(super) fn is_readable(kind: &PgTypeInfo) -> bool {
    match kind.kind() {
        PgTypeKind::Domain(inner) | PgTypeKind::Array(inner) => is_readable(inner),
        PgTypeKind::Enum(_) => true,
        PgTypeKind::Simple | PgTypeKind::Pseudo => matches!(
            kind.name(),
            "BOOL"
                | "INT2"
                | "INT4"
                | "INT8"
                | "OID"
                | "FLOAT4"
                | "FLOAT8"
                | "NUMERIC"
                | "TEXT"
                | "VARCHAR"
                | "CHAR"
                | "\"CHAR\""
                | "NAME"
                | "UNKNOWN"
                | "citext"
                | "UUID"
                | "JSON"
                | "JSONB"
                | "BYTEA"
                | "TIMESTAMPTZ"
                | "TIMESTAMP"
                | "DATE"
                | "TIME"
                | "VOID"
        ),
        PgTypeKind::Composite(_) | PgTypeKind::Range(_) => false,
    }
}

pub(super) fn value(value: &PgValueRef<'_>) -> Result<Value, BoxDynError> {
    if value.is_null() {
        return Ok(Value::Null);
    }

    let kind = value.type_info();
    read(&kind, value.as_bytes()?)
}

fn read(kind: &PgTypeInfo, bytes: &[u8]) -> Result<Value, BoxDynError> {
    let text = |bytes: &[u8]| Ok(Value::from(std::str::from_utf8(bytes)?));

    match kind.kind() {
        PgTypeKind::Domain(inner) => return read(inner, bytes),
        PgTypeKind::Array(inner) => return array(inner, bytes),
        PgTypeKind::Enum(_) => return text(bytes),
        _ => {}
    }

    Ok(match kind.name() {
        "BOOL" => Value::from(bytes == [1]),
        "INT2" => Value::from(i16::from_be_bytes(bytes.try_into()?)),
        "INT4" => Value::from(i32::from_be_bytes(bytes.try_into()?)),
        "INT8" => Value::from(i64::from_be_bytes(bytes.try_into()?)),
        "OID" => Value::from(u32::from_be_bytes(bytes.try_into()?)),
        "FLOAT4" => float(f32::from_be_bytes(bytes.try_into()?).to_string()),
        "FLOAT8" => float(f64::from_be_bytes(bytes.try_into()?).to_string()),
        "NUMERIC" => Value::from(numeric(bytes)?),
        "UUID" => Value::from(Uuid::from_slice(bytes)?.to_string()),
        "JSON" => serde_json::from_slice(bytes)?,
        // The first byte is the version of the format.
        "JSONB" => serde_json::from_slice(bytes.get(1..).ok_or("an empty jsonb")?)?,
        "BYTEA" => Value::from(BASE64_STANDARD.encode(bytes)),
        "TIMESTAMPTZ" => moment(bytes, |time| format!("{time}Z"))?,
        "TIMESTAMP" => moment(bytes, |time| time.to_string())?,
        "DATE" => date(i32::from_be_bytes(bytes.try_into()?))?,
        "TIME" => {
            let since = SignedDuration::from_micros(i64::from_be_bytes(bytes.try_into()?));
            Value::from(
                Time::midnight()
                    .checked_add(since)
                    .map_or_else(|_| "24:00:00".to_owned(), |t| t.to_string()),
            )
        }
        "VOID" => Value::Null,
        _ => text(bytes)?,
    })
}

/// Converts a float; JSON has no NaN and no infinity.
fn float(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// Parses the microseconds since 2000. The civil time is in UTC: the times with an offset of the
/// library end before the year 9999, whose last second is the usual "no end".
fn moment(bytes: &[u8], text: fn(DateTime) -> String) -> Result<Value, BoxDynError> {
    Ok(Value::from(match i64::from_be_bytes(bytes.try_into()?) {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        micros => {
            let since = SignedDuration::from_micros(micros);
            text(DateTime::constant(2000, 1, 1, 0, 0, 0, 0).checked_add(since)?)
        }
    }))
}

fn date(days: i32) -> Result<Value, BoxDynError> {
    Ok(Value::from(match days {
        i32::MAX => "infinity".to_owned(),
        i32::MIN => "-infinity".to_owned(),
        days => Date::constant(2000, 1, 1)
            .checked_add(jiff::Span::new().try_days(i64::from(days))?)?
            .to_string(),
    }))
}

/// Parses base-10000 digits: their number, the weight of the first, the sign, the digits after the
/// point, the digits.
fn numeric(bytes: &[u8]) -> Result<String, BoxDynError> {
    let int = |index: usize| -> Result<i16, BoxDynError> {
        let int = bytes
            .get(index * 2..index * 2 + 2)
            .ok_or("numeric value is truncated")?;
        Ok(i16::from_be_bytes(int.try_into()?))
    };

    let count = int(0)?;
    let weight = i32::from(int(1)?);
    let scale = usize::try_from(int(3)?)?;
    let sign = match int(2)?.cast_unsigned() {
        0x0000 => "",
        0x4000 => "-",
        0xd000 => return Ok("Infinity".to_owned()),
        0xf000 => return Ok("-Infinity".to_owned()),
        _ => return Ok("NaN".to_owned()),
    };

    // Zero digits at the start and at the end are not sent.
    let digit = |place: i32| -> Result<i16, BoxDynError> {
        match usize::try_from(weight - place) {
            Ok(index) if index < usize::try_from(count)? => int(4 + index),
            Ok(_) | Err(_) => Ok(0),
        }
    };

    let mut text = String::new();
    for place in (0..=weight.max(0)).rev() {
        write!(text, "{:04}", digit(place)?)?;
    }

    let whole = text.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };

    let mut fraction = String::new();
    let mut place = -1;
    while fraction.len() < scale {
        write!(fraction, "{:04}", digit(place)?)?;
        place -= 1;
    }
    fraction.truncate(scale);

    let point = if scale == 0 { "" } else { "." };
    Ok(format!("{sign}{whole}{point}{fraction}"))
}

/// Parses the number of dimensions, the NULL flag and the element type; the length and lower bound
/// of each dimension; and the elements.
fn array(element: &PgTypeInfo, bytes: &[u8]) -> Result<Value, BoxDynError> {
    let mut rest = bytes;
    let dimensions = usize::try_from(take(&mut rest)?)?;
    take(&mut rest)?;
    take(&mut rest)?;

    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(usize::try_from(take(&mut rest)?)?);
        take(&mut rest)?;
    }

    if lengths.is_empty() {
        Ok(Value::Array(Vec::new()))
    } else {
        nested(element, &lengths, &mut rest)
    }
}

fn nested(element: &PgTypeInfo, lengths: &[usize], rest: &mut &[u8]) -> Result<Value, BoxDynError> {
    let Some((length, inner)) = lengths.split_first() else {
        let Ok(length) = usize::try_from(take(rest)?) else {
            return Ok(Value::Null);
        };

        let (bytes, after) = rest
            .split_at_checked(length)
            .ok_or("array value is truncated")?;
        *rest = after;
        return read(element, bytes);
    };
    (0..*length).map(|_| nested(element, inner, rest)).collect()
}

fn take(rest: &mut &[u8]) -> Result<i32, BoxDynError> {
    let (int, after) = rest
        .split_first_chunk::<4>()
        .ok_or("array value is truncated")?;
    *rest = after;
    Ok(i32::from_be_bytes(*int))
}

/// Returns the value in the notation of the type; `None` is NULL.
pub(super) fn to_text(value: &Value, kind: &PgTypeInfo) -> Result<Option<String>, String> {
    if let PgTypeKind::Domain(base) = kind.kind() {
        return to_text(value, base);
    }
    if value.is_null() {
        return Ok(None);
    }

    match (kind.name(), kind.kind(), value) {
        // Before the arrays: a JSON list is one value, not an array of the database.
        ("JSON" | "JSONB", _, value) => Ok(Some(value.to_string())),
        (_, PgTypeKind::Array(element), Value::Array(items)) => {
            Ok(Some(array_text(items, element)?))
        }
        ("BYTEA", _, Value::String(text)) => {
            let bytes = BASE64_STANDARD
                .decode(text)
                .map_err(|_| "bytes must be base64".to_owned())?;
            Ok(Some(format!("\\x{}", hex::encode(&bytes))))
        }
        _ => Ok(database::text(value)),
    }
}

/// Returns the type name for a cast. `CHAR` without a length would be one character, `BIT` one bit.
pub(super) fn cast(kind: &PgTypeInfo) -> String {
    match kind.name() {
        "CHAR" => "pg_catalog.bpchar".to_owned(),
        "CHAR[]" => "pg_catalog.bpchar[]".to_owned(),
        "\"CHAR\"" => "pg_catalog.\"char\"".to_owned(),
        "BIT" => "pg_catalog.\"bit\"".to_owned(),
        "UNKNOWN" => "text".to_owned(),
        name => name.to_owned(),
    }
}

fn array_text(items: &[Value], element: &PgTypeInfo) -> Result<String, String> {
    let items = items.iter().map(|item| match item {
        Value::Array(inner) => array_text(inner, element),
        item => Ok(to_text(item, element)?.map_or_else(|| "NULL".to_owned(), |text| quoted(&text))),
    });
    Ok(format!(
        "{{{}}}",
        items.collect::<Result<Vec<_>, String>>()?.join(",")
    ))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ints: &[i16], expected: &str) {
        let bytes: Vec<u8> = ints.iter().flat_map(|int| int.to_be_bytes()).collect();
        assert_eq!(numeric(&bytes).unwrap(), expected);
    }

    #[test]
    fn time_up_to_the_end_of_the_year_9999_is_read() {
        let read = |micros: i64| {
            let read = moment(&micros.to_be_bytes(), |time| format!("{time}Z")).unwrap();
            read.as_str().unwrap().to_owned()
        };
        assert_eq!(read(0), "2000-01-01T00:00:00Z");
        assert_eq!(read(-1), "1999-12-31T23:59:59.999999Z");
        assert_eq!(read(252_455_615_999_000_000), "9999-12-31T23:59:59Z");
        assert_eq!(read(i64::MAX), "infinity");
    }

    #[test]
    fn numeric_precision_is_preserved() {
        check(&[0, 0, 0, 0], "0");
        check(&[0, 0, 0, 2], "0.00");
        check(&[2, 0, 0, 2, 12, 5000], "12.50");
        check(&[1, -1, 0x4000, 4, 7], "-0.0007");
        check(&[1, -2, 0, 6, 1200], "0.000012");
        check(&[1, 2, 0, 0, 3], "300000000");
        check(&[3, 1, 0, 3, 1, 2, 3450], "10002.345");
        check(&[0, 0, 0xc000_u16.cast_signed(), 0], "NaN");
        assert!(numeric(&[0, 1]).is_err());
    }
}
