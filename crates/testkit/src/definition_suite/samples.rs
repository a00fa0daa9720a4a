//! Payloads made from what a definition's expressions read.

use std::collections::BTreeMap;

use orlog_model::EventType;
use orlog_program::Definition;
use serde_json::{Map, Value, json};

/// Payloads for the start event and for answers.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    start: Value,
    by_name: BTreeMap<String, Value>,
    any: Value,
}

impl Samples {
    /// Payloads that hold every field the definition's expressions read from `event`. Each field is the number 7, which most
    /// conditions and payloads can live with; a field that becomes the list of a `foreach` is a list of two. What the
    /// condition of an answer compares with a constant or with what is remembered is set accordingly.
    /// [`Samples::starting`] and [`Samples::answering`] set better ones.
    #[must_use]
    pub fn of(definition: &Definition) -> Self {
        let mut start = json!({});
        definition.vars.values().for_each(|template| read(template, &mut start, &json!(7)));
        for list in definition.steps.iter().filter_map(|step| step.foreach.as_ref()).map(|each| &each.list) {
            let name = list.trim_start_matches('=').trim().strip_prefix("vars.");
            if let Some(template) = name.and_then(|name| definition.vars.get(name)) {
                read(template, &mut start, &json!([7, 8]));
            }
        }
        let mut any = json!({});
        let handlers = definition.on.iter().flat_map(|handler| handler.save.values());
        let saved = definition.steps.iter().flat_map(|step| step.save.values()).chain(handlers);
        saved.for_each(|template| read(template, &mut any, &json!(7)));
        Self { start, by_name: BTreeMap::new(), any }
    }

    /// Begins instances with this payload.
    #[must_use]
    pub fn starting(mut self, data: Value) -> Self {
        self.start = data;
        self
    }

    /// Answers with this payload: by event type, or by step id for outcomes without a name.
    #[must_use]
    pub fn answering(mut self, name: &str, data: Value) -> Self {
        self.by_name.insert(name.to_owned(), data);
        self
    }

    /// The payload of a start event.
    #[must_use]
    pub fn start(&self, _kind: &EventType) -> Value {
        self.start.clone()
    }

    /// The payload of an answer.
    #[must_use]
    pub fn answer(&self, name: &str) -> Value {
        self.by_name.get(name).unwrap_or(&self.any).clone()
    }
}

/// Makes every `event.a.b` that a template reads exist.
fn read(template: &Value, into: &mut Value, value: &Value) {
    match template {
        Value::String(text) if text.starts_with('=') => {
            for chain in text.split("event.").skip(1) {
                let end = chain
                    .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
                    .unwrap_or(chain.len());
                set(into, chain[..end].trim_end_matches('.'), value, value.is_array());
            }
        }
        Value::Array(items) => items.iter().for_each(|item| read(item, into, value)),
        Value::Object(fields) => fields.values().for_each(|item| read(item, into, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Sets a field, unless it is there and may not be replaced.
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
    value.as_object_mut().expect("it was made one")
}

/// What a condition can be compared with.
pub(super) struct Known<'a> {
    pub(super) vars: &'a Value,
    /// Its name, its value, its place.
    pub(super) element: Option<(&'a str, &'a Value, usize)>,
}

impl Known<'_> {
    /// Sets the fields that comparisons such as `event.a >= vars.b && event.c == 'd'` speak of, so that they hold. What is
    /// no such comparison stays as it is.
    pub(super) fn satisfy(&self, condition: &str, payload: &mut Value) {
        for part in condition.trim_start_matches('=').split("&&") {
            let part = part.trim();
            let Some(sign) = ["==", ">=", "<=", "!=", ">", "<"].into_iter().find(|sign| part.contains(sign))
            else {
                continue;
            };
            let Some((left, right)) = part.split_once(sign) else { continue };
            let (Some(path), Some(value)) = (left.trim().strip_prefix("event."), self.value(right.trim()))
            else {
                continue;
            };
            set(payload, path, &fitting(sign, value), true);
        }
    }

    fn value(&self, text: &str) -> Option<Value> {
        let walk =
            |value: &Value, path: &str| path.split('.').fold(value, |value, field| &value[field]).clone();
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
            if let Some(path) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) {
                return Some(walk(value, path));
            }
        }
        let plain = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        plain.map(Value::from).or_else(|| serde_json::from_str(text).ok())
    }
}

/// A value for which the comparison with that one holds.
fn fitting(sign: &str, value: Value) -> Value {
    let number = value.as_i64();
    match (sign, number) {
        (">", Some(number)) => json!(number + 1),
        ("<", Some(number)) => json!(number - 1),
        ("!=", _) => json!("another"),
        (_, _) => value,
    }
}
