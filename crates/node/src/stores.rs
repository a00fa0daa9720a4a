//! Stores of a node with permanent shards, and read-only stores of an offline data directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use orlog_actors::{EMBEDDED_STREAM, Runtime, RuntimeConfig, ShardDependencies};
use orlog_bus::embedded::ConsumerCheckpoint;
use orlog_bus::nats::Connection;
use orlog_model::{CheckpointKey, Clock};
use orlog_store::{Device, Reader, Writer};
use tokio::sync::watch;

use super::background::BackgroundTasks;
use super::layout::DurablePositions;
use super::transport::{LogExpectation, Transport};
use crate::access::AccessRegistry;
use crate::config::{ClusterMode, Config};
use crate::{component_config, layout, registry, replication};

/// Stores of an offline data directory, opened to read them. No other process can open them
/// meanwhile.
pub struct ReadOnlyStores(Vec<(Writer, Reader)>);

impl ReadOnlyStores {
    /// Opens the stores of an offline data directory.
    ///
    /// # Errors
    /// Fails if it is not a data directory, is in use, or is damaged.
    pub fn open(data: &Path) -> anyhow::Result<Self> {
        let config = layout::stored_config(data)?;
        let options = component_config::store(&config);

        let stores = (0..config.shards)
            .map(|index| orlog_store::open(&layout::shard_dir(data, index), options.clone()))
            .collect::<Result<_, _>>();
        Ok(Self(stores.with_context(|| {
            format!("the data directory {} cannot be opened", data.display())
        })?))
    }

    /// Returns one reader per shard.
    pub fn readers(&self) -> impl Iterator<Item = &Reader> {
        self.0.iter().map(|(_, reader)| reader)
    }
}

/// Opens the permanent stores in the data directory of this node. In a cluster, stores are opened
/// when their shard is acquired; with replication they are restored from their logs.
///
/// # Errors
/// Fails if a store is not available; the text states the reason.
pub(crate) async fn local(
    config: &Config,
    local: &LocalStorage,
) -> anyhow::Result<Vec<(Writer, Reader)>> {
    // In a cluster the stores follow the leases, and a replicated store must first be compared with
    // its log.
    if !has_all(config) || config.replicated() {
        return Ok(Vec::new());
    }

    let opened = config.clone();
    let local = local.clone();

    let stores = tokio::task::spawn_blocking(move || {
        (0..opened.shards)
            .map(|shard| open_local(&opened, shard, &local))
            .collect::<anyhow::Result<Vec<_>>>()
    })
    .await
    .context("the store did not open")?;
    stores.with_context(|| unusable(config))
}

/// Opens the store of a shard that is not replicated, or creates it. Blocks.
///
/// # Errors
/// Fails if the store is not available; with the code and the remedy if durable data is missing.
pub(crate) fn open_local(
    config: &Config,
    shard: u16,
    local: &LocalStorage,
) -> anyhow::Result<(Writer, Reader)> {
    let dir = layout::shard_dir(&config.data_dir, shard);
    let name = layout::shard_name(shard);

    // A store compares itself with the stored position before it writes anything.
    let mut options = component_config::store(config);
    options.expected = local.positions.get(&name);
    options.accept_data_loss = local.accept_data_loss;

    // Tests replace the disk to inject faults.
    let opened = match &local.disk {
        Some(disk) => orlog_store::open_with_disk(&dir, options, Arc::clone(disk)),
        None => orlog_store::open(&dir, options),
    };
    let (writer, reader) = opened.map_err(|error| match error {
        lost @ orlog_store::Error::Lost { .. } => layout::explain_loss(lost),
        damage @ orlog_store::Error::DamagedJournal { .. } => {
            layout::explain_damage(damage, layout::DAMAGED_JOURNAL_REMEDY)
        }
        other => other.into(),
    })?;

    // At once: a new store that is lost before the first periodic update would look like one that
    // never existed.
    local
        .positions
        .store(layout::shard_position(shard, &reader));
    Ok((writer, reader))
}

/// Opens the permanent stores of this node from their replicated logs.
pub(crate) async fn replicated(
    config: &Config,
    transport: &Transport,
    accept_data_loss: bool,
) -> anyhow::Result<Vec<(Writer, Reader)>> {
    match transport.connection() {
        Some(connection) if has_all(config) && config.replicated() => {
            follow_logs(config, connection, accept_data_loss)
                .await
                .with_context(|| unusable(config))
        }
        _ => Ok(Vec::new()),
    }
}

/// Builds the shards of a node that owns all of them.
pub(crate) fn shards(config: &Config, stores: Vec<(Writer, Reader)>) -> Vec<ShardDependencies> {
    let shards = (0..)
        .zip(component_config::ranges(config.shards))
        .zip(stores);
    shards
        .map(|((index, slots), (writer, reader))| ShardDependencies {
            index,
            slots,
            writer,
            reader,
        })
        .collect()
}

fn has_all(config: &Config) -> bool {
    config.role.runs_sagas() && config.cluster.mode == ClusterMode::Standalone
}

fn unusable(config: &Config) -> String {
    format!(
        "the data directory {} cannot be used",
        config.data_dir.display()
    )
}

