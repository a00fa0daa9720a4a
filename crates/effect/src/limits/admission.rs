//! Admission of an attempt: rate of the tenant, concurrency permit, rate of the upstream, breaker.
//!
//! The order ensures that an item that waits for its own tenant rate holds no permit that others could
//! use. Tenants get permits, and thereby the rate of the upstream, in fair order. Every wait costs one
//! timer for all waiting items, and is cancelled by dropping it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use orlog_model::{Clock, SteadyTime, TenantId};
use tokio::sync::Mutex as Queue;

use crate::limits::breaker::{BreakerState, CallHealth};
use crate::limits::breaker_gate::{BreakerGate, BreakerPermit};
use crate::limits::concurrency::{ConcurrencyLimiter, ConcurrencyPermit};
use crate::limits::rate::{RateLimit, RateLimiter};
use crate::observer::EffectObserver;
use crate::policy::Policy;
use crate::retry_budget::RetryBudget;

pub(crate) struct Admission {
    clock: Arc<dyn Clock>,
    budget: Option<Mutex<RetryBudget>>,
    tenant_rate: Option<RateLimit>,
    tenants: Mutex<BTreeMap<TenantId, Arc<RateLimitQueue>>>,
    concurrency: Arc<ConcurrencyLimiter>,
    rate: Option<RateLimitQueue>,
    breaker: Option<BreakerGate>,
}

pub(crate) struct AdmissionPermit<'a> {
    _permit: ConcurrencyPermit,
    pass: Option<BreakerPermit<'a>>,
}

impl AdmissionPermit<'_> {
    /// Reports the health of the upstream to the breaker.
    pub(crate) fn report(self, health: CallHealth) {
        if let Some(pass) = self.pass {
            pass.report(health);
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
            budget: policy.retry_budget.map(|options| Mutex::new(RetryBudget::new(options))),
            tenant_rate: policy.tenant_limits.rate,
            tenants: Mutex::default(),
            concurrency: ConcurrencyLimiter::new(
                policy.max_concurrency,
                policy.tenant_limits.clone(),
                policy.rate.is_some(),
            ),
            rate: policy.rate.map(RateLimitQueue::new),
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
    /// If the budget is empty: the time at which a retry is available without first attempts, if any.
    pub(crate) fn withdraw_retry(&self, now: SteadyTime) -> Result<(), Option<SteadyTime>> {
        self.with_budget(|budget| budget.withdraw(now)).unwrap_or(Ok(()))
    }

    /// Waits for all limits of an attempt, except the retry budget.
    pub(crate) async fn admit(&self, tenant: &TenantId) -> AdmissionPermit<'_> {
        if let Some(rate) = self.tenant_rate {
            self.tenant(tenant, rate).pass(self.clock.as_ref()).await;
        }
        let mut permit = self.concurrency.acquire(tenant).await;
        if let Some(metered) = &self.rate {
            metered.pass(self.clock.as_ref()).await;
            permit.end_turn();
        }
        let pass = match &self.breaker {
            Some(gate) => Some(gate.acquire().await),
            None => None,
        };
        AdmissionPermit { _permit: permit, pass }
    }

    pub(crate) fn breaker(&self) -> Option<(BreakerState, u64)> {
        self.breaker.as_ref().map(BreakerGate::state)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.concurrency.in_use()
    }

    pub(crate) fn remaining_retries(&self) -> Option<u64> {
        self.with_budget(|budget| budget.available())
    }

    fn with_budget<T>(&self, act: impl FnOnce(&mut RetryBudget) -> T) -> Option<T> {
        let budget = self.budget.as_ref()?;
        Some(act(&mut budget.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn tenant(&self, tenant: &TenantId, rate: RateLimit) -> Arc<RateLimitQueue> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metered) = tenants.get(tenant) {
            return Arc::clone(metered);
        }
        let metered = Arc::new(RateLimitQueue::new(rate));
        tenants.insert(tenant.clone(), Arc::clone(&metered));
        metered
    }
}

/// Rate limiter with a queue before it.
struct RateLimitQueue {
    meter: Queue<RateLimiter>,
}

impl RateLimitQueue {
    fn new(rate: RateLimit) -> Self {
        Self { meter: Queue::new(RateLimiter::new(rate)) }
    }

    /// Waits until the rate limiter admits. The first waiter holds the limiter; the others wait for it.
    async fn pass(&self, clock: &dyn Clock) {
        let mut meter = self.meter.lock().await;
        while let Err(until) = meter.admit(clock.steady()) {
            clock.sleep_until(until).await;
        }
    }
}
