//! What the rules look at.

use super::graph::Graph;
use crate::definition::Definition;
use crate::diagnostic::Problem;

/// A definition, and the order of its steps.
pub(super) struct Sight<'d> {
    pub(super) definition: &'d Definition,
    pub(super) graph: Graph,
}

impl<'d> Sight<'d> {
    pub(super) fn of(definition: &'d Definition) -> Self {
        Self { definition, graph: Graph::of(definition) }
    }

    /// Whether a pivot is over when the step begins; the saga's own timer is off then.
    pub(super) fn past_pivot(&self, step: usize) -> bool {
        let steps = self.definition.steps.iter().enumerate();
        steps.filter(|(_, other)| other.pivot).any(|(pivot, _)| self.graph.precedes(pivot, step))
    }
}

/// What a rule objects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The rule, for example `OL03`.
    pub code: &'static str,
    /// Where, what, and what would do.
    pub problem: Problem,
}
