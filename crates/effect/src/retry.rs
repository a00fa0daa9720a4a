//! Retry decisions: the delay before the next attempt, and the limits of retries.
//!
//! A pure function of its arguments. Delays follow *decorrelated jitter* (M. Brooker, AWS, 2015):
//! each is drawn between the initial delay and a multiple of the previous one, so that clients that
//! failed together do not retry together.

use std::time::Duration;

use fastrand::Rng;
use orlog_model::SteadyTime;
use serde::{Deserialize, Serialize};

/// Maximum delay that an upstream can request with `Retry-After`; a greater one is reduced to it.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_hours(1);

/// Backoff parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Backoff {
    /// Minimum delay; at least a millisecond.
    #[serde(with = "crate::duration")]
    pub initial: Duration,
    /// Maximum delay; a value below `initial` counts as `initial`.
    #[serde(with = "crate::duration")]
    pub max: Duration,
    /// Maximum ratio of a delay to the previous one; with 0 or 1 every delay is `initial`.
    #[serde(deserialize_with = "crate::duration::positive")]
    pub multiplier: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(100),
            max: Duration::from_secs(30),
            multiplier: 3,
        }
    }
}

/// State after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailedAttempt {
    /// Number of attempts so far, including this one.
    pub(crate) attempts: u32,
    /// Delay before this attempt; `None` before the first.
    pub(crate) delay: Option<Duration>,
    /// Minimum delay that the upstream requested.
    pub(crate) retry_after: Option<Duration>,
}

/// Limits of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct RetryLimits {
    /// Maximum number of attempts; `None`: unlimited.
    pub(crate) max_attempts: Option<u32>,
    /// No attempt starts at or after this time; `None`: no deadline.
    pub(crate) deadline: Option<SteadyTime>,
}

/// Decision after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Retry after this delay.
    Retry(Duration),
    /// Stop retrying: the attempts are used up, or no further attempt could start before the
    /// deadline.
    Abandon,
}

/// Decides what follows an attempt that failed at `now`.
///
/// The `Retry-After` of the upstream is a minimum, plus a little jitter. The backoff delay is at
/// most half of the remaining time, so that a long delay leaves time for a last attempt.
pub(crate) fn decide_retry(
    backoff: &Backoff,
    tried: FailedAttempt,
    limits: RetryLimits,
    now: SteadyTime,
    rng: &mut Rng,
) -> RetryDecision {
    if limits.max_attempts.is_some_and(|max| tried.attempts >= max) {
        return RetryDecision::Abandon;
    }

    let remaining = limits
        .deadline
        .map_or(Duration::MAX, |deadline| deadline.duration_since(now));

    // At most half of the remaining time, or the first backoff if that is longer: a long delay
    // leaves time for a last attempt.
    let own = draw_delay(backoff, tried.delay, rng).min((remaining / 2).max(first(backoff)));
    let requested = tried
        .retry_after
        .map(|requested| requested.min(LONGEST_RETRY_AFTER));

    // The jitter is added, never subtracted: before that time the upstream would reject the call.
    let delay = match requested {
        Some(requested) if requested > own => {
            requested + between(Duration::ZERO, first(backoff).min(requested / 10), rng)
        }
        _ => own,
    };

    // An attempt at the deadline would not start, so the wait for it would be useless.
    if delay >= remaining {
        RetryDecision::Abandon
    } else {
        RetryDecision::Retry(delay)
    }
}

/// Draws the delay that follows `previous`.
pub(crate) fn draw_delay(backoff: &Backoff, previous: Option<Duration>, rng: &mut Rng) -> Duration {
    let first = first(backoff);
    let widest = previous.unwrap_or(first).saturating_mul(backoff.multiplier);
    between(first, widest.clamp(first, backoff.max.max(first)), rng)
}

fn first(backoff: &Backoff) -> Duration {
    backoff.initial.max(Duration::from_millis(1))
}

