//! Amount that a caller may use per second, with a burst: a bucket that leaks at a constant rate.

use std::time::{Duration, Instant};

/// Bucket with the amount that has not leaked yet. The rate (per second) and the burst belong to
/// the caller of the methods, because they are equal for all buckets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeakyBucket {
    level: f64,
    at: Option<Instant>,
}

impl LeakyBucket {
    /// Adds an amount if the bucket has space for it. Otherwise returns the time until it has.
    pub(super) fn add(
        &mut self,
        amount: f64,
        (rate, burst): (f64, f64),
        now: Instant,
    ) -> Result<(), Duration> {
        let level = self.level(rate, now) + amount;
        if level > burst {
            return Err(Duration::from_secs_f64((level - burst) / rate));
        }
        self.set(level, now);
        Ok(())
    }

    /// Adds an amount that is already used, also beyond the burst.
    pub(super) fn charge(&mut self, amount: f64, (rate, _): (f64, f64), now: Instant) {
        let level = self.level(rate, now) + amount.max(0.0);
        self.set(level, now);
    }

    /// Removes an amount that was added and not used.
    pub(super) fn refund(&mut self, amount: f64, (rate, _): (f64, f64), now: Instant) {
        let level = self.level(rate, now) - amount;
        self.set(level.max(0.0), now);
    }

    /// Returns the time until the bucket has space, if it is full.
    pub(super) fn check(&self, (rate, burst): (f64, f64), now: Instant) -> Result<(), Duration> {
        let level = self.level(rate, now);
        if level < burst {
            Ok(())
        } else {
            Err(Duration::from_secs_f64((level - burst) / rate))
        }
    }

    /// Returns whether everything has leaked.
    pub(super) fn is_empty(&self, (rate, _): (f64, f64), now: Instant) -> bool {
        self.level(rate, now) <= 0.0
    }

    fn level(&self, rate: f64, now: Instant) -> f64 {
        let passed = self
            .at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        (self.level - passed.as_secs_f64() * rate).max(0.0)
    }

    fn set(&mut self, level: f64, now: Instant) {
        (self.level, self.at) = (level, Some(now));
    }
}
