//! Two simulations of the same events side by side: which instances end otherwise, or ask for other things.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::report::Report;

/// What is different.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Differences {
    /// Instances that are the same in both.
    pub same: usize,
    /// How many stand elsewhere: `completed → failed`.
    pub status_changed: BTreeMap<String, usize>,
    /// How many stand where they did, but asked for other things.
    pub work_differs: usize,
    /// How many began only with the first definitions.
    pub only_before: usize,
    /// How many began only with the second.
    pub only_after: usize,
    /// The first of them.
    pub examples: Vec<Example>,
}

/// An instance that is different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// Which saga.
    pub saga: String,
    /// Which instance.
    pub correlation: String,
    /// Where it stood, and what it asked for; nothing where it did not begin.
    pub before: Option<(String, Vec<String>)>,
    /// The same with the other definitions.
    pub after: Option<(String, Vec<String>)>,
}

/// Compares two reports that remember what instances asked for.
#[must_use]
pub fn compare(before: &Report, after: &Report, most_examples: usize) -> Differences {
    let mut found = Differences::default();
    let keys: BTreeSet<_> = before.lives.keys().chain(after.lives.keys()).collect();
    for key in keys {
        let (old, new) = (before.lives.get(key), after.lives.get(key));
        match (old, new) {
            (Some(old), Some(new)) if old == new => {
                found.same += 1;
                continue;
            }
            (Some(old), Some(new)) if old.0 != new.0 => {
                *found.status_changed.entry(format!("{} → {}", old.0, new.0)).or_default() += 1;
            }
            (Some(_), Some(_)) => found.work_differs += 1,
            (Some(_), None) => found.only_before += 1,
            (None, _) => found.only_after += 1,
        }
        if found.examples.len() < most_examples {
            found.examples.push(Example {
                saga: key.saga.to_string(),
                correlation: key.correlation.to_string(),
                before: old.cloned(),
                after: new.cloned(),
            });
        }
    }
    found
}
