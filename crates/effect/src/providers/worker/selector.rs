//! Runner that a job names: by its name, by its labels, or by both.

use std::collections::BTreeMap;

use orlog_model::Effect;
use serde::{Deserialize, Serialize};

/// Selection of runners: the field `runner` of the payload of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct RunnerSelector {
    name: Option<String>,
    labels: BTreeMap<String, String>,
}

impl RunnerSelector {
    /// Returns the selection of a job; `None` if every runner of its type may claim it. Other
    /// effects have none.
    pub(super) fn of(effect: &Effect) -> Option<Self> {
        let stated = effect
            .payload
            .get("runner")
            .filter(|_| effect.name.as_str().starts_with("job."))?;

        let selector = Self::deserialize(stated).ok()?;
        (selector != Self::default()).then_some(selector)
    }

    /// Returns whether a worker has the name and all labels.
    pub(super) fn admits(&self, worker: &str, labels: &BTreeMap<String, String>) -> bool {
        self.name.as_ref().is_none_or(|name| name == worker)
            && self
                .labels
                .iter()
                .all(|(name, value)| labels.get(name) == Some(value))
    }
}
