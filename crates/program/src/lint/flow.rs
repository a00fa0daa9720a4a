//! Lints of the flow: unreachable steps, switches, useless pivots, needless compensations.

use super::context::LintContext;
use super::failure::can_be_tolerated;
use crate::definition::Join;
use crate::diagnostic::RawDiagnostic;
use crate::steps::{Action, is_never, never_matches};

/// OL01: a step that never starts.
pub(super) fn unreachable_step(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = &context.definition.steps;
    let mut dead = vec![false; steps.len()];
    let mut findings = Vec::new();

    // Each iteration finds at least one more step, or ends.
    while let Some(i) = (0..steps.len()).find(|i| !dead[*i] && is_dead(context, *i, &dead)) {
        dead[i] = true;
        let message = format!("step `{}` never starts: it is unreachable", steps[i].id);
        let suggestion = match context.order.ineffective_selections[i].first() {
            Some(selecting) => format!(
                "omit its `after`, so that it follows `{}`, which selects it",
                steps[*selecting].id
            ),
            None => "check the switch before it".to_owned(),
        };
        findings
            .push(RawDiagnostic::new(format!("steps[{i}]"), message).with_suggestion(suggestion));
    }

    // A step that others select, or that follows another branch, is not dead.
    for (i, selecting) in context.order.ineffective_selections.iter().enumerate() {
        for selecting in selecting.iter().filter(|_| !dead[i]) {
            let id = &steps[i].id;
            let selecting = &steps[*selecting].id;
            let message = format!(
                "step `{id}` does not start when `{selecting}` selects it: its `after` requires \
                 another branch"
            );
            let suggestion = format!(
                "omit `after`, or add a step that follows when `{selecting}` selects `{id}`"
            );
            findings.push(
                RawDiagnostic::new(format!("steps[{i}].after"), message)
                    .with_suggestion(suggestion),
            );
        }
    }

    for (i, step) in steps.iter().enumerate() {
        if step.when.as_deref().is_some_and(is_never) {
            let message = format!(
                "step `{}` never starts: its `when` is always false",
                step.id
            );
            findings.push(
                RawDiagnostic::new(format!("steps[{i}]"), message)
                    .with_suggestion("remove the step"),
            );
        }
    }

    findings
}

/// Returns true if only unreachable cases select the step, or if all its predecessors are
/// unreachable.
fn is_dead(context: &LintContext<'_>, i: usize, dead: &[bool]) -> bool {
    let steps = &context.definition.steps;
    let before = &context.order.before[i];
    let has_no_predecessor = !before.is_empty() && before.iter().all(|b| dead[*b]);
    if has_no_predecessor || context.order.never_starts(i) {
        return true;
    }

    // One reachable predecessor suffices: the step machine bypasses a step only if all are
    // bypassed.
    let switches = &context.order.selected_by[i];
    let is_never_selected = switches.iter().all(|switch| {
        // A step can fail at any time, so its failure handler can select others.
        if !matches!(steps[*switch].action, Action::Switch(_)) {
            return false;
        }
        let cases = steps[*switch].action.cases();
        let mut selecting =
            (0..cases.len()).filter(|case| cases[*case].then.contains(&steps[i].id));
        selecting.all(|case| never_matches(cases, case))
    });
    !switches.is_empty() && is_never_selected
}

/// OL05: a switch without a default case.
pub(super) fn missing_default_case(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let open = context.steps().filter(|(_, step)| {
        let cases = step.action.cases();
        !cases.is_empty() && cases.iter().all(|case| case.when.is_some())
    });
    open.map(|(i, step)| {
        let message = format!(
            "switch `{}` has no default case; it fails with `no_matching_case` if no condition \
             holds",
            step.id
        );
        RawDiagnostic::new(format!("steps[{i}]"), message)
            .with_suggestion("add a last case `- { then: … }` without `when`")
    })
    .collect()
}

/// OL06: a step that follows only one branch of a switch by its position, while another branch
/// ends.
pub(super) fn follows_one_branch_only(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = &context.definition.steps;
    let mut findings = Vec::new();
    for (at, switch) in context.steps() {
        let selections = switch.selections();
        let selected = selections.iter().flat_map(|(_, selected)| *selected);
        let branches: Vec<usize> = selected
            .filter_map(|id| steps.iter().position(|step| step.id == *id))
            .collect();

        for branch in &branches {
            let next = branch + 1;
            let Some(step) = steps.get(next) else {
                continue;
            };

            // A step with `after`, or one that a switch selects, does not follow by its position.
            if step.after.is_some() || !context.order.selected_by[next].is_empty() {
                continue;
            }

            if let Some(other) = bypassing_step(context, at, *branch, &branches) {
                let branch = &steps[*branch].id;
                let selecting = &switch.id;
                let other_id = &steps[other].id;
                let condition = if other == at {
                    format!("`{selecting}` completes")
                } else if branches.contains(&other) {
                    format!("`{selecting}` selects `{other_id}`")
                } else {
                    format!("`{selecting}` continues with `{other_id}`")
                };

                let message = format!(
                    "step `{}` follows only `{branch}`: if {condition}, it is bypassed",
                    step.id
                );
                let suggestion = format!(
                    "write after: [{branch}, {other_id}], or after: [{branch}] if that is intended"
                );
                findings.push(
                    RawDiagnostic::new(format!("steps[{next}]"), message)
                        .with_suggestion(suggestion),
                );
            }
        }
    }
    findings
}

