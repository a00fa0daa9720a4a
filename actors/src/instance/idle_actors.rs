//! Saga actors of an incarnation that serve no mailbox: a new mailbox needs no new actor.

use parking_lot::Mutex;
use ractor::ActorRef;

use crate::instance::mailbox::SagaMessage;

/// Maximum number of idle actors.
const MAX_IDLE_ACTORS: usize = 256;

/// Idle saga actors; see the module documentation.
#[derive(Default)]
pub(crate) struct IdleActors(Mutex<Vec<ActorRef<SagaMessage>>>);

impl IdleActors {
    /// Takes an idle actor, if there is one.
    pub(crate) fn take(&self) -> Option<ActorRef<SagaMessage>> {
        self.0.lock().pop()
    }

    /// Adds an idle actor; returns it if there are enough.
    pub(crate) fn put(&self, actor: ActorRef<SagaMessage>) -> Option<ActorRef<SagaMessage>> {
        let mut idle = self.0.lock();
        if idle.len() >= MAX_IDLE_ACTORS {
            return Some(actor);
        }
        idle.push(actor);
        None
    }
}
