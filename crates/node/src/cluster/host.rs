//! Interface of the node for the shard controller.

use std::time::Duration;

use async_trait::async_trait;
use orlog_actors::ReleasedShard;

use orlog_effect::LeaseEnd;
use tokio::sync::watch;

use super::placement::PlacementPolicy;
use crate::config::{ClusterMode, Config};

/// Host of the shards of a pod.
#[async_trait]
pub(crate) trait ShardHost: Send + Sync + 'static {
    /// Returns the configuration of the node.
    fn config(&self) -> &Config;

    /// Takes over the store of a shard under this epoch and starts the shard. When `stopped`
    /// becomes true, a start in progress fails, and the running shard gets no more responses from
    /// its replicated log.
    ///
    /// # Errors
    /// Fails if another pod has a later lease, the store is not available, or the shard does not
    /// start.
    async fn run_shard(
        &self,
        shard: u16,
        epoch: u64,
        stopped: watch::Receiver<bool>,
    ) -> anyhow::Result<()>;

    /// Returns the lease of this pod, which the controller begins and extends. After its end, no
    /// attempt of an effect may start.
    fn lease(&self) -> LeaseEnd;

    /// Stops a shard after up to `grace` for its in-flight work; returns `None` if it does not run
    /// here.
    async fn stop_shard(&self, shard: u16, grace: Duration) -> Option<ReleasedShard>;

    /// Waits for the next shard that another process has acquired, and returns its number.
    async fn next_lost_shard(&self) -> Option<u16>;

    /// Stops the process because of an error that a restart does not repair.
    fn abort(&self, reason: &str);
}

/// Returns the placement policy of the shards.
pub(super) fn placement_policy(config: &Config) -> PlacementPolicy {
    match config.cluster.mode {
        ClusterMode::Static => PlacementPolicy::Ordinal(config.cluster.pod_count),
        ClusterMode::Standalone | ClusterMode::Leases => PlacementPolicy::Even,
    }
}
