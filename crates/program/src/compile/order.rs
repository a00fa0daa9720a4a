//! The order of steps: who comes after whom, without circles.

use std::collections::BTreeMap;

use crate::form::{Definition, Step};
use crate::problem::{Finding, did_you_mean};

/// What is known about the order.
pub(super) struct Order {
    /// For each step, those directly before it.
    pub(super) before: Vec<Vec<usize>>,
    /// All steps, each after those before it; among equals in the order of the definition.
    pub(super) sorted: Vec<usize>,
    /// For each step, all that are certainly over when it begins.
    ancestors: Vec<Vec<bool>>,
}

impl Order {
    /// Whether two steps can be under way at the same time.
    pub(super) fn overlap(&self, a: usize, b: usize) -> bool {
        a != b && !self.ancestors[a][b] && !self.ancestors[b][a]
    }
}

/// Finds the order, or says what stands against it.
pub(super) fn of(definition: &Definition, findings: &mut Vec<Finding>) -> Option<Order> {
    let steps = &definition.steps;
    let mut index = BTreeMap::new();
    for (i, step) in steps.iter().enumerate() {
        if let Some(first) = index.insert(step.id.as_str(), i) {
            let message = format!("step `{}` is there already, as steps[{first}]", step.id);
            findings
                .push(Finding::new(format!("steps[{i}].id"), message).suggest("give each step its own id"));
        }
    }
    let found = findings.len();
    let before: Vec<_> = (0..steps.len()).map(|i| before(steps, i, &index, findings)).collect();
    let Some(sorted) = sort(&before) else {
        findings.push(circle(steps, &before));
        return None;
    };
    let ancestors = ancestors(&before, &sorted);
    (found == findings.len()).then_some(Order { before, sorted, ancestors })
}

fn before(
    steps: &[Step],
    i: usize,
    index: &BTreeMap<&str, usize>,
    findings: &mut Vec<Finding>,
) -> Vec<usize> {
    let Some(after) = &steps[i].after else { return i.checked_sub(1).into_iter().collect() };
    let mut before = Vec::new();
    for (n, id) in after.steps.iter().enumerate() {
        if let Some(step) = index.get(id.as_str()) {
            before.push(*step);
        } else {
            let near = did_you_mean(id.as_str(), index.keys().copied());
            let message = format!("there is no step `{id}`");
            findings.push(Finding::new(format!("steps[{i}].after[{n}]"), message).maybe_suggest(near));
        }
    }
    before.sort_unstable();
    before.dedup();
    before
}

/// Kahn's algorithm, lowest index first. `None` when there is a circle.
fn sort(before: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut missing: Vec<_> = before.iter().map(Vec::len).collect();
    let mut next = vec![Vec::new(); before.len()];
    for (step, earlier) in before.iter().enumerate() {
        for e in earlier {
            next[*e].push(step);
        }
    }
    let mut ready: std::collections::BTreeSet<_> = (0..before.len()).filter(|s| missing[*s] == 0).collect();
    let mut sorted = Vec::with_capacity(before.len());
    while let Some(step) = ready.pop_first() {
        sorted.push(step);
        for later in &next[step] {
            missing[*later] -= 1;
            if missing[*later] == 0 {
                ready.insert(*later);
            }
        }
    }
    (sorted.len() == before.len()).then_some(sorted)
}

/// Follows what stands before until a step comes round again.
fn circle(steps: &[Step], before: &[Vec<usize>]) -> Finding {
    let mut stuck: Vec<bool> = vec![true; steps.len()];
    // What has nothing stuck before it is not part of any circle.
    while let Some(free) = (0..steps.len()).find(|s| stuck[*s] && !before[*s].iter().any(|b| stuck[*b])) {
        stuck[free] = false;
    }
    let mut way = Vec::new();
    let mut at = stuck.iter().position(|s| *s).unwrap_or(0);
    while !way.contains(&at) {
        way.push(at);
        at = before[at].iter().copied().find(|b| stuck[*b]).unwrap_or(at);
    }
    let start = way.iter().position(|s| *s == at).unwrap_or(0);
    let mut names: Vec<_> = way[start..].iter().map(|s| format!("`{}`", steps[*s].id)).collect();
    names.push(format!("`{}`", steps[at].id));
    Finding::new(
        format!("steps[{at}].after"),
        format!("the steps wait for each other: {}", names.join(" after ")),
    )
    .suggest("remove one of these from `after`")
}

fn ancestors(before: &[Vec<usize>], sorted: &[usize]) -> Vec<Vec<bool>> {
    let mut ancestors = vec![vec![false; before.len()]; before.len()];
    for step in sorted {
        let mut mine = vec![false; before.len()];
        for earlier in &before[*step] {
            mine[*earlier] = true;
            ancestors[*earlier].iter().zip(&mut mine).for_each(|(theirs, mine)| *mine |= theirs);
        }
        ancestors[*step] = mine;
    }
    ancestors
}
