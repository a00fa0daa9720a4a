//! Starts an acquired shard: takes over its store and applies the active definitions.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use async_trait::async_trait;
use orlog_actors::{ControlError, ProgramRegistry, ReleasedShard, Runtime, ShardDependencies};
use orlog_effect::{Catalog, LeaseEnd};
use orlog_model::{Change, Clock, Deployment, TenantId};
use orlog_store::{Reader, Writer};
use tokio::sync::watch;

use crate::cluster::ShardHost;
use crate::config::Config;
use crate::dead_letters::tenant_redrive::ScanRequests;
use crate::definitions::change::{self, DefinitionLocks};
use crate::definitions::initial;
use crate::definitions::numbers::DeploymentNumbers;
use crate::definitions::{DefinitionSet, ValidatedDefinitions};
use crate::stores::LocalStorage;
use crate::transport::Transport;
use crate::{component_config, layout, replication, stores};

/// Timeout of the wait for another change of the active definitions, and of the commits of one.
const ACTIVATION_TIMEOUT: Duration = Duration::from_secs(15);

/// User of deployments that activate other definitions in an acquired shard.
const TAKEOVER_USER: &str = "shard takeover";

/// Host of the shards that this pod acquires.
pub(crate) struct ShardStarter {
    pub(crate) config: Arc<Config>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) definitions: Arc<DefinitionSet>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) local: LocalStorage,
    pub(crate) locks: Arc<DefinitionLocks>,
    pub(crate) numbers: Arc<DeploymentNumbers>,
    pub(crate) scans: Arc<ScanRequests>,
}

#[async_trait]
impl ShardHost for ShardStarter {
    fn config(&self) -> &Config {
        &self.config
    }

    async fn run_shard(
        &self,
        shard: u16,
        epoch: u64,
        stopped: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let (mut writer, reader) = self.shard_store(shard, epoch, stopped).await?;

        // Prevents a change of the active definitions in between.
        let activating =
            tokio::time::timeout(ACTIVATION_TIMEOUT, self.locks.activating.lock()).await;
        let mut activations =
            activating.context("a deployment has not activated its definitions in time")?;
        // A garbage collection that has counted instances without this shard compares the number
        // and then drops nothing.
        *activations += 1;

        // The pod follows newer records of the store before `adopt` writes: otherwise it would
        // overwrite them with its own, older deployment.
        let is_followed = self.follow(&reader).await;
        self.follow_contexts(&reader).await?;
        self.adopt(&mut writer, &reader, is_followed)?;

        // The store may have a later number than this pod: the next deployment must follow it.
        if let Some(adopted) = reader.deployment()? {
            self.numbers.raise(adopted.number).await;
        }

        let slots = component_config::ranges(self.config.shards).nth(usize::from(shard));
        let slots = slots.expect("the shard number is below the shard count");
        self.runtime
            .acquire_shard(ShardDependencies {
                index: shard,
                slots,
                writer,
                reader,
            })
            .await?;

        // Until here: a deployment must find the shard among the running ones, or not at all.
        drop(activations);
        // The previous owner may have rejected events of tenants that this pod admits.
        self.scans.add(shard, Duration::ZERO);
        Ok(())
    }

    fn lease(&self) -> LeaseEnd {
        self.runtime.lease()
    }

    async fn stop_shard(&self, shard: u16, grace: Duration) -> Option<ReleasedShard> {
        self.runtime.release_shard(shard, grace).await
    }

    async fn next_lost_shard(&self) -> Option<u16> {
        self.runtime.next_lost_shard().await
    }

    fn abort(&self, reason: &str) {
        self.runtime.root().stop(Some(reason.to_owned()));
    }
}

impl ShardStarter {
    /// Activates the definitions of a store if they were deployed later from the same directory,
    /// which happens when another pod was deployed to while this one was down. Returns false if
    /// they are invalid on this node.
    async fn follow(&self, reader: &Reader) -> bool {
        // A record that cannot be read fails the start in `adopt`, which reads it again.
        let Ok(Some(stored)) = reader.deployment() else {
            return true;
        };

        let active = self.definitions.deployment();

        // A changed directory of this node is newer than all deployments before it.
        let is_of_this_directory = active
            .as_ref()
            .is_none_or(|active| active.definitions_digest == stored.definitions_digest);
        if !is_of_this_directory || !stored.is_newer_than(active.as_deref()) {
            return true;
        }

        match initial::from_record(
            &self.definitions,
            &self.catalog,
            Some(reader),
            Some(stored.clone()),
        ) {
            Ok(chosen) => {
                tracing::info!(
                    number = stored.number,
                    by = stored.deployed_by,
                    "newer deployment activated"
                );

                self.definitions
                    .activate(None, chosen.definitions, chosen.deployment);
                self.store_in_others(&self.changes_of(stored)).await;
                true
            }
            Err(error) => {
                let number = stored.number;
                tracing::error!(number, %error, "newer deployment is invalid on this node; keeping \
                    the active definitions");
                false
            }
        }
    }