/// Returns the step after which nothing follows if `at` does not select `branch`: another branch,
/// a step that follows its completion, or `at` itself.
fn bypassing_step(
    context: &LintContext<'_>,
    at: usize,
    branch: usize,
    branches: &[usize],
) -> Option<usize> {
    let steps = &context.definition.steps;
    let mut after_completion = Vec::new();
    for (other, before) in context.order.before.iter().enumerate() {
        if before.contains(&at) && !branches.contains(&other) {
            after_completion.push(other);
        }
    }

    // A switch has no outcome beside its cases.
    let is_switch = matches!(steps[at].action, Action::Switch(_));
    if !is_switch && after_completion.is_empty() {
        return Some(at);
    }

    let others = branches.iter().copied().chain(after_completion);
    others
        .into_iter()
        .find(|other| context.order.exclude(*other, branch) && !context.has_followers(*other))
}

/// OL20: a join of some steps that starts when the time of a wait has passed, although another of
/// them has failed.
pub(super) fn joins_a_wait(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = &context.definition.steps;
    let mut findings = Vec::new();
    for (i, step) in context.steps() {
        let members = &context.order.before[i];
        let Some(Join::AtLeast(required)) = step.after.as_ref().map(|after| after.join) else {
            continue;
        };
        // A join of all members fails with the first of them.
        if usize::try_from(required).is_ok_and(|required| required >= members.len()) {
            continue;
        }

        let region = &context.order.regions[i];
        let waiting = members
            .iter()
            .find_map(|member| wait_of(context, *member, region));
        let Some(wait) = waiting else { continue };

        // A failure before the wait ends its branch, too.
        let failing = region.iter().find(|other| {
            let is_before_wait = **other == wait || context.order.precedes(**other, wait);
            can_be_tolerated(&steps[**other]) && !is_before_wait
        });
        if let Some(failing) = failing {
            let wait = &steps[wait].id;
            let failing = &steps[*failing].id;
            let message = format!(
                "step `{}` starts when the time of `{wait}` has passed, also if `{failing}` has \
                 failed",
                step.id
            );
            let suggestion = format!(
                "put the time into `timeout` of `{failing}`, and write what follows it as \
                 `on_timeout`"
            );
            findings.push(
                RawDiagnostic::new(format!("steps[{i}].after"), message)
                    .with_suggestion(suggestion),
            );
        }
    }
    findings
}

/// Returns the wait after which a member of a join completes: itself, or one that leads to it through
/// steps without a result. A step with a result, or with a change to reverse, is another way to the
/// goal of the join.
fn wait_of(context: &LintContext<'_>, member: usize, region: &[usize]) -> Option<usize> {
    let step = &context.definition.steps[member];
    if matches!(step.action, Action::Wait(_)) {
        return Some(member);
    }
    let has_result = !step.save.is_empty() || !step.ok.is_empty() || step.compensate.is_some();
    if has_result {
        return None;
    }
    let mut earlier = context.order.before[member].iter();
    earlier.find_map(|earlier| {
        let is_in_region = region.contains(earlier);
        is_in_region.then(|| wait_of(context, *earlier, region))?
    })
}

/// OL11: a pivot without successors.
pub(super) fn pivot_without_effect(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    // A pivot only forbids the compensation of what precedes it when a later step fails.
    let last = context
        .steps()
        .filter(|(i, step)| step.pivot && !context.has_followers(*i));
    last.map(|(i, step)| {
        let message = format!(
            "no step follows the pivot `{}`, so it has no effect",
            step.id
        );
        RawDiagnostic::new(format!("steps[{i}]"), message).with_suggestion("remove `pivot`")
    })
    .collect()
}

/// OL12: a compensation of a switch or a wait.
pub(super) fn needless_compensation(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let idle = context
        .steps()
        .filter(|(_, step)| step.compensate.is_some() && step.action.traits().is_idle());
    idle.map(|(i, step)| {
        let kind = step.action.traits().label;
        let message = format!(
            "step `{}` is {kind}, which has no change to compensate",
            step.id
        );
        RawDiagnostic::new(format!("steps[{i}]"), message)
            .with_suggestion("move the `undo` to the step that makes the change")
    })
    .collect()
}
