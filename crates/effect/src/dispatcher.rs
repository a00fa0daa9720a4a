//! Interface between an execution and the component that dispatched it.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_model::count::{Operation, count};
use orlog_model::{JobClaim, WorkItem};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

/// End of the lease of this process. A process that was suspended reads it before any message about
/// its end arrives. Without a begin, it does not end.
#[derive(Clone, Debug, Default)]
pub struct LeaseEnd(Arc<Mutex<Option<Instant>>>);

impl LeaseEnd {
    /// Begins a lease.
    pub fn begin(&self, end: Instant) {
        *self.lock() = Some(end);
    }

    /// Extends the lease unless its end has passed; returns whether it was extended.
    #[must_use]
    pub fn extend(&self, end: Instant) -> bool {
        let mut current = self.lock();

        // No other thread sees the end pass between the check and the change.
        let is_valid = current.is_some_and(|current| Instant::now() < current);
        if is_valid {
            *current = Some(end);
        }
        is_valid
    }

    fn has_passed(&self) -> bool {
        self.lock().is_some_and(|end| end <= Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        count(Operation::Lock);
        self.0.lock()
    }
}

/// Signal to all executions of a dispatcher. It is permanent.
#[derive(Clone, Debug, Default)]
pub struct StopToken {
    sender: Arc<watch::Sender<bool>>,
    lease: LeaseEnd,
}

impl StopToken {
    /// Creates a token that is stopped after the end of a lease.
    #[must_use]
    pub fn until(lease: LeaseEnd) -> Self {
        Self {
            lease,
            ..Self::default()
        }
    }

    /// Sends the signal.
    pub fn stop(&self) {
        self.sender.send_replace(true);
    }

    /// Returns whether the signal was sent. The end of the lease sends it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        // A process that was suspended past its lease reads this before the controller can stop its
        // shards.
        if self.lease.has_passed() {
            self.stop();
        }
        *self.sender.borrow()
    }

    /// Waits for the signal.
    pub async fn stopped(&self) {
        // No error is possible: `self` owns the sender.
        drop(self.sender.subscribe().wait_for(|stopped| *stopped).await);
    }
}

/// Component that dispatched an item. It learns when the item waits for its next attempt, so that
/// other items can use its place meanwhile. It belongs to the execution: if that is dropped during
/// a wait, so is the dispatcher.
pub trait Dispatcher: Send + Sync {
    /// The item waits for its next attempt.
    fn wait_started(&self);

    /// The item continues.
    fn wait_ended(&self);

    /// Returns the signal after which no attempt starts; `None`: there is none.
    fn stop_token(&self) -> Option<&StopToken>;

    /// Returns the stored claim of a job, also after its expiry: a worker may still execute it.
    fn stored_claim(&self, _item: &WorkItem) -> Option<JobClaim> {
        None
    }

    /// Returns the recorder of starts; `None`: [`ExecutionProgress::in_doubt`] alone states the
    /// doubt.
    ///
    /// [`ExecutionProgress::in_doubt`]: crate::ExecutionProgress::in_doubt
    fn start_recorder(&self) -> Option<&dyn StartRecorder> {
        None
    }

    /// Returns whether the saga no longer awaits the result of the item. A job is then not offered
    /// to workers any more.
    fn is_abandoned(&self, _item: &WorkItem) -> bool {
        false
    }
}

/// Durable record of the first attempt of an item, which executions in several processes share.
#[async_trait]
pub trait StartRecorder: Send + Sync {
    /// Records that the first attempt of this execution starts, before it is made; retries until
    /// the record is durable. Returns whether another execution recorded its start before: its
    /// attempt is then in doubt. A repeated call of the same execution returns the same.
    async fn record_start(&self, item: &WorkItem) -> bool;
}

/// Waits for a signal; without one, for ever.
pub(crate) async fn stopped(token: Option<&StopToken>) {
    match token {
        Some(token) => token.stopped().await,
        None => std::future::pending().await,
    }
}

/// Returns whether no further attempt may start.
pub(crate) fn is_stopped(dispatcher: Option<&dyn Dispatcher>) -> bool {
    dispatcher
        .and_then(Dispatcher::stop_token)
        .is_some_and(StopToken::is_stopped)
}

/// Dispatcher without limits.
impl Dispatcher for () {
    fn wait_started(&self) {}

    fn wait_ended(&self) {}

    fn stop_token(&self) -> Option<&StopToken> {
        None
    }
}
