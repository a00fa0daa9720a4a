//! Requests that wait for the end of an instance, or for lines of its jobs: a commit wakes only
//! those of its instance.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlog_model::{Change, InstanceKey};
use parking_lot::Mutex;
use tokio::sync::watch;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Awaited {
    /// The end of the instance.
    End,
    /// Lines of its jobs, or its end.
    Lines,
}

/// Waiting requests of one shard.
#[derive(Default)]
pub(crate) struct InstanceWaiters {
    waiting: Mutex<HashMap<(InstanceKey, Awaited), watch::Sender<()>>>,
    /// Number of entries in `waiting`, so that a commit takes no lock while no request waits.
    entries: AtomicUsize,
}

/// Request that waits for a change of an instance. Register it before you read the instance: a
/// change that the read does not find wakes it.
pub struct InstanceWaiter {
    waiters: Arc<InstanceWaiters>,
    key: (InstanceKey, Awaited),
    woken: Option<watch::Receiver<()>>,
}

impl InstanceWaiter {
    /// Waits until the instance may have changed. Returns `false` if the shard stopped in this
    /// process.
    pub async fn woken(&mut self) -> bool {
        match &mut self.woken {
            Some(woken) => woken.changed().await.is_ok(),
            None => false,
        }
    }
}

impl Drop for InstanceWaiter {
    fn drop(&mut self) {
        // Under the lock, so that no request registers for a sender that is removed.
        let mut waiting = self.waiters.waiting.lock();
        self.woken = None;
        if waiting
            .get(&self.key)
            .is_some_and(|sender| sender.receiver_count() == 0)
        {
            waiting.remove(&self.key);
            self.waiters.entries.store(waiting.len(), Ordering::SeqCst);
        }
    }
}

impl InstanceWaiters {
    /// Registers a request.
    pub(crate) fn register(
        self: &Arc<Self>,
        key: &InstanceKey,
        awaited: Awaited,
    ) -> InstanceWaiter {
        let mut waiting = self.waiting.lock();
        let key = (key.clone(), awaited);
        let woken = waiting
            .entry(key.clone())
            .or_insert_with(|| watch::Sender::new(()))
            .subscribe();

        self.entries.store(waiting.len(), Ordering::SeqCst);
        InstanceWaiter {
            waiters: Arc::clone(self),
            key,
            woken: Some(woken),
        }
    }

    /// Wakes the requests for which a committed change matters.
    pub(crate) fn committed(&self, change: &Change) {
        // Almost every commit ends here, without a lock.
        if self.entries.load(Ordering::SeqCst) == 0 {
            return;
        }

        let (key, awaited): (&InstanceKey, &[Awaited]) = match change {
            Change::Apply(commit)
                if commit
                    .instance
                    .as_ref()
                    .is_some_and(|it| it.status.is_final()) =>
            {
                (&commit.key, &[Awaited::End, Awaited::Lines])
            }
            Change::Replace(replacement) => (&replacement.key, &[Awaited::End, Awaited::Lines]),
            Change::DropInstance { key } => (key, &[Awaited::End, Awaited::Lines]),
            Change::AppendJobLog(append) => (&append.instance, &[Awaited::Lines]),
            _ => return,
        };

        let waiting = self.waiting.lock();
        for awaited in awaited {
            if let Some(sender) = waiting.get(&(key.clone(), *awaited)) {
                sender.send_replace(());
            }
        }
    }

    /// Ends all requests: the shard stops in this process.
    pub(crate) fn close(&self) {
        self.waiting.lock().clear();
        self.entries.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use orlog_model::{
        Commit, CorrelationId, JobLogAppend, JobLogChunk, Name, SagaName, TenantId, Timestamp,
    };

    use super::*;

    fn key(correlation: &str) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(correlation).unwrap(),
        }
    }

    fn end(waiters: &Arc<InstanceWaiters>, correlation: &str) -> InstanceWaiter {
        waiters.register(&key(correlation), Awaited::End)
    }

    fn lines(correlation: &str) -> Change {
        let chunk = JobLogChunk {
            job: Name::new("cut").unwrap(),
            lines: Vec::new(),
        };
        Change::AppendJobLog(Box::new(JobLogAppend {
            instance: key(correlation),
            chunk,
            max_lines: 10,
        }))
    }

    #[tokio::test]
    async fn lines_wake_only_the_requests_that_follow_their_instance() {
        let waiters = Arc::new(InstanceWaiters::default());
        let mut followers = ["a", "b"].map(|of| waiters.register(&key(of), Awaited::Lines));
        let mut end_of_a = end(&waiters, "a");

        waiters.committed(&lines("a"));
        assert!(followers[0].woken().await);
        assert_eq!(followers[1].woken().now_or_never(), None);
        assert_eq!(end_of_a.woken().now_or_never(), None);

        // A commit of the shard that neither ends the instance nor appends lines wakes no request.
        let nothing = Commit::empty(key("a"), Timestamp::from_millis(1));
        waiters.committed(&Change::Apply(Box::new(nothing)));
        assert_eq!(followers[0].woken().now_or_never(), None);
        waiters.committed(&Change::DropInstance { key: key("a") });
        assert!(followers[0].woken().await && end_of_a.woken().await);
    }

    #[tokio::test]
    async fn commit_wakes_only_the_waiters_of_its_instance() {
        let waiters = Arc::new(InstanceWaiters::default());
        let (mut first, mut second) = (end(&waiters, "a"), end(&waiters, "a"));
        let mut other = end(&waiters, "b");
        waiters.committed(&Change::DropInstance { key: key("a") });
        assert!(first.woken().await && second.woken().await);
        assert_eq!(first.woken().now_or_never(), None, "one commit wakes once");
        assert_eq!(other.woken().now_or_never(), None);
    }

    #[tokio::test]
    async fn dropped_waiters_leave_no_entry() {
        let waiters = Arc::new(InstanceWaiters::default());
        let (first, second) = (end(&waiters, "a"), end(&waiters, "a"));
        drop(first);
        assert_eq!(waiters.waiting.lock().len(), 1);
        drop(second);
        assert_eq!(
            (
                waiters.waiting.lock().len(),
                waiters.entries.load(Ordering::SeqCst)
            ),
            (0, 0)
        );
    }

    #[tokio::test]
    async fn waiters_end_when_the_shard_stops() {
        let waiters = Arc::new(InstanceWaiters::default());
        let mut waiter = end(&waiters, "a");
        waiters.close();
        assert!(!waiter.woken().await);
        let mut next = end(&waiters, "a");
        drop(waiter);
        assert_eq!(
            next.woken().now_or_never(),
            None,
            "an old waiter does not remove a new one"
        );
    }
}
