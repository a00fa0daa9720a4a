//! Properties of the step order: ancestors, finished steps, and exclusive branches.

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::Name;

use crate::definition::{Join, Step};
use crate::steps::Action;

/// By switch, the cases of which one must be selected; by step with failure handlers, the outcomes
/// of which one must occur.
pub(super) type Branches = BTreeMap<usize, BTreeSet<usize>>;

/// Outcome of a step with failure handlers: it completed, or a handler continues as if it had.
/// Other outcomes are the failures whose handlers select steps.
pub(super) const COMPLETED: usize = 0;

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

    (0..steps.len())
        .map(|at| match join(&steps[at]) {
            Join::All => Vec::new(),
            Join::AtLeast(_) => region(at, &next, sorted),
        })
        .collect()
}

/// Returns the steps whose paths all lead to this step.
fn region(at: usize, next: &[Vec<usize>], sorted: &[usize]) -> Vec<usize> {
    let mut inside = vec![false; next.len()];
    inside[at] = true;

    // In reverse order, the successors of a step are decided before it.
    for step in sorted.iter().rev().copied().filter(|step| *step != at) {
        // A step without successors leads to no join: it is an end of the saga.
        inside[step] = !next[step].is_empty() && next[step].iter().all(|later| inside[*later]);
    }
    sorted
        .iter()
        .copied()
        .filter(|step| *step != at && inside[*step])
        .collect()
}

/// Returns for each step the steps that are certainly finished when it starts.
pub(super) fn finished_before(
    steps: &[Step],
    before: &[Vec<usize>],
    sorted: &[usize],
    regions: &[Vec<usize>],
) -> Vec<Vec<bool>> {
    let mut finished_before = vec![vec![false; steps.len()]; steps.len()];
    for step in sorted.iter().copied() {
        let is_join_of_all = join(&steps[step]) == Join::All;

        // An intersection begins with all steps, a union with none.
        let mut mine = vec![!is_join_of_all && !before[step].is_empty(); steps.len()];
        for earlier in before[step].iter().copied() {
            let mut theirs = finished_before[earlier].clone();
            theirs[earlier] = true;

            match join(&steps[step]) {
                // All predecessors are finished, and what was finished before any of them.
                Join::All => add(&mut mine, &theirs),
                // Only what was finished before every predecessor is certain.
                Join::AtLeast(_) => mine
                    .iter_mut()
                    .zip(&theirs)
                    .for_each(|(mine, theirs)| *mine &= theirs),
            }
        }

        // The branches that the join discards do not continue.
        for lost in &regions[step] {
            mine[*lost] = true;
        }
        finished_before[step] = mine;
    }
    finished_before
}

