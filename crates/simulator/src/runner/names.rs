//! What moves say, in the words of the model and of the definition.

use orlog_model::{Action, EventType};
use orlog_program::{Correlate, Definition};
use serde_json::{Map, Value};

use crate::step::Verb;

/// What a failure is called.
#[derive(Clone, Copy)]
pub(super) enum Called<'e> {
    /// That event.
    Event(&'e EventType),
    /// It has a code: a refusal, where both are possible.
    Code,
    /// Nothing is said.
    Nothing,
}

/// What an operator says, as an action.
pub(super) fn action(verb: &Verb) -> Action {
    match verb {
        Verb::Cancel(reason) => Action::Cancel { reason: reason.clone() },
        Verb::Pause => Action::Pause,
        Verb::Resume => Action::Resume,
        Verb::Retry => Action::Retry,
        Verb::Skip => Action::Skip,
        Verb::ForceComplete => Action::ForceComplete,
    }
}

/// The field of an event's data that names the instance, where it is a plain path.
pub(crate) fn place<'d>(definition: &'d Definition, kind: &EventType) -> Option<&'d str> {
    let path = match &definition.correlate {
        Correlate::Envelope => None,
        Correlate::Field(path) => Some(path),
        Correlate::ByType(paths) => paths.get(kind),
    };
    path.map(String::as_str).filter(|path| !path.starts_with('='))
}

/// Puts a text at a path where nothing is yet.
pub(crate) fn fill(data: &mut Value, path: &str, text: &str) {
    let mut at = data;
    for field in path.split('.') {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(fields) = at else { return };
        at = fields.entry(field).or_insert(Value::Null);
    }
    if at.is_null() {
        *at = Value::from(text);
    }
}
