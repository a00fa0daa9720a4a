//! Workflow as data: its steps, without their functions.
//!
//! A graph is a list of bodies. A body is a sequence of steps; body 0 is the workflow itself, the
//! others are branches of forks, conditions, lists, loops and child workflows. A graph can be
//! stored, compared by its hash and drawn.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::retry::Retry;

/// Steps of a workflow, as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// Name of the workflow.
    pub name: String,
    /// Bodies; the first one is the workflow itself.
    pub bodies: Vec<Body>,
}

/// Sequence of steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// Name of the branch; empty for the workflow itself.
    pub label: String,
    /// Steps, in order.
    pub steps: Vec<Step>,
}

/// Step of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Name, unique in the workflow. The steps of a child workflow have its name as a prefix:
    /// `ship/label`.
    pub name: String,
    /// Kind of the step, with its policies.
    pub kind: StepKind,
    /// Types of input and output, as `Order -> Receipt`. A function with other types is rejected.
    pub signature: String,
    /// Metadata for people and tools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// Kind of a step. A number of a body is its index in [`Graph::bodies`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepKind {
    /// Executes a task.
    Task(TaskPolicy),
    /// Waits for a duration.
    Delay {
        /// Duration in milliseconds.
        ms: u64,
    },
    /// Waits for a signal with the name of the step.
    Signal {
        /// Timeout in milliseconds.
        #[serde(default)]
        timeout_ms: Option<u64>,
    },
    /// Executes bodies concurrently; each has the same input.
    Fork {
        /// Branches.
        branches: Vec<usize>,
    },
    /// Executes one of two bodies.
    When {
        /// Body if the condition holds.
        then: usize,
        /// Body if the condition does not hold.
        otherwise: usize,
    },
    /// Executes a body concurrently for each element of a list.
    Each {
        /// Body of one element.
        body: usize,
    },
    /// Executes a body while a condition holds.
    Repeat {
        /// Body of one round.
        body: usize,
        /// Maximum number of rounds.
        max_rounds: u32,
    },
    /// Executes another workflow as a part of this one.
    Child {
        /// Name of the other workflow.
        workflow: String,
        /// Its steps.
        body: usize,
    },
}

/// Policies of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPolicy {
    /// Maximum duration of one attempt, in milliseconds.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Attempts.
    #[serde(default)]
    pub retry: Retry,
    /// Attempts of the compensation; `None` if the task has no compensation.
    #[serde(default)]
    pub undo: Option<Retry>,
    /// Attempts of the compensation after an unknown outcome; `None` if there is none.
    #[serde(default)]
    pub undo_unknown: Option<Retry>,
}

/// Position of a step: its body, and its index in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct StepId {
    pub(crate) body: usize,
    pub(crate) index: usize,
}

impl Graph {
    pub(crate) fn step(&self, id: StepId) -> Option<&Step> {
        self.bodies.get(id.body)?.steps.get(id.index)
    }

    /// Returns all steps with their positions.
    #[cfg(feature = "program")]
    pub(crate) fn positions(&self) -> impl Iterator<Item = (&Step, StepId)> {
        let bodies = self.bodies.iter().enumerate();
        bodies.flat_map(|(body, found)| {
            found
                .steps
                .iter()
                .enumerate()
                .map(move |(index, step)| (step, StepId { body, index }))
        })
    }

    /// Returns all steps, body after body.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.bodies.iter().flat_map(|body| &body.steps)
    }

    /// Returns the hash of names, types and structure. Policies and metadata may change without a
    /// new hash.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();

        // The lengths keep the boundaries of the parts.
        let mut add = |part: &str| {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        };

        add(&self.name);
        for body in &self.bodies {
            add(&format!("{} {}", body.label, body.steps.len()));
            for step in &body.steps {
                add(&step.name);
                add(&step.signature);
                add(&step.kind.structure());
            }
        }

        hex::encode(&hash.finalize()[..16])
    }

    /// Returns the graph with new names of steps.
    #[must_use]
    pub(crate) fn renamed(mut self, names: &BTreeMap<String, String>) -> Self {
        for body in &mut self.bodies {
            for step in &mut body.steps {
                if let Some(name) = names.get(&step.name) {
                    step.name.clone_from(name);
                }
            }

            // The label of a branch with one task is the name of the task.
            if let Some(label) = names.get(&body.label) {
                body.label.clone_from(label);
            }
        }
        self
    }

    /// Returns what is wrong with the graph.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();

        if self.name.is_empty() {
            problems.push("the workflow has no name; name it in `Workflow::builder`".to_owned());
        }

        if self.bodies.first().is_none_or(|body| body.steps.is_empty()) {
            problems.push("the workflow has no step; add one with `then`".to_owned());
        }

        let mut names = BTreeSet::new();
        for step in self.steps() {
            if step.name.is_empty() || !names.insert(&step.name) {
                problems.push(format!(
                    "step \"{}\" occurs twice or has no name; give each step its own name",
                    step.name
                ));
            }

            problems.extend(
                step.kind
                    .problem()
                    .map(|problem| format!("step \"{}\": {problem}", step.name)),
            );
        }

        problems.extend(self.body_problem());
        problems
    }

    /// Each body except the first belongs to exactly one step of an earlier body, so that the
    /// bodies form a tree.
    fn body_problem(&self) -> Option<String> {
        let mut owners = vec![0_usize; self.bodies.len()];
        for (at, body) in self.bodies.iter().enumerate() {
            for child in body.steps.iter().flat_map(|step| step.kind.bodies()) {
                match owners.get_mut(child) {
                    Some(count) if child > at => *count += 1,
                    _ => {
                        return Some(format!(
                            "body {at} refers to body {child}, which is missing or not after it"
                        ));
                    }
                }
            }
        }

        let wrong = owners.iter().skip(1).position(|count| *count != 1)?;
        Some(format!(
            "body {} does not belong to exactly one step",
            wrong + 1
        ))
    }
}

