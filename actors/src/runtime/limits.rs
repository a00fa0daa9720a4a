//! Limits of the runtime.
//!
//! Mailboxes are unbounded, so sources limit in-flight messages: ingesters, relay windows and
//! providers. The number of live instances is also limited.

use std::time::Duration;

/// Limits of one shard. [`Limits::check`] validates them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of bus messages whose consequences are not durable yet.
    pub max_in_flight_per_ingester: usize,
    /// Maximum number of these messages of one tenant.
    pub max_in_flight_per_tenant: usize,
    /// Maximum number of inputs of one instance that wait in memory; further inputs are spilled.
    pub max_in_flight_per_instance: usize,
    /// Maximum number of work items of one tenant at one upstream that are dispatched and not
    /// completed.
    pub max_in_flight_per_window: usize,
    /// Maximum number of work items, and of timers, that wait in memory for the relay and the
    /// timer. Above it they read the store.
    pub max_fresh_rows: usize,
    /// Maximum number of fired timers whose consequences are not durable yet.
    pub max_firing_timers: usize,
    /// Maximum number of changes in one commit.
    pub max_group_commit: usize,
    /// Maximum number of instances with an actor; beyond this, idle instances are passivated.
    pub max_live_instances: usize,
    /// Idle time after which an instance is passivated.
    pub idle_timeout: Duration,
    /// Maximum size of the state of an instance, in bytes.
    pub max_state_size: usize,
    /// Maximum cost of a transition, in units of its expressions; see [`orlog_program::budget`].
    pub max_transition_cost: u64,
    /// Number of threads for costly transitions of all shards; 0: half of the cores.
    pub transition_threads: usize,
    /// Maximum number of actor crashes per input before it becomes a dead letter.
    pub max_attempts_per_input: u32,
    /// Maximum size of each payload in the history, in bytes; 0: payloads are not recorded.
    pub history_payload_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_in_flight_per_ingester: 8192,
            max_in_flight_per_tenant: 128,
            max_in_flight_per_instance: 32,
            max_in_flight_per_window: 1024,
            max_fresh_rows: 16_384,
            max_firing_timers: 1024,
            max_group_commit: 1024,
            max_live_instances: 50_000,
            idle_timeout: Duration::from_secs(30),
            max_state_size: 1 << 20,
            max_transition_cost: 2_000_000,
            transition_threads: 0,
            max_attempts_per_input: 3,
            history_payload_bytes: 2 << 10,
        }
    }
}

/// Invalid limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// A limit is zero and blocks all progress.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// One limit must not exceed another.
    #[error("{smaller} ({smaller_value}) must not be larger than {larger} ({larger_value})")]
    Order {
        /// Name of the limit that must be smaller.
        smaller: &'static str,
        /// Its value.
        smaller_value: usize,
        /// Name of the limit that must be larger.
        larger: &'static str,
        /// Its value.
        larger_value: usize,
    },
}

impl Limits {
    /// Validates that every limit is positive and that the limits are consistent.
    ///
    /// # Errors
    /// Returns the names and values of the invalid limits.
    pub fn check(&self) -> Result<(), LimitsError> {
        let bounds = [
            (
                "limits.max_in_flight_per_ingester",
                self.max_in_flight_per_ingester,
            ),
            (
                "limits.max_in_flight_per_tenant",
                self.max_in_flight_per_tenant,
            ),
            (
                "limits.max_in_flight_per_instance",
                self.max_in_flight_per_instance,
            ),
            (
                "limits.max_in_flight_per_window",
                self.max_in_flight_per_window,
            ),
            ("max_fresh_rows", self.max_fresh_rows),
            ("max_firing_timers", self.max_firing_timers),
            ("limits.max_group_commit", self.max_group_commit),
            ("limits.max_live_instances", self.max_live_instances),
            ("limits.max_state_size", self.max_state_size),
            (
                "limits.max_transition_cost",
                usize::try_from(self.max_transition_cost).unwrap_or(usize::MAX),
            ),
            (
                "limits.max_attempts_per_input",
                self.max_attempts_per_input as usize,
            ),
        ];

        if let Some((name, _)) = bounds.iter().find(|(_, value)| *value == 0) {
            return Err(LimitsError::Zero(name));
        }

        // An instance with as many messages in flight as its tenant may have would never spill.
        if self.max_in_flight_per_instance > self.max_in_flight_per_tenant {
            return Err(LimitsError::Order {
                smaller: "limits.max_in_flight_per_instance",
                smaller_value: self.max_in_flight_per_instance,
                larger: "limits.max_in_flight_per_tenant",
                larger_value: self.max_in_flight_per_tenant,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_limits_are_consistent() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn reports_contradicting_limits() {
        let limits = Limits {
            max_in_flight_per_instance: 9,
            max_in_flight_per_tenant: 8,
            ..Limits::default()
        };
        let text = limits.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "limits.max_in_flight_per_instance (9) must not be larger than limits.max_in_flight_per_tenant (8)"
        );
        let limits = Limits {
            max_group_commit: 0,
            ..Limits::default()
        };
        assert_eq!(
            limits.check(),
            Err(LimitsError::Zero("limits.max_group_commit"))
        );
    }
}
