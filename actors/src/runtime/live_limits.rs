//! Limits that change while shards run. The other limits apply from the start of a shard.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::runtime::limits::Limits;

/// Limits that all shards of a process read when they use them.
#[derive(Debug)]
pub(crate) struct LiveLimits {
    max_live_instances: AtomicUsize,
    idle_timeout_ms: AtomicU64,
    max_state_size: AtomicUsize,
    max_attempts_per_input: AtomicU32,
    max_transition_cost: AtomicU64,
}

impl LiveLimits {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            max_live_instances: limits.max_live_instances.into(),
            idle_timeout_ms: millis(limits.idle_timeout).into(),
            max_state_size: limits.max_state_size.into(),
            max_attempts_per_input: limits.max_attempts_per_input.into(),
            max_transition_cost: limits.max_transition_cost.into(),
        }
    }

    /// Applies the limits of a reload.
    pub(crate) fn replace(&self, limits: &Limits) {
        self.max_live_instances
            .store(limits.max_live_instances, Ordering::Relaxed);
        self.idle_timeout_ms
            .store(millis(limits.idle_timeout), Ordering::Relaxed);
        self.max_state_size
            .store(limits.max_state_size, Ordering::Relaxed);
        self.max_attempts_per_input
            .store(limits.max_attempts_per_input, Ordering::Relaxed);
        self.max_transition_cost
            .store(limits.max_transition_cost, Ordering::Relaxed);
    }

    /// Returns the maximum number of instances with an actor.
    pub(crate) fn max_live_instances(&self) -> usize {
        self.max_live_instances.load(Ordering::Relaxed)
    }

    /// Returns the idle time after which an instance is passivated.
    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms.load(Ordering::Relaxed))
    }

    /// Returns the maximum size of the state of an instance, in bytes.
    pub(crate) fn max_state_size(&self) -> usize {
        self.max_state_size.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of actor crashes per input before it becomes a dead letter.
    pub(crate) fn max_attempts_per_input(&self) -> u32 {
        self.max_attempts_per_input.load(Ordering::Relaxed)
    }

    /// Returns the maximum cost of a decision, in units.
    pub(crate) fn max_transition_cost(&self) -> u64 {
        self.max_transition_cost.load(Ordering::Relaxed)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
