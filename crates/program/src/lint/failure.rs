//! Lints of failing steps.

use super::context::LintContext;
use crate::definition::{Action, Step};
use crate::diagnostic::RawDiagnostic;

/// OL02: an awaiting step that cannot fail.
pub(super) fn no_failure_path(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = context.definition.steps.iter().enumerate();
    let endless = steps.filter(|(i, step)| {
        let saga_timer = context.definition.timeout.is_some() && !context.past_pivot(*i);
        waits(step) && step.fail.is_empty() && step.timeout.is_none() && !saga_timer
    });
    endless
        .map(|(i, step)| {
            let message = format!(
                "step `{}` has no timeout and no failure: without a result the saga never ends",
                step.id
            );
            RawDiagnostic::new(format!("steps[{i}]"), message)
                .with_suggestion("set a `timeout`, or name the failure event with `fail`")
        })
        .collect()
}

/// Returns true if the step awaits a result that may never arrive. A command without `ok` ends when it
/// is accepted or rejected.
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

/// OL03: a step without a compensation, followed by a step that can fail.
pub(super) fn missing_compensation(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = &context.definition.steps;
    let changes =
        (0..steps.len()).filter(|i| has_external_change(&steps[*i]) && steps[*i].compensate.is_none());
    let found = changes.filter_map(|i| {
        let fails_later = |other: &usize| can_fail(&steps[*other]) && may_fail_after(context, i, *other);
        (0..steps.len()).find(fails_later).map(|other| (i, other))
    });
    found
        .map(|(i, other)| {
            let (id, other) = (&steps[i].id, &steps[other].id);
            let message = format!("step `{id}` has no `undo`: its change remains if `{other}` fails");
            RawDiagnostic::new(format!("steps[{i}]"), message)
                .with_suggestion("add an `undo`, or make a step between them the `pivot`")
        })
        .collect()
}

/// Returns true if `other` can fail after `step` has completed and while `step` can still be
/// compensated.
fn may_fail_after(context: &LintContext<'_>, step: usize, other: usize) -> bool {
    let graph = &context.graph;
    let later = graph.precedes(step, other) || graph.overlap(step, other);
    let is_final =
        |pivot: usize| (pivot == step || graph.precedes(step, pivot)) && graph.precedes(pivot, other);
    let pivots = context.definition.steps.iter().enumerate().filter(|(_, step)| step.pivot);
    later && !pivots.map(|(pivot, _)| pivot).any(is_final)
}

/// Returns true if the step has external changes. Jobs only compute; their results belong to the saga.
fn has_external_change(step: &Step) -> bool {
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
