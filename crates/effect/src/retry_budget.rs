//! The retry budget of an upstream: retries are a share of first attempts, so that an outage is not multiplied.
//!
//! Every first attempt pays in a share of a retry; every retry takes out a whole one; a little flows in with time, so that
//! a quiet upstream can be retried too. Retries for which there is nothing wait. After Finagle's `RetryBudget`. A plain
//! state machine, time is an argument.
//!
//! In any time of `s` seconds: retries ≤ `percent` / 100 × first attempts + `per_second` × s + `saved`.

use std::time::Duration;

use orlog_model::Timestamp;

/// How much is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Retries for a hundred first attempts.
    pub percent: u32,
    /// Retries that are always allowed, in a second.
    pub per_second: u32,
    /// The most that can be saved up, in retries; at least 1. A new budget has as much.
    pub saved: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { percent: 20, per_second: 10, saved: 100 }
    }
}

/// What is there, in thousandths of a retry.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    options: Options,
    balance: u64,
    at: Timestamp,
}

const WHOLE: u64 = 1000;

impl Budget {
    /// A full one.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, balance: most(options), at: Timestamp::from_millis(i64::MIN) }
    }

    /// Whole retries that are there.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.balance / WHOLE
    }

    /// Takes note of a first attempt; `true` when there is a whole retry now and there was none before.
    pub fn deposit(&mut self) -> bool {
        let before = self.balance;
        self.balance = (before + u64::from(self.options.percent) * WHOLE / 100).min(most(self.options));
        before < WHOLE && self.balance >= WHOLE
    }

    /// Takes a retry out at `now`.
    ///
    /// # Errors
    /// When there is none: the time at which there will be one even if nobody pays in; `None`: never.
    pub fn withdraw(&mut self, now: Timestamp) -> Result<(), Option<Timestamp>> {
        let flow = u64::from(self.options.per_second);
        if now > self.at {
            let passed = u64::try_from(now.since(self.at).as_millis()).unwrap_or(u64::MAX);
            // A thousandth of a retry flows in each millisecond for every retry a second.
            self.balance = self.balance.saturating_add(passed.saturating_mul(flow)).min(most(self.options));
            self.at = now;
        }
        if self.balance >= WHOLE {
            self.balance -= WHOLE;
            return Ok(());
        }
        let missing = (WHOLE - self.balance).div_ceil(flow.max(1));
        Err((flow > 0).then(|| self.at.after(Duration::from_millis(missing))))
    }
}

fn most(options: Options) -> u64 {
    u64::from(options.saved.max(1)) * WHOLE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn without_first_attempts_only_the_trickle_is_left() {
        let mut budget = Budget::new(Options { percent: 50, per_second: 2, saved: 1 });
        assert_eq!(budget.withdraw(NOW), Ok(()));
        let next = NOW.after(Duration::from_millis(500));
        assert_eq!(budget.withdraw(NOW), Err(Some(next)));
        assert_eq!(budget.withdraw(next), Ok(()));
    }

    #[test]
    fn first_attempts_pay_for_retries() {
        let mut budget = Budget::new(Options { percent: 50, per_second: 0, saved: 1 });
        assert_eq!((budget.withdraw(NOW), budget.withdraw(NOW)), (Ok(()), Err(None)));
        assert_eq!((budget.deposit(), budget.deposit(), budget.deposit()), (false, true, false));
        assert_eq!((budget.withdraw(NOW), budget.retries()), (Ok(()), 0));
    }

    proptest! {
        #[test]
        fn an_outage_is_not_multiplied(
            percent in 0u32..200, per_second in 0u32..50, saved in 1u32..50,
            steps in prop::collection::vec((any::<bool>(), 0u64..100), 1..400),
        ) {
            let mut budget = Budget::new(Options { percent, per_second, saved });
            let (mut now, mut first, mut retries) = (NOW, 0u64, 0u64);
            // The first look fills it up: it has been at rest since the beginning of time.
            for (is_first, step) in steps {
                now = now.after(Duration::from_millis(step));
                if is_first {
                    first += 1;
                    budget.deposit();
                } else if budget.withdraw(now).is_ok() {
                    retries += 1;
                }
            }
            let passed = u64::try_from(now.since(NOW).as_millis()).unwrap();
            let allowed = u64::from(percent) * first * 10 + u64::from(per_second) * passed + u64::from(saved) * 1000;
            prop_assert!(retries * 1000 <= allowed, "{retries} of {first} in {passed} ms");
        }
    }
}
