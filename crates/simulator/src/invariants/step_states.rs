//! Step states of an instance, as its program displays them.

use std::collections::BTreeMap;

use orlog_model::Instance;
use orlog_program::{Program, StepsView, UnitView};
use serde_json::Value;

/// States by tag: a step, an element of a step with `foreach`, or a round of a step in a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StepStates {
    phase: String,
    by_tag: BTreeMap<String, String>,
    /// Number of attempts by tag, if there were several.
    attempts: BTreeMap<String, u64>,
}

impl StepStates {
    /// Returns the states of an instance; empty if it has not started or its program has no view.
    pub(crate) fn of(program: &dyn Program, instance: Option<&Instance>) -> Self {
        let Some(instance) = instance else {
            return Self::default();
        };
        // Without the view, which has all variables.
        let steps = program
            .as_compiled()
            .and_then(|compiled| compiled.view_steps(&instance.state));
        let Some(steps) = steps else {
            return Self::of_view(program, instance);
        };

        let states = Self::of_steps(steps);
        if cfg!(test) {
            assert_eq!(states, Self::of_view(program, instance));
        }
        states
    }

    fn of_steps(steps: StepsView) -> Self {
        let mut states = Self {
            phase: steps.phase.to_owned(),
            ..Self::default()
        };
        for UnitView {
            tag,
            state,
            attempts,
        } in steps.units
        {
            if let Some(attempts) = attempts {
                states.attempts.insert(tag.clone(), attempts);
            }
            states.by_tag.insert(tag, state.to_owned());
        }
        states
    }

    /// Returns the states from the view, which each program with steps has.
    fn of_view(program: &dyn Program, instance: &Instance) -> Self {
        let view = program.view_state(&instance.state).unwrap_or(Value::Null);
        let mut states = Self {
            phase: view["phase"].as_str().unwrap_or_default().to_owned(),
            ..Self::default()
        };
        for step in view["steps"].as_array().into_iter().flatten() {
            let (Some(id), Some(_)) = (step["id"].as_str(), step["state"].as_str()) else {
                continue;
            };
            states.add(id.to_owned(), step);

            for (index, element) in step["elements"]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
            {
                states.add(format!("{id}[{index}]"), element);
            }
            // A round is named like an element: both are the unit that has results.
            for unit in step["rounds"].as_array().into_iter().flatten() {
                states.add(format!("{id}[{}]", unit["round"]), unit);
            }
        }

        states
    }

    fn add(&mut self, tag: String, unit: &Value) {
        if let Some(attempts) = unit["attempts"].as_u64() {
            self.attempts.insert(tag.clone(), attempts);
        }
        self.by_tag
            .insert(tag, unit["state"].as_str().unwrap_or_default().to_owned());
    }

    /// Returns the number of attempts of the action or the compensation of a tag.
    pub(crate) fn attempts(&self, tag: &str) -> u64 {
        self.attempts.get(tag).copied().unwrap_or(1)
    }

    /// Returns the state of a tag; empty if there is none.
    pub(crate) fn get(&self, tag: &str) -> &str {
        self.by_tag.get(tag).map_or("", String::as_str)
    }

    /// Returns whether the instance may wait for the result of the work of this tag.
    pub(crate) fn awaits(&self, tag: &str) -> bool {
        if let Some(step) = tag.strip_prefix("compensate:") {
            // An unknown step may belong to a program without a view, so its work counts as
            // awaited.
            return is_compensation(self.get(step)) || self.get(step).is_empty();
        }

        let state = self.get(tag);
        !(was_completed(state) || matches!(state, "failed" | "abandoned" | "skipped" | "bypassed"))
    }

    /// Returns all states, ordered by tag.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_tag
            .iter()
            .map(|(tag, state)| (tag.as_str(), state.as_str()))
    }

    /// Returns the states without instance-specific parts; an exploration counts these.
    pub(crate) fn signature(&self) -> String {
        let states: Vec<_> = self
            .by_tag
            .iter()
            .map(|(tag, state)| format!("{tag}={state}"))
            .collect();

        format!("{} {}", self.phase, states.join(" "))
    }

    /// Returns whether the step of this tag has elements or rounds. If so, these count instead of
    /// the step.
    pub(crate) fn has_elements(&self, tag: &str) -> bool {
        let first = format!("{tag}[");
        self.by_tag
            .range(first.clone()..)
            .next()
            .is_some_and(|(next, _)| next.starts_with(&first))
    }
}

/// Returns whether the step completed at some time.
pub(crate) fn was_completed(state: &str) -> bool {
    matches!(
        state,
        "completed"
            | "compensating"
            | "compensated"
            | "compensation_failed"
            | "compensation_retrying"
            | "compensation_pending"
    )
}

/// Returns whether an operator must decide if it was executed.
pub(crate) fn is_in_doubt(state: &str) -> bool {
    matches!(state, "in_doubt" | "in_doubt_abandoned")
}

/// Returns whether its compensation is requested or will be requested again.
pub(crate) fn is_compensation(state: &str) -> bool {
    matches!(
        state,
        "compensating" | "compensation_failed" | "compensation_retrying"
    )
}

/// Returns whether it is requested or will be requested again.
pub(crate) fn is_in_progress(state: &str) -> bool {
    matches!(state, "running" | "retrying" | "child_awaited")
}
