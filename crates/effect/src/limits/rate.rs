//! Rate limiter of attempts: admits now or returns the earliest time.
//!
//! The generic cell rate algorithm (ITU-T I.371), a pure function with time as an argument. The
//! `governor` crate implements the same, but has its own clock; tests require control of the clock.

use std::num::NonZeroU32;
use std::time::Duration;

use orlog_model::SteadyTime;
use serde::{Deserialize, Serialize};

/// Rate limit: a count per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Number of attempts.
    pub count: NonZeroU32,
    /// Period of the count; at least a microsecond per attempt. Default: one second.
    #[serde(default = "second", with = "crate::duration")]
    pub per: Duration,
    /// Maximum burst after an idle period. Default: 1.
    #[serde(default = "one")]
    pub burst: NonZeroU32,
}

fn second() -> Duration {
    Duration::from_secs(1)
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// Rate limiter; its state is the time at which it is idle again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimiter {
    interval: i128,
    tolerance: i128,
    idle_at: i128,
}

const NANOS: i128 = 1_000_000;

impl RateLimiter {
    pub(crate) fn new(rate: RateLimit) -> Self {
        let per = i128::try_from(rate.per.as_nanos()).unwrap_or(i128::MAX / 2);
        // A count above one attempt a microsecond would make the interval 0, and the limit without
        // effect.
        let interval = (per / i128::from(rate.count.get())).max(1_000);

        Self {
            interval,
            tolerance: interval * i128::from(rate.burst.get() - 1),
            idle_at: i128::MIN,
        }
    }

    /// Admits one attempt at `now`.
    ///
    /// # Errors
    /// The earliest time at which an attempt is admitted.
    pub(crate) fn admit(&mut self, now: SteadyTime) -> Result<(), SteadyTime> {
        let at = i128::from(now.as_millis()) * NANOS;
        // Unused time is not saved beyond the burst.
        let idle_at = self.idle_at.max(at);
        let earliest = idle_at - self.tolerance;

        if earliest > at {
            // Rounded up: a caller that returns a moment too early would wait again.
            let millis = (earliest + NANOS - 1).div_euclid(NANOS);
            return Err(SteadyTime::from_millis(
                i64::try_from(millis).unwrap_or(i64::MAX),
            ));
        }

        self.idle_at = idle_at + self.interval;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(count: u32, per: Duration, burst: u32) -> RateLimit {
        RateLimit {
            count: NonZeroU32::new(count).unwrap(),
            per,
            burst: NonZeroU32::new(burst).unwrap(),
        }
    }

    #[test]
    fn burst_is_admitted_then_one_per_interval() {
        let mut meter = RateLimiter::new(rate(10, Duration::from_secs(1), 3));
        let start = SteadyTime::from_millis(5_000);
        assert_eq!([(); 3].map(|()| meter.admit(start)), [Ok(()); 3]);
        let next = start.saturating_add(Duration::from_millis(100));
        assert_eq!(meter.admit(start), Err(next));
        assert_eq!(
            (meter.admit(next), meter.admit(next).is_err()),
            (Ok(()), true)
        );
    }

    proptest! {
        #[test]
        fn rate_and_burst_are_never_exceeded_and_no_request_starves(
            count in 1u32..5_000, per in 1u64..100_000, burst in 1u32..50, steps in prop::collection::vec(0u64..50, 1..300),
        ) {
            let mut meter = RateLimiter::new(rate(count, Duration::from_millis(per), burst));
            let start = SteadyTime::from_millis(1_000_000);
            let (mut now, mut admitted) = (start, 0u64);
            for step in steps {
                now = now.saturating_add(Duration::from_millis(step));
                match meter.admit(now) {
                    Ok(()) => admitted += 1,
                    Err(until) => {
                        prop_assert!(until > now);
                        prop_assert_eq!(meter.clone().admit(until), Ok(()));
                    }
                }
            }
            let passed = u64::try_from(now.duration_since(start).as_millis()).unwrap();
            // The minimum interval is a microsecond.
            let fastest = (u64::from(count) * passed).div_ceil(per).min(passed * 1_000);
            prop_assert!(admitted <= u64::from(burst) + fastest + 1, "{admitted}");
        }
    }
}
