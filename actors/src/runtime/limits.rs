//! The bounds of the running system, in one place.
//!
//! Mailboxes are unbounded, so the bounds stand at the sources: what an ingester, a relay lane and a provider may have
//! under way, and how many instances may be live.

use std::time::Duration;

/// Bounds of one shard. [`Limits::check`] tells whether they fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages taken from the bus whose consequences are not durable yet.
    pub in_flight_per_ingester: usize,
    /// Inputs that wait for one instance before the ingester stops to read.
    pub in_flight_per_instance: usize,
    /// Work items of one outbox lane that are offered and not done.
    pub offered_per_lane: usize,
    /// Changes in one commit.
    pub group: usize,
    /// Instances with an actor; idle ones are passivated beyond this.
    pub live_instances: usize,
    /// An instance without work for this long is passivated.
    pub idle: Duration,
    /// How often an input may kill its actor before it becomes a dead letter.
    pub attempts_per_input: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight_per_ingester: 8192,
            in_flight_per_instance: 256,
            offered_per_lane: 4096,
            group: 1024,
            live_instances: 50_000,
            idle: Duration::from_secs(30),
            attempts_per_input: 3,
        }
    }
}

/// Bounds that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// A bound is zero, so nothing could ever happen.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// One bound must not be larger than another.
    #[error("{smaller} ({smaller_value}) must not be larger than {larger} ({larger_value})")]
    Order {
        /// The bound that must be smaller.
        smaller: &'static str,
        /// Its value.
        smaller_value: usize,
        /// The bound that must be larger.
        larger: &'static str,
        /// Its value.
        larger_value: usize,
    },
}

impl Limits {
    /// Checks that every bound lets something through and that they fit together.
    ///
    /// # Errors
    /// Names the bound, or the pair, and the values.
    pub fn check(&self) -> Result<(), LimitsError> {
        let bounds = [
            ("limits.in_flight_per_ingester", self.in_flight_per_ingester),
            ("limits.in_flight_per_instance", self.in_flight_per_instance),
            ("limits.offered_per_lane", self.offered_per_lane),
            ("limits.group", self.group),
            ("limits.live_instances", self.live_instances),
            ("limits.attempts_per_input", self.attempts_per_input as usize),
        ];
        if let Some((name, _)) = bounds.iter().find(|(_, value)| *value == 0) {
            return Err(LimitsError::Zero(name));
        }
        if self.in_flight_per_instance > self.in_flight_per_ingester {
            return Err(LimitsError::Order {
                smaller: "limits.in_flight_per_instance",
                smaller_value: self.in_flight_per_instance,
                larger: "limits.in_flight_per_ingester",
                larger_value: self.in_flight_per_ingester,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn names_the_bounds_that_contradict_each_other() {
        let limits = Limits { in_flight_per_instance: 9, in_flight_per_ingester: 8, ..Limits::default() };
        let text = limits.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "limits.in_flight_per_instance (9) must not be larger than limits.in_flight_per_ingester (8)"
        );
        let limits = Limits { group: 0, ..Limits::default() };
        assert_eq!(limits.check(), Err(LimitsError::Zero("limits.group")));
    }
}
