//! Task that belongs to an actor. It waits, so that the actor's mailbox stays free for stop and
//! supervision messages.

use std::future::Future;

use ractor::{ActorRef, Message};
use tokio::task::AbortHandle;

/// Task handle that aborts the task when it is dropped.
pub(crate) struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl AbortOnDrop {
    /// Runs `work` as a task. When it returns or panics, the actor receives `ended(reason)`.
    pub(crate) fn spawn<M: Message>(
        actor: &ActorRef<M>,
        work: impl Future<Output = String> + Send + 'static,
        ended: fn(String) -> M,
    ) -> Self {
        let task = tokio::spawn(work);
        let abort = task.abort_handle();
        let actor = actor.clone();
        tokio::spawn(async move {
            let reason = match task.await {
                Ok(reason) => reason,
                Err(error) if error.is_cancelled() => return,
                Err(error) => error.to_string(),
            };
            // An error means that the actor has already stopped.
            drop(actor.cast(ended(reason)));
        });
        Self(abort)
    }
}
