//! Options of claims.

use std::time::Duration;

/// Durations of claims, and the default batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOptions {
    /// Duration of a claim, from the claim request and from each heartbeat.
    pub claim_ttl: Duration,
    /// Recommended interval of heartbeats; less than `claim_ttl`.
    pub heartbeat_interval: Duration,
    /// Maximum number of jobs per claim request if the worker specifies none.
    pub max_batch: usize,
}

impl Default for ClaimOptions {
    fn default() -> Self {
        Self::new(Duration::from_mins(5))
    }
}

impl ClaimOptions {
    /// Creates options with this duration of a claim. The heartbeat interval is two fifths of it: if one
    /// heartbeat is lost, the next one arrives in time.
    #[must_use]
    pub fn new(claim_ttl: Duration) -> Self {
        Self { claim_ttl, heartbeat_interval: claim_ttl * 2 / 5, max_batch: 1 }
    }
}
