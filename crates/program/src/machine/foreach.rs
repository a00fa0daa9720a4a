//! Foreach steps: executed once for each element of a list, in list order, with limited
//! concurrency.

use serde_json::Value;

use super::complete::complete_step;
use super::execution::Execution;
use super::fail::fail_to_start;
use super::request::request_action;
use super::state::{StepEntry, StepIndex};
use super::step_state::StepState;
use crate::steps::CompiledForeach;
use crate::steps::kind::StartError;

/// Stores the list and starts the first elements.
pub(super) fn start_elements(
    run: &mut Execution<'_>,
    index: usize,
    foreach: &CompiledForeach,
) -> Result<(), StartError> {
    // The bindings of the saga, because there is no element yet.
    let list = foreach.elements(&run.saga_bindings())?;

    // Elements complete in any order, and each saves to its own place.
    for (name, _) in &run.saga.steps[index].save {
        run.state
            .vars
            .insert(name.clone(), Value::Array(vec![Value::Null; list.len()]));
    }

    // The list is stored, because variables can change while its elements are in progress.
    run.state.set_elements(index, list);
    run.state.steps[index] = StepEntry::of(StepState::Running);
    start_next_elements(run, index);
    Ok(())
}

/// Starts elements up to the concurrency limit; the step completes when all elements are completed.
pub(super) fn start_next_elements(run: &mut Execution<'_>, index: usize) {
    let limit = run.saga.steps[index]
        .foreach
        .as_ref()
        .map_or(1, |foreach| foreach.max_concurrency);

    let mut in_progress = run
        .units_of(index)
        .filter(|at| run.state.entry(*at).state.is_in_progress())
        .count();

    for at in run.units_of(index) {
        // Elements that end later call this function again.
        if in_progress >= limit {
            return;
        }
        if run.state.entry(at).state != StepState::Pending {
            continue;
        }
        if let Err(error) = request_action(run, at, false) {
            // The failure changes the other elements, so neither the count nor the rest of the list
            // applies.
            return fail_to_start(run, at, error.into());
        }
        in_progress += 1;
    }

    // True for an empty list: such a step completes when it starts. An operator can have skipped
    // single elements.
    let is_completed = run.units_of(index).all(|at| {
        matches!(
            run.state.entry(at).state,
            StepState::Completed | StepState::Skipped
        )
    });
    if is_completed {
        run.state.steps[index] = StepEntry::of(StepState::Completed);
        run.add_step_note(StepIndex::step(index), "all done");
        complete_step(run, index);
    }
}
