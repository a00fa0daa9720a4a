//! Foreach steps: executed once for each element of a list, in list order, with limited concurrency.

use serde_json::Value;

use super::advance::StartError;
use super::compiled::CompiledForeach;
use super::state::{StepEntry, StepIndex};
use super::step_state::StepState;
use super::transition::Execution;
use crate::expression::kind_of;
use crate::limits::MAX_ELEMENTS;

impl Execution<'_> {
    /// Stores the list and starts the first elements.
    pub(super) fn start_elements(
        &mut self,
        index: usize,
        foreach: &CompiledForeach,
    ) -> Result<(), StartError> {
        let list = match foreach.list.evaluate(&self.saga_bindings())? {
            Value::Array(list) if list.len() <= MAX_ELEMENTS => list,
            Value::Array(list) => {
                let message = format!("the list has {} elements; the limit is {MAX_ELEMENTS}", list.len());
                return Err(StartError { code: "too_many_elements".to_owned(), message });
            }
            other => {
                let message = format!("`foreach` requires a list, but got {}", kind_of(&other));
                return Err(StartError { code: "not_a_list".to_owned(), message });
            }
        };
        for (name, _) in &self.saga.steps[index].save {
            self.state.vars.insert(name.clone(), Value::Array(vec![Value::Null; list.len()]));
        }
        self.state.set_elements(index, list);
        self.state.steps[index] = StepEntry::of(StepState::Running);
        self.start_next_elements(index);
        Ok(())
    }

    /// Starts elements up to the concurrency limit; the step completes when all elements are completed.
    pub(super) fn start_next_elements(&mut self, index: usize) {
        let limit = self.saga.steps[index].foreach.as_ref().map_or(1, |foreach| foreach.max_concurrency);
        let mut in_progress =
            self.units_of(index).filter(|at| self.state.entry(*at).state.is_in_progress()).count();
        for at in self.units_of(index) {
            if in_progress >= limit {
                return;
            }
            if self.state.entry(at).state != StepState::Pending {
                continue;
            }
            if let Err(error) = self.request_action(at, false) {
                return self.fail_to_start(at, error.into());
            }
            in_progress += 1;
        }
        let is_finished =
            |at: StepIndex| matches!(self.state.entry(at).state, StepState::Completed | StepState::Skipped);
        if self.units_of(index).all(is_finished) {
            self.state.steps[index] = StepEntry::of(StepState::Completed);
            self.add_step_note(StepIndex::step(index), "all done");
            self.complete_step(index);
        }
    }

    /// Fails the step because an element failed permanently; abandons the elements in progress.
    pub(super) fn abandon_elements(&mut self, index: usize, step_state: StepState) {
        for at in self.units_of(index) {
            self.abandon(at);
        }
        self.state.steps[index] = StepEntry::of(step_state);
    }
}
