//! Admission of an attempt: rate of the tenant, concurrency permit, rate of the upstream, breaker.
//!
//! The order ensures that an item that waits for its own tenant rate holds no permit that others
//! could use. Tenants get permits, and thereby the rate of the upstream, in fair order; the items
//! of one tenant take turns by priority. Every wait costs one timer for all waiting items, and is
//! cancelled by dropping it.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{Clock, Priority, SteadyTime, TenantId};
use parking_lot::Mutex;

use crate::limits::breaker::{BreakerState, CallHealth};
use crate::limits::breaker_gate::{BreakerGate, BreakerPermit};
use crate::limits::concurrency::{ConcurrencyLimiter, ConcurrencyPermit};
use crate::limits::rate::{RateLimit, RateLimiter};
use crate::observer::EffectObserver;
use crate::policy::{Policy, TenantLimits};
use crate::retry_budget::RetryBudget;

pub(crate) struct Admission {
    clock: Arc<dyn Clock>,
    budget: Option<Mutex<RetryBudget>>,
    tenant_rate: Option<RateLimit>,
    tenants: Mutex<BTreeMap<TenantId, Arc<TenantRate>>>,
    concurrency: Arc<ConcurrencyLimiter>,
    rate: Option<RateMeter>,
    breaker: Option<BreakerGate>,
}

pub(crate) struct AdmissionPermit<'a> {
    _permit: ConcurrencyPermit,
    pass: Option<BreakerPermit<'a>>,
}

impl AdmissionPermit<'_> {
    /// Reports the health of the upstream to the breaker; `error` is the message of an unhealthy
    /// call.
    pub(crate) fn report(self, health: CallHealth, error: Option<&str>) {
        if let Some(pass) = self.pass {
            pass.report(health, error);
        }
    }
}

impl Admission {
    pub(crate) fn new(
        upstream: &str,
        policy: &Policy,
        clock: &Arc<dyn Clock>,
        observer: Arc<dyn EffectObserver>,
    ) -> Self {
        Self {
            clock: Arc::clone(clock),
            budget: policy
                .retry_budget
                .map(|options| Mutex::new(RetryBudget::new(options))),
            tenant_rate: policy.tenant_limits.rate,
            tenants: Mutex::default(),
            concurrency: ConcurrencyLimiter::new(
                policy.max_concurrency,
                policy.tenant_limits.clone(),
                policy.rate.is_some(),
            ),
            rate: policy.rate.map(RateMeter::new),
            breaker: policy
                .breaker
                .map(|options| BreakerGate::new(upstream, options, Arc::clone(clock), observer)),
        }
    }

    /// Adds the share of a first attempt to the retry budget.
    pub(crate) fn deposit_first(&self) {
        self.with_budget(RetryBudget::deposit);
    }

    /// Subtracts a retry from the retry budget.
    ///
    /// # Errors
    /// If the budget is empty: the time at which a retry is available without first attempts, if
    /// any.
    pub(crate) fn withdraw_retry(&self, now: SteadyTime) -> Result<(), Option<SteadyTime>> {
        self.with_budget(|budget| budget.withdraw(now))
            .unwrap_or(Ok(()))
    }

    /// Waits for all limits of an attempt, except the retry budget.
    pub(crate) async fn admit(&self, tenant: &TenantId, priority: Priority) -> AdmissionPermit<'_> {
        // An item that waits for the rate of its own tenant holds no permit that others could use.
        if let Some(rate) = self.tenant_rate {
            let TenantRate { turns, meter } = &*self.tenant(tenant, rate);
            let _turn = turns.acquire(tenant, priority).await;
            meter.pass(self.clock.as_ref()).await;
        }

        // The permit before the rate of the upstream: the fair order of permits is then also the
        // order of the rate.
        let mut permit = self.concurrency.acquire(tenant, priority).await;

        if let Some(meter) = &self.rate {
            meter.pass(self.clock.as_ref()).await;

            // The next tenant can wait for the rate.
            permit.end_turn();
        }

