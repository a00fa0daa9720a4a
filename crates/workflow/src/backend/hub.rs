//! Notifications of a backend, so that nothing polls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

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
    instances: Mutex<HashMap<InstanceId, watch::Sender<()>>>,
}

impl Hub {
    /// Reports that an instance may have become available.
    pub fn notify_available(&self) {
        self.inner.available.send_replace(());
    }

    /// Reports that an instance has a signal, is released or has ended.
    pub fn notify(&self, id: &str) {
        if let Some(sender) = self.lock().get(id) {
            sender.send_replace(());
        }
    }

    /// Reports that notifications may be lost: all consumers look again.
    pub fn notify_all(&self) {
        self.notify_available();
        let instances = self.lock();
        #[expect(clippy::iter_over_hash_type, reason = "the order of notifications has no effect")]
        for sender in instances.values() {
            sender.send_replace(());
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
        let mut instances = self.lock();
        let receiver = instances.entry(Arc::clone(id)).or_default().subscribe();
        Watcher { id: Arc::clone(id), receiver: Some(receiver), hub: self.clone() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<InstanceId, watch::Sender<()>>> {
        self.inner.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receiver of the notifications about one instance.
#[derive(Debug)]
pub struct Watcher {
    id: InstanceId,
    receiver: Option<watch::Receiver<()>>,
    hub: Hub,
}

impl Watcher {
    /// Waits for a notification since the watcher was created or since the last call.
    pub async fn changed(&mut self) {
        if let Some(receiver) = &mut self.receiver
            && receiver.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut instances = self.hub.lock();
        self.receiver = None;
        if instances.get(&self.id).is_some_and(|sender| sender.receiver_count() == 0) {
            instances.remove(&self.id);
        }
    }
}
