//! Interface between an execution and the component that dispatched it.

use std::sync::Arc;

use tokio::sync::watch;

/// Signal to all executions of a dispatcher. It is permanent.
#[derive(Clone, Debug, Default)]
pub struct StopToken(Arc<watch::Sender<bool>>);

impl StopToken {
    /// Sends the signal.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Returns whether the signal was sent.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the signal.
    pub async fn stopped(&self) {
        // No error is possible: `self` owns the sender.
        drop(self.0.subscribe().wait_for(|stopped| *stopped).await);
    }
}

/// Component that dispatched an item. It learns when the item waits for its next attempt, so that other
/// items can use its place meanwhile.
pub trait Dispatcher: Send + Sync {
    /// The item waits for its next attempt.
    fn wait_started(&self);

    /// The item continues, or its execution was dropped.
    fn wait_ended(&self);

    /// Returns the signal after which no attempt starts; `None`: there is none.
    fn stop_token(&self) -> Option<&StopToken>;
}

/// Returns whether no further attempt may start.
pub(crate) fn is_stopped(dispatcher: Option<&dyn Dispatcher>) -> bool {
    dispatcher.and_then(Dispatcher::stop_token).is_some_and(StopToken::is_stopped)
}

/// Dispatcher without limits.
impl Dispatcher for () {
    fn wait_started(&self) {}

    fn wait_ended(&self) {}

    fn stop_token(&self) -> Option<&StopToken> {
        None
    }
}

/// Reports the end of a wait, also if the execution is dropped.
pub(crate) struct WaitGuard<'a>(&'a dyn Dispatcher);

impl<'a> WaitGuard<'a> {
    pub(crate) fn new(dispatcher: &'a dyn Dispatcher) -> Self {
        dispatcher.wait_started();
        Self(dispatcher)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.wait_ended();
    }
}
