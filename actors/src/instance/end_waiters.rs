//! Requests that wait for the end of an instance, by instance: a commit wakes only those of its instance.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlog_model::{Change, InstanceKey};
use tokio::sync::watch;

/// Waiting requests of one shard.
#[derive(Default)]
pub(crate) struct EndWaiters {
    waiting: Mutex<HashMap<InstanceKey, watch::Sender<()>>>,
    /// Number of instances in `waiting`, so that a commit takes no lock while no request waits.
    instances: AtomicUsize,
}

/// Request that waits for the end of an instance. Register it before you read the instance: an end that the read
/// does not find wakes it.
pub struct EndWaiter {
    waiters: Arc<EndWaiters>,
    key: InstanceKey,
    woken: Option<watch::Receiver<()>>,
}

impl EndWaiter {
    /// Waits until the instance may have ended. Returns `false` if the shard stopped in this process.
    pub async fn woken(&mut self) -> bool {
        match &mut self.woken {
            Some(woken) => woken.changed().await.is_ok(),
            None => false,
        }
    }
}

impl Drop for EndWaiter {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        self.woken = None;
        if waiting
            .get(&self.key)
            .is_some_and(|sender| sender.receiver_count() == 0)
        {
            waiting.remove(&self.key);
            self.waiters
                .instances
                .store(waiting.len(), Ordering::SeqCst);
        }
    }
}

impl EndWaiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<InstanceKey, watch::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request.
    pub(crate) fn register(self: &Arc<Self>, key: &InstanceKey) -> EndWaiter {
        let mut waiting = self.lock();
        let woken = waiting
            .entry(key.clone())
            .or_insert_with(|| watch::Sender::new(()))
            .subscribe();
        self.instances.store(waiting.len(), Ordering::SeqCst);
        EndWaiter {
            waiters: Arc::clone(self),
            key: key.clone(),
            woken: Some(woken),
        }
    }

    /// Wakes the requests of the instances that a committed change may have ended.
    pub(crate) fn committed(&self, change: &Change) {
        let key = match change {
            Change::Apply(commit)
                if commit
                    .instance
                    .as_ref()
                    .is_some_and(|it| it.status.is_final()) =>
            {
                &commit.key
            }
            Change::Replace(replacement) => &replacement.key,
            Change::DropInstance { key } => key,
            _ => return,
        };
        if self.instances.load(Ordering::SeqCst) > 0
            && let Some(sender) = self.lock().get(key)
        {
            sender.send_replace(());
        }
    }

    /// Ends all requests: the shard stops in this process.
    pub(crate) fn close(&self) {
        self.lock().clear();
        self.instances.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use orlog_model::{CorrelationId, SagaName, TenantId};

    use super::*;

    fn key(correlation: &str) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(correlation).unwrap(),
        }
    }

    #[tokio::test]
    async fn commit_wakes_only_the_waiters_of_its_instance() {
        let waiters = Arc::new(EndWaiters::default());
        let (mut first, mut second) = (waiters.register(&key("a")), waiters.register(&key("a")));
        let mut other = waiters.register(&key("b"));
        waiters.committed(&Change::DropInstance { key: key("a") });
        assert!(first.woken().await && second.woken().await);
        assert_eq!(first.woken().now_or_never(), None, "one commit wakes once");
        assert_eq!(other.woken().now_or_never(), None);
    }

    #[tokio::test]
    async fn dropped_waiters_leave_no_entry() {
        let waiters = Arc::new(EndWaiters::default());
        let (first, second) = (waiters.register(&key("a")), waiters.register(&key("a")));
        drop(first);
        assert_eq!(waiters.lock().len(), 1);
        drop(second);
        assert_eq!(
            (
                waiters.lock().len(),
                waiters.instances.load(Ordering::SeqCst)
            ),
            (0, 0)
        );
    }

    #[tokio::test]
    async fn waiters_end_when_the_shard_stops() {
        let waiters = Arc::new(EndWaiters::default());
        let mut waiter = waiters.register(&key("a"));
        waiters.close();
        assert!(!waiter.woken().await);
        let mut next = waiters.register(&key("a"));
        drop(waiter);
        assert_eq!(
            next.woken().now_or_never(),
            None,
            "an old waiter does not remove a new one"
        );
    }
}
