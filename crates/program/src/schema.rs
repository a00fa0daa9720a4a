//! The JSON Schema of the language, for editors.

use serde_json::{Map, Value, json};

use crate::language_schema::{Field, Form, KINDS, Shape, TOP};

/// The JSON Schema (draft 2020-12) of a `*.saga.yaml`. What it accepts may still be refused when it is compiled; what it
/// refuses is refused then too, but for names written as numbers.
#[must_use]
pub fn schema() -> Value {
    let mut defs = Map::new();
    let root = fields_of(TOP.fields.iter(), &mut defs);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A saga of Orlog",
        "description": "What a saga does, step by step, and what undoes each step.",
    });
    let fields = schema.as_object_mut().expect("it was written as an object just now");
    fields.extend(root);
    fields.insert("$defs".to_owned(), Value::Object(defs));
    schema
}

/// An object with these fields and no others.
fn fields_of<'f>(
    fields: impl Iterator<Item = &'f Field>,
    defs: &mut Map<String, Value>,
) -> Map<String, Value> {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for field in fields {
        let mut schema = shape(&field.shape, defs);
        schema.insert("description".to_owned(), Value::from(field.about));
        properties.insert(field.name.to_owned(), Value::Object(schema));
        required.extend(field.required.then_some(field.name));
    }
    let mut object = Map::new();
    object.insert("type".to_owned(), Value::from("object"));
    object.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        object.insert("required".to_owned(), Value::from(required));
    }
    object.insert("additionalProperties".to_owned(), Value::from(false));
    object
}

fn shape(shape: &Shape, defs: &mut Map<String, Value>) -> Map<String, Value> {
    let schema = match shape {
        Shape::Text => json!({ "type": "string" }),
        Shape::Word(words) => json!({ "enum": words }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Count(least) => json!({ "type": "integer", "minimum": least, "maximum": u32::MAX }),
        Shape::Duration => json!({ "type": "string", "pattern": DURATION }),
        Shape::Expression => json!({ "type": "string", "pattern": "^=" }),
        Shape::Condition => json!({ "type": ["string", "boolean"] }),
        Shape::Template => json!({}),
        Shape::Templates => json!({ "type": ["object", "null"] }),
        Shape::Null => json!({ "type": "null" }),
        Shape::Form(form) => reference(form, defs, |defs| fields_of(form.fields.iter(), defs)),
        Shape::ByName(one) => json!({ "type": "object", "additionalProperties": self::shape(one, defs) }),
        Shape::List(one) => json!({ "type": "array", "items": self::shape(one, defs) }),
        Shape::OneOrList(one) => {
            let one = self::shape(one, defs);
            json!({ "anyOf": [one, { "type": "array", "items": one }] })
        }
        Shape::AnyOf(shapes) => {
            let shapes: Vec<_> = shapes.iter().map(|one| self::shape(one, defs)).collect();
            json!({ "anyOf": shapes })
        }
        Shape::Action(beside) => reference(beside, defs, |defs| actions(beside, defs)),
    };
    let Value::Object(schema) = schema else { unreachable!("each of these is an object") };
    schema
}

/// Durations as `yaml/duration.rs` reads them, but for the order of the units.
const DURATION: &str = r"^(([0-9]+(ms|s|m|h|d|w))+|P([0-9]+[WD])*(T([0-9]+[HMS])+)?)$";

/// One of the kinds of action, with the fields beside it.
fn actions(beside: &Form, defs: &mut Map<String, Value>) -> Map<String, Value> {
    let kinds: Vec<_> = KINDS
        .iter()
        .map(|kind| {
            let mut schema = fields_of(kind.fields.iter().chain(beside.fields), defs);
            schema.insert("title".to_owned(), Value::from(kind.name()));
            Value::Object(schema)
        })
        .collect();
    [("oneOf".to_owned(), Value::Array(kinds))].into_iter().collect()
}

/// A reference to a definition, which is made when it is named first.
fn reference(
    form: &Form,
    defs: &mut Map<String, Value>,
    make: impl FnOnce(&mut Map<String, Value>) -> Map<String, Value>,
) -> Value {
    if !defs.contains_key(form.name) {
        let schema = make(defs);
        defs.insert(form.name.to_owned(), Value::Object(schema));
    }
    json!({ "$ref": format!("#/$defs/{}", form.name) })
}

#[cfg(test)]
mod tests;
