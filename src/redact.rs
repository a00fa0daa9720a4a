//! Redaction of fields in displayed payloads and states, by name.
//!
//! A rule is a path of field names such as `card` or `customer.iban`; `*` matches any one name. It
//! matches at every depth and through lists, wherever such a path ends. Names are case-insensitive.
//! Stored data is not changed, so sagas use the original values.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Replacement of a redacted value.
const HIDDEN: &str = "[redacted]";
/// Names of encoded bytes, whose content cannot be inspected.
const BYTES: [&str; 2] = ["base64", "hex"];

/// Configuration of `[redact]`: the fields to redact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redaction {
    /// Field paths.
    pub fields: Vec<FieldPath>,
}

/// Path of field names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FieldPath(Vec<String>);

/// Text that is not a field path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid field path {0:?}; examples: card, customer.iban")]
pub struct InvalidFieldPath(String);

impl TryFrom<String> for FieldPath {
    type Error = InvalidFieldPath;

    fn try_from(text: String) -> Result<Self, InvalidFieldPath> {
        let names: Vec<_> = text.split('.').map(|name| name.trim().to_lowercase()).collect();
        if names.iter().any(String::is_empty) { Err(InvalidFieldPath(text)) } else { Ok(Self(names)) }
    }
}

impl From<FieldPath> for String {
    fn from(field: FieldPath) -> Self {
        field.0.join(".")
    }
}

impl FieldPath {
    fn matches(&self, path: &[String]) -> bool {
        let fits = |(rule, name): (&String, &String)| rule == "*" || rule == name;
        self.0.len() <= path.len() && self.0.iter().rev().zip(path.iter().rev()).all(fits)
    }
}

impl Redaction {
    /// Redacts a text that may be JSON. If any rule exists, other texts are hidden completely.
    #[must_use]
    pub fn redact_text(&self, text: &str) -> Value {
        if self.fields.is_empty() {
            return Value::from(text);
        }
        serde_json::from_str(text).map_or_else(|_| Value::from(HIDDEN), |value| self.redact(value))
    }

    /// Redacts a value. If any rule exists, bytes (`{"base64": …}`) are hidden completely.
    #[must_use]
    pub fn redact(&self, mut value: Value) -> Value {
        if !self.fields.is_empty() {
            self.walk(&mut value, &mut Vec::new());
        }
        value
    }

    fn walk(&self, value: &mut Value, path: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    path.push(name.to_lowercase());
                    if BYTES.contains(&name.as_str()) || self.fields.iter().any(|field| field.matches(path)) {
                        *value = Value::from(HIDDEN);
                    } else {
                        self.walk(value, path);
                    }
                    path.pop();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(item, path)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(rules: &[&str], value: &Value, expected: &Value) {
        let redact: Redaction = serde_json::from_value(json!({ "fields": rules })).unwrap();
        assert_eq!(redact.redact(value.clone()), *expected);
    }

    #[test]
    fn field_name_is_redacted_at_any_depth() {
        let value = json!({ "card": "4111", "items": [{ "Card": { "n": 1 } }, { "sku": "a" }], "cards": 2 });
        let hidden = json!({ "card": HIDDEN, "items": [{ "Card": HIDDEN }, { "sku": "a" }], "cards": 2 });
        check(&["card"], &value, &hidden);
        check(&[], &value, &value);
    }

    #[test]
    fn field_path_is_redacted_at_its_end() {
        let value = json!({ "vars": { "customer": { "iban": "DE", "name": "Ada" }, "iban": "FR" } });
        let hidden = json!({ "vars": { "customer": { "iban": HIDDEN, "name": "Ada" }, "iban": "FR" } });
        check(&["customer.iban"], &value, &hidden);
        check(
            &["vars.*.name"],
            &value,
            &json!({ "vars": { "customer": { "iban": "DE", "name": HIDDEN }, "iban": "FR" } }),
        );
    }

    #[test]
    fn bytes_are_redacted_when_any_rule_exists() {
        check(&["card"], &json!({ "base64": "AAAA" }), &json!({ "base64": HIDDEN }));
        let redact = Redaction { fields: vec![FieldPath::try_from("card".to_owned()).unwrap()] };
        assert_eq!(redact.redact_text("no JSON: 4111"), HIDDEN);
        assert_eq!(redact.redact_text("{\"card\":1,\"n\":2}"), json!({ "card": HIDDEN, "n": 2 }));
        assert_eq!(Redaction::default().redact_text("{}"), "{}");
    }

    #[test]
    fn empty_field_path_is_rejected() {
        let error =
            serde_json::from_value::<Redaction>(json!({ "fields": ["a..b"] })).unwrap_err().to_string();
        assert!(error.contains("invalid field path"), "{error}");
    }
}
