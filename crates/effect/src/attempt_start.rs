//! Start of an attempt whose work another process executes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlog_model::{JobClaim, SteadyTime};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::dispatcher::StopToken;

/// Start of the work of an attempt in another process, which may wait for it.
#[derive(Clone, Debug, Default)]
pub struct AttemptStart(Arc<StartSignal>);

#[derive(Debug, Default)]
struct StartSignal {
    wake: Notify,
    has_started: AtomicBool,
    end: Mutex<Option<SteadyTime>>,
    stop: Option<StopToken>,
    claim: Option<Box<StoredClaim>>,
}

/// Claim of the work by a worker before the process started, from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredClaim {
    pub(crate) claim: JobClaim,
    /// Expiry on the clock of this process; it may have passed.
    pub(crate) until: SteadyTime,
}

impl AttemptStart {
    /// Creates the start of work that must not start after a signal.
    pub(crate) fn until(stop: Option<&StopToken>) -> Self {
        Self(Arc::new(StartSignal {
            stop: stop.cloned(),
            ..StartSignal::default()
        }))
    }

    /// Adds the stored claim of the work.
    pub(crate) fn with_claim(self, claim: Option<Box<StoredClaim>>) -> Self {
        // Most jobs have no stored claim, and need no other signal.
        if claim.is_none() {
            return self;
        }
        Self(Arc::new(StartSignal {
            stop: self.0.stop.clone(),
            claim,
            ..StartSignal::default()
        }))
    }

    /// Returns the stored claim of the work.
    pub(crate) fn claim(&self) -> Option<&StoredClaim> {
        self.0.claim.as_deref()
    }

    /// Returns whether the work may start.
    pub(crate) fn is_allowed(&self) -> bool {
        !self.0.stop.as_ref().is_some_and(StopToken::is_stopped)
    }

    /// Reports that the work starts now, maybe again.
    pub fn start(&self) {
        self.0.has_started.store(true, Ordering::Release);
        self.0.wake.notify_one();
    }

    /// Ends the attempt at this time, unless it has a result before.
    pub(crate) fn end_at(&self, end: SteadyTime) {
        *self.0.end.lock() = Some(end);
        self.0.wake.notify_one();
    }

    /// Returns the time of [`AttemptStart::end_at`].
    pub(crate) fn end(&self) -> Option<SteadyTime> {
        *self.0.end.lock()
    }

    /// Waits until the work starts, or has an end. Cancel safe.
    pub(crate) async fn started(&self) {
        self.0.wake.notified().await;
    }

    /// Returns whether the work has ever started.
    pub(crate) fn has_started(&self) -> bool {
        self.0.has_started.load(Ordering::Acquire)
    }
}
