//! What happens when a step does not succeed.

use super::context::Sight;
use crate::definition::{Action, Step};
use crate::diagnostic::Finding;

/// OL02: a step that waits for somebody, with no way to fail.
pub(super) fn no_failure_path(sight: &Sight<'_>) -> Vec<Finding> {
    let steps = sight.definition.steps.iter().enumerate();
    let endless = steps.filter(|(i, step)| {
        let saga_timer = sight.definition.timeout.is_some() && !sight.past_pivot(*i);
        waits(step) && step.fail.is_empty() && step.timeout.is_none() && !saga_timer
    });
    endless
        .map(|(i, step)| {
            let message =
                format!("step `{}` can only succeed: without an answer the saga waits for ever", step.id);
            Finding::new(format!("steps[{i}]"), message)
                .suggest("give it a `timeout`, or name the event of failure with `fail`")
        })
        .collect()
}

/// For an answer that need not come. A command without `ok` is over when it is accepted or refused.
fn waits(step: &Step) -> bool {
    match &step.action {
        Action::Command { .. } => !step.ok.is_empty(),
        Action::Event { .. } | Action::Human(_) => true,
        Action::Effect { .. }
        | Action::Wait(_)
        | Action::Saga { .. }
        | Action::Job(_)
        | Action::Switch(_) => false,
    }
}

/// OL03: a change that stays when a later step fails.
pub(super) fn missing_undo(sight: &Sight<'_>) -> Vec<Finding> {
    let steps = &sight.definition.steps;
    let changes = (0..steps.len()).filter(|i| changes_the_world(&steps[*i]) && steps[*i].undo.is_none());
    let found = changes.filter_map(|i| {
        let spoils = |other: &usize| can_fail(&steps[*other]) && may_fail_after(sight, i, *other);
        (0..steps.len()).find(spoils).map(|other| (i, other))
    });
    found
        .map(|(i, other)| {
            let (id, other) = (&steps[i].id, &steps[other].id);
            let message = format!("step `{id}` has no `undo`: what it did stays when `{other}` fails");
            Finding::new(format!("steps[{i}]"), message)
                .suggest("give it an `undo`, or make a step between them the `pivot`")
        })
        .collect()
}

/// `other` can fail when `step` is done already and is still to be undone.
fn may_fail_after(sight: &Sight<'_>, step: usize, other: usize) -> bool {
    let graph = &sight.graph;
    let later = graph.precedes(step, other) || graph.overlap(step, other);
    let is_final =
        |pivot: usize| (pivot == step || graph.precedes(step, pivot)) && graph.precedes(pivot, other);
    let pivots = sight.definition.steps.iter().enumerate().filter(|(_, step)| step.pivot);
    later && !pivots.map(|(pivot, _)| pivot).any(is_final)
}

/// Jobs compute; their results are the saga's own.
fn changes_the_world(step: &Step) -> bool {
    match &step.action {
        Action::Command { .. } | Action::Effect { .. } | Action::Saga { .. } => true,
        Action::Wait(_) | Action::Event { .. } | Action::Human(_) | Action::Job(_) | Action::Switch(_) => {
            false
        }
    }
}

fn can_fail(step: &Step) -> bool {
    match &step.action {
        Action::Command { .. } | Action::Effect { .. } | Action::Saga { .. } | Action::Job(_) => true,
        Action::Event { .. } | Action::Human(_) => !step.fail.is_empty() || step.timeout.is_some(),
        Action::Wait(_) | Action::Switch(_) => false,
    }
}
