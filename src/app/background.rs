//! What a node does by itself now and then: tasks that end with it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

/// The tasks.
#[derive(Default)]
pub(super) struct Background {
    tasks: Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
}

impl Background {
    /// Does something after a while, unless the node stops before.
    pub(super) fn later(&self, after: Duration, task: impl Future<Output = ()> + Send + 'static) {
        let mut stopping = self.stopping.subscribe();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let stopped = async { drop(stopping.wait_for(|stopping| *stopping).await) };
            let begins = tokio::select! {
                biased;
                () = stopped => false,
                () = tokio::time::sleep(after) => true,
            };
            if begins {
                task.await;
            }
        });
    }

    /// Returns when the node stops.
    pub(super) async fn stopping(&self) {
        // The sender lives as long as `self`.
        drop(self.stopping.subscribe().wait_for(|stopping| *stopping).await);
    }

    /// Waits a moment; `false` when the node stops meanwhile.
    pub(super) async fn pause(&self, pause: Duration) -> bool {
        tokio::time::timeout(pause, self.stopping()).await.is_err()
    }

    /// Begins nothing any more, and returns when what was begun has ended.
    pub(super) async fn stop(&self) {
        self.stopping.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.join_all().await;
    }
}
