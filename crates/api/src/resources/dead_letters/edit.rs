//! Edited data of a dead letter, for a redrive of one whose data cannot be applied as they are.

use orlog_bus::codec::EVENT_SIGNATURE;
use orlog_model::{
    CURRENT_SCHEMA, ControlAction, DeadLetter, DeadLetterOriginal, Event, Input, WorkOutcome,
};
use orlog_node::audit::DataEdit;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::server::problem::{Code, Problem};

/// Replaces the data of the input in a dead letter; returns the fingerprints of both.
///
/// # Errors
/// If the dead letter has no data that a user can replace.
pub(super) fn replace_data(dead_letter: &mut DeadLetter, data: Value) -> Result<DataEdit, Problem> {
    let found = match &mut dead_letter.original {
        DeadLetterOriginal::Input(input) => data_of(input),
        DeadLetterOriginal::Message { .. } => Err(
            "the message cannot be decoded; publish a corrected one, and discard this dead letter",
        ),
    };
    let found = found.map_err(|reason| {
        let detail = format!("the data cannot be edited: {reason}");
        Problem::new(Code::InvalidStatus, detail)
    })?;

    let edit = DataEdit {
        before: fingerprint(found),
        after: fingerprint(&data),
    };
    *found = data;
    Ok(edit)
}

fn data_of(input: &mut Input) -> Result<&mut Value, &'static str> {
    match input {
        Input::Event(event) => data_of_event(event),
        Input::Early(early) => data_of(&mut early.input),
        Input::WorkResult(result) => match &mut result.outcome {
            WorkOutcome::Succeeded {
                payload,
                schema_version,
                ..
            } => {
                // The user writes the data for the definition.
                *schema_version = CURRENT_SCHEMA;
                Ok(payload)
            }
            WorkOutcome::Failed { payload, .. } => Ok(payload),
            WorkOutcome::Accepted | WorkOutcome::TimedOut { .. } => Err("the result has none"),
        },
        Input::Control(control) => match &mut control.action {
            ControlAction::Signal { data, .. } => Ok(data),
            ControlAction::Deliver { event, .. } => data_of_event(event),
            ControlAction::Start(start) => Ok(&mut start.data),
            _ => Err("the control request has none"),
        },
        Input::Timer(_) => Err("a timer has none"),
        Input::Workflow(_) => Err("a command of another saga cannot be replaced"),
    }
}

fn data_of_event(event: &mut Event) -> Result<&mut Value, &'static str> {
    let is_signed = event
        .attributes
        .as_ref()
        .is_some_and(|attributes| attributes.extensions.contains_key(EVENT_SIGNATURE));
    if is_signed {
        return Err(
            "its publisher has signed them; publish a corrected event, and discard this dead letter",
        );
    }
    Ok(&mut event.data)
}

/// Returns the SHA-256 of the data as compact JSON with sorted fields.
fn fingerprint(data: &Value) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(data.to_string())))
}
