//! Live instances of a shard: one mailbox for each instance in memory, and the list of the idle
//! ones.
//!
//! Idle instances are listed in the order in which they became idle, and are passivated from the
//! start of the list.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use dashmap::{DashMap, Entry};
use orlog_model::InstanceKey;
use parking_lot::Mutex;
use ractor::ActorId;

use crate::instance::mailbox::{IdleState, Mailbox};
use crate::runtime::live_limits::LiveLimits;
use crate::telemetry::metrics::Metrics;

/// Maximum number of idle instances that one call checks when too many instances are live.
const MAX_EVICTIONS_PER_CALL: usize = 16;

/// Mailboxes of the live instances.
pub(crate) struct LiveInstances {
    mailboxes: DashMap<InstanceKey, Arc<Mailbox>>,
    /// Number of mailboxes.
    count: AtomicUsize,
    idle: Mutex<VecDeque<Arc<Mailbox>>>,
    limits: Arc<LiveLimits>,
    metrics: Arc<Metrics>,
}

impl LiveInstances {
    pub(crate) fn new(limits: Arc<LiveLimits>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            mailboxes: DashMap::new(),
            count: AtomicUsize::new(0),
            idle: Mutex::default(),
            limits,
            metrics,
        })
    }

    /// Returns the mailbox of an instance, which becomes live.
    pub(crate) fn mailbox(&self, key: &InstanceKey) -> Arc<Mailbox> {
        if let Some(mailbox) = self.mailboxes.get(key) {
            return Arc::clone(&mailbox);
        }
        let mailbox = match self.mailboxes.entry(key.clone()) {
            Entry::Occupied(mailbox) => return Arc::clone(mailbox.get()),
            Entry::Vacant(entry) => Arc::clone(&entry.insert(Mailbox::new(key.clone()))),
        };

        // After the entry is free: a passivation locks other entries of the map.
        self.count_one();
        self.passivate_excess();
        mailbox
    }

    /// Reserves an instance that is not live for a purge: inputs wait until it is durable.
    pub(crate) fn reserve(&self, key: &InstanceKey) -> Option<Arc<Mailbox>> {
        let mailbox = match self.mailboxes.entry(key.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(entry) => Arc::clone(&entry.insert(Mailbox::reserved(key.clone()))),
        };
        self.count_one();
        Some(mailbox)
    }

    /// Returns the mailbox that this actor serves.
    pub(crate) fn served_by(&self, actor: ActorId) -> Option<Arc<Mailbox>> {
        let found = self
            .mailboxes
            .iter()
            .find(|mailbox| mailbox.is_served_by(actor));
        found.map(|mailbox| Arc::clone(&mailbox))
    }

    fn count_one(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.metrics.activations.inc();
        self.metrics.live_instances.inc();
    }

    /// Removes a closed mailbox.
    pub(crate) fn remove(&self, mailbox: &Arc<Mailbox>) {
        if self
            .mailboxes
            // Only this mailbox: the instance may already have a new one.
            .remove_if(&mailbox.key, |_, present| Arc::ptr_eq(present, mailbox))
            .is_some()
        {
            self.count.fetch_sub(1, Ordering::AcqRel);
            self.metrics.passivations.inc();
            self.metrics.live_instances.dec();
        }
    }

    /// Closes all mailboxes and drops their inputs.
    pub(crate) fn close(&self) {
        self.mailboxes.retain(|_, mailbox| {
            mailbox.close();
            self.count.fetch_sub(1, Ordering::AcqRel);
            self.metrics.live_instances.dec();
            false
        });
        self.idle.lock().clear();
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
        self.idle.lock().push_back(Arc::clone(mailbox));
    }

    /// Passivates idle instances while more instances are live than allowed. Called when an
    /// instance is activated and when one becomes idle, so that the instances of a burst are also
    /// removed.
    fn passivate_excess(&self) {
        let mut checked = 0;
        while self.count.load(Ordering::Acquire) > self.limits.max_live_instances()
            && checked < MAX_EVICTIONS_PER_CALL
        {
            if !self.expire_head(Instant::now()) {
                return;
            }
            checked += 1;
        }
    }

    /// Passivates instances that have been idle for longer than the limit.
    pub(crate) fn passivate_idle(&self) {
        let Some(before) = Instant::now().checked_sub(self.limits.idle_timeout()) else {
            return;
        };

        let mut listed = self.idle.lock().len();

        // Only those that are listed now: an instance that becomes busy and idle again moves to the
        // end.
        while listed > 0 && self.expire_head(before) {
            listed -= 1;
        }
    }

    fn expire_head(&self, before: Instant) -> bool {
        let Some(mailbox) = self.idle.lock().pop_front() else {
            return false;
        };
        match mailbox.close_if_idle_since(before) {
            IdleState::Closed => self.remove(&mailbox),
            IdleState::AddToIdleList => self.list(&mailbox),
            IdleState::Busy | IdleState::InIdleList => {}
        }
        true
    }

    /// Calls `visit` with each live instance and its number of queued inputs.
    pub(crate) fn for_each_depth(&self, mut visit: impl FnMut(&InstanceKey, usize)) {
        self.mailboxes
            .iter()
            .for_each(|mailbox| visit(&mailbox.key, mailbox.depth()));
    }

    /// Returns true if no input is queued and no commit is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.mailboxes
            .iter()
            .all(|mailbox| mailbox.depth() == 0 && mailbox.is_durable())
    }
}
