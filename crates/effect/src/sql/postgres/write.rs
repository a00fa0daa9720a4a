//! Conversion of JSON to the text of a PostgreSQL type.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use sqlx::TypeInfo as _;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};

use crate::sql::database;

/// Returns the value in the notation of the type; `None` is NULL.
pub(super) fn text(value: &Value, kind: &PgTypeInfo) -> Result<Option<String>, String> {
    if let PgTypeKind::Domain(base) = kind.kind() {
        return text(value, base);
    }
    if value.is_null() {
        return Ok(None);
    }
    match (kind.name(), kind.kind(), value) {
        ("JSON" | "JSONB", _, value) => Ok(Some(value.to_string())),
        (_, PgTypeKind::Array(element), Value::Array(items)) => Ok(Some(array(items, element)?)),
        ("BYTEA", _, Value::String(text)) => {
            let bytes = BASE64_STANDARD.decode(text).map_err(|_| "bytes must be base64".to_owned())?;
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

fn array(items: &[Value], element: &PgTypeInfo) -> Result<String, String> {
    let items = items.iter().map(|item| match item {
        Value::Array(inner) => array(inner, element),
        item => Ok(text(item, element)?.map_or_else(|| "NULL".to_owned(), |text| quoted(&text))),
    });
    Ok(format!("{{{}}}", items.collect::<Result<Vec<_>, String>>()?.join(",")))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
