//! Periodic background tasks of a node; they end with the node.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Background tasks of a node.
#[derive(Default)]
pub(crate) struct BackgroundTasks {
    tasks: Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
}

impl BackgroundTasks {
    /// Runs a task after a delay, unless the node stops earlier.
    pub(crate) fn spawn(&self, after: Duration, task: impl Future<Output = ()> + Send + 'static) {
        let mut stopping = self.stopping.subscribe();
        let mut tasks = self.tasks.lock();

        // Ended tasks are removed here, so that the set does not grow.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // The delay ends with the node, but a task that has started runs to its end.
            let stopped = async { drop(stopping.wait_for(|stopping| *stopping).await) };
            let is_due = tokio::select! {
                biased;
                () = stopped => false,
                () = tokio::time::sleep(after) => true,
            };

            if is_due {
                task.await;
            }
        });
    }

    /// Runs a task of a service after a delay, and again after each delay that it returns, until
    /// the node stops or drops the service. The stop of the node does not wait for the task, which
    /// may wait for free space.
    pub(crate) fn repeat<S, F>(
        &self,
        service: &Arc<S>,
        mut delay: Duration,
        mut task: impl FnMut(Arc<S>) -> F + Send + 'static,
    ) where
        S: Send + Sync + 'static,
        F: Future<Output = Duration> + Send + 'static,
    {
        // A task must not keep its service alive.
        let service = Arc::downgrade(service);
        let mut stopping = self.stopping.subscribe();
        self.tasks.lock().spawn(async move {
            let stopped = async { drop(stopping.wait_for(|stopping| *stopping).await) };
            let repeated = async {
                loop {
                    tokio::time::sleep(delay).await;
                    let Some(service) = service.upgrade() else {
                        return;
                    };
                    delay = task(service).await;
                }
            };

            tokio::select! {
                biased;
                () = stopped => {}
                () = repeated => {}
            }
        });
    }

    /// Starts no further tasks and waits until the running ones end.
    pub(crate) async fn stop(&self) {
        self.stopping.send_replace(true);

        // The lock is free while the tasks end: one of them may spawn another.
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.join_all().await;
    }
}
