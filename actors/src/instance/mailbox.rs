//! Mailbox of a live instance, stored outside its actor.
//!
//! Inputs are queued here in order; the actor only receives a wake-up. If an actor crashes, no
//! input is lost: the next actor continues with the same queue, and the first input keeps its
//! attempt count. Passivation closes the mailbox under the lock that senders take, so that no input
//! is added in between; its actor then serves another mailbox.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use orlog_model::count::{Operation, count};
use orlog_model::{Change, Input, Instance, InstanceKey};
use parking_lot::{Mutex, MutexGuard};
use ractor::{ActorId, ActorRef};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::instance::completion::Completion;

/// Message to a saga actor.
pub(crate) enum SagaMessage {
    /// Serve this mailbox.
    Serve(Arc<Mailbox>),
    /// The mailbox has inputs.
    Wake,
    /// The mailbox is closed.
    Release,
}

/// Input in transit to an instance.
pub(crate) struct Envelope {
    /// The input.
    pub(crate) input: Arc<Input>,
    /// Receiver of the completion.
    pub(crate) completion: Completion,
    /// Change to commit in the same group, before the consequences of the input.
    pub(crate) extra_change: Option<Change>,
    /// Number of times that an actor started to process the input.
    pub(crate) attempts: u32,
}

impl Envelope {
    pub(crate) fn new(input: Input, done: Completion) -> Self {
        Self {
            input: Arc::new(input),
            completion: done,
            extra_change: None,
            attempts: 0,
        }
    }

    /// Returns the idempotency key that is recorded with the input.
    fn request_key(&self) -> Option<RequestKey> {
        match self.extra_change.as_ref()? {
            Change::RequestKey {
                key, fingerprint, ..
            } => Some(RequestKey {
                key: *key,
                fingerprint: *fingerprint,
            }),
            _ => None,
        }
    }

    /// Returns true if the input is from a stream, which delivers it again until it is
    /// acknowledged.
    fn is_from_stream(&self) -> bool {
        matches!(self.completion, Completion::Ack(_))
    }
}

/// Idempotency key of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestKey {
    /// Hash of the key.
    pub(crate) key: Uuid,
    /// Hash of the request.
    pub(crate) fingerprint: Uuid,
}

/// Attempt to process the first input.
pub(crate) struct Attempt {
    pub(crate) input: Arc<Input>,
    /// Number of the attempt, from 1.
    pub(crate) number: u32,
    /// Idempotency key that is recorded with the input.
    pub(crate) request_key: Option<RequestKey>,
}

/// Mailbox of a live instance. See the module documentation.
pub(crate) struct Mailbox {
    pub(crate) key: InstanceKey,
    inner: Mutex<MailboxState>,
    /// Notified when a commit becomes durable.
    changed: Notify,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
struct MailboxState {
    queue: VecDeque<Envelope>,
    actor: Option<ActorRef<SagaMessage>>,
    /// Number of commits that are not durable yet.
    pending: usize,
    /// The instance has ended and need not stay in memory.
    ended: bool,
    closed: bool,
    /// The store may have spilled inputs of the instance: inputs from streams follow them.
    spilled: bool,
    /// The actor has buffered inputs to apply.
    unbuffering: bool,
    /// Actor crashes since the last completed input.
    crashes: u32,
    idle_since: Option<Instant>,
    /// The mailbox is in the idle list of the instance registry.
    in_idle_list: bool,
}

/// Result of a push.
pub(crate) enum PushResult {
    /// The input is queued and the actor is notified.
    Queued,
    /// The input is queued; an actor must be started.
    NeedsActorStart,
    /// The mailbox is closed; use a new one.
    Closed(Envelope),
}

/// Request of an idle mailbox to the instance registry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IdleState {
    /// The mailbox is not idle.
    Busy,
    /// Add the mailbox to the idle list.
    AddToIdleList,
    /// No request: the mailbox is already in the idle list.
    InIdleList,
    /// The mailbox is now closed: remove it.
    Closed,
}

impl MailboxState {
    /// Returns true if an input is queued or spilled, or a commit is not durable.
    fn is_busy(&self) -> bool {
        !self.queue.is_empty() || self.pending > 0 || self.spilled || self.unbuffering
    }
}

