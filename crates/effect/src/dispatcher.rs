//! Interface between an execution and the component that dispatched it.

/// Component that dispatched an item. It learns when the item waits for its next attempt, so that other
/// items can use its place meanwhile.
pub trait Dispatcher: Send + Sync {
    /// The item waits for its next attempt.
    fn wait_started(&self);

    /// The item continues, or its execution was dropped.
    fn wait_ended(&self);
}

/// Dispatcher without limits.
impl Dispatcher for () {
    fn wait_started(&self) {}

    fn wait_ended(&self) {}
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
