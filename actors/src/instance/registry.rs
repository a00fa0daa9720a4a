//! Registry of the live instances of a shard. Delivers every input to its instance.
//!
//! Every input goes through `deliver`: it finds or creates the mailbox of the instance, appends the
//! input, and wakes or starts the actor. Idle instances are listed in the order in which they became
//! idle and are passivated from the start of the list.

mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use dashmap::{DashMap, Entry};
use orlog_effect::LeaseEnd;
use orlog_model::{Change, Clock, DeadLetter, DeadLetterOriginal, InstanceKey, SlotAssigner, TraceParent};
use orlog_store::Reader;
use ractor::{ActorId, ActorRef};
use tokio::sync::{Notify, oneshot};

use crate::instance::completion::{Completion, ControlReply};
use crate::instance::mailbox::{Envelope, IdleState, Mailbox, PushResult, Wake};
use crate::instance::program_registry::ProgramRegistry;
use crate::runtime::limits::Limits;
use crate::shard::epoch::ShardEpoch;
use crate::shard::stream_progress::StreamProgress;
use crate::shard::submission::{CommitterHandle, ShardUnavailable, Submission};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tracer::Tracer;

/// Maximum number of idle instances that one call checks when too many instances are live.
const MAX_EVICTIONS_PER_CALL: usize = 16;

/// Live instances of one shard. The registry survives restarts of the shard; its mailboxes do not.
pub(crate) struct InstanceRegistry {
    mailboxes: DashMap<InstanceKey, Arc<Mailbox>>,
    /// Number of mailboxes.
    live: AtomicUsize,
    idle: Mutex<VecDeque<Arc<Mailbox>>>,
    /// The current incarnation; `None` while the shard is down.
    open: RwLock<Option<Arc<Incarnation>>>,
    /// Epoch of the current or the last incarnation.
    epoch: RwLock<Arc<ShardEpoch>>,
    /// Another process owns the shard.
    lost: AtomicBool,
    /// The shard was released and does not open again.
    released: AtomicBool,
    /// Number of incarnations so far.
    incarnations: AtomicU64,
    /// Instances whose stored data could not be read.
    quarantined: Mutex<BTreeSet<InstanceKey>>,
    /// Progress in each stream that is read.
    streams: Mutex<Vec<Arc<StreamProgress>>>,
    /// Streams that lost messages and are not read, with the reason.
    lost_streams: Mutex<BTreeMap<String, String>>,
    pub(crate) context: Arc<ShardContext>,
}

/// Shard state that does not change while the process runs.
pub(crate) struct ShardContext {
    pub(crate) node: String,
    pub(crate) limits: Limits,
    pub(crate) slots: SlotAssigner,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reader: Reader,
    pub(crate) metrics: Arc<Metrics>,
    /// Notified when new dead letters must be published.
    pub(crate) dead_letters_added: Notify,
    /// Creates spans.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    /// Whether streams that lost messages are read.
    pub(crate) accept_data_loss: bool,
    /// End of the lease of this process.
    pub(crate) lease: LeaseEnd,
}

/// One run of the shard, from start to failure.
pub(crate) struct Incarnation {
    pub(crate) committer: CommitterHandle,
    /// Starts the actor that serves a mailbox; returns `None` if this is not possible.
    pub(crate) start: StartActor,
}

/// Type of [`Incarnation::start`].
pub(crate) type StartActor = Box<dyn Fn(&Arc<Mailbox>) -> Option<ActorRef<Wake>> + Send + Sync>;

impl InstanceRegistry {
    pub(crate) fn new(context: Arc<ShardContext>) -> Arc<Self> {
        Arc::new(Self {
            mailboxes: DashMap::new(),
            live: AtomicUsize::new(0),
            idle: Mutex::default(),
            open: RwLock::new(None),
            epoch: RwLock::new(Arc::new(ShardEpoch::new(context.lease.clone()))),
            lost: AtomicBool::new(false),
            released: AtomicBool::new(false),
            incarnations: AtomicU64::new(0),
            quarantined: Mutex::default(),
            streams: Mutex::default(),
            lost_streams: Mutex::default(),
            context,
        })
    }

    /// Starts a new incarnation; no state of the previous one is in memory.
    pub(crate) fn open(&self, incarnation: Incarnation) {
        self.close();
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        self.incarnations.fetch_add(1, Ordering::AcqRel);
        *self.epoch.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(ShardEpoch::new(self.context.lease.clone()));
        *open = (!self.is_released()).then(|| Arc::new(incarnation));
    }