impl Mailbox {
    pub(crate) fn new(key: InstanceKey) -> Arc<Self> {
        Arc::new(Self {
            key,
            inner: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Returns the mailbox of an instance that is about to be purged. Inputs wait until the purge
    /// is durable.
    pub(crate) fn reserved(key: InstanceKey) -> Arc<Self> {
        let inner = MailboxState {
            pending: 1,
            ended: true,
            ..MailboxState::default()
        };
        Arc::new(Self {
            key,
            inner: Mutex::new(inner),
            changed: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        count(Operation::Lock);
        self.inner.lock()
    }

    /// Appends an input and wakes the actor if it may be idle.
    pub(crate) fn push(&self, envelope: Envelope) -> PushResult {
        let mut inner = self.lock();
        if inner.closed {
            return PushResult::Closed(envelope);
        }

        // Under the lock that passivation takes: the input cannot enter a mailbox that closes.
        inner.queue.push_back(envelope);
        inner.idle_since = None;
        let first = inner.queue.len() == 1;
        // An actor with more than one input is awake: a burst needs one wake-up.
        match &inner.actor {
            Some(actor) if !first || wake(actor) => PushResult::Queued,
            Some(_) | None => PushResult::NeedsActorStart,
        }
    }

    /// Wakes the actor; without a live actor, calls `start` to obtain one that serves the mailbox.
    pub(crate) fn ensure_actor(&self, start: impl FnOnce() -> Option<ActorRef<SagaMessage>>) {
        let mut inner = self.lock();
        let alive = inner.actor.as_ref().is_some_and(wake);
        if !alive && !inner.closed {
            inner.actor = start();
        }
    }

    /// Returns true if this actor serves the mailbox.
    pub(crate) fn is_served_by(&self, id: ActorId) -> bool {
        self.lock()
            .actor
            .as_ref()
            .is_some_and(|actor| actor.get_id() == id)
    }

    /// Removes the reference to a crashed actor.
    pub(crate) fn actor_crashed(&self) {
        let mut inner = self.lock();
        inner.actor = None;
        inner.crashes += 1;
    }

    /// Returns the number of actor crashes since the last completed input.
    pub(crate) fn crashes(&self) -> u32 {
        self.lock().crashes
    }

    /// Begins an attempt to process the first input. There is none for an input that must be
    /// spilled.
    pub(crate) fn start_attempt(&self) -> Option<Attempt> {
        let mut inner = self.lock();
        if inner.closed {
            return None;
        }

        let spilled = inner.spilled;
        let front = inner
            .queue
            .front_mut()
            .filter(|front| !(spilled && front.is_from_stream()))?;

        front.attempts += 1;
        Some(Attempt {
            input: Arc::clone(&front.input),
            number: front.attempts,
            request_key: front.request_key(),
        })
    }

    /// Takes back the last attempt: it failed for a reason outside the input.
    pub(crate) fn retract_attempt(&self) {
        if let Some(front) = self.lock().queue.front_mut() {
            front.attempts = front.attempts.saturating_sub(1);
        }
    }

    /// Returns true if the mailbox is closed: its instance is passivated, or the incarnation has
    /// ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Removes the first input; its consequences are known. Its `commits` go to the committer next.
    pub(crate) fn finish(&self, commits: usize, ended: bool) -> Option<Envelope> {
        let mut inner = self.lock();
        inner.pending += commits;
        inner.ended = ended;
        // The input has a result, so the crashes before it no longer count.
        inner.crashes = 0;
        inner.queue.pop_front()
    }

    /// Returns true if the first input has an extra change, which is committed also if the input
    /// changes nothing.
    pub(crate) fn has_own_change(&self) -> bool {
        let inner = self.lock();
        inner
            .queue
            .front()
            .is_some_and(|envelope| envelope.extra_change.is_some())
    }

    /// Drops the extra change of the first input: the store has it.
    pub(crate) fn drop_own_change(&self) {
        if let Some(front) = self.lock().queue.front_mut() {
            front.extra_change = None;
        }
    }

    /// Returns true if the first input is from a stream.
    pub(crate) fn is_from_stream(&self) -> bool {
        self.lock()
            .queue
            .front()
            .is_some_and(Envelope::is_from_stream)
    }

    /// Returns the replacement of the instance that the first input contains.
    pub(crate) fn replacement(&self) -> Option<Instance> {
        match self.lock().queue.front()?.extra_change.as_ref()? {
            Change::Replace(replacement) => Some(replacement.instance.clone()),
            _ => None,
        }
    }

    /// Registers one more commit that does not result from a queued input.
    pub(crate) fn expect_commit(&self, ended: bool) {
        let mut inner = self.lock();
        inner.pending += 1;
        inner.ended = ended;
        inner.crashes = 0;
    }

    /// Closes the mailbox and drops its queued inputs.
    pub(crate) fn close(&self) {
        close(&mut self.lock());
        self.changed.notify_waiters();
    }

    /// Records that a commit became durable.
    pub(crate) fn committed(&self) {
        self.lock().pending -= 1;
        self.changed.notify_waiters();
    }

    /// Returns the number of commits that are not durable yet.
    pub(crate) fn pending(&self) -> usize {
        self.lock().pending
    }

    /// Returns true if all commits are durable.
    pub(crate) fn is_durable(&self) -> bool {
        self.lock().pending == 0
    }

    /// Waits until all commits are durable.
    pub(crate) async fn wait_durable(&self) {
        self.until(|inner| inner.pending == 0).await;
    }

    /// Removes the inputs that must be spilled, in order; the caller commits each. These are all
    /// inputs from streams if earlier ones are spilled or more than `limit` inputs are queued: an
    /// input in memory must not be older than a spilled one, because a crash would reverse their
    /// order.
    pub(crate) fn take_to_spill(&self, limit: usize) -> Vec<Envelope> {
        let mut inner = self.lock();
        if !inner.spilled && inner.queue.len() <= limit {
            return Vec::new();
        }

        let (from_streams, queue): (Vec<_>, Vec<_>) = std::mem::take(&mut inner.queue)
            .into_iter()
            .partition(Envelope::is_from_stream);
        // Results and timers are rows of the store already, and a request has a caller who waits.
        inner.queue = queue.into();
        inner.spilled |= !from_streams.is_empty();
        inner.pending += from_streams.len();
        from_streams
    }

    /// Returns true if the store may have spilled inputs of the instance.
    pub(crate) fn is_spilled(&self) -> bool {
        self.lock().spilled
    }

    /// Sets whether the actor has buffered inputs to apply.
    pub(crate) fn set_unbuffering(&self, unbuffering: bool) {
        self.lock().unbuffering = unbuffering;
    }

    /// Sets whether the store may have spilled inputs of the instance.
    pub(crate) fn set_spilled(&self, spilled: bool) {
        self.lock().spilled = spilled;
    }

    async fn until(&self, reached: impl Fn(&MailboxState) -> bool) {
        loop {
            // Registered before the check: a commit between the check and the wait would not wake
            // it.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if reached(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Returns the number of queued inputs.
    pub(crate) fn depth(&self) -> usize {
        self.lock().queue.len()
    }

    /// Checks whether the mailbox is idle. Closes it immediately if the instance has ended.
    pub(crate) fn check_idle(&self, now: Instant) -> IdleState {
        let mut inner = self.lock();
        if inner.closed || inner.is_busy() {
            return IdleState::Busy;
        }

        if inner.ended {
            close(&mut inner);
            return IdleState::Closed;
        }

        inner.idle_since = Some(now);
        if inner.in_idle_list {
            return IdleState::InIdleList;
        }
        inner.in_idle_list = true;
        IdleState::AddToIdleList
    }

    /// Closes a mailbox from the idle list if it has been idle since `before`.
    pub(crate) fn close_if_idle_since(&self, before: Instant) -> IdleState {
        let mut inner = self.lock();
        // The caller has taken the mailbox from the list.
        inner.in_idle_list = false;

        match inner.idle_since {
            Some(since) if since <= before && !inner.is_busy() => {
                close(&mut inner);
                IdleState::Closed
            }
            Some(_) => {
                inner.in_idle_list = true;
                IdleState::AddToIdleList
            }
            None => IdleState::Busy,
        }
    }
}

/// Wakes the actor; returns `false` if it has stopped.
fn wake(actor: &ActorRef<SagaMessage>) -> bool {
    send(actor, SagaMessage::Wake)
}

/// Sends a message to a saga actor; returns `false` if it has stopped.
pub(crate) fn send(actor: &ActorRef<SagaMessage>, message: SagaMessage) -> bool {
    count(Operation::ActorMessage);
    actor.cast(message).is_ok()
}

fn close(inner: &mut MailboxState) {
    inner.closed = true;
    if let Some(actor) = inner.actor.take() {
        send(&actor, SagaMessage::Release);
    }
}
