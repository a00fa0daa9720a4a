//! Stores of a node with permanent shards, and read-only stores of an offline data directory.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use orlog_actors::ShardDependencies;
use orlog_bus::nats::Connection;
use orlog_model::Clock;
use orlog_store::{Device, Reader, Writer};

use super::transport::Transport;
use super::{component_config, layout, replication, stores};
use crate::config::{ClusterMode, Config};

/// Stores of an offline data directory, opened to read them. No other process can open them meanwhile.
pub struct ReadOnlyStores(Vec<(Writer, Reader)>);

impl ReadOnlyStores {
    /// Opens the stores of an offline data directory.
    ///
    /// # Errors
    /// Fails if it is not a data directory, is in use, or is damaged.
    pub fn open(data: &Path) -> anyhow::Result<Self> {
        let config = layout::stored_config(data)?;
        let options = component_config::store(&config);
        let open = |index| orlog_store::open(&layout::shard_dir(data, index), options.clone());
        let stores = (0..config.shards).map(open).collect::<Result<_, _>>();
        Ok(Self(stores.with_context(|| format!("the data directory {} cannot be opened", data.display()))?))
    }

    /// Returns one reader per shard.
    pub fn readers(&self) -> impl Iterator<Item = &Reader> {
        self.0.iter().map(|(_, reader)| reader)
    }
}

/// Opens the permanent stores in the data directory of this node. In a cluster, stores are opened when
/// their shard is acquired; with replication they are restored from their logs.
///
/// # Errors
/// Fails if a store is not available; the text states the reason.
pub(super) async fn local(
    config: &Config,
    disk: Option<Arc<dyn Device>>,
) -> anyhow::Result<Vec<(Writer, Reader)>> {
    if !has_all(config) || config.replicated() {
        return Ok(Vec::new());
    }
    let (data, options, shards) = (config.data_dir.clone(), component_config::store(config), config.shards);
    let open = move || {
        let open = |index| {
            let (dir, options) = (layout::shard_dir(&data, index), options.clone());
            match &disk {
                Some(disk) => orlog_store::open_with_disk(&dir, options, Arc::clone(disk)),
                None => orlog_store::open(&dir, options),
            }
        };
        (0..shards).map(open).collect::<Result<Vec<_>, _>>()
    };
    let stores = tokio::task::spawn_blocking(open).await.context("the store did not open")?;
    stores.with_context(|| unusable(config))
}

/// Opens the permanent stores of this node from their replicated logs.
///
/// # Errors
/// Same as [`local`].
pub(super) async fn replicated(
    config: &Config,
    transport: &Transport,
) -> anyhow::Result<Vec<(Writer, Reader)>> {
    match transport.connection() {
        Some(connection) if has_all(config) && config.replicated() => {
            follow_logs(config, connection).await.with_context(|| unusable(config))
        }
        _ => Ok(Vec::new()),
    }
}

/// Builds the shards of a node that owns all of them.
pub(super) fn shards(config: &Config, stores: Vec<(Writer, Reader)>) -> Vec<ShardDependencies> {
    let shards = (0..).zip(component_config::ranges(config.shards)).zip(stores);
    shards
        .map(|((index, slots), (writer, reader))| ShardDependencies { index, slots, writer, reader })
        .collect()
}

fn has_all(config: &Config) -> bool {
    config.role.runs_sagas() && config.cluster.mode == ClusterMode::Standalone
}

fn unusable(config: &Config) -> String {
    format!("the data directory {} cannot be used", config.data_dir.display())
}

/// Takes every shard over from its log. There are no leases: of two nodes on the same servers, the
/// later one owns the shards.
async fn follow_logs(
    config: &Config,
    connection: &Connection,
) -> Result<Vec<(Writer, Reader)>, orlog_store::Error> {
    let mut stores = Vec::new();
    for index in 0..config.shards {
        let (dir, options) = (layout::shard_dir(&config.data_dir, index), component_config::store(config));
        let pace = component_config::snapshot_policy(config);
        stores.push(replication::open(connection, index, None, dir, options, pace).await?);
    }
    Ok(stores)
}

/// Storage of a node. Contains the permanent stores; in a cluster, other shards are acquired and
/// released.
pub(super) struct NodeStorage {
    pub(super) stores: Vec<(Writer, Reader)>,
    pub(super) transport: Transport,
}

impl NodeStorage {
    /// Claims the data directory, opens its stores, and connects the bus and the replicated logs.
    pub(super) async fn open(
        config: &Config,
        disk: Option<Arc<dyn Device>>,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        if config.role.runs_sagas() {
            layout::claim_data_dir(config)?;
        }
        // First, so that a directory that is in use is reported before any other error.
        let mut stores = stores::local(config, disk).await?;
        let transport = Box::pin(Transport::open(config, Arc::clone(clock))).await?;
        stores.extend(Box::pin(stores::replicated(config, &transport)).await?);
        Ok(Self { stores, transport })
    }
}
