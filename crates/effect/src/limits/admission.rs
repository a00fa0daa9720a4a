//! Admission of an attempt: retry budget, rate of the tenant, concurrency permit, rate of the upstream,
//! breaker.
//!
//! The order ensures that an item that waits for its own tenant rate or the budget holds no permit that
//! others could use. Every wait is first come, first served, costs one timer for all waiting items, and
//! is cancelled by dropping it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use orlog_model::{Clock, TenantId, Timestamp};
use tokio::sync::{Mutex as Queue, Notify};

use crate::limits::breaker::{BreakerState, CallHealth};
use crate::limits::breaker_gate::{BreakerGate, BreakerPermit};
use crate::limits::concurrency::{ConcurrencyLimiter, ConcurrencyPermit};
use crate::limits::rate::{RateLimit, RateLimiter};
use crate::observer::EffectObserver;
use crate::policy::Policy;
use crate::retry_budget::RetryBudget;

pub(crate) struct Admission {
    clock: Arc<dyn Clock>,
    budget: Option<RetryBudgetQueue>,
    tenant_rate: Option<RateLimit>,
    tenants: Mutex<BTreeMap<TenantId, Arc<RateLimitQueue>>>,
    concurrency: Arc<ConcurrencyLimiter>,
    rate: Option<RateLimitQueue>,
    breaker: Option<BreakerGate>,
}

/// Permit for one attempt.
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

/// Request for admission.
#[derive(Clone, Copy)]
pub(crate) struct AdmissionRequest<'a> {
    pub(crate) tenant: &'a TenantId,
    /// Whether it is a retry of the item.
    pub(crate) retries: bool,
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
            budget: policy.retry_budget.map(RetryBudgetQueue::new),
            tenant_rate: policy.tenant_limits.rate,
            tenants: Mutex::default(),
            concurrency: ConcurrencyLimiter::new(policy.max_concurrency, policy.tenant_limits.clone()),
            rate: policy.rate.map(RateLimitQueue::new),
            breaker: policy
                .breaker
                .map(|options| BreakerGate::new(upstream, options, Arc::clone(clock), observer)),
        }
    }

    /// Waits for all limits.
    pub(crate) async fn admit(&self, asker: AdmissionRequest<'_>) -> AdmissionPermit<'_> {
        if let Some(budget) = &self.budget {
            if asker.retries {
                budget.withdraw(self.clock.as_ref()).await;
            } else {
                budget.deposit();
            }
        }
        if let Some(rate) = self.tenant_rate {
            self.tenant(asker.tenant, rate).pass(self.clock.as_ref()).await;
        }
        let permit = self.concurrency.acquire(asker.tenant).await;
        if let Some(metered) = &self.rate {
            metered.pass(self.clock.as_ref()).await;
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
        self.budget.as_ref().map(RetryBudgetQueue::retries)
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
        while let Err(until) = meter.admit(clock.now()) {
            clock.sleep_until(until).await;
        }
    }
}

/// Retry budget with a queue before it.
struct RetryBudgetQueue {
    budget: Mutex<RetryBudget>,
    turn: Queue<()>,
    filled: Notify,
}

impl RetryBudgetQueue {
    fn new(options: crate::retry_budget::RetryBudgetOptions) -> Self {
        Self { budget: Mutex::new(RetryBudget::new(options)), turn: Queue::new(()), filled: Notify::new() }
    }

    fn deposit(&self) {
        if self.with(RetryBudget::deposit) {
            self.filled.notify_one();
        }
    }

    async fn withdraw(&self, clock: &dyn Clock) {
        let _turn = self.turn.lock().await;
        while let Err(until) = self.with(|budget| budget.withdraw(clock.now())) {
            tokio::select! {
                () = self.filled.notified() => {}
                () = at(clock, until) => {}
            }
        }
    }

    fn retries(&self) -> u64 {
        self.with(|budget| budget.available())
    }

    fn with<T>(&self, act: impl FnOnce(&mut RetryBudget) -> T) -> T {
        act(&mut self.budget.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn at(clock: &dyn Clock, until: Option<Timestamp>) {
    match until {
        Some(until) => clock.sleep_until(until).await,
        None => std::future::pending().await,
    }
}
