//! One decision, as the rules look at it.

use orlog_model::Status;
use orlog_program::{Action as Asks, Definition};

use super::step_states::Marks;
use crate::responses::{Tag, step_of};
use crate::simulator::Seen;

/// One decision, prepared for the rules.
pub(super) struct View<'a> {
    pub(super) seen: &'a Seen<'a>,
    pub(super) definition: Option<&'a Definition>,
    pub(super) before: Marks,
    pub(super) after: Marks,
    pub(super) status: Status,
}

impl View<'_> {
    pub(super) fn was(&self) -> Option<Status> {
        self.seen.subject.instance.map(|instance| instance.status)
    }

    pub(super) fn has_undo(&self, tag: &str) -> bool {
        let tag = Tag::parse(tag);
        let step = self.definition.and_then(|definition| step_of(definition, tag.step));
        // Of a step for each element, the elements are undone.
        let step = step.filter(|step| step.foreach.is_none() || tag.index.is_some());
        step.and_then(|step| step.undo.as_ref()).is_some_and(|undo| !matches!(undo.action, Asks::Human(_)))
    }
}