    /// Activates the deployments of contexts that are newer in a store: another pod received them.
    async fn follow_contexts(&self, reader: &Reader) -> anyhow::Result<()> {
        for newer in initial::follow_contexts(&self.definitions, std::slice::from_ref(reader))? {
            let context = newer.context.as_ref();
            tracing::info!(
                context = context.map(TenantId::as_str),
                number = newer.number,
                "newer deployment activated"
            );
            self.store_in_others(&self.changes_of(newer)).await;
        }

        Ok(())
    }

    /// Returns the changes that store an active deployment: the sources of its definitions, then
    /// its record.
    fn changes_of(&self, deployment: Deployment) -> Vec<Change> {
        let mut changes = Vec::new();
        for definition in self
            .definitions
            .of(deployment.context.as_ref())
            .definitions
            .iter()
        {
            let program = definition.program.definition_ref().clone();
            let source = definition.source.as_ref().map(|source| source.to_vec());
            changes.extend(source.map(|source| Change::PutDefinition { program, source }));
        }

        changes.push(Change::Deploy(Box::new(deployment)));
        changes
    }

    /// Stores changes in the running shards.
    async fn store_in_others(&self, changes: &[Change]) {
        let stored = async {
            for change in changes {
                self.runtime.apply_to_all_shards(change).await?;
            }
            Ok::<_, ControlError>(())
        };
        match tokio::time::timeout(ACTIVATION_TIMEOUT, stored).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "shard gets the newer deployment at its next start");
            }
            Err(_) => {
                tracing::warn!(
                    "a shard does not commit; it gets the newer deployment at its next start"
                );
            }
        }
    }

    /// Activates the local definitions in a store, and loads the definitions of its pinned
    /// instances. The record of a newer deployment that is invalid here stays: pods that can
    /// activate it would follow a later record.
    fn adopt(&self, writer: &mut Writer, reader: &Reader, is_followed: bool) -> anyhow::Result<()> {
        let now = self.clock.now();
        let definitions = self.definitions.active().to_vec();
        let stored = reader.deployment()?;
        let deployment = self.definitions.deployment();
        let digest = deployment
            .as_ref()
            .and_then(|deployment| deployment.definitions_digest);
        let schedules = deployment
            .iter()
            .flat_map(|deployment| &deployment.schedules);
        let schedules = schedules
            .filter(|schedule| !schedule.removed)
            .cloned()
            .collect();

        let checked = ValidatedDefinitions {
            context: None,
            definitions,
            schedules,
            digest,
        };

        let record = DefinitionSet::record(
            stored.as_ref(),
            &checked,
            now,
            TAKEOVER_USER,
            // A retired definition stays in the record only while this store has its source.
            |hash: &[u8; 16]| reader.definition(hash).is_ok_and(|found| found.is_some()),
        );

        // The number of the deployment on all pods. A number that follows that of the store could
        // be lower than the number of a deployment between them, and the next owner would activate
        // that one again.
        let record = match &deployment {
            Some(active) if active.is_newer_than(stored.as_ref()) => Deployment {
                number: active.number,
                at: active.at,
                deployed_by: active.deployed_by.clone(),
                ..record
            },
            _ => record,
        };

        let changed = is_followed && !change::is_noop(stored.as_ref(), &record);
        let chosen = initial::InitialDefinitions {
            definitions: checked.definitions,
            deployment: changed.then_some(record),
        };
        initial::store_definitions(writer, reader, &chosen, now)?;
        initial::store_contexts(&self.definitions, writer, reader, now)?;

        // Instances of this shard can be pinned to definitions that no running shard stores.
        let retained = change::stored_definitions(&self.runtime, Some(reader))?;
        self.programs.replace(self.definitions.programs(&retained));
        Ok(())
    }

    async fn shard_store(
        &self,
        shard: u16,
        epoch: u64,
        stopped: watch::Receiver<bool>,
    ) -> anyhow::Result<(Writer, Reader)> {
        match self.transport.connection() {
            Some(connection) if self.config.replicated() => {
                let dir = layout::shard_dir(&self.config.data_dir, shard);
                let options = orlog_store::Options {
                    accept_data_loss: self.local.accept_data_loss,
                    ..component_config::store(&self.config)
                };
                let pace = component_config::snapshot_policy(&self.config);

                Ok(
                    replication::open(connection, shard, Some(epoch), stopped, dir, options, pace)
                        .await?,
                )
            }
            _ => {
                // Without replication the directory is the only copy, and no request to a log
                // exists that `stopped` could end.
                let config = Arc::clone(&self.config);
                let local = self.local.clone();

                Ok(
                    tokio::task::spawn_blocking(move || stores::open_local(&config, shard, &local))
                        .await??,
                )
            }
        }
    }
}
