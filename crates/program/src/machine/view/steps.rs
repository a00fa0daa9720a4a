//! States of the steps without the rest of the view, for tools that read them after each input.

use super::{effective_state, state_name};
use crate::machine::compiled::CompiledSaga;
use crate::machine::state::{State, StepEntry};
use crate::machine::step_state::StepState;

/// Phase of an instance and the states of its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepsView {
    /// Phase, as in the view of the instance.
    pub phase: &'static str,
    /// Steps in the order of the definition, each with its elements and rounds.
    pub units: Vec<UnitView>,
}

/// State of a step, of an element or of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitView {
    /// Step, or `step[number]` for an element or a round.
    pub tag: String,
    /// Displayed state.
    pub state: &'static str,
    /// Number of attempts, if there were several.
    pub attempts: Option<u64>,
}

/// Returns the states of the steps; `None` if it is not a state of this saga.
pub(crate) fn steps(saga: &CompiledSaga, state: &[u8]) -> Option<StepsView> {
    let state = State::decode(state, saga.steps.len()).ok()?;
    let mut units = Vec::with_capacity(saga.steps.len());
    for (index, step) in saga.steps.iter().enumerate() {
        let entry = state.steps[index];
        // The entry of a switch contains the number of the case, which is no number of attempts.
        let is_selected = step.action.kind.cases().is_some() && entry.state == StepState::Completed;
        units.push(UnitView {
            tag: step.id.to_string(),
            state: state_name(effective_state(&state, step, index)),
            attempts: attempts(entry).filter(|_| !is_selected),
        });

        if let Some(elements) = state.elements(index).filter(|_| step.foreach.is_some()) {
            for (number, entry) in elements.entries.iter().enumerate() {
                units.push(unit(format!("{}[{number}]", step.id), *entry));
            }
        }
        if let Some(end) = step.in_loop {
            for round in state.run.past_rounds_of(end, index) {
                if let Some(entry) = state.run.past_entry(index, round) {
                    units.push(unit(format!("{}[{round}]", step.id), entry));
                }
            }
            let round = state.run.loop_round(end);
            units.push(unit(format!("{}[{round}]", step.id), entry));
        }
    }

    Some(StepsView {
        phase: state.phase.status().as_str(),
        units,
    })
}

fn unit(tag: String, entry: StepEntry) -> UnitView {
    UnitView {
        tag,
        state: state_name(entry.state),
        attempts: attempts(entry),
    }
}

fn attempts(entry: StepEntry) -> Option<u64> {
    let retries = u64::from(entry.retries);
    (retries > 0).then(|| retries.saturating_add(1))
}
