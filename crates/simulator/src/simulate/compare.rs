//! Comparison of two simulations of the same events: instances with a different end or different
//! work.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::report::SimulationReport;

/// Differences between two simulations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SimulationDiff {
    /// Number of equal instances.
    pub same: usize,
    /// Number of instances by changed status: `completed → failed`.
    pub status_changed: BTreeMap<String, usize>,
    /// Number of instances with the same status and different work.
    pub work_differs: usize,
    /// Number of instances that started only with the first definitions.
    pub only_before: usize,
    /// Number of instances that started only with the second definitions.
    pub only_after: usize,
    /// First different instances.
    pub examples: Vec<InstanceDiff>,
}

/// Different instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceDiff {
    /// Saga name.
    pub saga: String,
    /// Correlation id.
    pub correlation: String,
    /// Status and requested work; `None` if the instance did not start.
    pub before: Option<(String, Vec<String>)>,
    /// The same with the other definitions.
    pub after: Option<(String, Vec<String>)>,
}

/// Compares two reports that recorded the requested work.
#[must_use]
pub fn compare(
    before: &SimulationReport,
    after: &SimulationReport,
    max_examples: usize,
) -> SimulationDiff {
    let mut found = SimulationDiff::default();
    let keys: BTreeSet<_> = before.runs.keys().chain(after.runs.keys()).collect();
    for key in keys {
        let old = before.runs.get(key);
        let new = after.runs.get(key);
        match (old, new) {
            (Some(old), Some(new)) if old == new => {
                found.same += 1;
                continue;
            }
            // The status comes before the work, which mostly differs because the instance ended
            // otherwise.
            (Some(old), Some(new)) if old.0 != new.0 => {
                *found
                    .status_changed
                    .entry(format!("{} → {}", old.0, new.0))
                    .or_default() += 1;
            }
            (Some(_), Some(_)) => found.work_differs += 1,
            (Some(_), None) => found.only_before += 1,
            (None, _) => found.only_after += 1,
        }

        if found.examples.len() < max_examples {
            found.examples.push(InstanceDiff {
                saga: key.saga.to_string(),
                correlation: key.correlation.to_string(),
                before: old.cloned(),
                after: new.cloned(),
            });
        }
    }
    found
}
