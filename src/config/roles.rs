//! Role of a node, and the transport of effects between nodes with different roles.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// Role of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs sagas and executes their effects.
    #[default]
    Combined,
    /// Runs sagas; other nodes execute their effects.
    Saga,
    /// Executes effects of other nodes.
    Effect,
}

impl Role {
    /// Returns the role names in `/info`.
    #[must_use]
    pub fn parts(self) -> Vec<&'static str> {
        match self {
            Role::Combined => vec!["saga", "effect"],
            Role::Saga => vec!["saga"],
            Role::Effect => vec!["effect"],
        }
    }

    /// Returns the name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Combined => "combined",
            Role::Saga => "saga",
            Role::Effect => "effect",
        }
    }

    /// Returns whether the node runs sagas, and therefore has stores.
    #[must_use]
    pub fn runs_sagas(self) -> bool {
        self != Role::Effect
    }
}

/// Configuration of `[queue]`: effects between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// Time without a result after which a command is dispatched again.
    #[serde(with = "units::duration")]
    pub redispatch_after: Duration,
    /// Maximum concurrent jobs of one effect per worker.
    pub max_in_flight: usize,
    /// Time without a message from the worker after which another worker receives the job.
    #[serde(with = "units::duration")]
    pub ack_wait: Duration,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            redispatch_after: Duration::from_mins(1),
            max_in_flight: 256,
            ack_wait: Duration::from_secs(30),
        }
    }
}

impl QueueConfig {
    /// Validates the keys. Returns the invalid key and the reason.
    pub(super) fn validate(&self) -> Option<(&'static str, String)> {
        if self.max_in_flight == 0 {
            return Some(("queue.max_in_flight", "must be at least 1".to_owned()));
        }
        if self.ack_wait < Duration::from_millis(100) {
            return Some(("queue.ack_wait", "must be at least 100ms".to_owned()));
        }
        self.redispatch_after
            .is_zero()
            .then(|| ("queue.redispatch_after", "must be greater than 0s".to_owned()))
    }
}
