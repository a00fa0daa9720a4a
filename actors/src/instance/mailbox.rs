//! The mailbox of a live instance, kept outside its actor.
//!
//! Inputs wait here, in order; the actor is only woken. An actor that dies loses nothing: the next one goes on with the
//! same queue, and the input at its head remembers how often it was tried. Passivation closes the cell under the same
//! lock that senders take, so that no input can slip in between.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use orlog_model::{Change, Input, Instance, InstanceKey, TenantId};
use ractor::{ActorId, ActorRef};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::instance::completion::Done;

/// The only message a saga actor takes: there is something in its cell.
pub(crate) struct Poke;

/// An input on its way to an instance.
pub(crate) struct Envelope {
    /// What it is.
    pub(crate) input: Arc<Input>,
    /// Whom to tell.
    pub(crate) done: Done,
    /// To be committed together with the consequences, before them.
    pub(crate) extra: Option<Change>,
    /// How often an actor began with it.
    pub(crate) attempts: u32,
}

impl Envelope {
    pub(crate) fn new(input: Input, done: Done) -> Self {
        Self { input: Arc::new(input), done, extra: None, attempts: 0 }
    }
}

/// See the top of this file.
pub(crate) struct Cell {
    pub(crate) key: InstanceKey,
    inner: Mutex<Inner>,
    /// Signalled when a commit became durable or the queue got shorter.
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Envelope>,
    actor: Option<ActorRef<Poke>>,
    /// Commits on their way.
    pending: usize,
    /// The instance has ended: no reason to keep it in memory.
    ended: bool,
    closed: bool,
    /// Actors that died since the last input was done.
    deaths: u32,
    idle_since: Option<Instant>,
    /// It stands in the directory's list of idle cells.
    listed: bool,
}

/// What became of a push.
pub(crate) enum Push {
    /// It is in the queue, and the actor knows.
    Queued,
    /// It is in the queue; an actor must be started.
    NeedsActor,
    /// The cell is closed; take the next one.
    Closed(Envelope),
}

/// What a cell at rest asks of the directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It is not at rest.
    Busy,
    /// Put it on the list of idle cells.
    List,
    /// Nothing: it stands on the list already.
    Listed,
    /// It is closed now: remove it.
    Closed,
}

impl Cell {
    pub(crate) fn new(key: InstanceKey) -> Arc<Self> {
        Arc::new(Self { key, inner: Mutex::default(), changed: Notify::new() })
    }

