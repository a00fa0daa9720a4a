//! A task that belongs to an actor: it does the waiting, so that the actor's mailbox stays free for stop and supervision.

use std::future::Future;

use ractor::{ActorRef, Message};
use tokio::task::AbortHandle;

/// Ends its task when it is dropped.
pub(crate) struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Driver {
    /// Runs `work`; when it returns or panics, the actor is told `ended(why)`.
    pub(crate) fn start<M: Message>(
        actor: &ActorRef<M>,
        work: impl Future<Output = String> + Send + 'static,
        ended: fn(String) -> M,
    ) -> Self {
        let task = tokio::spawn(work);
        let abort = task.abort_handle();
        let actor = actor.clone();
        tokio::spawn(async move {
            let why = match task.await {
                Ok(why) => why,
                Err(error) if error.is_cancelled() => return,
                Err(error) => error.to_string(),
            };
            // An error means that the actor has gone already.
            drop(actor.cast(ended(why)));
        });
        Self(abort)
    }
}
