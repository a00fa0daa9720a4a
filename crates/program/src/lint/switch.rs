//! Lints of switches.

use super::context::LintContext;
use super::graph::{index, selected_by};
use crate::definition::{Action, SwitchCase};
use crate::diagnostic::RawDiagnostic;

fn switches<'d>(context: &LintContext<'d>) -> impl Iterator<Item = (usize, &'d [SwitchCase])> {
    context.definition.steps.iter().enumerate().filter_map(|(i, step)| match &step.action {
        Action::Switch(cases) => Some((i, cases.as_slice())),
        Action::Command { .. }
        | Action::Effect { .. }
        | Action::Wait(_)
        | Action::Event { .. }
        | Action::Human(_)
        | Action::Saga { .. }
        | Action::Job(_) => None,
    })
}

/// OL05: a switch without a default case.
pub(super) fn missing_default_case(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let open = switches(context).filter(|(_, cases)| cases.iter().all(|case| case.when.is_some()));
    open.map(|(i, _)| {
        let id = &context.definition.steps[i].id;
        let message = format!(
            "switch `{id}` has no default case; it fails with `no_matching_case` if no condition holds"
        );
        RawDiagnostic::new(format!("steps[{i}]"), message)
            .with_suggestion("add a last case `- { then: … }` without `when`")
    })
    .collect()
}

/// OL06: a step that follows only one branch of a switch by its position, while another branch ends.
pub(super) fn follows_one_branch_only(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = &context.definition.steps;
    let mut findings = Vec::new();
    for (i, cases) in switches(context) {
        let branches: Vec<usize> =
            cases.iter().flat_map(|case| &case.then).filter_map(|id| index(steps, id.as_str())).collect();
        for branch in &branches {
            let next = branch + 1;
            let by_position = |step: &crate::definition::Step| {
                step.after.is_none() && selected_by(steps, step.id.as_str()).is_empty()
            };
            let Some(step) = steps.get(next).filter(|step| by_position(step)) else { continue };
            let terminal = branches.iter().find(|other| {
                context.graph.exclude(**other, *branch) && !context.graph.has_followers(**other)
            });
            if let Some(other) = terminal {
                let (branch, other) = (&steps[*branch].id, &steps[*other].id);
                let message = format!(
                    "step `{}` follows only `{branch}`: if `{}` selects `{other}`, it is bypassed",
                    step.id, steps[i].id
                );
                let suggestion =
                    format!("write after: [{branch}, {other}], or after: [{branch}] if that is intended");
                findings
                    .push(RawDiagnostic::new(format!("steps[{next}]"), message).with_suggestion(suggestion));
            }
        }
    }
    findings
}
