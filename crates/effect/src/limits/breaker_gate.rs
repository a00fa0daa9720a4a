//! Where items wait while the breaker of their upstream is open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlog_model::{Clock, Timestamp};
use tokio::sync::Notify;

use crate::limits::breaker::{Admission, Breaker, Health, Options, State, Ticket};
use crate::observer::Observer;

/// A breaker shared by many askers. Waiting costs nothing: one timer while it is open, a notification otherwise.
pub(crate) struct Gate {
    upstream: String,
    breaker: Mutex<Breaker>,
    changed: Notify,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
}

impl Gate {
    pub(crate) fn new(
        upstream: &str,
        options: Options,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let breaker = Mutex::new(Breaker::new(options));
        Self { upstream: upstream.to_owned(), breaker, changed: Notify::new(), clock, observer }
    }

    /// Waits until a question may be asked. Dropping the future gives up the place.
    pub(crate) async fn pass(&self) -> Pass<'_> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.ask(|breaker| breaker.admit(self.clock.now())) {
                Admission::Go(ticket) => return Pass { gate: self, ticket: Some(ticket) },
                Admission::Wait(None) => changed.await,
                Admission::Wait(Some(until)) => self.wait(until, changed).await,
            }
        }
    }

    pub(crate) fn state(&self) -> (State, u64) {
        let breaker = self.lock();
        (breaker.state(), breaker.opened())
    }

    async fn wait(&self, until: Timestamp, changed: impl Future<Output = ()>) {
        tokio::select! {
            () = changed => {}
            () = self.clock.sleep_until(until) => {}
        }
    }

    fn record(&self, ticket: Ticket, health: Health) {
        self.ask(|breaker| breaker.record(ticket, health, self.clock.now()));
        if health == Health::Unknown {
            self.changed.notify_waiters();
        }
    }

    /// Does something with the breaker and tells everybody when that changed its state.
    fn ask<T>(&self, act: impl FnOnce(&mut Breaker) -> T) -> T {
        let (answer, before, after) = {
            let mut breaker = self.lock();
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
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Breaker> {
        // The breaker is whole between any two statements: a panic elsewhere leaves nothing half done.
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to ask once. Dropped without a report it says that nothing is known.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    ticket: Option<Ticket>,
}

impl Pass<'_> {
    pub(crate) fn report(mut self, health: Health) {
        if let Some(ticket) = self.ticket.take() {
            self.gate.record(ticket, health);
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.gate.record(ticket, Health::Unknown);
        }
    }
}