    /// A cell of an instance that is about to be forgotten: whoever comes meanwhile waits until that is durable.
    pub(crate) fn claimed(key: InstanceKey) -> Arc<Self> {
        let inner = Inner { pending: 1, ended: true, ..Inner::default() };
        Arc::new(Self { key, inner: Mutex::new(inner), changed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds this lock")
    }

    /// Appends an input and wakes the actor where it may sleep.
    pub(crate) fn push(&self, envelope: Envelope) -> Push {
        let mut inner = self.lock();
        if inner.closed {
            return Push::Closed(envelope);
        }
        inner.queue.push_back(envelope);
        inner.idle_since = None;
        let first = inner.queue.len() == 1;
        match &inner.actor {
            Some(actor) if !first || actor.cast(Poke).is_ok() => Push::Queued,
            Some(_) | None => Push::NeedsActor,
        }
    }

    /// Makes `start` start an actor unless a living one is there, and wakes it.
    pub(crate) fn ensure_actor(&self, start: impl FnOnce() -> Option<ActorRef<Poke>>) {
        let mut inner = self.lock();
        let alive = inner.actor.as_ref().is_some_and(|actor| actor.cast(Poke).is_ok());
        if !alive && !inner.closed {
            inner.actor = start();
            if let Some(actor) = &inner.actor {
                // A fresh actor's mailbox is open; if it died at once, its supervisor tells us.
                drop(actor.cast(Poke));
            }
        }
    }

    /// Whether this actor serves the cell.
    pub(crate) fn is_served_by(&self, id: ActorId) -> bool {
        self.lock().actor.as_ref().is_some_and(|actor| actor.get_id() == id)
    }

    /// Forgets a dead actor.
    pub(crate) fn bury(&self) {
        let mut inner = self.lock();
        inner.actor = None;
        inner.deaths += 1;
    }

    /// Actors that died here since the last input was done.
    pub(crate) fn deaths(&self) -> u32 {
        self.lock().deaths
    }

    /// The input at the head, and how often it was begun, this time included.
    pub(crate) fn begin(&self) -> Option<(Arc<Input>, u32)> {
        let mut inner = self.lock();
        let front = inner.queue.front_mut()?;
        front.attempts += 1;
        Some((Arc::clone(&front.input), front.attempts))
    }

    /// Takes the input at the head; its consequences are known. `commits` of them go to the committer next.
    pub(crate) fn finish(&self, commits: usize, ended: bool) -> Option<Envelope> {
        let mut inner = self.lock();
        inner.pending += commits;
        inner.ended = ended;
        inner.deaths = 0;
        let envelope = inner.queue.pop_front();
        drop(inner);
        self.changed.notify_waiters();
        envelope
    }

    /// Whether the input at the head brings a change of its own.
    pub(crate) fn has_extra(&self) -> bool {
        self.lock().queue.front().is_some_and(|envelope| envelope.extra.is_some())
    }

    /// What the input at the head puts in the place of the instance.
    pub(crate) fn replacement(&self) -> Option<Instance> {
        match self.lock().queue.front()?.extra.as_ref()? {
            Change::Replace(replacement) => Some(replacement.instance.clone()),
            _ => None,
        }
    }

    /// The dead letter that the input at the head comes from.
    pub(crate) fn letter(&self) -> Option<(TenantId, Uuid)> {
        match self.lock().queue.front()?.extra.as_ref()? {
            Change::DropDeadLetter { tenant, id } => Some((tenant.clone(), *id)),
            _ => None,
        }
    }

    /// Announces one more commit that no input of the queue led to.
    pub(crate) fn expect_commit(&self, ended: bool) {
        let mut inner = self.lock();
        inner.pending += 1;
        inner.ended = ended;
        inner.deaths = 0;
    }

    /// Ends the cell with whatever waits in it.
    pub(crate) fn close(&self) {
        close(&mut self.lock());
        self.changed.notify_waiters();
    }

    /// A commit became durable.
    pub(crate) fn committed(&self) {
        self.lock().pending -= 1;
        self.changed.notify_waiters();
    }

    /// Whether every commit is durable.
    pub(crate) fn is_durable(&self) -> bool {
        self.lock().pending == 0
    }

    /// Waits until every commit is durable.
    pub(crate) async fn durable(&self) {
        self.until(|inner| inner.pending == 0).await;
    }

    /// Waits until fewer than `limit` inputs wait.
    pub(crate) async fn room(&self, limit: usize) {
        self.until(|inner| inner.queue.len() < limit || inner.closed).await;
    }

    async fn until(&self, reached: impl Fn(&Inner) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if reached(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// How many inputs wait.
    pub(crate) fn depth(&self) -> usize {
        self.lock().queue.len()
    }

    /// Looks whether the cell has come to rest. An instance that has ended is closed at once.
    pub(crate) fn rest(&self, now: Instant) -> Rest {
        let mut inner = self.lock();
        if inner.closed || !inner.queue.is_empty() || inner.pending > 0 {
            return Rest::Busy;
        }
        if inner.ended {
            close(&mut inner);
            return Rest::Closed;
        }
        inner.idle_since = Some(now);
        if inner.listed {
            return Rest::Listed;
        }
        inner.listed = true;
        Rest::List
    }

    /// Called for a cell taken from the list of idle cells: closes it when it has been idle since `before`.
    pub(crate) fn expire(&self, before: Instant) -> Rest {
        let mut inner = self.lock();
        inner.listed = false;
        match inner.idle_since {
            Some(since) if since <= before && inner.queue.is_empty() && inner.pending == 0 => {
                close(&mut inner);
                Rest::Closed
            }
            Some(_) => {
                inner.listed = true;
                Rest::List
            }
            None => Rest::Busy,
        }
    }
}

/// The reason a saga actor stops for when its cell is closed.
pub(crate) const PASSIVATED: &str = "passivated";

fn close(inner: &mut Inner) {
    inner.closed = true;
    if let Some(actor) = inner.actor.take() {
        actor.stop(Some(PASSIVATED.to_owned()));
    }
}