    /// Ends the shard in this process at once: no further input is accepted and no transition is decided.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Release);
        self.close();
    }

    /// Returns true if the shard was released.
    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Returns the epoch of the current or the last incarnation.
    pub(crate) fn epoch(&self) -> Arc<ShardEpoch> {
        Arc::clone(&self.epoch.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of the current incarnation.
    pub(crate) fn incarnation_number(&self) -> u64 {
        self.incarnations.load(Ordering::Acquire)
    }

    /// Ends the incarnation and its epoch: queued inputs are dropped without acknowledgement and delivered
    /// again.
    pub(crate) fn close(&self) {
        self.epoch().end();
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.mailboxes.retain(|_, mailbox| {
            mailbox.close();
            self.live.fetch_sub(1, Ordering::AcqRel);
            self.context.metrics.live_instances.dec();
            false
        });
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Records that the stored data of an instance cannot be read.
    pub(crate) fn start_quarantine(&self, key: &InstanceKey) {
        if self.quarantined.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
            self.context.metrics.quarantined_instances.inc();
        }
    }

    /// Records that the data of an instance was replaced or dropped.
    pub(crate) fn end_quarantine(&self, key: &InstanceKey) {
        if self.quarantined.lock().unwrap_or_else(PoisonError::into_inner).remove(key) {
            self.context.metrics.quarantined_instances.dec();
        }
    }

    /// Commits a dead letter that results from no input of an instance, after the change `extra`.
    pub(crate) fn store_dead_letter(
        &self,
        dead_letter: DeadLetter,
        extra: Option<Change>,
        done: Completion,
    ) -> Result<(), ShardUnavailable> {
        let trace_id = match &dead_letter.original {
            DeadLetterOriginal::Input(input) => input.trace().map(TraceParent::trace_id),
            DeadLetterOriginal::Message { .. } => None,
        };
        let (tenant, reason, error) =
            (&dead_letter.tenant, dead_letter.reason.as_str(), &dead_letter.message);
        tracing::warn!(%tenant, trace_id, reason, error, "dead letter");
        self.context.metrics.count_dead_letter(dead_letter.reason);
        self.context.metrics.tenants.counters(&dead_letter.tenant).dead_letters.inc();
        // Retention counts from here, regardless of the age of the message.
        let at = self.context.clock.now();
        let change = Change::PutDeadLetter(Box::new(DeadLetter { at, ..dead_letter }));
        self.committer()?.submit(Submission { extra, ..Submission::new(change, done) })
    }

    /// Records that another process owns the shard: it must not be restarted here, and its attempts are
    /// cancelled.
    pub(crate) fn mark_lost(&self) {
        self.epoch().cancel();
        self.lost.store(true, Ordering::Release);
    }

    /// Returns true if another process owns the shard.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    fn incarnation(&self) -> Result<Arc<Incarnation>, ShardUnavailable> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(ShardUnavailable)
    }

    /// Returns the committer of the current incarnation.
    pub(crate) fn committer(&self) -> Result<CommitterHandle, ShardUnavailable> {
        Ok(self.incarnation()?.committer.clone())
    }

    /// Delivers an input to its instance and activates the instance if it is not live.
    pub(crate) fn deliver(&self, key: &InstanceKey, envelope: Envelope) -> Result<(), ShardUnavailable> {
        self.deliver_to(key, envelope, None)
    }

    /// Delivers an input within one incarnation. A stopped task may run for a moment; its inputs would
    /// overtake the inputs that are delivered again in the next incarnation.
    pub(crate) fn deliver_in_incarnation(
        &self,
        incarnation_number: u64,
        key: &InstanceKey,
        envelope: Envelope,
    ) -> Result<(), ShardUnavailable> {
        self.deliver_to(key, envelope, Some(incarnation_number))
    }

    fn deliver_to(
        &self,
        key: &InstanceKey,
        envelope: Envelope,
        incarnation_number: Option<u64>,
    ) -> Result<(), ShardUnavailable> {
        // Held until the input is in a mailbox: if the incarnation ended in between, the mailbox would outlive
        // it.
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let incarnation = open.as_deref().ok_or(ShardUnavailable)?;
        if incarnation_number
            .is_some_and(|incarnation_number| incarnation_number != self.incarnation_number())
        {
            return Err(ShardUnavailable);
        }
        self.context.metrics.inputs.inc();
        let mut envelope = envelope;
        loop {
            let mailbox = self.mailbox(key);
            match mailbox.push(envelope) {
                PushResult::Queued => return Ok(()),
                PushResult::NeedsActorStart => {
                    mailbox.ensure_actor(|| (incarnation.start)(&mailbox));
                    return Ok(());
                }
                PushResult::Closed(back) => {
                    envelope = back;
                    self.remove(&mailbox);
                }
            }
        }
    }

    /// Activates an instance that has buffered inputs to apply.
    pub(crate) fn activate(&self, key: &InstanceKey) -> Result<(), ShardUnavailable> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let incarnation = open.as_deref().ok_or(ShardUnavailable)?;
        let mailbox = self.mailbox(key);
        mailbox.ensure_actor(|| (incarnation.start)(&mailbox));
        Ok(())
    }

    fn mailbox(&self, key: &InstanceKey) -> Arc<Mailbox> {
        if let Some(mailbox) = self.mailboxes.get(key) {
            return Arc::clone(&mailbox);
        }
        let mailbox = match self.mailboxes.entry(key.clone()) {
            Entry::Occupied(mailbox) => return Arc::clone(mailbox.get()),
            Entry::Vacant(entry) => Arc::clone(&entry.insert(Mailbox::new(key.clone()))),
        };
        self.count_one();
        self.passivate_excess();
        mailbox
    }

    fn count_one(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
        self.context.metrics.activations.inc();
        self.context.metrics.live_instances.inc();
    }

    /// Commits a change that purges data of an instance. Returns `None` if the instance is live. Inputs
    /// that arrive meanwhile wait for the commit.
    pub(crate) fn purge(
        &self,
        key: &InstanceKey,
        change: Change,
    ) -> Result<Option<oneshot::Receiver<ControlReply>>, ShardUnavailable> {
        // Held as in `deliver`: the mailbox must not outlive the incarnation whose committer receives the
        // change.
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let incarnation = open.as_deref().ok_or(ShardUnavailable)?;
        let mailbox = match self.mailboxes.entry(key.clone()) {
            Entry::Occupied(_) => return Ok(None),
            Entry::Vacant(entry) => Arc::clone(&entry.insert(Mailbox::reserved(key.clone()))),
        };
        self.count_one();
        let (done, response) = Completion::for_caller();
        incarnation
            .committer
            .submit(Submission { mailbox: Some(mailbox), ..Submission::new(change, done) })?;
        Ok(Some(response))
    }

    /// Starts a new actor for the mailbox of a crashed saga actor; returns `false` if it served no mailbox.
    pub(crate) fn restart_actor(&self, crashed: ActorId) -> bool {
        let found = self
            .mailboxes
            .iter()
            .find(|mailbox| mailbox.is_served_by(crashed))
            .map(|mailbox| Arc::clone(&mailbox));
        let (Some(mailbox), Ok(incarnation)) = (found, self.incarnation()) else { return false };
        mailbox.actor_crashed();
        mailbox.ensure_actor(|| (incarnation.start)(&mailbox));
        true
    }

    /// Handles a mailbox that may have become idle.
    pub(crate) fn check_idle(&self, mailbox: &Arc<Mailbox>) {
        match mailbox.check_idle(Instant::now()) {
            IdleState::Busy => return,
            IdleState::InIdleList => {}
            IdleState::AddToIdleList => self.list(mailbox),
            IdleState::Closed => self.remove(mailbox),
        }
        self.passivate_excess();
    }

    fn list(&self, mailbox: &Arc<Mailbox>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::clone(mailbox));
    }

    fn remove(&self, mailbox: &Arc<Mailbox>) {
        if self.mailboxes.remove_if(&mailbox.key, |_, present| Arc::ptr_eq(present, mailbox)).is_some() {
            self.live.fetch_sub(1, Ordering::AcqRel);
            self.context.metrics.passivations.inc();
            self.context.metrics.live_instances.dec();
        }
    }

    /// Passivates idle instances while more instances are live than allowed. Called when an instance is
    /// activated and when one becomes idle, so that the instances of a burst are also removed.
    fn passivate_excess(&self) {
        let mut checked = 0;
        while self.live.load(Ordering::Acquire) > self.context.limits.max_live_instances
            && checked < MAX_EVICTIONS_PER_CALL
        {
            if !self.expire_head(Instant::now()) {
                return;
            }
            checked += 1;
        }
    }

    /// Passivates instances that have been idle for longer than the limit. Returns the number of checked
    /// mailboxes.
    pub(crate) fn passivate_idle(&self) -> usize {
        let Some(before) = Instant::now().checked_sub(self.context.limits.idle_timeout) else { return 0 };
        let listed = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        (0..listed).take_while(|_| self.expire_head(before)).count()
    }

    fn expire_head(&self, before: Instant) -> bool {
        let Some(mailbox) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else {
            return false;
        };
        match mailbox.close_if_idle_since(before) {
            IdleState::Closed => self.remove(&mailbox),
            IdleState::AddToIdleList => self.list(&mailbox),
            IdleState::Busy | IdleState::InIdleList => {}
        }
        true
    }

    /// Returns the queued inputs of each instance. Visits every live instance.
    pub(crate) fn mailbox_depths(&self) -> impl Iterator<Item = (InstanceKey, usize)> {
        self.mailboxes.iter().map(|mailbox| (mailbox.key.clone(), mailbox.depth()))
    }

    /// Calls `look` with the number of queued inputs of each live instance.
    pub(crate) fn for_each_depth(&self, mut visit: impl FnMut(usize)) {
        self.mailboxes.iter().for_each(|mailbox| visit(mailbox.depth()));
    }

    /// Returns true if no input is queued and no commit is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.mailboxes.iter().all(|mailbox| mailbox.depth() == 0 && mailbox.is_durable())
    }
}