/// Returns for each step the branches of which one must be selected so that it starts.
pub(super) fn branches(
    steps: &[Step],
    before: &[Vec<usize>],
    sorted: &[usize],
    selected_by: &[Vec<usize>],
    ancestors: &[Vec<bool>],
) -> Vec<Branches> {
    let failures = failures(steps);
    let mut by_step: Vec<Branches> = vec![Branches::new(); steps.len()];
    for step in sorted.iter().copied() {
        let mut members = Vec::with_capacity(before[step].len());
        for earlier in before[step].iter().copied() {
            members.push(branches_after(steps, earlier, step, &by_step[earlier]));
        }

        // The step starts if at least one predecessor was not bypassed.
        let mut mine: Option<Branches> = None;
        for theirs in &members {
            mine = Some(match mine {
                None => theirs.clone(),
                Some(mine) => either(&mine, theirs),
            });
        }

        let mut mine = mine.unwrap_or_default();
        // With one predecessor, its branches are those of the step.
        if join(&steps[step]) == Join::All && members.len() > 1 {
            let join = JoinOfAll {
                step,
                before: &before[step],
                members: &members,
            };
            join.remove_diverted(&failures, ancestors, &mut mine);
        }

        // If several steps select the step, it starts as soon as one of them does.
        if let [switch] = selected_by[step].as_slice() {
            let cases = cases(steps, *switch, step);
            // A predecessor can require cases of the same switch; both conditions must hold.
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

/// Failures of a step by which its handlers select others: the outcome, and the selected steps.
type Failures = Vec<(usize, Vec<usize>)>;

/// Returns the failures of each step.
fn failures(steps: &[Step]) -> Vec<Failures> {
    let index: BTreeMap<&Name, usize> = steps.iter().map(|step| &step.id).zip(0..).collect();
    let of_step = |step: &Step| {
        let handlers = (COMPLETED + 1..).zip(step.failure_handlers());
        let selected = handlers.map(|(outcome, (_, handler))| {
            let ids = handler.steps().iter();
            let selected: Vec<_> = ids.filter_map(|id| index.get(id).copied()).collect();
            (outcome, selected)
        });
        selected
            .filter(|(_, selected)| !selected.is_empty())
            .collect()
    };
    steps.iter().map(of_step).collect()
}

/// Join of all its predecessors.
struct JoinOfAll<'a> {
    step: usize,
    before: &'a [usize],
    /// By predecessor, the branches under which it leads to the join.
    members: &'a [Branches],
}

impl JoinOfAll<'_> {
    /// Removes the outcomes that keep the join from starting: a handler leads away from a
    /// predecessor, and neither to the join nor to another predecessor.
    fn remove_diverted(&self, failures: &[Failures], ancestors: &[Vec<bool>], mine: &mut Branches) {
        for (failed, outcomes) in self.members.iter().flatten() {
            // A predecessor that follows only a failure is a branch which need not be selected.
            if !outcomes.contains(&COMPLETED) {
                continue;
            }
            for (outcome, selected) in &failures[*failed] {
                let is_diverted =
                    !outcomes.contains(outcome) && !self.is_reached(selected, ancestors);
                if is_diverted {
                    let known = mine.entry(*failed).or_insert_with(|| {
                        let outcomes = failures[*failed].iter().map(|(outcome, _)| *outcome);
                        std::iter::once(COMPLETED).chain(outcomes).collect()
                    });
                    known.remove(outcome);
                }
            }
        }
    }

    /// Returns whether these steps contain or lead to the join or a predecessor of it.
    fn is_reached(&self, selected: &[usize], ancestors: &[Vec<bool>]) -> bool {
        let leads_to = |member: usize| {
            selected
                .iter()
                .any(|step| *step == member || ancestors[member][*step])
        };
        selected.contains(&self.step) || self.before.iter().any(|member| leads_to(*member))
    }
}

/// Returns for each step the steps that select it although its predecessors require another branch
/// of them.
pub(super) fn ineffective_selections(
    steps: &[Step],
    selected_by: &[Vec<usize>],
    branches: &[Branches],
) -> Vec<Vec<usize>> {
    let mut ineffective = vec![Vec::new(); steps.len()];
    for (step, selecting) in selected_by.iter().enumerate() {
        for selecting in selecting.iter().copied() {
            let required = branches[step].get(&selecting);
            let cases = cases(steps, selecting, step);
            if required.is_some_and(|required| required.is_disjoint(&cases)) {
                ineffective[step].push(selecting);
            }
        }
    }
    ineffective
}

fn either(a: &Branches, b: &Branches) -> Branches {
    let both = a
        .iter()
        .filter_map(|(switch, cases)| Some((*switch, cases | b.get(switch)?)));
    both.collect()
}

/// Returns the branches under which `target` follows `earlier`, whose own are `before`.
fn branches_after(steps: &[Step], earlier: usize, target: usize, before: &Branches) -> Branches {
    let mut branches = before.clone();
    let handlers = steps[earlier].failure_handlers();
    let selects_steps = handlers
        .into_iter()
        .any(|(_, handler)| !handler.steps().is_empty());

    // If a handler selects other steps, the target follows the completion only.
    if selects_steps && cases(steps, earlier, target).is_empty() {
        branches.insert(earlier, BTreeSet::from([COMPLETED]));
    }
    branches
}

/// Returns the numbers of the cases, or of the outcomes, that select `target`.
fn cases(steps: &[Step], selecting: usize, target: usize) -> BTreeSet<usize> {
    let target = &steps[target].id;
    let first = match steps[selecting].action {
        Action::Switch(_) => 0,
        _ => COMPLETED + 1,
    };

    let selections = steps[selecting].selections().into_iter();
    let numbered = (first..).zip(selections);
    numbered
        .filter(|(_, (_, selected))| selected.contains(target))
        .map(|(number, _)| number)
        .collect()
}

/// Returns true if two steps with these branches can never both start.
pub(super) fn are_exclusive(a: &Branches, b: &Branches) -> bool {
    a.iter().any(|(switch, cases)| {
        b.get(switch)
            .is_some_and(|others| cases.is_disjoint(others))
    })
}