/// Takes every shard over from its log. There are no leases: of two nodes on the same servers, the
/// later one owns the shards.
async fn follow_logs(
    config: &Config,
    connection: &Connection,
    accept_data_loss: bool,
) -> Result<Vec<(Writer, Reader)>, orlog_store::Error> {
    let mut stores = Vec::new();
    for index in 0..config.shards {
        let dir = layout::shard_dir(&config.data_dir, index);
        let options = orlog_store::Options {
            accept_data_loss,
            ..component_config::store(config)
        };
        let pace = component_config::snapshot_policy(config);

        // A node without leases never gives a shard back.
        let (_, never) = watch::channel(false);
        stores.push(replication::open(connection, index, None, never, dir, options, pace).await?);
    }

    Ok(stores)
}

/// Access to the stores in the data directory. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LocalStorage {
    /// Disk of the journals; `None`: the local file system.
    disk: Option<Arc<dyn Device>>,
    /// Whether stores and logs that lost durable data are opened without it.
    pub(crate) accept_data_loss: bool,
    pub(crate) positions: Arc<DurablePositions>,
}

impl LocalStorage {
    /// Claims the data directory.
    pub(crate) fn claim(
        config: &Config,
        disk: Option<Arc<dyn Device>>,
        accept_data_loss: bool,
    ) -> anyhow::Result<Self> {
        let positions = Arc::new(DurablePositions::claim(config, accept_data_loss)?);
        Ok(Self {
            disk,
            accept_data_loss,
            positions,
        })
    }

    /// Opens the embedded log, or connects the streams. The log is compared with its stored
    /// position and with the checkpoints of the stores.
    pub(crate) async fn open_transport(
        &self,
        config: &Config,
        stores: &[(Writer, Reader)],
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Transport> {
        let log = LogExpectation {
            durable: self.positions.get(layout::BUS),
            checkpoints: log_checkpoints(stores)?,
            accept_data_loss: self.accept_data_loss,
        };
        let transport = Box::pin(Transport::open(config, log, Arc::clone(clock))).await?;

        // At once, not with the next periodic update: a new log that is lost before it would look
        // like one that never existed.
        self.positions.store(transport.durable_position());
        Ok(transport)
    }

    /// Opens the registry of contexts and actors, and confirms the layout of the data directory.
    pub(crate) async fn open_registry(
        &self,
        config: &Config,
        connection: Option<&Connection>,
    ) -> anyhow::Result<AccessRegistry> {
        // An accepted loss has no expected position, so the registry takes what it finds.
        let expected = self
            .positions
            .get(layout::REGISTRY)
            .filter(|_| !self.accept_data_loss);
        let access = Box::pin(registry::open(config, expected, connection)).await?;

        // The registry contains the partitioning of the cluster; a new layout is written when both
        // agree, and before stores are created.
        self.positions.confirm()?;
        Ok(access)
    }

    /// Returns the configuration of the runtime on this storage.
    pub(crate) fn runtime_config(&self, config: &Config) -> RuntimeConfig {
        RuntimeConfig {
            accept_data_loss: self.accept_data_loss,
            ..component_config::runtime(config)
        }
    }
}

/// Returns the checkpoint of each store in the embedded log.
fn log_checkpoints(stores: &[(Writer, Reader)]) -> anyhow::Result<Vec<ConsumerCheckpoint>> {
    let mut found = Vec::new();
    // With an embedded log, a node has the stores of all shards, in order.
    for (index, (_, reader)) in (0..).zip(stores) {
        let name = layout::shard_name(index);
        let key = CheckpointKey {
            stream: EMBEDDED_STREAM.to_owned(),
            consumer: name.clone(),
        };
        found.push(ConsumerCheckpoint {
            name,
            position: reader.checkpoint(&key)?,
        });
    }

    Ok(found)
}

/// Stores the durable positions of the stores and of the embedded log in the layout.
pub(crate) struct PositionRecorder {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) positions: Arc<DurablePositions>,
    pub(crate) access: Arc<AccessRegistry>,
}

impl PositionRecorder {
    /// Interval between two updates. A loss of later data alone is detected by the other evidence
    /// only: the tables, the checkpoints and the cursors.
    const INTERVAL: Duration = Duration::from_secs(2);

    /// Stores the positions periodically until the node stops.
    pub(crate) fn run_in(self: &Arc<Self>, background: &BackgroundTasks) {
        background.repeat("positions", self, Self::INTERVAL, |recorder| async move {
            recorder.store().await;
            Self::INTERVAL
        });
    }

    /// Stores the current positions.
    pub(crate) async fn store(&self) {
        let shards = self.runtime.numbered_readers();
        let mut found: Vec<_> = shards
            .filter_map(|(shard, reader)| layout::shard_position(shard, &reader))
            .collect();
        found.extend(self.transport.durable_position());

        let registry = self.access.durable_position();
        found.extend(registry.map(|position| (layout::REGISTRY.to_owned(), position.into())));

        // The file is synced, which would block a thread of the runtime.
        let positions = Arc::clone(&self.positions);

        // A panic is reported by the runtime.
        drop(tokio::task::spawn_blocking(move || positions.store(found)).await);
    }
}
