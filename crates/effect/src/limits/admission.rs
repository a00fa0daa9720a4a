//! All that stands before an attempt: the retry budget, the tenant's rate, a place, the upstream's rate, the breaker.
//!
//! In this order, so that whoever waits for something of its own (its tenant's rate, the budget) holds no place that others
//! could use. Every wait is first come, first served, costs one timer for all who wait, and is given up by dropping it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use orlog_model::{Clock, TenantId, Timestamp};
use tokio::sync::{Mutex as Queue, Notify};

use crate::limits::breaker::{Health, State};
use crate::limits::breaker_gate::{Gate, Pass};
use crate::limits::concurrency::{Place, Turnstile};
use crate::limits::rate::{Meter, Rate};
use crate::observer::Observer;
use crate::policy::Policy;
use crate::retry_budget::Budget;

pub(crate) struct Admission {
    clock: Arc<dyn Clock>,
    budget: Option<Purse>,
    tenant_rate: Option<Rate>,
    tenants: Mutex<BTreeMap<TenantId, Arc<Metered>>>,
    places: Arc<Turnstile>,
    metered: Option<Metered>,
    gate: Option<Gate>,
}

/// The right to make one attempt.
pub(crate) struct Admitted<'a> {
    _place: Place,
    pass: Option<Pass<'a>>,
}

impl Admitted<'_> {
    /// Tells the breaker what the answer says about the upstream.
    pub(crate) fn report(self, health: Health) {
        if let Some(pass) = self.pass {
            pass.report(health);
        }
    }
}

/// Who is admitted, and to what.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) tenant: &'a TenantId,
    /// It is not the item's first attempt.
    pub(crate) retries: bool,
}

impl Admission {
    pub(crate) fn new(
        upstream: &str,
        policy: &Policy,
        clock: &Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            clock: Arc::clone(clock),
            budget: policy.budget.map(Purse::new),
            tenant_rate: policy.share.rate,
            tenants: Mutex::default(),
            places: Turnstile::new(policy.concurrency, policy.share.clone()),
            metered: policy.rate.map(Metered::new),
            gate: policy.breaker.map(|options| Gate::new(upstream, options, Arc::clone(clock), observer)),
        }
    }

    /// Waits for everything.
    pub(crate) async fn admit(&self, asker: Asker<'_>) -> Admitted<'_> {
        if let Some(purse) = &self.budget {
            if asker.retries {
                purse.withdraw(self.clock.as_ref()).await;
            } else {
                purse.deposit();
            }
        }
        if let Some(rate) = self.tenant_rate {
            self.tenant(asker.tenant, rate).pass(self.clock.as_ref()).await;
        }
        let place = self.places.place(asker.tenant).await;
        if let Some(metered) = &self.metered {
            metered.pass(self.clock.as_ref()).await;
        }
        let pass = match &self.gate {
            Some(gate) => Some(gate.pass().await),
            None => None,
        };
        Admitted { _place: place, pass }
    }

    pub(crate) fn breaker(&self) -> Option<(State, u64)> {
        self.gate.as_ref().map(Gate::state)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.places.taken()
    }

    pub(crate) fn retries_left(&self) -> Option<u64> {
        self.budget.as_ref().map(Purse::retries)
    }

    fn tenant(&self, tenant: &TenantId, rate: Rate) -> Arc<Metered> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metered) = tenants.get(tenant) {
            return Arc::clone(metered);
        }
        let metered = Arc::new(Metered::new(rate));
        tenants.insert(tenant.clone(), Arc::clone(&metered));
        metered
    }
}

/// A meter with a queue before it.
struct Metered {
    meter: Queue<Meter>,
}

impl Metered {
    fn new(rate: Rate) -> Self {
        Self { meter: Queue::new(Meter::new(rate)) }
    }

    /// Whoever holds the meter waits until it admits; the others wait for the meter.
    async fn pass(&self, clock: &dyn Clock) {
        let mut meter = self.meter.lock().await;
        while let Err(until) = meter.admit(clock.now()) {
            clock.sleep_until(until).await;
        }
    }
}

/// A budget with a queue before it.
struct Purse {
    budget: Mutex<Budget>,
    turn: Queue<()>,
    filled: Notify,
}

impl Purse {
    fn new(options: crate::retry_budget::Options) -> Self {
        Self { budget: Mutex::new(Budget::new(options)), turn: Queue::new(()), filled: Notify::new() }
    }

    fn deposit(&self) {
        if self.with(Budget::deposit) {
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
        self.with(|budget| budget.retries())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Budget) -> T) -> T {
        act(&mut self.budget.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn at(clock: &dyn Clock, until: Option<Timestamp>) {
    match until {
        Some(until) => clock.sleep_until(until).await,
        None => std::future::pending().await,
    }
}
