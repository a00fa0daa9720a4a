//! Redaction of fields in displayed payloads and states, by name.
//!
//! A rule is a path of field names such as `card` or `customer.iban`; `*` matches any one name. It
//! matches at every depth and through lists, wherever such a path ends. Names are case-insensitive.
//! Stored data is not changed, so sagas use the original values.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Replacement of a redacted value.
const HIDDEN: &str = "[redacted]";
/// Minimum length of a value that is removed from the middle of a text, in characters.
const MIN_QUOTED: usize = 3;
/// Names of encoded bytes, whose content cannot be inspected.
const BYTES: [&str; 2] = ["base64", "hex"];

/// Fields of stored rows with texts, which may quote values of an instance.
const TEXTS: [&str; 7] = [
    "message",
    "note",
    "reason",
    "reference",
    "response",
    "text",
    "title",
];

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
        let names: Vec<_> = text
            .split('.')
            .map(|name| name.trim().to_lowercase())
            .collect();
        if names.iter().any(String::is_empty) {
            Err(InvalidFieldPath(text))
        } else {
            Ok(Self(names))
        }
    }
}

impl From<FieldPath> for String {
    fn from(field: FieldPath) -> Self {
        field.0.join(".")
    }
}

impl FieldPath {
    fn matches(&self, path: &[String]) -> bool {
        self.0.len() <= path.len()
            && self
                .0
                .iter()
                .rev()
                .zip(path.iter().rev())
                .all(|(rule, name)| rule == "*" || rule == name)
    }
}

/// Values that the rules hide in a state or payload, for their removal from texts that may quote
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HiddenValues(Vec<String>);

impl HiddenValues {
    /// Replaces the values in a text. A value of less than 3 characters is replaced only if it is
    /// the whole text.
    #[must_use]
    pub fn remove_from(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, value| {
            // A short value occurs in many texts by chance, so it is removed only if it is the
            // whole text.
            if text == *value {
                HIDDEN.to_owned()
            } else if value.chars().count() < MIN_QUOTED {
                text
            } else {
                text.replace(value.as_str(), HIDDEN)
            }
        })
    }

    pub(crate) fn remove_from_texts(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => fields
                .values_mut()
                .for_each(|value| self.remove_from_texts(value)),
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.remove_from_texts(item)),
            Value::String(text) => *text = self.remove_from(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => fields.values().for_each(|value| self.collect(value)),
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            // Each text contains an empty value.
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => self.0.push(text.clone()),
            Value::Number(number) => self.0.push(number.to_string()),
            Value::Null | Value::Bool(_) => {}
        }
    }
}

impl Redaction {
    /// Returns whether a variable of an instance is displayed as redacted.
    #[must_use]
    pub fn hides_variable(&self, name: &str) -> bool {
        let path = ["vars".to_owned(), name.to_lowercase()];
        self.fields.iter().any(|field| field.matches(&path))
    }

