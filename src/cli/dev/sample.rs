//! Sample event that starts an instance of an active definition.

use serde_json::{Map, Value, json};

use orlog_program::CorrelationSpec;

use crate::definitions::LoadedDefinition;

const CORRELATION: &str = "demo-1";

/// Returns the event as text for single quotes of a shell; no name in it contains one.
pub(super) fn event(definitions: &[LoadedDefinition]) -> String {
    let start_event = definitions.iter().find_map(|definition| {
        let starts = definition.program.manifest().subscriptions.iter().find(|trigger| trigger.starts)?;
        Some((definition, starts.kind.to_string()))
    });
    let (kind, data) = match start_event {
        Some((definition, kind)) => (kind, data(definition)),
        None => ("Hello".to_owned(), json!({ "greeting": "hello" })),
    };
    let event = json!({
        "specversion": "1.0", "id": "demo-1", "source": "demo", "type": kind, "correlationid": CORRELATION, "data": data,
    });
    event.to_string().replace('\'', "")
}

/// Returns every event field that the variables of the definition read, and the correlation field.
fn data(definition: &LoadedDefinition) -> Value {
    let mut data = Map::new();
    let Some(compiled) = &definition.compiled else { return Value::Object(data) };
    let form = compiled.definition();
    let templates = form.vars.values().chain(&form.reference);
    for path in templates.flat_map(|template| fields(&template.to_string())) {
        put(&mut data, &path, json!(1));
    }
    match &form.correlate {
        CorrelationSpec::Field(path) => put(&mut data, path, json!(CORRELATION)),
        CorrelationSpec::ByType(paths) => {
            let starts = form.start.iter().filter_map(|kind| paths.get(kind));
            starts.for_each(|path| put(&mut data, path, json!(CORRELATION)));
        }
        CorrelationSpec::Envelope => {}
    }
    Value::Object(data)
}

/// Returns the paths after `event.` in the text of expressions.
fn fields(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let paths = text.split("event.").skip(1).map(|rest| {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        rest[..end].trim_end_matches('.').to_owned()
    });
    paths.filter(|path| !path.is_empty()).collect()
}

fn put(data: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            data.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = data.entry(first).or_insert_with(|| json!({}));
            if !inner.is_object() {
                *inner = json!({});
            }
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collects_fields_read_by_expressions() {
        let text = r#"{"a":"=event.orderId","b":"=event.customer.email + event.total"}"#;
        assert_eq!(fields(text), ["orderId", "customer.email", "total"]);
    }

    #[test]
    fn puts_values_at_paths() {
        let mut data = Map::new();
        put(&mut data, "a", json!(1));
        put(&mut data, "b.c", json!(2));
        put(&mut data, "b.d", json!(3));
        assert_eq!(Value::Object(data), json!({"a": 1, "b": {"c": 2, "d": 3}}));
    }
}
