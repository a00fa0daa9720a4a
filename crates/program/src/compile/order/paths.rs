//! What follows from the order: what lies before a step, what is certainly over, which ways exclude each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::{Action, Join, Step};

/// By switch, the cases of which one must have been taken.
pub(super) type Ways = BTreeMap<usize, BTreeSet<usize>>;

fn join(step: &Step) -> Join {
    step.after.as_ref().map_or(Join::All, |after| after.join)
}

/// For each step, all from which a way leads to it.
pub(super) fn ancestors(before: &[Vec<usize>], sorted: &[usize]) -> Vec<Vec<bool>> {
    let mut ancestors = vec![vec![false; before.len()]; before.len()];
    for step in sorted {
        let mut mine = vec![false; before.len()];
        for earlier in &before[*step] {
            mine[*earlier] = true;
            add(&mut mine, &ancestors[*earlier]);
        }
        ancestors[*step] = mine;
    }
    ancestors
}

fn add(mine: &mut [bool], theirs: &[bool]) {
    mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine |= theirs);
}

/// For each join that does not need all, the steps all of whose ways lead to it, each after those before it.
pub(super) fn regions(steps: &[Step], before: &[Vec<usize>], sorted: &[usize]) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); steps.len()];
    for (step, earlier) in before.iter().enumerate() {
        for e in earlier {
            next[*e].push(step);
        }
    }
    let region = |at: usize| {
        if join(&steps[at]) == Join::All {
            return Vec::new();
        }
        let mut inside = vec![false; steps.len()];
        inside[at] = true;
        for step in sorted.iter().rev().copied().filter(|step| *step != at) {
            inside[step] = !next[step].is_empty() && next[step].iter().all(|later| inside[*later]);
        }
        sorted.iter().copied().filter(|step| *step != at && inside[*step]).collect()
    };
    (0..steps.len()).map(region).collect()
}

/// For each step, all that are certainly over when it begins: with a join of all, what is before it and what was over then;
/// with a join of some, what has lost at the latest then, and what was over for each of those before it.
pub(super) fn over(
    steps: &[Step],
    before: &[Vec<usize>],
    sorted: &[usize],
    regions: &[Vec<usize>],
) -> Vec<Vec<bool>> {
    let mut over = vec![vec![false; steps.len()]; steps.len()];
    for step in sorted.iter().copied() {
        let with = |earlier: &usize| {
            let mut theirs = over[*earlier].clone();
            theirs[*earlier] = true;
            theirs
        };
        let mut mine = vec![join(&steps[step]) != Join::All && !before[step].is_empty(); steps.len()];
        for theirs in before[step].iter().map(with) {
            match join(&steps[step]) {
                Join::All => add(&mut mine, &theirs),
                Join::AtLeast(_) => mine.iter_mut().zip(&theirs).for_each(|(mine, theirs)| *mine &= theirs),
            }
        }
        for lost in &regions[step] {
            mine[*lost] = true;
        }
        over[step] = mine;
    }
    over
}

/// For each step, the ways of switches on one of which it must lie to begin.
pub(super) fn ways(
    steps: &[Step],
    before: &[Vec<usize>],
    sorted: &[usize],
    named_by: &[Vec<usize>],
) -> Vec<Ways> {
    let mut ways: Vec<Ways> = vec![Ways::new(); steps.len()];
    for step in sorted.iter().copied() {
        // It begins when at least one of those before it was not bypassed.
        let mut mine: Option<Ways> = None;
        for earlier in &before[step] {
            mine = Some(match mine {
                None => ways[*earlier].clone(),
                Some(mine) => either(&mine, &ways[*earlier]),
            });
        }
        let mut mine = mine.unwrap_or_default();
        if let [switch] = named_by[step].as_slice() {
            let cases = cases(steps, *switch, step);
            let known = mine.remove(switch);
            mine.insert(
                *switch,
                known.map_or(cases.clone(), |known| known.intersection(&cases).copied().collect()),
            );
        }
        ways[step] = mine;
    }
    ways
}

fn either(a: &Ways, b: &Ways) -> Ways {
    let both = a.iter().filter_map(|(switch, cases)| Some((*switch, cases | b.get(switch)?)));
    both.collect()
}

fn cases(steps: &[Step], switch: usize, target: usize) -> BTreeSet<usize> {
    let Action::Switch(cases) = &steps[switch].action else { return BTreeSet::new() };
    let named = cases.iter().enumerate().filter(|(_, case)| case.then.contains(&steps[target].id));
    named.map(|(number, _)| number).collect()
}

/// Whether no two steps with these ways can both begin.
pub(super) fn exclude(a: &Ways, b: &Ways) -> bool {
    a.iter().any(|(switch, cases)| b.get(switch).is_some_and(|others| cases.is_disjoint(others)))
}