    /// Returns whether there is a rule.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.fields.is_empty()
    }

    /// Returns the values that the rules hide.
    #[must_use]
    pub fn hidden_values<'a>(&self, values: impl IntoIterator<Item = &'a Value>) -> HiddenValues {
        let mut hidden = HiddenValues::default();
        if self.is_active() {
            for value in values {
                // The walk replaces what it visits.
                self.walk(&mut value.clone(), &mut Vec::new(), &mut |value| {
                    hidden.collect(value);
                });
            }
        }

        // A value may be a part of another one.
        hidden.0.sort_by_key(|value| std::cmp::Reverse(value.len()));
        hidden.0.dedup();
        hidden
    }

    /// Redacts a stored row. If any rule exists, texts that may quote a hidden value are hidden
    /// completely: a caller who writes a guess into the row must not learn from its absence that it
    /// is the hidden value.
    #[must_use]
    pub fn redact_row(&self, row: Value) -> Value {
        let mut row = self.redact(row);
        if self.is_active() {
            hide_texts(&mut row);
        }
        row
    }

    /// Redacts a text that may be JSON. If any rule exists, other texts are hidden completely.
    #[must_use]
    pub fn redact_text(&self, text: &str) -> Value {
        if self.fields.is_empty() {
            return Value::from(text);
        }
        serde_json::from_str(text).map_or_else(|_| Value::from(HIDDEN), |value| self.redact(value))
    }

    /// Redacts the beginning of a text. If any rule exists, it is hidden completely, because it
    /// cannot be inspected.
    #[must_use]
    pub fn redact_beginning(&self, text: &str) -> String {
        if self.fields.is_empty() {
            text.to_owned()
        } else {
            HIDDEN.to_owned()
        }
    }

    /// Redacts a value. If any rule exists, bytes (`{"base64": …}`) are hidden completely.
    #[must_use]
    pub fn redact(&self, mut value: Value) -> Value {
        if !self.fields.is_empty() {
            self.walk(&mut value, &mut Vec::new(), &mut |_| {});
        }
        value
    }

    /// Hides the values of the rules, each after a call of `hide`.
    fn walk(&self, value: &mut Value, path: &mut Vec<String>, hide: &mut dyn FnMut(&Value)) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    // Rules are in lower case, so that the spelling of a field does not reveal it.
                    path.push(name.to_lowercase());
                    // The content of encoded bytes cannot be inspected.
                    if BYTES.contains(&name.as_str())
                        || self.fields.iter().any(|field| field.matches(path))
                    {
                        hide(value);
                        *value = Value::from(HIDDEN);
                    } else {
                        self.walk(value, path, hide);
                    }

                    path.pop();
                }
            }
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.walk(item, path, hide)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Hides the fields of a row that contain texts.
fn hide_texts(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if !TEXTS.contains(&name.as_str()) {
                    hide_texts(value);
                } else if !value.is_null() {
                    *value = Value::from(HIDDEN);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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
        let hidden =
            json!({ "card": HIDDEN, "items": [{ "Card": HIDDEN }, { "sku": "a" }], "cards": 2 });
        check(&["card"], &value, &hidden);
        check(&[], &value, &value);
    }

    #[test]
    fn field_path_is_redacted_at_its_end() {
        let value =
            json!({ "vars": { "customer": { "iban": "DE", "name": "Ada" }, "iban": "FR" } });
        let hidden =
            json!({ "vars": { "customer": { "iban": HIDDEN, "name": "Ada" }, "iban": "FR" } });
        check(&["customer.iban"], &value, &hidden);
        check(
            &["vars.*.name"],
            &value,
            &json!({ "vars": { "customer": { "iban": "DE", "name": HIDDEN }, "iban": "FR" } }),
        );
    }

    #[test]
    fn bytes_are_redacted_when_any_rule_exists() {
        check(
            &["card"],
            &json!({ "base64": "AAAA" }),
            &json!({ "base64": HIDDEN }),
        );
        let redact = Redaction {
            fields: vec![FieldPath::try_from("card".to_owned()).unwrap()],
        };
        assert_eq!(redact.redact_text("no JSON: 4111"), HIDDEN);
        assert_eq!(
            redact.redact_text("{\"card\":1,\"n\":2}"),
            json!({ "card": HIDDEN, "n": 2 })
        );
        assert_eq!(Redaction::default().redact_text("{}"), "{}");
    }

    #[test]
    fn empty_field_path_is_rejected() {
        let error = serde_json::from_value::<Redaction>(json!({ "fields": ["a..b"] }))
            .unwrap_err()
            .to_string();
        assert!(error.contains("invalid field path"), "{error}");
    }

    #[test]
    fn row_does_not_show_whether_a_guess_is_the_hidden_value() {
        let redact: Redaction = serde_json::from_value(json!({ "fields": ["pin"] })).unwrap();
        let row = |guess: &str| {
            let vars = json!({ "pin": "4711", "guess": guess });
            let failure = json!({ "code": "denied", "message": guess });
            redact
                .redact_row(json!({ "state": { "vars": vars }, "failure": failure, "note": null }))
        };
        for guess in ["4711", "4712"] {
            let vars = json!({ "pin": HIDDEN, "guess": guess });
            let failure = json!({ "code": "denied", "message": HIDDEN });
            let shown = json!({ "state": { "vars": vars }, "failure": failure, "note": null });
            assert_eq!(row(guess), shown, "the guess is not compared");
        }
        let unchanged = json!({ "message": "4711" });
        assert_eq!(
            Redaction::default().redact_row(unchanged.clone()),
            unchanged
        );
    }

    #[test]
    fn hidden_values_are_removed_from_texts_that_quote_them() {
        let redact: Redaction =
            serde_json::from_value(json!({ "fields": ["card", "pin"] })).unwrap();
        let state = json!({ "card": { "number": "4111 1111", "year": 2031 }, "list": [{ "pin": "12" }], "name": "ada" });
        let hidden = redact.hidden_values([&state]);
        assert_eq!(
            hidden.remove_from("card 4111 1111 of ada expires in 2031; 12 attempts"),
            "card [redacted] of ada expires in [redacted]; 12 attempts"
        );
        assert_eq!(hidden.remove_from("12"), HIDDEN);
        assert_eq!(
            Redaction::default()
                .hidden_values([&state])
                .remove_from("4111 1111"),
            "4111 1111"
        );
    }
}
