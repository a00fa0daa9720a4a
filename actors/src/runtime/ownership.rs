//! Acquisition and release of shards at run time.

use std::sync::Arc;
use std::time::Duration;

use orlog_effect::LeaseEnd;
use tokio::sync::oneshot;

use crate::root;
use crate::runtime::{Runtime, RuntimeError};
use crate::shard::running::{RunningShard, ShardDependencies};

/// Poll interval while waiting for a shard to become idle.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A shard that is stopped. Its store must still be closed, which may take a while.
pub struct ReleasedShard(Arc<RunningShard>);

impl ReleasedShard {
    /// Closes the store and frees its directory.
    ///
    /// # Errors
    /// If the store did not close cleanly; committed data is safe.
    pub async fn close(self) -> Result<(), orlog_store::Error> {
        self.0.close().await
    }
}

impl Runtime {
    /// Starts a shard in this process.
    ///
    /// # Errors
    /// If the shard is already running or does not start; then its store is closed again.
    pub async fn acquire_shard(&self, dependencies: ShardDependencies) -> Result<(), RuntimeError> {
        if self.shards.get(dependencies.index).is_some() {
            return Err(RuntimeError::AlreadyRunning(dependencies.index));
        }

        let running = RunningShard::new(dependencies, &self.shared, self.lease.clone());
        let (reply, started) = oneshot::channel();

        let start = root::Message::Start(Arc::clone(&running), reply);
        let stopped = || RuntimeError::Start("the runtime has stopped".to_owned());
        self.root.cast(start).map_err(|_| stopped())?;
        let started = started.await.unwrap_or_else(|_| Err(stopped().to_string()));

        if started.is_err() {
            running.close().await.ok();
        }
        started.map_err(RuntimeError::Start)
    }

    /// Releases a shard: ends its epoch, so that no attempt starts, and stops its ingestion. Work
    /// in flight gets up to `grace`; then its attempts are cancelled and the shard stops. With a
    /// grace of zero the shard ends at once, even if the supervisor is busy with another shard.
    /// After this call nothing is committed. The next owner repeats interrupted work under the same
    /// ids. Returns `None` if the shard does not run here.
    pub async fn release_shard(&self, index: u16, grace: Duration) -> Option<ReleasedShard> {
        let shard = self.shards.get(index)?;
        let epoch = shard.registry.lifecycle.epoch();
        epoch.end();
        // Errors here and below mean that it has already stopped.
        if !grace.is_zero() {
            let (done, quiet) = oneshot::channel();
            drop(self.root.cast(root::Message::QuiesceShard(index, done)));
            let rests = async {
                quiet.await.ok();
                while !shard.has_settled() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            };
            drop(tokio::time::timeout(grace, rests).await);
        }

        // Not before the grace is over: an interrupted attempt is in doubt for the next owner.
        epoch.cancel();
        shard.registry.release();

        let (done, stopped) = oneshot::channel();
        drop(self.root.cast(root::Message::Stop(index, done)));
        stopped.await.ok();

        // The shard may have crashed and restarted meanwhile.
        shard.registry.lifecycle.epoch().cancel();

        Some(ReleasedShard(shard))
    }

    /// Returns the lease of this process, after whose end no attempt starts.
    #[must_use]
    pub fn lease(&self) -> LeaseEnd {
        self.lease.clone()
    }

    /// Waits for the next shard that is lost to another process and returns its number. The shard
    /// is stopped here and its store is closed.
    pub async fn next_lost_shard(&self) -> Option<u16> {
        self.lost.lock().await.recv().await
    }

    /// Returns the shards that run in this process.
    #[must_use]
    pub fn owned_shards(&self) -> Vec<u16> {
        self.shards.all().iter().map(|shard| shard.index).collect()
    }
}
