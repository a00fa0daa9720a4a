//! Topological sort of steps, and detection of cycles.

use std::collections::BTreeSet;

use crate::definition::Step;
use crate::diagnostic::RawDiagnostic;

/// Sorts with Kahn's algorithm, lowest index first. Returns `None` if there is a cycle.
pub(super) fn sort(before: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut missing: Vec<_> = before.iter().map(Vec::len).collect();
    let mut next = vec![Vec::new(); before.len()];
    for (step, earlier) in before.iter().enumerate() {
        for e in earlier {
            next[*e].push(step);
        }
    }

    // Ties follow the text, so every process starts the steps of an instance in the same order.
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

/// Describes a cycle: follows predecessors until a step repeats.
pub(super) fn describe_cycle(steps: &[Step], before: &[Vec<usize>]) -> RawDiagnostic {
    let mut stuck: Vec<bool> = vec![true; steps.len()];

    // A step without blocked predecessors is not part of a cycle.
    while let Some(free) =
        (0..steps.len()).find(|s| stuck[*s] && !before[*s].iter().any(|b| stuck[*b]))
    {
        stuck[free] = false;
    }

    let mut path = Vec::new();
    let mut at = stuck.iter().position(|s| *s).unwrap_or(0);
    while !path.contains(&at) {
        path.push(at);
        at = before[at].iter().copied().find(|b| stuck[*b]).unwrap_or(at);
    }

    let start = path.iter().position(|s| *s == at).unwrap_or(0);
    let mut names: Vec<_> = path[start..]
        .iter()
        .map(|s| format!("`{}`", steps[*s].id))
        .collect();
    names.push(format!("`{}`", steps[at].id));
    RawDiagnostic::new(
        format!("steps[{at}].after"),
        format!("the steps form a cycle: {}", names.join(" after ")),
    )
    .with_suggestion("remove one of them from `after`")
}
