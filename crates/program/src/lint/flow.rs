//! Steps that never begin, pivots that guard nothing, undos of what does nothing.

use super::context::Sight;
use super::graph::named_by;
use crate::definition::{Action, Case};
use crate::diagnostic::Finding;

/// OL01: a step that never begins.
pub(super) fn unreachable_step(sight: &Sight<'_>) -> Vec<Finding> {
    let steps = &sight.definition.steps;
    let mut dead = vec![false; steps.len()];
    let mut findings = Vec::new();
    // In every round at least one more step is found, or it is over.
    while let Some(i) = (0..steps.len()).find(|i| !dead[*i] && is_dead(sight, *i, &dead)) {
        dead[i] = true;
        let message = format!("step `{}` never begins: nothing leads to it", steps[i].id);
        findings.push(Finding::new(format!("steps[{i}]"), message).suggest("look at the switch before it"));
    }
    for (i, step) in steps.iter().enumerate() {
        if step.when.as_deref().is_some_and(never) {
            let message = format!("step `{}` never begins: its `when` is always false", step.id);
            findings.push(Finding::new(format!("steps[{i}]"), message).suggest("remove the step"));
        }
    }
    findings
}

/// Named on ways that are never taken only, or after nothing but such steps.
fn is_dead(sight: &Sight<'_>, i: usize, dead: &[bool]) -> bool {
    let steps = &sight.definition.steps;
    let before = &sight.graph.before[i];
    if !before.is_empty() && before.iter().all(|b| dead[*b]) {
        return true;
    }
    let switches = named_by(steps, steps[i].id.as_str());
    !switches.is_empty()
        && switches.iter().all(|(switch, ways)| match &steps[*switch].action {
            Action::Switch(cases) => ways.iter().all(|way| never_taken(cases, *way)),
            Action::Command { .. }
            | Action::Effect { .. }
            | Action::Wait(_)
            | Action::Event { .. }
            | Action::Human(_)
            | Action::Saga { .. }
            | Action::Job(_) => false,
        })
}

/// Its condition cannot hold, or one before it always holds or is the same.
fn never_taken(cases: &[Case], way: usize) -> bool {
    let when = cases[way].when.as_deref();
    when.is_some_and(never)
        || cases[..way].iter().any(|earlier| match earlier.when.as_deref() {
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

/// OL11: a pivot after which nothing comes.
pub(super) fn pivot_without_effect(sight: &Sight<'_>) -> Vec<Finding> {
    let pivots = sight.definition.steps.iter().enumerate().filter(|(_, step)| step.pivot);
    let last = pivots.filter(|(i, _)| !sight.graph.has_followers(*i));
    last.map(|(i, step)| {
        let message =
            format!("no step comes after the pivot `{}`, so there is nothing to go forward with", step.id);
        Finding::new(format!("steps[{i}]"), message).suggest("remove `pivot`")
    })
    .collect()
}

/// OL12: an undo of a decision or of a pause.
pub(super) fn nothing_to_undo(sight: &Sight<'_>) -> Vec<Finding> {
    let steps = sight.definition.steps.iter().enumerate().filter(|(_, step)| step.undo.is_some());
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
    idle.map(|(i, step, what)| {
        let message = format!("step `{}` is {what}, which changes nothing that could be undone", step.id);
        Finding::new(format!("steps[{i}]"), message)
            .suggest("put the `undo` on the step that makes the change")
    })
    .collect()
}
