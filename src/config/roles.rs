//! What a node does, and how effects travel between nodes that do different things.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// What a node does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs sagas and performs their effects.
    #[default]
    Combined,
    /// Runs sagas; their effects are performed elsewhere.
    Saga,
    /// Performs effects that others ask for.
    Effect,
}

impl Role {
    /// The parts that `/info` names.
    #[must_use]
    pub fn parts(self) -> Vec<&'static str> {
        match self {
            Role::Combined => vec!["saga", "effect"],
            Role::Saga => vec!["saga"],
            Role::Effect => vec!["effect"],
        }
    }

    /// The word people write.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Combined => "combined",
            Role::Saga => "saga",
            Role::Effect => "effect",
        }
    }

    /// Whether it runs sagas, and so has stores.
    #[must_use]
    pub fn runs_sagas(self) -> bool {
        self != Role::Effect
    }
}

/// `[queue]`: effects between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// After this a command of which nothing was heard is looked for.
    #[serde(with = "units::duration")]
    pub patience: Duration,
    /// Jobs of one effect that a worker has at once.
    pub in_flight: usize,
    /// A job of whose worker nothing is heard for this long is given to another.
    #[serde(with = "units::duration")]
    pub ack_wait: Duration,
}

impl Default for Queue {
    fn default() -> Self {
        Self { patience: Duration::from_mins(1), in_flight: 256, ack_wait: Duration::from_secs(30) }
    }
}

impl Queue {
    /// What is wrong with it: the key, and why.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        if self.in_flight == 0 {
            return Some(("queue.in_flight", "must be at least 1".to_owned()));
        }
        if self.ack_wait < Duration::from_millis(100) {
            return Some(("queue.ack_wait", "must be at least 100ms".to_owned()));
        }
        self.patience.is_zero().then(|| ("queue.patience", "must be greater than 0s".to_owned()))
    }
}
