//! The retry budget of an upstream: retries are a share of first attempts, so that retries do not
//! amplify an outage.
//!
//! Every first attempt deposits a share of a retry; every retry withdraws a whole one. A small
//! amount is added over time, so that an idle upstream can be retried too. Retries without budget
//! wait. After Finagle's `RetryBudget`. A pure state machine; time is an argument.
//!
//! In any period of `s` seconds: retries ≤ `percent` / 100 × first attempts + `min_per_second` × s
//! + `max_saved`.

use std::time::Duration;

use orlog_model::SteadyTime;
use serde::{Deserialize, Serialize};

/// Parameters of a retry budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudgetOptions {
    /// Retries per hundred first attempts.
    pub percent: u32,
    /// Retries per second that are always allowed.
    pub min_per_second: u32,
    /// Maximum balance in retries; at least 1. A new budget starts with it.
    #[serde(deserialize_with = "crate::duration::positive")]
    pub max_saved: u32,
}

impl Default for RetryBudgetOptions {
    fn default() -> Self {
        Self {
            percent: 20,
            min_per_second: 10,
            max_saved: 100,
        }
    }
}

/// Retry budget; its balance is in thousandths of a retry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    options: RetryBudgetOptions,
    balance: u64,
    at: SteadyTime,
}

const WHOLE: u64 = 1000;

impl RetryBudget {
    pub(crate) fn new(options: RetryBudgetOptions) -> Self {
        Self {
            options,
            balance: capacity(options),
            at: SteadyTime::from_millis(i64::MIN),
        }
    }

    /// Returns the number of retries that are available at `now`.
    pub(crate) fn available(&self, now: SteadyTime) -> u64 {
        self.balance_at(now) / WHOLE
    }

    /// Returns the balance with what the time since the last withdrawal has added.
    fn balance_at(&self, now: SteadyTime) -> u64 {
        let passed = u64::try_from(now.duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        // A rate of one retry per second adds a thousandth of a retry per millisecond.
        let added = passed.saturating_mul(u64::from(self.options.min_per_second));
        self.balance
            .saturating_add(added)
            .min(capacity(self.options))
    }

    /// Records a first attempt; returns `true` if a whole retry becomes available and there was
    /// none before.
    pub(crate) fn deposit(&mut self) -> bool {
        let before = self.balance;
        self.balance =
            (before + u64::from(self.options.percent) * WHOLE / 100).min(capacity(self.options));
        before < WHOLE && self.balance >= WHOLE
    }

    /// Withdraws a retry at `now`.
    ///
    /// # Errors
    /// If none is available: the time at which one is available without further deposits; `None`:
    /// never.
    pub(crate) fn withdraw(&mut self, now: SteadyTime) -> Result<(), Option<SteadyTime>> {
        let flow = u64::from(self.options.min_per_second);
        if now > self.at {
            self.balance = self.balance_at(now);
            self.at = now;
        }

        if self.balance >= WHOLE {
            self.balance -= WHOLE;
            return Ok(());
        }

        let missing = (WHOLE - self.balance).div_ceil(flow.max(1));
        // Without a minimum rate, only the first attempts of other items add to the balance.
        Err((flow > 0).then(|| self.at.saturating_add(Duration::from_millis(missing))))
    }
}

fn capacity(options: RetryBudgetOptions) -> u64 {
    u64::from(options.max_saved.max(1)) * WHOLE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: SteadyTime = SteadyTime::from_millis(1_000_000);

    #[test]
    fn budget_falls_back_to_the_minimum_rate() {
        let mut budget = RetryBudget::new(RetryBudgetOptions {
            percent: 50,
            min_per_second: 2,
            max_saved: 1,
        });
        assert_eq!(budget.withdraw(NOW), Ok(()));
        let next = NOW.saturating_add(Duration::from_millis(500));
        assert_eq!(budget.withdraw(NOW), Err(Some(next)));
        assert_eq!(budget.withdraw(next), Ok(()));
    }

    #[test]
    fn first_attempts_fund_retries() {
        let mut budget = RetryBudget::new(RetryBudgetOptions {
            percent: 50,
            min_per_second: 0,
            max_saved: 1,
        });
        assert_eq!(
            (budget.withdraw(NOW), budget.withdraw(NOW)),
            (Ok(()), Err(None))
        );
        assert_eq!(
            (budget.deposit(), budget.deposit(), budget.deposit()),
            (false, true, false)
        );
        assert_eq!((budget.withdraw(NOW), budget.available(NOW)), (Ok(()), 0));
    }

    #[test]
    fn available_retries_grow_with_the_time_without_a_withdrawal() {
        let mut budget = RetryBudget::new(RetryBudgetOptions {
            percent: 0,
            min_per_second: 2,
            max_saved: 3,
        });
        while budget.withdraw(NOW).is_ok() {}
        let available = [0, 499, 500, 1_000, 60_000]
            .map(|millis| budget.available(NOW.saturating_add(Duration::from_millis(millis))));
        assert_eq!(available, [0, 0, 1, 2, 3]);
        assert_eq!(
            budget.available(SteadyTime::from_millis(0)),
            0,
            "an earlier time"
        );
    }

    proptest! {
        #[test]
        fn outage_does_not_amplify_retries(
            percent in 0u32..200, per_second in 0u32..50, saved in 1u32..50,
            steps in prop::collection::vec((any::<bool>(), 0u64..100), 1..400),
        ) {
            let mut budget = RetryBudget::new(RetryBudgetOptions { percent, min_per_second: per_second, max_saved: saved });
            let (mut now, mut first, mut retries) = (NOW, 0u64, 0u64);
            // The first call fills the budget: it was idle since time zero.
            for (is_first, step) in steps {
                now = now.saturating_add(Duration::from_millis(step));
                if is_first {
                    first += 1;
                    budget.deposit();
                } else if budget.withdraw(now).is_ok() {
                    retries += 1;
                }
            }
            let passed = u64::try_from(now.duration_since(NOW).as_millis()).unwrap();
            let allowed = u64::from(percent) * first * 10 + u64::from(per_second) * passed + u64::from(saved) * 1000;
            prop_assert!(retries * 1000 <= allowed, "{retries} of {first} in {passed} ms");
        }
    }
}
