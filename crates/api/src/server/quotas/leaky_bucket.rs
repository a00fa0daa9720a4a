//! Amount that a caller may use per second, with a burst: a bucket that leaks at a constant rate.

use std::time::{Duration, Instant};

/// Limit of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateLimit {
    pub(super) per_second: f64,
    pub(super) burst: f64,
}

/// Bucket with the amount that has not leaked yet. The limit belongs to the caller of the methods,
/// because it is equal for all buckets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeakyBucket {
    level: f64,
    at: Option<Instant>,
}

impl RateLimit {
    /// Returns the time until a level is back at the burst.
    fn time_to_leak(self, level: f64) -> Duration {
        Duration::from_secs_f64((level - self.burst) / self.per_second)
    }
}

impl LeakyBucket {
    /// Adds an amount if the bucket has space for it. Otherwise returns the time until it has.
    pub(super) fn add(
        &mut self,
        amount: f64,
        limit: RateLimit,
        now: Instant,
    ) -> Result<(), Duration> {
        let level = self.level(limit, now) + amount;
        if level > limit.burst {
            return Err(limit.time_to_leak(level));
        }

        self.set(level, now);
        Ok(())
    }

    /// Adds an amount that is already used, also beyond the burst.
    pub(super) fn charge(&mut self, amount: f64, limit: RateLimit, now: Instant) {
        let level = self.level(limit, now) + amount.max(0.0);
        self.set(level, now);
    }

    /// Removes an amount that was added and not used.
    pub(super) fn refund(&mut self, amount: f64, limit: RateLimit, now: Instant) {
        let level = self.level(limit, now) - amount;
        self.set(level.max(0.0), now);
    }

    /// Returns the time until the bucket has space, if it is full.
    pub(super) fn check(&self, limit: RateLimit, now: Instant) -> Result<(), Duration> {
        let level = self.level(limit, now);
        if level < limit.burst {
            Ok(())
        } else {
            Err(limit.time_to_leak(level))
        }
    }

    /// Returns whether everything has leaked.
    pub(super) fn is_empty(&self, limit: RateLimit, now: Instant) -> bool {
        self.level(limit, now) <= 0.0
    }

    fn level(&self, limit: RateLimit, now: Instant) -> f64 {
        // Computed on demand, so that no task has to drain the buckets of all callers.
        let passed = self
            .at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        (self.level - passed.as_secs_f64() * limit.per_second).max(0.0)
    }

    fn set(&mut self, level: f64, now: Instant) {
        self.level = level;
        self.at = Some(now);
    }
}
