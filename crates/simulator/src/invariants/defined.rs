//! Invariants that definitions state about their runs.

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::{Instance, InstanceKey};
use orlog_program::{CompiledDefinition, Program, RunView, SagaInvariant, Step, StepProperty};
use serde_json::Value;
use uuid::Uuid;

use super::invariant::{Invariant, Violation};
use super::step_states::{StepStates, is_in_progress, was_completed};
use crate::responses::WorkTag;
use crate::state_key::KeyHasher;

/// Steps of the runs of all instances whose definition states invariants.
#[derive(Clone, Debug, Default)]
pub(crate) struct DefinedInvariants {
    runs: BTreeMap<InstanceKey, Run>,
}

/// Current run of an instance, with the steps that an invariant reads.
#[derive(Clone, Debug, Default)]
struct Run {
    id: Uuid,
    steps: BTreeMap<String, StepRecord>,
    /// Numbers of the invariants that are reported: they usually stay violated.
    reported: BTreeSet<u16>,
}

#[derive(Clone, Debug, Default, Hash)]
struct StepRecord {
    properties: BTreeSet<StepProperty>,
    state: String,
}

/// Invariants of an instance, and the number with which the first of them is reported.
#[derive(Clone, Copy)]
pub(crate) struct Stated<'i> {
    pub(crate) invariants: &'i [SagaInvariant],
    pub(crate) first: u16,
}

/// Violation of an invariant that a definition or a test file states.
pub(crate) struct DefinedViolation {
    /// Name of the invariant. The message contains its condition, or why that has no value.
    pub(crate) name: String,
    pub(crate) violation: Violation,
}

impl DefinedInvariants {
    /// Records the state of an instance after a transition. Returns the violations of invariants
    /// that the run had not violated before. `is_end`: the run has ended, and its end counts.
    pub(crate) fn record(
        &mut self,
        key: &InstanceKey,
        program: &dyn Program,
        after: &Instance,
        states: &StepStates,
        is_end: bool,
        all: &[Stated<'_>],
    ) -> Vec<DefinedViolation> {
        let Some(compiled) = program.as_compiled() else {
            return Vec::new();
        };

        let run = self.runs.entry(key.clone()).or_default();
        // A restart begins a new run of the same instance.
        if run.id != after.run_id {
            *run = Run {
                id: after.run_id,
                ..Run::default()
            };
        }

        for step in read_steps(compiled, all) {
            let record = run.steps.entry(step.id.to_string()).or_default();
            record.update(step, states);
        }

        let view = run.view(program, after);
        let mut violations = Vec::new();
        for stated in all {
            for (number, invariant) in (stated.first..).zip(stated.invariants) {
                if let Some(message) = invariant.violation(&view, is_end)
                    && run.reported.insert(number)
                {
                    violations.push(DefinedViolation {
                        name: invariant.name().to_owned(),
                        violation: Violation {
                            rule: Invariant::Defined(number),
                            message,
                        },
                    });
                }
            }
        }
        violations
    }

    /// Hashes the steps: states with other properties can violate other invariants later.
    pub(super) fn hash(&self, key: &mut KeyHasher) {
        for run in self.runs.values() {
            // Two instances with each other's steps are another state.
            key.add(run.steps.len());
            for (step, record) in &run.steps {
                key.add((step, record));
            }
        }
    }
}

/// Returns the steps that an invariant reads.
fn read_steps<'d>(
    compiled: &'d CompiledDefinition,
    all: &[Stated<'_>],
) -> impl Iterator<Item = &'d Step> {
    let steps = compiled.definition().steps.iter();
    steps.filter(|step| {
        let mut invariants = all.iter().flat_map(|stated| stated.invariants);
        invariants.any(|invariant| invariant.reads_step(step.id.as_str()))
    })
}

impl Run {
    fn view(&self, program: &dyn Program, after: &Instance) -> RunView {
        let state = program.view_state(&after.state).unwrap_or(Value::Null);
        let mut view = RunView::new(after.status.as_str(), state["vars"].clone());
        for (id, record) in &self.steps {
            view.add_step(id, &record.state, |property| {
                record.properties.contains(&property)
            });
        }
        view
    }
}

impl StepRecord {
    /// Adds what the current state of a step says about it.
    fn update(&mut self, step: &Step, states: &StepStates) {
        let id = step.id.as_str();
        states.get(id).clone_into(&mut self.state);

        // Elements and rounds count instead of the step. Without an element, nothing was executed.
        let has_units = states.has_elements(id);
        let is_empty = step.foreach.is_some() && !has_units && self.state == "completed";
        let units: Vec<_> = states
            .iter()
            .filter(|(tag, _)| WorkTag::parse(tag).step == id)
            .filter(|(tag, _)| *tag != id || !(has_units || is_empty))
            .map(|(_, state)| state)
            .collect();

        for (property, holds) in [
            (
                StepProperty::Started,
                units.iter().any(|state| was_started(state)),
            ),
            (
                StepProperty::Completed,
                units.iter().any(|state| was_completed(state)),
            ),
            (
                StepProperty::Failed,
                units
                    .iter()
                    .any(|state| matches!(*state, "failed" | "abandoned")),
            ),
            (
                StepProperty::Skipped,
                is_empty || matches!(self.state.as_str(), "skipped" | "bypassed"),
            ),
        ] {
            if holds {
                self.properties.insert(property);
            }
        }

        // A step without `undo` is passed over, and its change remains.
        let is_compensated = step.compensate.is_some()
            && units.contains(&"compensated")
            && units
                .iter()
                .all(|state| *state == "compensated" || !was_completed(state));
        if is_compensated {
            self.properties.insert(StepProperty::Compensated);
        } else {
            // A later round or element can complete after the others are compensated.
            self.properties.remove(&StepProperty::Compensated);
        }
    }
}

/// Returns whether the action of a step was requested at some time.
fn was_started(state: &str) -> bool {
    was_completed(state)
        || is_in_progress(state)
        || matches!(
            state,
            "failed" | "abandoned" | "blocked" | "in_doubt" | "in_doubt_abandoned"
        )
}

#[cfg(test)]
mod tests;
