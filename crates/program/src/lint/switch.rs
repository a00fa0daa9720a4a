//! Decisions that leave something open.

use super::context::Sight;
use super::graph::{index, named_by};
use crate::definition::{Action, Case};
use crate::diagnostic::Finding;

fn switches<'d>(sight: &Sight<'d>) -> impl Iterator<Item = (usize, &'d [Case])> {
    sight.definition.steps.iter().enumerate().filter_map(|(i, step)| match &step.action {
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

/// OL05: a switch that may find no way.
pub(super) fn no_otherwise(sight: &Sight<'_>) -> Vec<Finding> {
    let open = switches(sight).filter(|(_, cases)| cases.iter().all(|case| case.when.is_some()));
    open.map(|(i, _)| {
        let id = &sight.definition.steps[i].id;
        let message =
            format!("switch `{id}` has no way for what matches no condition; it fails then with `no_case`");
        Finding::new(format!("steps[{i}]"), message).suggest("end it with `- { then: … }` without `when`")
    })
    .collect()
}

/// OL06: a step that follows one way of a switch by its place only, while another way ends.
pub(super) fn one_way_only(sight: &Sight<'_>) -> Vec<Finding> {
    let steps = &sight.definition.steps;
    let mut findings = Vec::new();
    for (i, cases) in switches(sight) {
        let ways: Vec<usize> =
            cases.iter().flat_map(|case| &case.then).filter_map(|id| index(steps, id.as_str())).collect();
        for way in &ways {
            let next = way + 1;
            let by_place = |step: &crate::definition::Step| {
                step.after.is_none() && named_by(steps, step.id.as_str()).is_empty()
            };
            let Some(step) = steps.get(next).filter(|step| by_place(step)) else { continue };
            let ends = ways
                .iter()
                .find(|other| sight.graph.exclude(**other, *way) && !sight.graph.has_followers(**other));
            if let Some(other) = ends {
                let (way, other) = (&steps[*way].id, &steps[*other].id);
                let message = format!(
                    "step `{}` comes after `{way}` only: when `{}` takes `{other}`, it is left out",
                    step.id, steps[i].id
                );
                let suggestion = format!("write after: [{way}, {other}], or after: [{way}] if that is meant");
                findings.push(Finding::new(format!("steps[{next}]"), message).suggest(suggestion));
            }
        }
    }
    findings
}
