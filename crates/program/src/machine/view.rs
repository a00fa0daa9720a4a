//! The stored state in words, for people: names in the place of positions and codes.

mod flow;

use serde_json::{Map, Value, json};

use super::compiled::{Call, Saga, Step};
use super::state::{At, Flags, Slot, State};
use super::step_state::{Mark, Phase};

/// The state with its steps in the order of the definition; nothing where it is not a state of this saga.
pub(crate) fn show(saga: &Saga, state: &[u8]) -> Option<Value> {
    let state = State::decode(state, saga.steps.len()).ok()?;
    let steps: Vec<_> = (0..saga.steps.len()).map(|index| step(saga, &state, index)).collect();
    let failure = state.cause.as_ref().map(|cause| {
        let step = Some(&cause.step).filter(|step| !step.is_empty());
        json!({ "code": cause.code, "message": cause.message, "step": step })
    });
    let mut shown = Map::new();
    shown.insert("phase".to_owned(), json!(state.phase.status().as_str()));
    shown.insert("steps".to_owned(), Value::Array(steps));
    shown.insert("vars".to_owned(), Value::Object(state.vars.clone()));
    shown.insert("failure".to_owned(), json!(failure));
    if state.flags.has(Flags::PIVOTED) {
        shown.insert("pivoted".to_owned(), json!(true));
    }
    if let Some(stuck) = stuck(saga, &state) {
        shown.insert("stuck".to_owned(), stuck);
    }
    if let Some(flow) = flow::of(saga, &state, |index| standing(&state, &saga.steps[index], index)) {
        shown.insert("flow".to_owned(), flow);
    }
    Some(Value::Object(shown))
}

fn step(saga: &Saga, state: &State, index: usize) -> Value {
    let step = &saga.steps[index];
    let slot = state.steps[index];
    let mut shown = Map::new();
    shown.insert("id".to_owned(), json!(step.id.as_str()));
    shown.insert("state".to_owned(), json!(word(standing(state, step, index))));
    shown.insert("until".to_owned(), json!(slot.until.map(|until| until.to_string())));
    match &step.task.call {
        Call::Switch(cases) if slot.mark == Mark::Done => {
            let taken = usize::try_from(slot.again).ok().and_then(|taken| cases.get(taken));
            let ways = taken.map(|case| case.then.iter().map(|step| saga.steps[*step].id.as_str()));
            shown.insert("then".to_owned(), json!(ways.map(Iterator::collect::<Vec<_>>)));
        }
        _ => attempts(slot, &mut shown),
    }
    if let Some(elements) = state.elements(index).filter(|_| step.foreach.is_some()) {
        let elements: Vec<_> = elements.slots.iter().map(|slot| element(*slot)).collect();
        shown.insert("elements".to_owned(), Value::Array(elements));
    }
    Value::Object(shown)
}

fn element(slot: Slot) -> Value {
    let mut shown = Map::new();
    shown.insert("state".to_owned(), json!(word(slot.mark)));
    shown.insert("until".to_owned(), json!(slot.until.map(|until| until.to_string())));
    attempts(slot, &mut shown);
    Value::Object(shown)
}

fn attempts(slot: Slot, shown: &mut Map<String, Value>) {
    if slot.again > 0 {
        shown.insert("attempts".to_owned(), json!(slot.again.saturating_add(1)));
    }
}

/// Where a step stands; one for each element stands where its elements do, when these are undone or a person is needed.
fn standing(state: &State, step: &Step, index: usize) -> Mark {
    let mark = state.mark(index);
    let Some(elements) = state.elements(index).filter(|_| step.foreach.is_some()) else { return mark };
    let marks = || elements.slots.iter().map(|slot| slot.mark);
    let tells = |mark: &Mark| mark.is_undo() || mark.is_asking() || *mark == Mark::Blocked;
    if let Some(telling) = marks().find(tells) {
        return telling;
    }
    let undone = marks().any(|mark| mark == Mark::Undone) && marks().all(|mark| mark != Mark::Done);
    if undone { Mark::Undone } else { mark }
}

/// What a person must decide: about which step or element, and whether its action or its undo is meant.
fn stuck(saga: &Saga, state: &State) -> Option<Value> {
    if state.phase != Phase::Stuck {
        return None;
    }
    if let Some(at) = state.undo.filter(|at| state.slot(*at).mark == Mark::UndoFailed) {
        return Some(json!({ "step": name(saga, at), "what": "undo" }));
    }
    let elements = |step: usize| {
        let count = state.elements(step).map_or(0, |elements| elements.slots.len());
        std::iter::once(At::step(step)).chain((0..count).map(move |element| At::element(step, element)))
    };
    let mut all = (0..saga.steps.len()).flat_map(elements);
    let at = all.find(|at| state.slot(*at).mark == Mark::Blocked)?;
    Some(json!({ "step": name(saga, at), "what": "do" }))
}

fn name(saga: &Saga, at: At) -> String {
    let id = &saga.steps[at.step].id;
    at.element.map_or_else(|| id.to_string(), |element| format!("{id}[{element}]"))
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
        Mark::Pausing => "pausing",
        Mark::Bypassed => "bypassed",
        Mark::Doomed => "lost",
        Mark::UndoPausing => "undo_pausing",
        Mark::Blocked => "blocked",
        Mark::Asking => "asking",
        Mark::AskingLate => "asking_late",
    }
}
