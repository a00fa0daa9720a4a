//! Role of a node, and the transport of effects between nodes with different roles.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;
use super::violations::Violations;

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
#[serde(deny_unknown_fields)]
pub struct QueueConfig {
    /// Time without a result after which a command is dispatched again.
    #[serde(with = "units::text")]
    pub redispatch_after: Duration,
    /// Maximum concurrent jobs of one effect per worker.
    pub max_in_flight: usize,
    /// Time without a message from the worker after which another worker receives the job.
    #[serde(with = "units::text")]
    pub ack_wait: Duration,
}

impl QueueConfig {
    /// Validates the keys.
    pub(super) fn validate(&self, found: &mut Violations) {
        found.require(
            self.max_in_flight > 0,
            "queue.max_in_flight",
            "must be at least 1",
        );

        let is_long = self.ack_wait >= Duration::from_millis(100);
        found.require(is_long, "queue.ack_wait", "must be at least 100ms");

        let is_positive = !self.redispatch_after.is_zero();
        found.require(
            is_positive,
            "queue.redispatch_after",
            "must be greater than 0s",
        );
    }
}
