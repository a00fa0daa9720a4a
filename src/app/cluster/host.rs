//! What a keeper of shards needs of the node.

use async_trait::async_trait;
use orlog_actors::Runtime;
use orlog_actors::placement::Rule;

use crate::config::{ClusterMode, Config};

/// Where shards run.
#[async_trait]
pub(in crate::app) trait Host: Send + Sync + 'static {
    /// What runs them.
    fn runtime(&self) -> &Runtime;

    /// As the node was started.
    fn config(&self) -> &Config;

    /// Takes over the store of a shard under this epoch, and starts it.
    ///
    /// # Errors
    /// When another pod has a later lease, the store cannot be had, or the shard does not start.
    async fn run_shard(&self, shard: u16, epoch: u64) -> anyhow::Result<()>;
}

/// By which rule shards find their pods.
pub(super) fn rule(config: &Config) -> Rule {
    match config.cluster.mode {
        ClusterMode::Fixed => Rule::Ordinal(config.cluster.pods),
        ClusterMode::Alone | ClusterMode::Leased => Rule::Even,
    }
}
