//! The order of the steps, and which of them exclude each other, as far as the lints need it.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::{Action, Definition, Step};

/// Who comes before whom.
pub(super) struct Graph {
    /// For each step, those directly before it.
    pub(super) before: Vec<Vec<usize>>,
    /// For each step, all that are before it.
    ancestors: Vec<BTreeSet<usize>>,
    /// For each step, by switch the ways on which it is taken; a switch that does not decide about it is not there.
    ways: Vec<BTreeMap<usize, BTreeSet<usize>>>,
}

impl Graph {
    pub(super) fn of(definition: &Definition) -> Self {
        let steps = &definition.steps;
        let before: Vec<_> = (0..steps.len()).map(|i| before(steps, i)).collect();
        let sorted = sort(&before);
        let mut ancestors = vec![BTreeSet::new(); steps.len()];
        let mut ways = vec![BTreeMap::new(); steps.len()];
        for i in sorted {
            ancestors[i] = before[i].iter().flat_map(|b| ancestors[*b].iter().chain([b])).copied().collect();
            ways[i] = ways_of(steps, i, &before[i], &ways);
        }
        Self { before, ancestors, ways }
    }

    /// Whether `first` is over before `second` begins.
    pub(super) fn precedes(&self, first: usize, second: usize) -> bool {
        self.ancestors[second].contains(&first)
    }

    /// Whether both may be under way at the same time.
    pub(super) fn overlap(&self, a: usize, b: usize) -> bool {
        a != b && !self.precedes(a, b) && !self.precedes(b, a) && !self.exclude(a, b)
    }

    /// Whether a switch takes one or the other.
    pub(super) fn exclude(&self, a: usize, b: usize) -> bool {
        let apart = |switch: &usize, ways: &BTreeSet<usize>| {
            self.ways[b].get(switch).is_some_and(|others| others.is_disjoint(ways))
        };
        self.ways[a].iter().any(|(switch, ways)| apart(switch, ways))
    }

    pub(super) fn has_followers(&self, step: usize) -> bool {
        self.before.iter().any(|before| before.contains(&step))
    }
}

/// The place of a step.
pub(super) fn index(steps: &[Step], id: &str) -> Option<usize> {
    steps.iter().position(|step| step.id.as_str() == id)
}

/// The switches that name a step, with the ways that do.
pub(super) fn named_by(steps: &[Step], id: &str) -> Vec<(usize, BTreeSet<usize>)> {
    let switches = steps.iter().enumerate().filter_map(|(i, step)| match &step.action {
        Action::Switch(cases) => {
            let cases = cases.iter().enumerate();
            let ways =
                cases.filter(|(_, case)| case.then.iter().any(|then| then.as_str() == id)).map(|(n, _)| n);
            Some((i, ways.collect::<BTreeSet<_>>()))
        }
        Action::Command { .. }
        | Action::Effect { .. }
        | Action::Wait(_)
        | Action::Event { .. }
        | Action::Human(_)
        | Action::Saga { .. }
        | Action::Job(_) => None,
    });
    switches.filter(|(_, ways)| !ways.is_empty()).collect()
}

fn before(steps: &[Step], i: usize) -> Vec<usize> {
    let step = &steps[i];
    let switches = named_by(steps, step.id.as_str());
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

/// Each step after those before it; what waits for itself is left out.
fn sort(before: &[Vec<usize>]) -> Vec<usize> {
    let mut sorted = Vec::with_capacity(before.len());
    let mut placed = vec![false; before.len()];
    while let Some(next) = (0..before.len()).find(|i| !placed[*i] && before[*i].iter().all(|b| placed[*b])) {
        placed[next] = true;
        sorted.push(next);
    }
    sorted
}

/// A step is taken on the ways that name it, else wherever one of those before it is taken.
fn ways_of(
    steps: &[Step],
    i: usize,
    before: &[usize],
    ways: &[BTreeMap<usize, BTreeSet<usize>>],
) -> BTreeMap<usize, BTreeSet<usize>> {
    let mut mine: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    if let Some((first, rest)) = before.split_first() {
        mine.clone_from(&ways[*first]);
        mine.retain(|switch, _| rest.iter().all(|b| ways[*b].contains_key(switch)));
        for (switch, taken) in &mut mine {
            taken.extend(rest.iter().flat_map(|b| &ways[*b][switch]));
        }
    }
    mine.extend(named_by(steps, steps[i].id.as_str()));
    mine
}
