//! View of one decision for the invariants.

use std::sync::Arc;

use orlog_model::Status;
use orlog_program::{Action, Definition, Step};

use super::step_states::StepStates;
use crate::responses::{WorkTag, step_of};
use crate::simulator::ObservedDecision;

/// Decision, prepared for the invariants.
pub(super) struct DecisionView<'a> {
    pub(super) seen: &'a ObservedDecision<'a>,
    pub(super) definition: Option<&'a Definition>,
    pub(super) before: Arc<StepStates>,
    pub(super) after: Arc<StepStates>,
    pub(super) status: Status,
}

impl DecisionView<'_> {
    pub(super) fn previous_state(&self) -> Option<Status> {
        self.seen.context.instance.map(|instance| instance.status)
    }

    /// Returns the position of a tag in the definition: its step, then its element or round.
    pub(super) fn position(&self, tag: &str) -> (Option<usize>, Option<usize>) {
        let tag = WorkTag::parse(tag);
        let steps = self
            .definition
            .map_or(&[][..], |definition| &definition.steps);
        (
            steps.iter().position(|step| step.id.as_str() == tag.step),
            tag.index,
        )
    }

    /// Returns the step of a tag.
    pub(super) fn step(&self, tag: &str) -> Option<&Step> {
        self.definition
            .and_then(|definition| step_of(definition, WorkTag::parse(tag).step))
    }

    pub(super) fn has_compensation(&self, tag: &str) -> bool {
        let step = self.step(tag);
        let tag = WorkTag::parse(tag);

        // A `foreach` step is compensated by element.
        let step = step.filter(|step| step.foreach.is_none() || tag.index.is_some());
        step.and_then(|step| step.compensate.as_ref())
            .is_some_and(|compensation| !matches!(compensation.action, Action::Human(_)))
    }
}
