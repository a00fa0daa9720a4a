//! Properties of the step order: ancestors, finished steps, and exclusive branches.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::{Join, Step};

/// By switch, the cases of which one must be selected.
pub(super) type Branches = BTreeMap<usize, BTreeSet<usize>>;

fn join(step: &Step) -> Join {
    step.after.as_ref().map_or(Join::All, |after| after.join)
}

/// Returns for each step all steps from which a path leads to it.
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
    mine.iter_mut()
        .zip(theirs)
        .for_each(|(mine, theirs)| *mine |= theirs);
}

/// Returns for each join that does not require all predecessors the steps whose paths all lead to
/// it, in topological order.
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
        sorted
            .iter()
            .copied()
            .filter(|step| *step != at && inside[*step])
            .collect()
    };
    (0..steps.len()).map(region).collect()
}

/// Returns for each step the steps that are certainly finished when it starts. A join of all steps
/// adds its predecessors and their finished steps. Another join adds the branches that are
/// discarded by then and the steps finished before every predecessor.
pub(super) fn finished_before(
    steps: &[Step],
    before: &[Vec<usize>],
    sorted: &[usize],
    regions: &[Vec<usize>],
) -> Vec<Vec<bool>> {
    let mut finished_before = vec![vec![false; steps.len()]; steps.len()];
    for step in sorted.iter().copied() {
        let with = |earlier: &usize| {
            let mut theirs = finished_before[*earlier].clone();
            theirs[*earlier] = true;
            theirs
        };
        let mut mine =
            vec![join(&steps[step]) != Join::All && !before[step].is_empty(); steps.len()];
        for theirs in before[step].iter().map(with) {
            match join(&steps[step]) {
                Join::All => add(&mut mine, &theirs),
                Join::AtLeast(_) => mine
                    .iter_mut()
                    .zip(&theirs)
                    .for_each(|(mine, theirs)| *mine &= theirs),
            }
        }
        for lost in &regions[step] {
            mine[*lost] = true;
        }
        finished_before[step] = mine;
    }
    finished_before
}

/// Returns for each step the switch branches of which one must be selected so that it starts.
pub(super) fn branches(
    steps: &[Step],
    before: &[Vec<usize>],
    sorted: &[usize],
    selected_by: &[Vec<usize>],
) -> Vec<Branches> {
    let mut by_step: Vec<Branches> = vec![Branches::new(); steps.len()];
    for step in sorted.iter().copied() {
        // The step starts if at least one predecessor was not bypassed.
        let mut mine: Option<Branches> = None;
        for earlier in &before[step] {
            mine = Some(match mine {
                None => by_step[*earlier].clone(),
                Some(mine) => either(&mine, &by_step[*earlier]),
            });
        }
        let mut mine = mine.unwrap_or_default();
        if let [switch] = selected_by[step].as_slice() {
            let cases = cases(steps, *switch, step);
            let known = mine.remove(switch);
            mine.insert(
                *switch,
                known.map_or(cases.clone(), |known| {
                    known.intersection(&cases).copied().collect()
                }),
            );
        }
        by_step[step] = mine;
    }
    by_step
}

fn either(a: &Branches, b: &Branches) -> Branches {
    let both = a
        .iter()
        .filter_map(|(switch, cases)| Some((*switch, cases | b.get(switch)?)));
    both.collect()
}

fn cases(steps: &[Step], switch: usize, target: usize) -> BTreeSet<usize> {
    let named = steps[switch]
        .action
        .cases()
        .iter()
        .enumerate()
        .filter(|(_, case)| case.then.contains(&steps[target].id));
    named.map(|(number, _)| number).collect()
}

/// Returns true if two steps with these branches can never both start.
pub(super) fn are_exclusive(a: &Branches, b: &Branches) -> bool {
    a.iter().any(|(switch, cases)| {
        b.get(switch)
            .is_some_and(|others| cases.is_disjoint(others))
    })
}
