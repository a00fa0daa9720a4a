//! Gate of an upstream: items wait here while its breaker is open.

use std::sync::Arc;

use orlog_model::{Clock, SteadyTime};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::breaker::{
    Breaker, BreakerDecision, BreakerOptions, BreakerState, CallHealth, CallToken,
};
use crate::observer::EffectObserver;

/// Breaker shared by many callers. Waiting costs one timer while it is open, and a notification
/// otherwise.
pub(crate) struct BreakerGate {
    upstream: String,
    breaker: Mutex<Breaker>,
    /// Message of the last unhealthy call.
    last_error: Mutex<Option<String>>,
    changed: Notify,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn EffectObserver>,
}

impl BreakerGate {
    pub(crate) fn new(
        upstream: &str,
        options: BreakerOptions,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn EffectObserver>,
    ) -> Self {
        Self {
            upstream: upstream.to_owned(),
            breaker: Mutex::new(Breaker::new(options)),
            last_error: Mutex::default(),
            changed: Notify::new(),
            clock,
            observer,
        }
    }

    /// Waits until a call is allowed. Dropping the future cancels the wait.
    pub(crate) async fn acquire(&self) -> BreakerPermit<'_> {
        loop {
            // Registered before the state is read, so that a change in between is not missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();

            match self.update(|breaker| breaker.admit(self.clock.steady())) {
                BreakerDecision::Allow(ticket) => {
                    return BreakerPermit {
                        gate: self,
                        ticket: Some(ticket),
                    };
                }
                BreakerDecision::Wait(None) => changed.await,
                BreakerDecision::Wait(Some(until)) => self.wait(until, changed).await,
            }
        }
    }

    pub(crate) fn state(&self) -> (BreakerState, u64) {
        let breaker = self.breaker.lock();
        (breaker.state(), breaker.open_count())
    }

    /// Returns the message of the last unhealthy call.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    async fn wait(&self, until: SteadyTime, changed: impl Future<Output = ()>) {
        tokio::select! {
            () = changed => {}
            () = self.clock.sleep_until(until) => {}
        }
    }

    fn record(&self, ticket: CallToken, health: CallHealth) {
        self.update(|breaker| breaker.record(ticket, health, self.clock.steady()));
        // The state is still half-open, so nothing else wakes the next item to make the trial call.
        if health == CallHealth::Unknown {
            self.changed.notify_waiters();
        }
    }

    /// Runs an operation on the breaker and notifies all waiters if the state changed.
    fn update<T>(&self, act: impl FnOnce(&mut Breaker) -> T) -> T {
        // The observer is called without the lock: it must not delay other items.
        let (result, before, after) = {
            let mut breaker = self.breaker.lock();
            let before = breaker.state();
            (act(&mut breaker), before, breaker.state())
        };

        if before != after {
            tracing::info!(
                upstream = self.upstream,
                from = before.as_str(),
                to = after.as_str(),
                "breaker changed"
            );
            self.observer.breaker_changed(&self.upstream, after);
            self.changed.notify_waiters();
        }
        result
    }
}

/// Permit for one call. If it is dropped without a report, the health is unknown.
pub(crate) struct BreakerPermit<'a> {
    gate: &'a BreakerGate,
    ticket: Option<CallToken>,
}

impl BreakerPermit<'_> {
    /// Reports the health of the call; `error` is the message of an unhealthy one.
    pub(crate) fn report(mut self, health: CallHealth, error: Option<&str>) {
        if let Some(error) = error.filter(|_| health == CallHealth::Unhealthy) {
            let mut last = self.gate.last_error.lock();
            *last = Some(error.to_owned());
        }

        if let Some(ticket) = self.ticket.take() {
            self.gate.record(ticket, health);
        }
    }
}

impl Drop for BreakerPermit<'_> {
    fn drop(&mut self) {
        // A cancelled trial call must not leave the breaker half-open without a call in flight.
        if let Some(ticket) = self.ticket.take() {
            self.gate.record(ticket, CallHealth::Unknown);
        }
    }
}
