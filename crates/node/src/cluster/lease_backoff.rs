//! Backoff of a pod whose lease expires repeatedly.
//!
//! A pod without enough CPU time loses its lease. If it acquires its shards again at once, their
//! start costs the time that the next heartbeats need, so it loses them again, and so on. A pod
//! that has lost one lease continues at once; from the second one on it waits, longer each time. A
//! lease that lasts ends the series.

use std::time::Duration;

use tokio::time::Instant;

/// Longest delay.
const MAX_DELAY: Duration = Duration::from_mins(1);
/// Lifetime of a lease that ends a series, in times to live.
const STABLE_TTLS: u32 = 10;

/// Expiry of a lease, and the delay until the pod acquires shards again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// The pod acquires shards at once.
    Single,
    SecondOfSeries {
        delay: Duration,
    },
    Later {
        delay: Duration,
    },
}

/// Series of expiries that follow each other.
pub(super) struct LeaseBackoff {
    ttl: Duration,
    expiries: u32,
    /// Start of the current lease.
    begun: Option<Instant>,
    /// End of the current delay.
    end: Option<Instant>,
}

impl LeaseBackoff {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            expiries: 0,
            begun: None,
            end: None,
        }
    }

    /// Returns the time at which the pod acquires shards again; `None`: now.
    pub(super) fn end(&self) -> Option<Instant> {
        self.end
    }

    /// Ends the delay.
    pub(super) fn finish(&mut self) {
        self.end = None;
    }

    /// Starts a lease.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun = Some(now);
    }

    /// Ends the series if the current lease is stable. Returns the number of its expiries.
    pub(super) fn settle(&mut self, now: Instant) -> Option<u32> {
        let is_stable = self
            .begun
            .is_some_and(|begun| now.duration_since(begun) >= self.ttl * STABLE_TTLS);
        if !is_stable || self.expiries == 0 {
            return None;
        }

        let expiries = std::mem::take(&mut self.expiries);

        // A single expiry was reported without a series, so that its end needs no report.
        (expiries > 1).then_some(expiries)
    }

    /// Ends a lease.
    pub(super) fn expire(&mut self, now: Instant) -> Expiry {
        self.begun = None;
        self.expiries = self.expiries.saturating_add(1);

        // One expiry is usual after a pause of the machine or of the servers; a delay would only
        // prolong it.
        let Some(repetitions) = self.expiries.checked_sub(2) else {
            return Expiry::Single;
        };

        // A series can exceed the width of the integer; `MAX_DELAY` limits the product anyway.
        let factor = 1_u32.checked_shl(repetitions).unwrap_or(u32::MAX);
        let delay = self.ttl.saturating_mul(factor).min(MAX_DELAY);
        self.end = Some(now + delay);

        if repetitions == 0 {
            Expiry::SecondOfSeries { delay }
        } else {
            Expiry::Later { delay }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    #[test]
    fn delay_doubles_with_each_expiry_up_to_a_minute() {
        let mut backoff = LeaseBackoff::new(TTL);
        let now = Instant::now();
        assert_eq!(backoff.expire(now), Expiry::Single);
        assert_eq!(backoff.end(), None);
        let second = Expiry::SecondOfSeries { delay: TTL };
        assert_eq!(backoff.expire(now), second);
        assert_eq!(backoff.end(), Some(now + TTL));
        for seconds in [6, 12, 24, 48, 60, 60] {
            let delay = Duration::from_secs(seconds);
            assert_eq!(backoff.expire(now), Expiry::Later { delay });
        }
        backoff.expiries = u32::MAX;
        let delay = MAX_DELAY;
        assert_eq!(backoff.expire(now), Expiry::Later { delay });
        backoff.finish();
        assert_eq!(backoff.end(), None);
    }

    #[test]
    fn lease_that_lasts_ends_the_series() {
        let mut backoff = LeaseBackoff::new(TTL);
        let now = Instant::now();
        for _ in 0..3 {
            backoff.begin(now);
            backoff.expire(now + TTL);
        }
        backoff.begin(now);
        assert_eq!(backoff.settle(now + TTL * 9), None);
        assert_eq!(backoff.settle(now + TTL * 10), Some(3));
        assert_eq!(backoff.settle(now + TTL * 11), None);
        assert_eq!(backoff.expire(now + TTL * 12), Expiry::Single);
    }
}
