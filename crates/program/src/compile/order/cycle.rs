//! Sorts steps after those before them, or finds a circle.

use std::collections::BTreeSet;

use crate::definition::Step;
use crate::diagnostic::Finding;

/// Kahn's algorithm, lowest index first. `None` when there is a circle.
pub(super) fn sort(before: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut missing: Vec<_> = before.iter().map(Vec::len).collect();
    let mut next = vec![Vec::new(); before.len()];
    for (step, earlier) in before.iter().enumerate() {
        for e in earlier {
            next[*e].push(step);
        }
    }
    let mut ready: BTreeSet<_> = (0..before.len()).filter(|s| missing[*s] == 0).collect();
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
pub(super) fn describe(steps: &[Step], before: &[Vec<usize>]) -> Finding {
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
