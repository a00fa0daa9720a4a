//! Lints of unreachable steps, useless pivots and needless compensations.

use super::context::LintContext;
use super::graph::selected_by;
use crate::definition::{Action, SwitchCase};
use crate::diagnostic::RawDiagnostic;

/// OL01: a step that never starts.
pub(super) fn unreachable_step(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = &context.definition.steps;
    let mut dead = vec![false; steps.len()];
    let mut findings = Vec::new();
    // Each iteration finds at least one more step, or ends.
    while let Some(i) = (0..steps.len()).find(|i| !dead[*i] && is_dead(context, *i, &dead)) {
        dead[i] = true;
        let message = format!("step `{}` never starts: it is unreachable", steps[i].id);
        findings.push(
            RawDiagnostic::new(format!("steps[{i}]"), message).with_suggestion("check the switch before it"),
        );
    }
    for (i, step) in steps.iter().enumerate() {
        if step.when.as_deref().is_some_and(never) {
            let message = format!("step `{}` never starts: its `when` is always false", step.id);
            findings
                .push(RawDiagnostic::new(format!("steps[{i}]"), message).with_suggestion("remove the step"));
        }
    }
    findings
}

/// Returns true if only unreachable cases select the step, or if all its predecessors are unreachable.
fn is_dead(context: &LintContext<'_>, i: usize, dead: &[bool]) -> bool {
    let steps = &context.definition.steps;
    let before = &context.graph.before[i];
    if !before.is_empty() && before.iter().all(|b| dead[*b]) {
        return true;
    }
    let switches = selected_by(steps, steps[i].id.as_str());
    !switches.is_empty()
        && switches.iter().all(|(switch, branches)| match &steps[*switch].action {
            Action::Switch(cases) => branches.iter().all(|branch| never_matches(cases, *branch)),
            Action::Command { .. }
            | Action::Effect { .. }
            | Action::Wait(_)
            | Action::Event { .. }
            | Action::Human(_)
            | Action::Saga { .. }
            | Action::Job(_) => false,
        })
}

/// Returns true if the condition of the case cannot hold, or if an earlier case always matches or has
/// the same condition.
fn never_matches(cases: &[SwitchCase], branch: usize) -> bool {
    let when = cases[branch].when.as_deref();
    when.is_some_and(never)
        || cases[..branch].iter().any(|earlier| match earlier.when.as_deref() {
            None => true,
            Some(condition) => {
                bare(condition) == "true" || when.is_some_and(|when| bare(when) == bare(condition))
            }
        })
}

fn never(condition: &str) -> bool {
    bare(condition) == "false"
}

fn bare(condition: &str) -> &str {
    condition.strip_prefix('=').unwrap_or(condition).trim()
}

/// OL11: a pivot without successors.
pub(super) fn pivot_without_effect(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let pivots = context.definition.steps.iter().enumerate().filter(|(_, step)| step.pivot);
    let last = pivots.filter(|(i, _)| !context.graph.has_followers(*i));
    last.map(|(i, step)| {
        let message = format!("no step follows the pivot `{}`, so it has no effect", step.id);
        RawDiagnostic::new(format!("steps[{i}]"), message).with_suggestion("remove `pivot`")
    })
    .collect()
}

/// OL12: a compensation of a switch or a wait.
pub(super) fn needless_compensation(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = context.definition.steps.iter().enumerate().filter(|(_, step)| step.compensate.is_some());
    let idle = steps.filter_map(|(i, step)| match &step.action {
        Action::Switch(_) => Some((i, step, "a switch")),
        Action::Wait(_) => Some((i, step, "a wait")),
        Action::Command { .. }
        | Action::Effect { .. }
        | Action::Event { .. }
        | Action::Human(_)
        | Action::Saga { .. }
        | Action::Job(_) => None,
    });
    idle.map(|(i, step, kind)| {
        let message = format!("step `{}` is {kind}, which has no change to compensate", step.id);
        RawDiagnostic::new(format!("steps[{i}]"), message)
            .with_suggestion("move the `undo` to the step that makes the change")
    })
    .collect()
}