/// Draws a duration in whole milliseconds, the resolution of the clock.
fn between(low: Duration, high: Duration, rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(millis(low)..=millis(high)))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    const NOW: SteadyTime = SteadyTime::from_millis(1_000_000);

    fn tried(attempts: u32) -> FailedAttempt {
        FailedAttempt {
            attempts,
            delay: None,
            retry_after: None,
        }
    }

    fn delay(next: RetryDecision) -> Option<Duration> {
        match next {
            RetryDecision::Retry(delay) => Some(delay),
            RetryDecision::Abandon => None,
        }
    }

    #[test]
    fn abandons_after_the_last_attempt() {
        let limits = RetryLimits {
            max_attempts: Some(3),
            deadline: None,
        };
        let mut rng = Rng::with_seed(7);
        assert!(
            delay(decide_retry(
                &Backoff::default(),
                tried(2),
                limits,
                NOW,
                &mut rng
            ))
            .is_some()
        );
        let last = decide_retry(&Backoff::default(), tried(3), limits, NOW, &mut rng);
        assert_eq!(last, RetryDecision::Abandon);
    }

    #[test]
    fn abandons_when_retry_after_exceeds_the_deadline() {
        let limits = RetryLimits {
            max_attempts: None,
            deadline: Some(NOW.saturating_add(Duration::from_secs(5))),
        };
        let requested = FailedAttempt {
            retry_after: Some(Duration::from_secs(5)),
            ..tried(1)
        };
        let decision = decide_retry(
            &Backoff::default(),
            requested,
            limits,
            NOW,
            &mut Rng::with_seed(7),
        );
        assert_eq!(decision, RetryDecision::Abandon);
    }

    #[test]
    fn excessive_retry_after_is_capped() {
        let requested = FailedAttempt {
            retry_after: Some(Duration::MAX),
            ..tried(1)
        };
        let decision = delay(decide_retry(
            &Backoff::default(),
            requested,
            RetryLimits::default(),
            NOW,
            &mut Rng::with_seed(7),
        ));
        assert!(decision.unwrap() <= LONGEST_RETRY_AFTER + Duration::from_millis(100));
    }

    proptest! {
        #[test]
        fn backoff_stays_between_initial_and_max(
            seed: u64, first in 0u64..5_000, max in 0u64..100_000, multiplier in 0u32..20, previous in 0u64..200_000,
        ) {
            let first = Duration::from_millis(first);
            let backoff = Backoff { initial: first, max: Duration::from_millis(max), multiplier };
            let tried = FailedAttempt { delay: Some(Duration::from_millis(previous)), ..tried(1) };
            let decision = decide_retry(&backoff, tried, RetryLimits::default(), NOW, &mut Rng::with_seed(seed));
            let delay = delay(decision).unwrap();
            prop_assert!(delay >= first && delay >= Duration::from_millis(1));
            prop_assert!(delay <= backoff.max.max(first).max(Duration::from_millis(1)));
        }

        #[test]
        fn retry_after_is_a_lower_bound(seed: u64, requested in 0u64..3_600_000) {
            let requested = Duration::from_millis(requested);
            let tried = FailedAttempt { retry_after: Some(requested), ..tried(1) };
            let decision = decide_retry(&Backoff::default(), tried, RetryLimits::default(), NOW, &mut Rng::with_seed(seed));
            prop_assert!(delay(decision).unwrap() >= requested);
        }

        #[test]
        fn no_attempt_starts_after_the_deadline(
            seed: u64, remaining in 0u64..100_000, previous in 0u64..100_000, requested in proptest::option::of(0u64..200_000),
        ) {
            let remaining = Duration::from_millis(remaining);
            let limits = RetryLimits { max_attempts: None, deadline: Some(NOW.saturating_add(remaining)) };
            let tried = FailedAttempt {
                attempts: 1,
                delay: Some(Duration::from_millis(previous)),
                retry_after: requested.map(Duration::from_millis),
            };
            match decide_retry(&Backoff::default(), tried, limits, NOW, &mut Rng::with_seed(seed)) {
                RetryDecision::Retry(delay) => prop_assert!(delay < remaining),
                RetryDecision::Abandon => {}
            }
        }

        #[test]
        fn attempts_are_bounded_by_deadline_and_count(seed: u64, remaining in 1u64..3_600_000) {
            let deadline = NOW.saturating_add(Duration::from_millis(remaining));
            let limits = RetryLimits { max_attempts: None, deadline: Some(deadline) };
            let (mut now, mut state, mut rng) = (NOW, tried(1), Rng::with_seed(seed));
            while let RetryDecision::Retry(delay) = decide_retry(&Backoff::default(), state, limits, now, &mut rng) {
                now = now.saturating_add(delay);
                state = FailedAttempt { attempts: state.attempts + 1, delay: Some(delay), retry_after: None };
                prop_assert!(now < deadline && state.attempts < 40_000);
            }
        }
    }
}
