//! Diversions: steps that do not run because a step before them has failed, and its handler has
//! selected other steps.
//!
//! A step that follows the completion of the failed one is diverted, and so are the steps that only
//! lead from there. For a join, the failed step is *replaced* if the handler has led to another of
//! its predecessors, or to the join itself: the branches meet again. Without a replacement, the join
//! must not start: what it requires has not happened, and the saga goes on elsewhere (ADR 0105).
//!
//! A branch that a switch or a handler could have selected and did not is no diversion.

use std::collections::BTreeMap;

use super::compiled::{CompiledFailureHandler, CompiledSaga};
use super::edge::{dead_edge, handler_of, selects_other_cases};
use super::state::State;
use super::step_state::StepState;

/// Diversions in a state.
pub(super) struct Diversions<'s> {
    saga: &'s CompiledSaga,
    state: &'s State,
    /// By bypassed step, the failed steps that have diverted it without a replacement.
    by_step: BTreeMap<usize, Vec<usize>>,
}

impl<'s> Diversions<'s> {
    /// Returns the diversions in a state.
    pub(super) fn of(saga: &'s CompiledSaga, state: &'s State) -> Self {
        let mut diversions = Self {
            saga,
            state,
            by_step: BTreeMap::new(),
        };

        // Almost every state ends here.
        let failures = state.extra.iter().flat_map(|extra| &extra.failures);
        let mut failed = failures.map(|failure| usize::from(failure.step));
        let selects_steps =
            |step| handler_of(saga, state, step).is_some_and(CompiledFailureHandler::selects_steps);
        if !failed.any(selects_steps) {
            return diversions;
        }

        // The predecessors of a step come before it.
        for step in saga.sorted.iter().copied() {
            if state.step_state(step) == StepState::Bypassed {
                let failed = diversions.failures_before(step);
                diversions.by_step.insert(step, failed);
            }
        }
        diversions
    }

    /// Returns whether a predecessor of a join is missing: it is diverted, and not replaced.
    pub(super) fn misses(&self, before: usize, join: usize) -> bool {
        let mut failed = self.failures_of(before, join).into_iter();
        failed.any(|failed| !self.is_replaced(failed, join))
    }

    /// Returns whether a predecessor of a join is missing.
    pub(super) fn misses_member(&self, join: usize) -> bool {
        let mut before = self.saga.steps[join].before.iter();
        before.any(|before| self.misses(*before, join))
    }

    /// Returns the failed steps because of which a bypassed step does not run.
    fn failures_before(&self, step: usize) -> Vec<usize> {
        let compiled = &self.saga.steps[step];
        // A step that was not selected does not depend on its other predecessors.
        let from = if selects_other_cases(self.saga, self.state, step) {
            &compiled.selected_by
        } else {
            &compiled.before
        };

        let mut failures = Vec::new();
        for before in from {
            for failed in self.failures_of(*before, step) {
                if !failures.contains(&failed) && !self.is_replaced(failed, step) {
                    failures.push(failed);
                }
            }
        }
        failures
    }

    /// Returns the failed steps because of which `before` does not lead to `step`.
    fn failures_of(&self, before: usize, step: usize) -> Vec<usize> {
        // A step that the handlers select is a branch of the failure, not a step that follows the
        // completion.
        let follows_completion = !self.saga.steps[before].follows_failure(step);
        let is_failed = handler_of(self.saga, self.state, before).is_some();
        if is_failed && follows_completion && dead_edge(self.saga, self.state, before, step) {
            return vec![before];
        }
        self.by_step.get(&before).cloned().unwrap_or_default()
    }

    /// Returns whether the handler of a failed step has led to the join, or to a predecessor of it
    /// that runs.
    fn is_replaced(&self, failed: usize, join: usize) -> bool {
        let Some(handler) = handler_of(self.saga, self.state, failed) else {
            return false;
        };

        let runs = |before: usize| {
            self.state.step_state(before) != StepState::Bypassed
                && !dead_edge(self.saga, self.state, before, join)
        };
        let before = &self.saga.steps[join].before;
        handler.selects(join)
            || before
                .iter()
                .any(|before| handler.reaches(*before) && runs(*before))
    }
}