impl StepKind {
    /// Returns the bodies of the step.
    pub(crate) fn bodies(&self) -> Vec<usize> {
        match self {
            Self::Task(_) | Self::Delay { .. } | Self::Signal { .. } => Vec::new(),
            Self::Fork { branches } => branches.clone(),
            Self::When { then, otherwise } => vec![*then, *otherwise],
            Self::Each { body } | Self::Repeat { body, .. } | Self::Child { body, .. } => {
                vec![*body]
            }
        }
    }

    /// Returns kind and bodies, without policies.
    fn structure(&self) -> String {
        let kind = match self {
            Self::Task(_) => "task",
            Self::Delay { .. } => "delay",
            Self::Signal { .. } => "signal",
            Self::Fork { .. } => "fork",
            Self::When { .. } => "when",
            Self::Each { .. } => "each",
            Self::Repeat { .. } => "repeat",
            Self::Child { .. } => "child",
        };
        format!("{kind} {:?}", self.bodies())
    }

    fn problem(&self) -> Option<&'static str> {
        match self {
            Self::Task(policy) => {
                let retries = [Some(policy.retry), policy.undo, policy.undo_unknown];
                let none = retries.iter().flatten().any(|retry| !retry.has_attempts());
                if none {
                    Some("a retry policy needs at least 1 attempt")
                } else {
                    (policy.timeout_ms == Some(0)).then_some("a timeout needs at least 1 ms")
                }
            }
            Self::Signal {
                timeout_ms: Some(0),
            } => Some("a timeout needs at least 1 ms"),
            Self::Repeat { max_rounds: 0, .. } => Some("a loop needs a bound of at least 1 round"),
            Self::Fork { branches } if branches.is_empty() => {
                Some("a fork needs at least 1 branch")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(name: &str, retry: Retry) -> Graph {
        let kind = StepKind::Task(TaskPolicy {
            retry,
            ..TaskPolicy::default()
        });
        let step = Step {
            name: name.to_owned(),
            kind,
            signature: "A -> B".to_owned(),
            metadata: BTreeMap::new(),
        };
        Graph {
            name: "order".to_owned(),
            bodies: vec![Body {
                label: String::new(),
                steps: vec![step],
            }],
        }
    }

    #[test]
    fn hash_covers_names_and_not_policies() {
        let reserve = graph("reserve", Retry::attempts(1));
        assert_eq!(reserve.hash(), graph("reserve", Retry::attempts(9)).hash());
        let hold = graph("hold", Retry::attempts(1));
        assert_ne!(reserve.hash(), hold.hash());
        let names = BTreeMap::from([("hold".to_owned(), "reserve".to_owned())]);
        assert_eq!(hold.renamed(&names).hash(), reserve.hash());
    }

    #[test]
    fn bodies_that_are_missing_or_shared_are_problems() {
        let mut graph = graph("a", Retry::attempts(1));
        graph.bodies[0].steps[0].kind = StepKind::Each { body: 1 };
        assert!(graph.problems()[0].contains("missing"));
        graph.bodies.push(Body {
            label: "a".to_owned(),
            steps: Vec::new(),
        });
        assert!(graph.problems().is_empty());
        graph.bodies[0].steps[0].kind = StepKind::When {
            then: 1,
            otherwise: 1,
        };
        assert!(graph.problems()[0].contains("exactly one"));
    }
}
