//! Notifications of a backend, so that nothing polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::{DashMap, Entry};
use foldhash::fast::RandomState;
use tokio::sync::{Notify, watch};

/// Id of an instance.
pub type InstanceId = Arc<str>;

/// Notifications: instances that became available, and changes of single instances.
#[derive(Debug, Clone, Default)]
pub struct Hub {
    inner: Arc<HubInner>,
}

#[derive(Debug, Default)]
struct HubInner {
    available: watch::Sender<()>,
    instances: DashMap<InstanceId, Watched, RandomState>,
}

/// Instance that has watchers.
#[derive(Debug, Default)]
struct Watched {
    changes: Arc<Changes>,
    watchers: usize,
}

/// Changes of one instance. A channel of Tokio would be larger than most instances.
#[derive(Debug, Default)]
struct Changes {
    count: AtomicU64,
    notify: Notify,
}

impl Changes {
    fn add(&self) {
        // The count first: a watcher that is woken compares it.
        self.count.fetch_add(1, Ordering::AcqRel);
        self.notify.notify_waiters();
    }
}

impl Hub {
    /// Reports that an instance may have become available.
    pub fn notify_available(&self) {
        self.inner.available.send_replace(());
    }

    /// Reports that an instance has a signal, is released or has ended.
    pub fn notify(&self, id: &str) {
        if let Some(watched) = self.inner.instances.get(id) {
            watched.changes.add();
        }
    }

    /// Reports that notifications may be lost: all consumers look again.
    pub fn notify_all(&self) {
        self.notify_available();
        for watched in &self.inner.instances {
            watched.changes.add();
        }
    }

    /// Returns a receiver of the notifications about available instances.
    #[must_use]
    pub fn available(&self) -> watch::Receiver<()> {
        self.inner.available.subscribe()
    }

    /// Returns a receiver of the notifications about one instance.
    #[must_use]
    pub fn watch(&self, id: &InstanceId) -> Watcher {
        let mut watched = self.inner.instances.entry(Arc::clone(id)).or_default();
        watched.watchers += 1;

        let changes = Arc::clone(&watched.changes);
        drop(watched);

        // The count is read after the registration, so a notification in between is received.
        let seen = changes.count.load(Ordering::Acquire);

        Watcher {
            id: Arc::clone(id),
            changes,
            seen,
            hub: self.clone(),
        }
    }
}

/// Receiver of the notifications about one instance.
#[derive(Debug)]
pub struct Watcher {
    id: InstanceId,
    changes: Arc<Changes>,
    /// Number of changes at the last call.
    seen: u64,
    hub: Hub,
}

impl Watcher {
    /// Waits for a notification since the watcher was created or since the last call.
    pub async fn changed(&mut self) {
        loop {
            // Before the count is read: `notify_waiters` reaches each future that exists.
            let notified = self.changes.notify.notified();
            let count = self.changes.count.load(Ordering::Acquire);
            if count != self.seen {
                self.seen = count;
                return;
            }
            notified.await;
        }
    }

    /// Returns whether [`Watcher::changed`] would return at once.
    pub(crate) fn has_changed(&self) -> bool {
        self.changes.count.load(Ordering::Acquire) != self.seen
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Entry::Occupied(mut entry) = self.hub.inner.instances.entry(Arc::clone(&self.id))
        else {
            return;
        };

        // Under the lock of the entry, so that no watcher registers for changes that are removed.
        entry.get_mut().watchers -= 1;
        if entry.get().watchers == 0 {
            entry.remove();
        }
    }
}
