//! Payloads derived from the expressions of a definition.

use std::collections::BTreeMap;

use orlog_model::EventType;
use orlog_program::Definition;
use serde_json::{Map, Value, json};

/// Payloads of start events and responses.
#[derive(Clone, Debug, Default)]
pub struct PayloadSamples {
    start: Value,
    by_name: BTreeMap<String, Value>,
    any: Value,
}

impl PayloadSamples {
    /// Creates payloads with every field that the expressions of the definition read from `event`. Each
    /// field is the number 7, which most conditions and payloads accept. A field that is the list of a
    /// `foreach` has two elements. A field that a condition compares with a constant or a variable is set
    /// accordingly. [`PayloadSamples::starting`] and [`PayloadSamples::answering`] override payloads.
    #[must_use]
    pub fn of(definition: &Definition) -> Self {
        let mut start = json!({});
        definition
            .vars
            .values()
            .for_each(|template| read(template, &mut start, &json!(7)));
        for list in definition
            .steps
            .iter()
            .filter_map(|step| step.foreach.as_ref())
            .map(|each| &each.list)
        {
            let name = list.trim_start_matches('=').trim().strip_prefix("vars.");
            if let Some(template) = name.and_then(|name| definition.vars.get(name)) {
                read(template, &mut start, &json!([7, 8]));
            }
        }
        let mut any = json!({});
        let handlers = definition
            .on
            .iter()
            .flat_map(|handler| handler.save.values());
        let saved = definition
            .steps
            .iter()
            .flat_map(|step| step.save.values())
            .chain(handlers);
        saved.for_each(|template| read(template, &mut any, &json!(7)));
        Self {
            start,
            by_name: BTreeMap::new(),
            any,
        }
    }

    /// Sets the payload of start events.
    #[must_use]
    pub fn starting(mut self, data: Value) -> Self {
        self.start = data;
        self
    }

    /// Sets the payload of a response: by event type, or by step id for outcomes without a name.
    #[must_use]
    pub fn answering(mut self, name: &str, data: Value) -> Self {
        self.by_name.insert(name.to_owned(), data);
        self
    }

    /// Returns the payload of a start event.
    #[must_use]
    pub fn start(&self, _kind: &EventType) -> Value {
        self.start.clone()
    }

    /// Returns the payload of a response.
    #[must_use]
    pub fn response(&self, name: &str) -> Value {
        self.by_name.get(name).unwrap_or(&self.any).clone()
    }
}

/// Creates every `event.a.b` that a template reads.
fn read(template: &Value, into: &mut Value, value: &Value) {
    match template {
        Value::String(text) if text.starts_with('=') => {
            for chain in text.split("event.").skip(1) {
                let end = chain
                    .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
                    .unwrap_or(chain.len());
                set(
                    into,
                    chain[..end].trim_end_matches('.'),
                    value,
                    value.is_array(),
                );
            }
        }
        Value::Array(items) => items.iter().for_each(|item| read(item, into, value)),
        Value::Object(fields) => fields.values().for_each(|item| read(item, into, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Sets a field unless it exists and `replace` is false.
fn set(into: &mut Value, path: &str, value: &Value, replace: bool) {
    let (fields, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = into;
    for field in fields.split('.').filter(|field| !field.is_empty()) {
        at = object(at).entry(field).or_insert(json!({}));
    }
    let known = object(at).entry(last).or_insert_with(|| value.clone());
    if replace {
        known.clone_from(value);
    }
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("the value is an object")
}

/// Values that conditions can compare with.
pub(super) struct KnownValues<'a> {
    pub(super) vars: &'a Value,
    /// Name, value and index of the element.
    pub(super) element: Option<(&'a str, &'a Value, usize)>,
}

impl KnownValues<'_> {
    /// Sets the fields of comparisons such as `event.a >= vars.b && event.c == 'd'` so that they are true.
    /// Ignores all other expressions.
    pub(super) fn satisfy(&self, condition: &str, payload: &mut Value) {
        for part in condition.trim_start_matches('=').split("&&") {
            let part = part.trim();
            let Some(sign) = ["==", ">=", "<=", "!=", ">", "<"]
                .into_iter()
                .find(|sign| part.contains(sign))
            else {
                continue;
            };
            let Some((left, right)) = part.split_once(sign) else {
                continue;
            };
            let (Some(path), Some(value)) =
                (left.trim().strip_prefix("event."), self.value(right.trim()))
            else {
                continue;
            };
            set(payload, path, &fitting(sign, value), true);
        }
    }

    fn value(&self, text: &str) -> Option<Value> {
        let walk = |value: &Value, path: &str| {
            path.split('.')
                .fold(value, |value, field| &value[field])
                .clone()
        };
        if let Some(path) = text.strip_prefix("vars.") {
            return Some(walk(self.vars, path));
        }
        if let Some((name, value, index)) = self.element {
            if text == name {
                return Some(value.clone());
            }
            if text == "index" {
                return Some(json!(index));
            }
            if let Some(path) = text
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('.'))
            {
                return Some(walk(value, path));
            }
        }
        let unquoted = text
            .strip_prefix('\'')
            .and_then(|text| text.strip_suffix('\''));
        unquoted
            .map(Value::from)
            .or_else(|| serde_json::from_str(text).ok())
    }
}

/// Returns a value that satisfies the comparison with `value`.
fn fitting(sign: &str, value: Value) -> Value {
    let number = value.as_i64();
    match (sign, number) {
        (">", Some(number)) => json!(number + 1),
        ("<", Some(number)) => json!(number - 1),
        ("!=", _) => json!("another"),
        (_, _) => value,
    }
}
