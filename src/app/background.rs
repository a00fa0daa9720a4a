//! Periodic background tasks of a node; they end with the node.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
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

    /// Waits until the node stops.
    pub(crate) async fn stopping(&self) {
        // The sender lives as long as `self`.
        drop(self.stopping.subscribe().wait_for(|stopping| *stopping).await);
    }

    /// Waits for a delay. Returns `false` if the node stops meanwhile.
    pub(crate) async fn pause(&self, pause: Duration) -> bool {
        tokio::time::timeout(pause, self.stopping()).await.is_err()
    }

    /// Starts no further tasks and waits until the running ones end.
    pub(crate) async fn stop(&self) {
        self.stopping.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.join_all().await;
    }
}
