//! Conversion of names in steps to the terms of the model and the definition.

use orlog_model::{ControlAction, EventType};
use orlog_program::{CorrelationSpec, Definition};
use serde_json::{Map, Value};

use crate::step::OperatorAction;

/// Name of a failure.
#[derive(Clone, Copy)]
pub(super) enum FailureName<'e> {
    /// That event.
    Event(&'e EventType),
    /// Code of a rejection, if both are possible.
    Code,
    /// No name.
    Nothing,
}

/// Converts an operator action to a control action.
pub(super) fn control_action(action: &OperatorAction) -> ControlAction {
    match action {
        OperatorAction::Cancel(reason) => ControlAction::Cancel {
            reason: reason.clone(),
        },
        OperatorAction::Pause => ControlAction::Pause,
        OperatorAction::Resume => ControlAction::Resume,
        OperatorAction::Retry => ControlAction::Retry,
        OperatorAction::Skip => ControlAction::Skip,
        OperatorAction::ForceComplete => ControlAction::ForceComplete,
    }
}

/// Returns the correlation field of the event data, if it is a plain path.
pub(crate) fn correlation_field<'d>(
    definition: &'d Definition,
    kind: &EventType,
) -> Option<&'d str> {
    let path = match &definition.correlate {
        CorrelationSpec::Envelope => None,
        CorrelationSpec::Field(path) => Some(path),
        CorrelationSpec::ByType(paths) => paths.get(kind),
    };
    path.map(String::as_str)
        .filter(|path| !path.starts_with('='))
}

/// Sets a text at a path if the path is absent.
pub(crate) fn set_if_absent(data: &mut Value, path: &str, text: &str) {
    let mut at = data;
    for field in path.split('.') {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        // A payload of another form stays as it is, so that a test can check an invalid event.
        let Value::Object(fields) = at else { return };
        at = fields.entry(field).or_insert(Value::Null);
    }

    if at.is_null() {
        *at = Value::from(text);
    }
}
