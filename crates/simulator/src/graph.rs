//! Graphs of a definition as Mermaid text and SVG, optionally with the state of an instance.
//!
//! Steps are boxes from top to bottom, each below the steps that it waits for. Text from the
//! definition is escaped. The graphs contain no scripts and load no resources.

mod flow;
mod icons;
mod layout;
mod mermaid;
mod svg;

use std::collections::BTreeMap;

use orlog_program::Definition;
use serde_json::Value;

pub use mermaid::mermaid;
pub use svg::svg;

/// State of each step of an instance, as its program displays it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceOverlay {
    phase: Option<String>,
    states: BTreeMap<String, String>,
    /// Labels of the states, with the round of a step in a loop.
    labels: BTreeMap<String, String>,
}

impl InstanceOverlay {
    /// Reads the step states from the view of a state: `phase` and `steps`, each with `id` and
    /// `state`.
    #[must_use]
    pub fn of(view: &Value) -> Self {
        let steps = view["steps"].as_array().into_iter().flatten();
        let mut overlay = Self {
            phase: view["phase"].as_str().map(ToOwned::to_owned),
            ..Self::default()
        };

        for step in steps {
            let (Some(id), Some(state)) = (step["id"].as_str(), step["state"].as_str()) else {
                continue;
            };

            // Of a step with rounds, the last one is displayed.
            let current = step["rounds"]
                .as_array()
                .and_then(|rounds| rounds.last())
                .unwrap_or(step);

            let round = current["round"].as_u64().filter(|round| *round > 0);
            let label = round.map_or_else(
                || state.to_owned(),
                |round| format!("{state}, round {round}"),
            );
            overlay.labels.insert(id.to_owned(), label);
            overlay.states.insert(id.to_owned(), state.to_owned());
        }
        overlay
    }

    /// Returns the style of a step.
    fn style(&self, step: &str) -> Option<NodeStyle> {
        self.states.get(step).map(|state| NodeStyle::of(state))
    }

    /// Returns the label of the state of a step.
    fn label(&self, step: &str) -> Option<&str> {
        self.labels.get(step).map(String::as_str)
    }
}

/// Style of a node: six styles for all step states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeStyle {
    /// Not started.
    Pending,
    /// In progress.
    Running,
    /// Completed.
    Completed,
    /// Failed, abandoned, or waiting for an operator decision.
    Failed,
    /// Compensated or compensating.
    Compensated,
    /// Skipped.
    Skipped,
}

impl NodeStyle {
    fn of(state: &str) -> Self {
        match state {
            "running" | "retrying" | "in_doubt" | "child_awaited" => NodeStyle::Running,
            "completed" => NodeStyle::Completed,
            "failed" | "abandoned" | "compensation_failed" | "blocked" | "in_doubt_abandoned" => {
                NodeStyle::Failed
            }
            "compensating" | "compensated" | "compensation_retrying" | "compensation_pending" => {
                NodeStyle::Compensated
            }
            "skipped" | "bypassed" => NodeStyle::Skipped,
            _ => NodeStyle::Pending,
        }
    }

    fn class(self) -> &'static str {
        match self {
            NodeStyle::Pending => "pending",
            NodeStyle::Running => "running",
            NodeStyle::Completed => "completed",
            NodeStyle::Failed => "failed",
            NodeStyle::Compensated => "compensated",
            NodeStyle::Skipped => "skipped",
        }
    }
}

/// Output format of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphFormat {
    /// Mermaid text.
    Mermaid,
    /// SVG document.
    Svg,
}

/// Renders a definition, optionally with the state of an instance.
#[must_use]
pub fn render(
    definition: &Definition,
    overlay: Option<&InstanceOverlay>,
    format: GraphFormat,
) -> String {
    match format {
        GraphFormat::Mermaid => mermaid(definition, overlay),
        GraphFormat::Svg => svg(definition, overlay),
    }
}

#[cfg(test)]
mod tests;
