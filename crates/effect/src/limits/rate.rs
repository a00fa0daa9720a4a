//! How many attempts may begin in a time: a meter that says now or when.
//!
//! The generic cell rate algorithm (ITU-T I.371), a plain decision with time as an argument. The `governor` crate decides
//! the same, but brings its own clock, and ours must be one that tests own.

use std::num::NonZeroU32;
use std::time::Duration;

use orlog_model::Timestamp;

/// So many in such a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: NonZeroU32,
    /// In which time; at least a microsecond for each.
    pub per: Duration,
    /// How many may begin at once after a rest.
    pub burst: NonZeroU32,
}

/// What has begun so far, as the time at which the meter will be at rest.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    interval: i128,
    tolerance: i128,
    at_rest: i128,
}

const NANOS: i128 = 1_000_000;

impl Meter {
    /// At rest.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        let per = i128::try_from(rate.per.as_nanos()).unwrap_or(i128::MAX / 2);
        let interval = (per / i128::from(rate.count.get())).max(1_000);
        Self { interval, tolerance: interval * i128::from(rate.burst.get() - 1), at_rest: i128::MIN }
    }

    /// Admits one at `now`.
    ///
    /// # Errors
    /// The earliest time at which it would admit one.
    pub fn admit(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let at = i128::from(now.millis()) * NANOS;
        let at_rest = self.at_rest.max(at);
        let earliest = at_rest - self.tolerance;
        if earliest > at {
            let millis = (earliest + NANOS - 1).div_euclid(NANOS);
            return Err(Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)));
        }
        self.at_rest = at_rest + self.interval;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(count: u32, per: Duration, burst: u32) -> Rate {
        Rate { count: NonZeroU32::new(count).unwrap(), per, burst: NonZeroU32::new(burst).unwrap() }
    }

    #[test]
    fn a_burst_goes_at_once_and_then_one_an_interval() {
        let mut meter = Meter::new(rate(10, Duration::from_secs(1), 3));
        let start = Timestamp::from_millis(5_000);
        assert_eq!([(); 3].map(|()| meter.admit(start)), [Ok(()); 3]);
        let next = start.after(Duration::from_millis(100));
        assert_eq!(meter.admit(start), Err(next));
        assert_eq!((meter.admit(next), meter.admit(next).is_err()), (Ok(()), true));
    }

    proptest! {
        #[test]
        fn never_admits_more_than_the_rate_and_the_burst_and_never_starves(
            count in 1u32..5_000, per in 1u64..100_000, burst in 1u32..50, steps in prop::collection::vec(0u64..50, 1..300),
        ) {
            let mut meter = Meter::new(rate(count, Duration::from_millis(per), burst));
            let start = Timestamp::from_millis(1_000_000);
            let (mut now, mut admitted) = (start, 0u64);
            for step in steps {
                now = now.after(Duration::from_millis(step));
                match meter.admit(now) {
                    Ok(()) => admitted += 1,
                    Err(until) => {
                        prop_assert!(until > now);
                        prop_assert_eq!(meter.clone().admit(until), Ok(()));
                    }
                }
            }
            let passed = u64::try_from(now.since(start).as_millis()).unwrap();
            // The shortest interval is a microsecond.
            let fastest = (u64::from(count) * passed).div_ceil(per).min(passed * 1_000);
            prop_assert!(admitted <= u64::from(burst) + fastest + 1, "{admitted}");
        }
    }
}
