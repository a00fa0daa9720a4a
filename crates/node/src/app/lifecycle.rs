//! Drain and stop of a running node.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::timeout;

use super::App;

/// Time to store the lines or the claims of jobs at the stop. A store without free space, or without its log,
/// does not respond.
const SAVE_TIMEOUT: Duration = Duration::from_secs(5);

impl App {
    /// Waits for the deployment, migration or replay that is in progress, and prevents the next one
    /// until the guard is dropped.
    pub async fn lock_definitions(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.locks.deploying.lock().await
    }

    /// Rejects new work and waits until no work is in flight, up to the configured timeout. Returns
    /// `false` if work is still in flight; it continues at the next start.
    pub async fn drain(&self) -> bool {
        let deadline = self.config.drain.timeout;
        let workers = async {
            match &self.workers {
                Some(workers) => workers.drain(deadline).await,
                None => true,
            }
        };

        // Both halves share one deadline: what the handover of shards uses is no longer available
        // to the shards that stay.
        let sagas = async {
            let end = tokio::time::Instant::now() + deadline;
            if let Some(cluster) = &self.cluster {
                cluster.drain(deadline).await;
            }
            // The subtraction saturates: a handover that takes too long leaves zero, not an
            // overflow.
            self.runtime.drain(end - tokio::time::Instant::now()).await
        };
        let (sagas, workers) = tokio::join!(sagas, workers);
        let drained = sagas && workers;

        // Also after a timeout: the process stops, and the next start continues the work.
        self.drain_state.send_replace(true);
        drained
    }

    /// Waits until the node is drained and can stop.
    pub async fn drained(&self) {
        // The sender lives as long as `self`.
        drop(
            self.drain_state
                .subscribe()
                .wait_for(|drained| *drained)
                .await,
        );
    }

    /// Waits until a component has failed too often.
    pub async fn has_failed(&self) {
        let workers = async {
            match &self.workers {
                Some(workers) => workers.ended().await,
                None => std::future::pending().await,
            }
        };

        tokio::select! {
            () = self.runtime.ended() => {}
            () = workers => {}
        }
    }

    /// Stops all components and flushes the files.
    ///
    /// # Errors
    /// Fails if the store cannot be flushed. Committed data is safe in its journal.
    pub async fn stop(&self) -> anyhow::Result<()> {
        // The periodic writers end first, then lines and claims are saved once more, while their
        // shards still commit. Like a periodic pass, none of these ends the stop by a panic.
        self.background.stop().await;
        let lines = timeout(SAVE_TIMEOUT, self.services.lines.save());
        if let Some(Err(_)) = self.background.run("job lines", lines).await {
            tracing::warn!("lines of jobs are lost: their shards cannot store them");
        }

        let claims = timeout(SAVE_TIMEOUT, self.services.claims.save());
        if let Some(Err(_)) = self.background.run("job claims", claims).await {
            tracing::warn!("claims of jobs are not stored: their shards cannot store them");
        }

        if let Some(workers) = &self.workers {
            workers.stop().await;
        }

        if let Some(cluster) = &self.cluster {
            // Before the runtime stops: the controller stops its shards through it, and announces
            // that other pods can acquire them.
            cluster.leave().await;
        }

        // A part that fails keeps no other one from its end.
        let stopped = self.runtime.stop().await;
        let closed = self.transport.close().await;
        // A position that is not on disk would look like a loss at the next start.
        if closed.is_ok() {
            self.services.positions.store().await;
        }
        self.authenticator.signed().close();

        if let (Err(_), Err(error)) = (&stopped, &closed) {
            // The result has room for one of them.
            tracing::error!(
                error = format!("{error:#}"),
                "the transport failed to close"
            );
        }
        stopped.context("the tables could not be flushed; the journal is complete")?;
        closed
    }
}
