//! Context of the lint rules.

use super::graph::StepGraph;
use crate::definition::Definition;
use crate::diagnostic::Diagnostic;

/// A definition and the order of its steps.
pub(super) struct LintContext<'d> {
    pub(super) definition: &'d Definition,
    pub(super) graph: StepGraph,
}

impl<'d> LintContext<'d> {
    pub(super) fn of(definition: &'d Definition) -> Self {
        Self { definition, graph: StepGraph::of(definition) }
    }

    /// Returns true if a pivot is finished when the step starts; the saga timer is then disarmed.
    pub(super) fn past_pivot(&self, step: usize) -> bool {
        let steps = self.definition.steps.iter().enumerate();
        steps.filter(|(_, other)| other.pivot).any(|(pivot, _)| self.graph.precedes(pivot, step))
    }
}

/// Warning of a lint rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintWarning {
    /// Code of the rule, for example `OL03`.
    pub code: &'static str,
    /// Location, message and suggestion.
    pub diagnostic: Diagnostic,
}
