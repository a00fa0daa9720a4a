//! Step graph of the lints: the order of the steps and their exclusive branches.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::{Action, Definition, Step};

/// Order of the steps.
pub(super) struct StepGraph {
    /// For each step, its direct predecessors.
    pub(super) before: Vec<Vec<usize>>,
    /// For each step, all its predecessors.
    ancestors: Vec<BTreeSet<usize>>,
    /// For each step, by switch, the branches that execute it; omits switches that do not affect it.
    branches: Vec<BTreeMap<usize, BTreeSet<usize>>>,
}

impl StepGraph {
    pub(super) fn of(definition: &Definition) -> Self {
        let steps = &definition.steps;
        let before: Vec<_> = (0..steps.len()).map(|i| before(steps, i)).collect();
        let sorted = sort(&before);
        let mut ancestors = vec![BTreeSet::new(); steps.len()];
        let mut branches = vec![BTreeMap::new(); steps.len()];
        for i in sorted {
            ancestors[i] = before[i].iter().flat_map(|b| ancestors[*b].iter().chain([b])).copied().collect();
            branches[i] = branches_of(steps, i, &before[i], &branches);
        }
        Self { before, ancestors, branches }
    }

    /// Returns true if `first` is finished before `second` starts.
    pub(super) fn precedes(&self, first: usize, second: usize) -> bool {
        self.ancestors[second].contains(&first)
    }

    /// Returns true if both steps can be in progress at the same time.
    pub(super) fn overlap(&self, a: usize, b: usize) -> bool {
        a != b && !self.precedes(a, b) && !self.precedes(b, a) && !self.exclude(a, b)
    }

    /// Returns true if a switch selects one step or the other, never both.
    pub(super) fn exclude(&self, a: usize, b: usize) -> bool {
        let apart = |switch: &usize, branches: &BTreeSet<usize>| {
            self.branches[b].get(switch).is_some_and(|others| others.is_disjoint(branches))
        };
        self.branches[a].iter().any(|(switch, branches)| apart(switch, branches))
    }

    pub(super) fn has_followers(&self, step: usize) -> bool {
        self.before.iter().any(|before| before.contains(&step))
    }
}

/// Returns the index of a step.
pub(super) fn index(steps: &[Step], id: &str) -> Option<usize> {
    steps.iter().position(|step| step.id.as_str() == id)
}

/// Returns the switches that select a step, with the selecting branches.
pub(super) fn selected_by(steps: &[Step], id: &str) -> Vec<(usize, BTreeSet<usize>)> {
    let switches = steps.iter().enumerate().filter_map(|(i, step)| match &step.action {
        Action::Switch(cases) => {
            let cases = cases.iter().enumerate();
            let branches =
                cases.filter(|(_, case)| case.then.iter().any(|then| then.as_str() == id)).map(|(n, _)| n);
            Some((i, branches.collect::<BTreeSet<_>>()))
        }
        Action::Command { .. }
        | Action::Effect { .. }
        | Action::Wait(_)
        | Action::Event { .. }
        | Action::Human(_)
        | Action::Saga { .. }
        | Action::Job(_) => None,
    });
    switches.filter(|(_, branches)| !branches.is_empty()).collect()
}

fn before(steps: &[Step], i: usize) -> Vec<usize> {
    let step = &steps[i];
    let switches = selected_by(steps, step.id.as_str());
    let mut before: Vec<_> = match &step.after {
        Some(after) => after.steps.iter().filter_map(|id| index(steps, id.as_str())).collect(),
        None if switches.is_empty() => i.checked_sub(1).into_iter().collect(),
        None => switches.into_iter().map(|(switch, _)| switch).collect(),
    };
    if let Action::Job(job) = &step.action {
        let others = job.prerequisites.iter().chain(&job.dependencies);
        before.extend(others.filter_map(|id| index(steps, id.as_str())));
    }
    before.sort_unstable();
    before.dedup();
    before
}

/// Sorts the steps topologically; omits steps in a cycle.
fn sort(before: &[Vec<usize>]) -> Vec<usize> {
    let mut sorted = Vec::with_capacity(before.len());
    let mut placed = vec![false; before.len()];
    while let Some(next) = (0..before.len()).find(|i| !placed[*i] && before[*i].iter().all(|b| placed[*b])) {
        placed[next] = true;
        sorted.push(next);
    }
    sorted
}

/// Returns the branches that execute a step: those that select it, else those of its predecessors.
fn branches_of(
    steps: &[Step],
    i: usize,
    before: &[usize],
    branches: &[BTreeMap<usize, BTreeSet<usize>>],
) -> BTreeMap<usize, BTreeSet<usize>> {
    let mut mine: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    if let Some((first, rest)) = before.split_first() {
        mine.clone_from(&branches[*first]);
        mine.retain(|switch, _| rest.iter().all(|b| branches[*b].contains_key(switch)));
        for (switch, selected) in &mut mine {
            selected.extend(rest.iter().flat_map(|b| &branches[*b][switch]));
        }
    }
    mine.extend(selected_by(steps, steps[i].id.as_str()));
    mine
}
