//! JSON Schema of the definition language, for editors.

use serde_json::{Map, Value, json};

use crate::definition::Definition;
use crate::language::{FieldSchema, MapSchema, ValueSchema};
use crate::steps::KINDS;

/// Returns the JSON Schema (draft 2020-12) of a `*.saga.yaml`. The compiler may reject a definition
/// that the schema accepts. The compiler also rejects what the schema rejects, except names written
/// as numbers.
#[must_use]
pub fn json_schema() -> Value {
    let mut defs = Map::new();
    let root = fields_of(Definition::MAP.fields.iter(), &mut defs);

    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Orlog saga definition",
        "description": "Steps of a saga and their compensations.",
    });

    let fields = schema
        .as_object_mut()
        .expect("the schema was created as an object");
    fields.extend(root);
    fields.insert("$defs".to_owned(), Value::Object(defs));
    schema
}

/// Returns the schema of an object with exactly these fields.
fn fields_of<'f>(
    fields: impl Iterator<Item = &'f FieldSchema>,
    defs: &mut Map<String, Value>,
) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let mut schema = value_schema(&field.schema, defs);
        schema.insert("description".to_owned(), Value::from(field.description));
        properties.insert(field.name.to_owned(), Value::Object(schema));
        required.extend(field.required.then_some(field.name));
    }

    let mut object = Map::new();
    object.insert("type".to_owned(), Value::from("object"));
    object.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        object.insert("required".to_owned(), Value::from(required));
    }
    // An editor then marks a misspelled field.
    object.insert("additionalProperties".to_owned(), Value::from(false));
    object
}

fn value_schema(value_schema: &ValueSchema, defs: &mut Map<String, Value>) -> Map<String, Value> {
    let schema = match value_schema {
        ValueSchema::Text => json!({ "type": "string" }),
        ValueSchema::Enum(values) => json!({ "enum": values }),
        ValueSchema::Bool => json!({ "type": "boolean" }),
        ValueSchema::Count(least) => {
            json!({ "type": "integer", "minimum": least, "maximum": u32::MAX })
        }
        ValueSchema::Duration => json!({ "type": "string", "pattern": DURATION }),
        ValueSchema::Expression => json!({ "type": "string", "pattern": "^=" }),
        ValueSchema::Condition => json!({ "type": ["string", "boolean"] }),
        ValueSchema::Template => json!({}),
        ValueSchema::Templates => json!({ "type": ["object", "null"] }),
        ValueSchema::Null => json!({ "type": "null" }),
        ValueSchema::Map(form) => reference(form, defs, |defs| fields_of(form.fields.iter(), defs)),
        ValueSchema::MapOf(one) => {
            json!({ "type": "object", "additionalProperties": self::value_schema(one, defs) })
        }
        ValueSchema::List(one) => {
            json!({ "type": "array", "items": self::value_schema(one, defs) })
        }
        ValueSchema::OneOrList(one) => {
            let one = self::value_schema(one, defs);
            json!({ "anyOf": [one, { "type": "array", "items": one }] })
        }
        ValueSchema::AnyOf(shapes) => {
            let shapes: Vec<_> = shapes
                .iter()
                .map(|one| self::value_schema(one, defs))
                .collect();
            json!({ "anyOf": shapes })
        }
        ValueSchema::Action(beside) => reference(beside, defs, |defs| actions(beside, defs)),
    };

    let Value::Object(schema) = schema else {
        unreachable!("every schema here is an object")
    };
    schema
}

/// Durations that `yaml/duration.rs` parses, except that the pattern does not check the order of
/// the units.
const DURATION: &str = r"^(([0-9]+(ms|s|m|h|d|w))+|P([0-9]+[WD])*(T([0-9]+[HMS])+)?)$";

/// Returns the schema of an action of any kind, with these additional fields.
fn actions(beside: &MapSchema, defs: &mut Map<String, Value>) -> Map<String, Value> {
    let kinds: Vec<_> = KINDS
        .iter()
        .map(|kind| {
            let mut schema = fields_of(kind.fields.iter().chain(beside.fields), defs);
            schema.insert("title".to_owned(), Value::from(kind.name()));
            Value::Object(schema)
        })
        .collect();
    [("oneOf".to_owned(), Value::Array(kinds))]
        .into_iter()
        .collect()
}

/// Returns a reference to a definition and creates the definition on first use.
fn reference(
    form: &MapSchema,
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
