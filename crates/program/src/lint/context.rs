//! Context of the lint rules.

use crate::compile::expressions::DefinitionTexts;
use crate::compile::order::{self, StepOrder};
use crate::definition::{AfterFailure, Definition, Step};
use crate::diagnostic::Diagnostic;

/// A definition, the order of its steps, and its expressions.
pub(super) struct LintContext<'d> {
    pub(super) definition: &'d Definition,
    pub(super) order: StepOrder,
    pub(super) texts: DefinitionTexts,
}

impl<'d> LintContext<'d> {
    /// Returns `None` if the steps have no order.
    pub(super) fn of(definition: &'d Definition) -> Option<Self> {
        Some(Self {
            definition,
            order: order::of(definition, &mut Vec::new())?,
            texts: crate::compile::texts(definition),
        })
    }

    /// Returns the steps with their index.
    pub(super) fn steps(&self) -> impl Iterator<Item = (usize, &'d Step)> + use<'d> {
        self.definition.steps.iter().enumerate()
    }

    /// Returns true if a pivot is finished when the step starts; the saga timer is then disarmed.
    pub(super) fn past_pivot(&self, step: usize) -> bool {
        self.steps()
            .any(|(pivot, other)| other.pivot && self.is_past(step, pivot))
    }

    /// Returns true if the step starts only after this pivot has completed.
    pub(super) fn is_past(&self, step: usize, pivot: usize) -> bool {
        // The failure of a pivot can be handled, and the saga then runs on without it.
        let mut handlers = self.definition.steps[pivot].failure_handlers();
        let can_be_missing = handlers.any(|(_, handler)| match handler.then {
            AfterFailure::Fail => false,
            AfterFailure::Continue => true,
            AfterFailure::Steps(_) => !self.order.follows_completion(step, pivot),
        });
        self.order.precedes(pivot, step) && !can_be_missing
    }

    pub(super) fn has_followers(&self, step: usize) -> bool {
        self.order
            .before
            .iter()
            .any(|before| before.contains(&step))
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
