//! Step states of an instance, as its program displays them.

use std::collections::BTreeMap;

use orlog_model::Instance;
use orlog_program::Program;
use serde_json::Value;

/// States by tag: a step, an element of a step with `foreach`, or a round of a step in a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepStates {
    phase: String,
    by_tag: BTreeMap<String, String>,
}

impl StepStates {
    /// Returns the states of an instance; empty if it has not started or its program has no view.
    pub(crate) fn of(program: &dyn Program, instance: Option<&Instance>) -> Self {
        let view = instance.and_then(|instance| program.view_state(&instance.state)).unwrap_or(Value::Null);
        let mut by_tag = BTreeMap::new();
        for step in view["steps"].as_array().into_iter().flatten() {
            let (Some(id), Some(state)) = (step["id"].as_str(), step["state"].as_str()) else { continue };
            by_tag.insert(id.to_owned(), state.to_owned());
            for (index, element) in step["elements"].as_array().into_iter().flatten().enumerate() {
                let state = element["state"].as_str().unwrap_or_default();
                by_tag.insert(format!("{id}[{index}]"), state.to_owned());
            }
            for unit in step["rounds"].as_array().into_iter().flatten() {
                let state = unit["state"].as_str().unwrap_or_default();
                by_tag.insert(format!("{id}[{}]", unit["round"]), state.to_owned());
            }
        }
        Self { phase: view["phase"].as_str().unwrap_or_default().to_owned(), by_tag }
    }

    /// Returns the state of a tag; empty if there is none.
    pub(crate) fn get(&self, tag: &str) -> &str {
        self.by_tag.get(tag).map_or("", String::as_str)
    }

    /// Returns all states, ordered by tag.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_tag.iter().map(|(tag, state)| (tag.as_str(), state.as_str()))
    }

    /// Returns the states without instance-specific parts; an exploration counts these.
    pub(crate) fn signature(&self) -> String {
        let states: Vec<_> = self.by_tag.iter().map(|(tag, state)| format!("{tag}={state}")).collect();
        format!("{} {}", self.phase, states.join(" "))
    }

    /// Returns whether the step of this tag has elements or rounds. If so, these count instead of the step.
    pub(crate) fn has_elements(&self, tag: &str) -> bool {
        let first = format!("{tag}[");
        self.by_tag.range(first.clone()..).next().is_some_and(|(next, _)| next.starts_with(&first))
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
    matches!(state, "compensating" | "compensation_failed" | "compensation_retrying")
}

/// Returns whether it is requested or will be requested again.
pub(crate) fn is_in_progress(state: &str) -> bool {
    matches!(state, "running" | "retrying" | "child_awaited")
}
