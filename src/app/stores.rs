//! The stores of a node that has every shard for good, and of a folder that is looked into.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use orlog_actors::ShardParts;
use orlog_bus::nats::Connection;
use orlog_model::Clock;
use orlog_store::{Device, Reader, Writer};

use super::transport::Transport;
use super::{layout, part_config, replication, stores};
use crate::config::{ClusterMode, Config};

/// The epoch of a node that owns its shards for good.
const ONLY_EPOCH: u64 = 1;

/// The stores of a data folder, opened to look into them. Nobody else can open them meanwhile.
pub struct Look(Vec<(Writer, Reader)>);

impl Look {
    /// Opens the stores of a data folder that no process uses.
    ///
    /// # Errors
    /// When it is no data folder, is in use, or is damaged.
    pub fn into(data: &Path) -> anyhow::Result<Self> {
        let config = layout::of(data)?;
        let options = part_config::store(&config);
        let open = |index| orlog_store::open(&layout::shard(data, index), options.clone());
        let stores = (0..config.shards).map(open).collect::<Result<_, _>>();
        Ok(Self(stores.with_context(|| format!("the data folder {} cannot be opened", data.display()))?))
    }

    /// One reader a shard.
    pub fn readers(&self) -> impl Iterator<Item = &Reader> {
        self.0.iter().map(|(_, reader)| reader)
    }
}

/// Opens the stores that this node has for good and that live in its folder: with many pods they come when they are taken, and
/// with replication they come from their logs.
///
/// # Errors
/// When one cannot be had; the text says why.
pub(super) async fn local(
    config: &Config,
    disk: Option<Arc<dyn Device>>,
) -> anyhow::Result<Vec<(Writer, Reader)>> {
    if !has_all(config) || config.replicated() {
        return Ok(Vec::new());
    }
    let (data, options, shards) = (config.data.clone(), part_config::store(config), config.shards);
    let open = move || {
        let open = |index| {
            let (dir, options) = (layout::shard(&data, index), options.clone());
            match &disk {
                Some(disk) => orlog_store::open_on(&dir, options, Arc::clone(disk)),
                None => orlog_store::open(&dir, options),
            }
        };
        (0..shards).map(open).collect::<Result<Vec<_>, _>>()
    };
    let stores = tokio::task::spawn_blocking(open).await.context("the store did not open")?;
    stores.with_context(|| unusable(config))
}

/// Opens the stores that this node has for good and that live in logs.
///
/// # Errors
/// As [`local`].
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

/// The shards of a node that has all of them, on their stores.
pub(super) fn shards(config: &Config, stores: Vec<(Writer, Reader)>) -> Vec<ShardParts> {
    let shards = (0..).zip(part_config::ranges(config.shards)).zip(stores);
    shards.map(|((index, slots), (writer, reader))| ShardParts { index, slots, writer, reader }).collect()
}

fn has_all(config: &Config) -> bool {
    config.roles.runs_sagas() && config.cluster.mode == ClusterMode::Alone
}

fn unusable(config: &Config) -> String {
    format!("the data folder {} cannot be used", config.data.display())
}

/// Takes every shard over from its log. There are no leases: of two nodes on the same servers, the one that starts later owns them.
async fn follow_logs(
    config: &Config,
    connection: &Connection,
) -> Result<Vec<(Writer, Reader)>, orlog_store::Error> {
    let mut stores = Vec::new();
    for index in 0..config.shards {
        let (dir, options) = (layout::shard(&config.data, index), part_config::store(config));
        let pace = part_config::pace(config);
        stores.push(replication::open(connection, index, ONLY_EPOCH, dir, options, pace).await?);
    }
    Ok(stores)
}

/// The stores are those that it has for good; with many pods others come and go.
pub(super) struct Ground {
    pub(super) stores: Vec<(Writer, Reader)>,
    pub(super) transport: Transport,
}

impl Ground {
    /// Claims the folder, opens the stores in it, and reaches the bus and what is stored there.
    pub(super) async fn lay(
        config: &Config,
        disk: Option<Arc<dyn Device>>,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        if config.roles.runs_sagas() {
            layout::claim(config)?;
        }
        // Before anything else in the folder: who finds it in use is told so.
        let mut stores = stores::local(config, disk).await?;
        let transport = Box::pin(Transport::open(config, Arc::clone(clock))).await?;
        stores.extend(Box::pin(stores::replicated(config, &transport)).await?);
        Ok(Self { stores, transport })
    }
}
