//! How long to wait before the next attempt, and when to stop trying.
//!
//! A plain decision: values in, value out. Pauses follow *decorrelated jitter* (M. Brooker, AWS, 2015): each is drawn
//! between the first pause and a multiple of the one before, so that clients that failed together do not return together.

use std::time::Duration;

use fastrand::Rng;
use orlog_model::Timestamp;

/// The longest pause an upstream can ask for with `Retry-After`; a greater one counts as this.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_hours(1);

/// The shape of the pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The shortest pause; at least a millisecond.
    pub first: Duration,
    /// The longest pause; less than `first` counts as `first`.
    pub max: Duration,
    /// A pause is at most this many times the one before it; 0 and 1 make every pause `first`.
    pub multiplier: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), max: Duration::from_secs(30), multiplier: 3 }
    }
}

/// What is known after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Attempts made so far, this one included.
    pub attempts: u32,
    /// The pause before this attempt; `None` before the first.
    pub pause: Option<Duration>,
    /// The least pause the upstream asks for.
    pub retry_after: Option<Duration>,
}

/// How far trying may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Limits {
    /// Attempts in all; `None`: any number.
    pub attempts: Option<u32>,
    /// No attempt begins at or after this; `None`: never too late.
    pub deadline: Option<Timestamp>,
}

/// What to do after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again after this pause.
    Retry(Duration),
    /// Give up.
    GiveUp(Exhausted),
}

/// What there is no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// All attempts are made.
    Attempts,
    /// No further attempt could begin before the deadline.
    Time,
}

/// Decides what follows an attempt that failed at `now`.
///
/// The upstream's `Retry-After` is a minimum, with a little jitter on top. Our own pause takes half of the time that is
/// left at most, so that a long pause does not eat the last chance.
#[must_use]
pub fn next(backoff: &Backoff, tried: Tried, limits: Limits, now: Timestamp, rng: &mut Rng) -> Next {
    if limits.attempts.is_some_and(|most| tried.attempts >= most) {
        return Next::GiveUp(Exhausted::Attempts);
    }
    let left = limits.deadline.map_or(Duration::MAX, |deadline| deadline.since(now));
    let own = draw(backoff, tried.pause, rng).min((left / 2).max(first(backoff)));
    let pause = match tried.retry_after.map(|asked| asked.min(LONGEST_RETRY_AFTER)) {
        Some(asked) if asked > own => asked + between(Duration::ZERO, first(backoff).min(asked / 10), rng),
        _ => own,
    };
    if pause >= left { Next::GiveUp(Exhausted::Time) } else { Next::Retry(pause) }
}

fn draw(backoff: &Backoff, previous: Option<Duration>, rng: &mut Rng) -> Duration {
    let first = first(backoff);
    let widest = previous.unwrap_or(first).saturating_mul(backoff.multiplier);
    between(first, widest.clamp(first, backoff.max.max(first)), rng)
}

fn first(backoff: &Backoff) -> Duration {
    backoff.first.max(Duration::from_millis(1))
}

/// Whole milliseconds, as the clock counts them.
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

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn tried(attempts: u32) -> Tried {
        Tried { attempts, pause: None, retry_after: None }
    }

    fn pause(next: Next) -> Option<Duration> {
        match next {
            Next::Retry(pause) => Some(pause),
            Next::GiveUp(_) => None,
        }
    }

    #[test]
    fn gives_up_when_all_attempts_are_made() {
        let limits = Limits { attempts: Some(3), deadline: None };
        let mut rng = Rng::with_seed(7);
        assert!(pause(next(&Backoff::default(), tried(2), limits, NOW, &mut rng)).is_some());
        let last = next(&Backoff::default(), tried(3), limits, NOW, &mut rng);
        assert_eq!(last, Next::GiveUp(Exhausted::Attempts));
    }

    #[test]
    fn gives_up_when_the_upstream_asks_for_more_time_than_there_is() {
        let limits = Limits { attempts: None, deadline: Some(NOW.after(Duration::from_secs(5))) };
        let asked = Tried { retry_after: Some(Duration::from_secs(5)), ..tried(1) };
        let answer = next(&Backoff::default(), asked, limits, NOW, &mut Rng::with_seed(7));
        assert_eq!(answer, Next::GiveUp(Exhausted::Time));
    }

    #[test]
    fn an_absurd_retry_after_is_cut() {
        let asked = Tried { retry_after: Some(Duration::MAX), ..tried(1) };
        let answer = pause(next(&Backoff::default(), asked, Limits::default(), NOW, &mut Rng::with_seed(7)));
        assert!(answer.unwrap() <= LONGEST_RETRY_AFTER + Duration::from_millis(100));
    }

    proptest! {
        #[test]
        fn pauses_stay_between_the_first_and_the_longest(
            seed: u64, first in 0u64..5_000, max in 0u64..100_000, multiplier in 0u32..20, previous in 0u64..200_000,
        ) {
            let first = Duration::from_millis(first);
            let backoff = Backoff { first, max: Duration::from_millis(max), multiplier };
            let tried = Tried { pause: Some(Duration::from_millis(previous)), ..tried(1) };
            let answer = next(&backoff, tried, Limits::default(), NOW, &mut Rng::with_seed(seed));
            let pause = pause(answer).unwrap();
            prop_assert!(pause >= first && pause >= Duration::from_millis(1));
            prop_assert!(pause <= backoff.max.max(first).max(Duration::from_millis(1)));
        }

        #[test]
        fn what_the_upstream_asks_for_is_a_minimum(seed: u64, asked in 0u64..3_600_000) {
            let asked = Duration::from_millis(asked);
            let tried = Tried { retry_after: Some(asked), ..tried(1) };
            let answer = next(&Backoff::default(), tried, Limits::default(), NOW, &mut Rng::with_seed(seed));
            prop_assert!(pause(answer).unwrap() >= asked);
        }

        #[test]
        fn an_attempt_never_begins_after_the_deadline(
            seed: u64, left in 0u64..100_000, previous in 0u64..100_000, asked in proptest::option::of(0u64..200_000),
        ) {
            let left = Duration::from_millis(left);
            let limits = Limits { attempts: None, deadline: Some(NOW.after(left)) };
            let tried = Tried {
                attempts: 1,
                pause: Some(Duration::from_millis(previous)),
                retry_after: asked.map(Duration::from_millis),
            };
            match next(&Backoff::default(), tried, limits, NOW, &mut Rng::with_seed(seed)) {
                Next::Retry(pause) => prop_assert!(pause < left),
                Next::GiveUp(why) => prop_assert_eq!(why, Exhausted::Time),
            }
        }

        #[test]
        fn trying_ends_within_the_deadline_after_a_bounded_number_of_attempts(seed: u64, left in 1u64..3_600_000) {
            let deadline = NOW.after(Duration::from_millis(left));
            let limits = Limits { attempts: None, deadline: Some(deadline) };
            let (mut now, mut state, mut rng) = (NOW, tried(1), Rng::with_seed(seed));
            while let Next::Retry(pause) = next(&Backoff::default(), state, limits, now, &mut rng) {
                now = now.after(pause);
                state = Tried { attempts: state.attempts + 1, pause: Some(pause), retry_after: None };
                prop_assert!(now < deadline && state.attempts < 40_000);
            }
        }
    }
}
