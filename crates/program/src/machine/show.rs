//! The stored state in words, for people: names in the place of positions and codes.

use serde_json::{Value, json};

use super::saga::{Saga, Step};
use super::state::{Mark, Slot, State};

/// The state with its steps in the order of the definition; nothing where it is not a state of this saga.
pub(crate) fn show(saga: &Saga, state: &[u8]) -> Option<Value> {
    let state = State::decode(state, saga.steps.len()).ok()?;
    let steps: Vec<_> = saga.steps.iter().zip(&state.steps).map(step).collect();
    let failure = state.cause.map(|cause| {
        let step = Some(cause.step).filter(|step| !step.is_empty());
        json!({ "code": cause.code, "message": cause.message, "step": step })
    });
    Some(json!({
        "phase": state.phase.status().as_str(),
        "steps": steps,
        "vars": state.vars,
        "failure": failure,
    }))
}

fn step((step, slot): (&Step, &Slot)) -> Value {
    let until = slot.until.map(|until| until.to_string());
    json!({ "id": step.id.as_str(), "state": word(slot.mark), "until": until })
}

fn word(mark: Mark) -> &'static str {
    match mark {
        Mark::Waiting => "pending",
        Mark::Open => "running",
        Mark::Skipped => "skipped",
        Mark::Done => "done",
        Mark::Failed => "failed",
        Mark::GivenUp => "given_up",
        Mark::Undoing => "undoing",
        Mark::UndoFailed => "undo_failed",
        Mark::Undone => "undone",
    }
}
