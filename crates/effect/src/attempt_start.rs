//! Start of an attempt whose work another process executes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use orlog_model::SteadyTime;
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
}

impl AttemptStart {
    /// Creates the start of work that must not start after a signal.
    pub(crate) fn until(stop: Option<&StopToken>) -> Self {
        Self(Arc::new(StartSignal {
            stop: stop.cloned(),
            ..StartSignal::default()
        }))
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
        *self.0.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        self.0.wake.notify_one();
    }

    /// Returns the time of [`AttemptStart::end_at`].
    pub(crate) fn end(&self) -> Option<SteadyTime> {
        *self.0.end.lock().unwrap_or_else(PoisonError::into_inner)
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