        // The breaker is last: it admits a single probe, which must start at once.
        let pass = match &self.breaker {
            Some(gate) => Some(gate.acquire().await),
            None => None,
        };

        AdmissionPermit {
            _permit: permit,
            pass,
        }
    }

    pub(crate) fn breaker(&self) -> Option<(BreakerState, u64)> {
        self.breaker.as_ref().map(BreakerGate::state)
    }

    /// Returns the message of the last unhealthy call; `None` without a breaker.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.breaker.as_ref().and_then(BreakerGate::last_error)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.concurrency.waiting()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.concurrency.in_use()
    }

    pub(crate) fn remaining_retries(&self) -> Option<u64> {
        let now = self.clock.steady();
        self.with_budget(|budget| budget.available(now))
    }

    fn with_budget<T>(&self, act: impl FnOnce(&mut RetryBudget) -> T) -> Option<T> {
        let budget = self.budget.as_ref()?;
        Some(act(&mut budget.lock()))
    }

    fn tenant(&self, tenant: &TenantId, rate: RateLimit) -> Arc<TenantRate> {
        let mut tenants = self.tenants.lock();
        if let Some(metered) = tenants.get(tenant) {
            return Arc::clone(metered);
        }

        // One turn at a time: the waiting items of a tenant need one timer, and take turns by
        // priority.
        let turns = ConcurrencyLimiter::new(1, TenantLimits::default(), false);
        let metered = Arc::new(TenantRate {
            turns,
            meter: RateMeter::new(rate),
        });

        tenants.insert(tenant.clone(), Arc::clone(&metered));
        metered
    }
}

/// Rate limiter of a tenant; one item at a time has its turn to wait for it.
struct TenantRate {
    turns: Arc<ConcurrencyLimiter>,
    meter: RateMeter,
}

/// Rate limiter that is shared. The callers take turns: one at a time waits.
struct RateMeter(Mutex<RateLimiter>);

impl RateMeter {
    fn new(rate: RateLimit) -> Self {
        Self(Mutex::new(RateLimiter::new(rate)))
    }

    /// Waits until the rate limiter admits.
    async fn pass(&self, clock: &dyn Clock) {
        while let Err(until) = self.admit(clock.steady()) {
            clock.sleep_until(until).await;
        }
    }

    fn admit(&self, now: SteadyTime) -> Result<(), SteadyTime> {
        self.0.lock().admit(now)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use futures::FutureExt as _;
    use orlog_model::Timestamp;
    use orlog_testkit::SimClock;

    use super::*;
    use crate::observer::NoopObserver;

    #[tokio::test]
    async fn priorities_take_turns_at_the_rate_of_a_tenant() {
        let clock = SimClock::new(Timestamp::from_millis(0));
        let second = Duration::from_secs(1);
        let rate = RateLimit {
            count: NonZeroU32::MIN,
            per: second,
            burst: NonZeroU32::MIN,
        };
        let tenant_limits = TenantLimits {
            rate: Some(rate),
            ..TenantLimits::default()
        };
        let policy = Policy {
            tenant_limits,
            ..Policy::in_process()
        };
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let admission = Admission::new("u", &policy, &time, Arc::new(NoopObserver));
        let tenant = TenantId::new("acme").unwrap();
        let mut waiting = Vec::new();
        for priority in [
            Priority::Normal,
            Priority::Low,
            Priority::Low,
            Priority::High,
        ] {
            let mut admitted = Box::pin(admission.admit(&tenant, priority));
            if (&mut admitted).now_or_never().is_none() {
                waiting.push((priority, admitted));
            }
        }
        let mut order = Vec::new();
        while !waiting.is_empty() {
            clock.advance(second);
            tokio::task::yield_now().await;
            // A turn that ends wakes the next waiter, which may have been polled before.
            for _ in 0..2 {
                waiting.retain_mut(|(priority, admitted)| {
                    let is_admitted = admitted.now_or_never().is_some();
                    order.extend(is_admitted.then_some(*priority));
                    !is_admitted
                });
            }
        }
        // The first low item waits for the rate already.
        assert_eq!(order, [Priority::Low, Priority::High, Priority::Low]);
    }
}
