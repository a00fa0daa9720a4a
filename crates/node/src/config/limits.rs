//! Configuration section `[limits]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// Configuration of `[limits]`: limits of one shard, and of the definitions of one context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    /// Maximum consumed messages whose transitions are not durable yet.
    pub max_in_flight_per_ingester: usize,
    /// Maximum number of these messages of one tenant.
    pub max_in_flight_per_tenant: usize,
    /// Maximum inputs of one instance that wait in memory; further inputs are spilled.
    pub max_in_flight_per_instance: usize,
    /// Maximum dispatched and uncompleted work items of one destination.
    pub max_in_flight_per_window: usize,
    /// Maximum transitions in one commit.
    pub max_group_commit: usize,
    /// Maximum number of instances in memory.
    pub max_live_instances: usize,
    /// Idle time after which an instance is passivated.
    #[serde(with = "units::text")]
    pub idle_timeout: Duration,
    /// Maximum size of the state of an instance.
    #[serde(with = "units::text")]
    pub max_state_size: u64,
    /// Maximum cost of a transition, in units of its expressions.
    pub max_transition_cost: u64,
    /// Number of threads for costly transitions; 0: half of the cores.
    pub transition_threads: usize,
    /// Maximum attempts to apply an input that crashes its instance.
    pub max_attempts_per_input: u32,
    /// Maximum number of definitions of a context, including retired ones with instances.
    pub max_context_definitions: usize,
    /// Maximum size of the active definitions of a context together.
    #[serde(with = "units::text")]
    pub max_context_source_size: u64,
    /// Maximum restarts within the period before the process stops.
    pub max_restarts: usize,
    /// Period of the restart limit.
    #[serde(with = "units::text")]
    pub restart_period: Duration,
}

impl LimitsConfig {
    /// Returns these limits with those of another configuration that a reload applies.
    #[must_use]
    pub(crate) fn reloaded(&self, next: &Self) -> Self {
        Self {
            max_live_instances: next.max_live_instances,
            idle_timeout: next.idle_timeout,
            max_state_size: next.max_state_size,
            max_attempts_per_input: next.max_attempts_per_input,
            max_transition_cost: next.max_transition_cost,
            max_context_definitions: next.max_context_definitions,
            max_context_source_size: next.max_context_source_size,
            ..self.clone()
        }
    }
}
