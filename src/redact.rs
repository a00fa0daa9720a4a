//! What nobody may read in what is shown: fields of payloads and states, by name.
//!
//! A rule is a chain of field names such as `card` or `customer.iban`; `*` stands for any one name. It holds wherever such
//! a chain ends, however deep it stands and whatever lists are in between. Names are compared without regard to case. What is
//! stored is not changed: sagas go on with it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What stands in the place of a value.
const HIDDEN: &str = "[redacted]";
/// The names under which bytes are shown that cannot be looked into.
const BYTES: [&str; 2] = ["base64", "hex"];

/// `[redact]`: which fields are not shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redact {
    /// Chains of field names.
    pub fields: Vec<Field>,
}

/// A chain of field names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Field(Vec<String>);

/// A text that is no chain of names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no field; write a name, or names with dots between them: card, customer.iban")]
pub struct NoField(String);

impl TryFrom<String> for Field {
    type Error = NoField;

    fn try_from(text: String) -> Result<Self, NoField> {
        let names: Vec<_> = text.split('.').map(|name| name.trim().to_lowercase()).collect();
        if names.iter().any(String::is_empty) { Err(NoField(text)) } else { Ok(Self(names)) }
    }
}

impl From<Field> for String {
    fn from(field: Field) -> Self {
        field.0.join(".")
    }
}

impl Field {
    fn ends(&self, path: &[String]) -> bool {
        let fits = |(rule, name): (&String, &String)| rule == "*" || rule == name;
        self.0.len() <= path.len() && self.0.iter().rev().zip(path.iter().rev()).all(fits)
    }
}

impl Redact {
    /// A text that may be JSON as it may be shown; where anything is hidden, other texts are not shown at all.
    #[must_use]
    pub fn shown_text(&self, text: &str) -> Value {
        if self.fields.is_empty() {
            return Value::from(text);
        }
        serde_json::from_str(text).map_or_else(|_| Value::from(HIDDEN), |value| self.shown(value))
    }

    /// The value as it may be shown. Where anything is hidden, bytes (`{"base64": …}`) are not shown at all.
    #[must_use]
    pub fn shown(&self, mut value: Value) -> Value {
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
                    if BYTES.contains(&name.as_str()) || self.fields.iter().any(|field| field.ends(path)) {
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
        let redact: Redact = serde_json::from_value(json!({ "fields": rules })).unwrap();
        assert_eq!(redact.shown(value.clone()), *expected);
    }

    #[test]
    fn a_name_is_hidden_wherever_it_stands() {
        let value = json!({ "card": "4111", "items": [{ "Card": { "n": 1 } }, { "sku": "a" }], "cards": 2 });
        let hidden = json!({ "card": HIDDEN, "items": [{ "Card": HIDDEN }, { "sku": "a" }], "cards": 2 });
        check(&["card"], &value, &hidden);
        check(&[], &value, &value);
    }

    #[test]
    fn a_chain_is_hidden_where_it_ends() {
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
    fn bytes_are_hidden_where_anything_is() {
        check(&["card"], &json!({ "base64": "AAAA" }), &json!({ "base64": HIDDEN }));
        let redact = Redact { fields: vec![Field::try_from("card".to_owned()).unwrap()] };
        assert_eq!(redact.shown_text("no JSON: 4111"), HIDDEN);
        assert_eq!(redact.shown_text("{\"card\":1,\"n\":2}"), json!({ "card": HIDDEN, "n": 2 }));
        assert_eq!(Redact::default().shown_text("{}"), "{}");
    }

    #[test]
    fn an_empty_name_is_refused() {
        let error = serde_json::from_value::<Redact>(json!({ "fields": ["a..b"] })).unwrap_err().to_string();
        assert!(error.contains("names no field"), "{error}");
    }
}
