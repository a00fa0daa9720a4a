//! Garbage collection of definitions: drops those that accept no new instances and have no pinned
//! instances.
//!
//! [`orlog_actors::ProgramRegistry`] explains why no definition is dropped that an instance needs
//! or is about to need.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orlog_actors::{ControlError, ProgramRegistry, Runtime};
use orlog_effect::Catalog;
use orlog_model::{Change, DefinitionRef, Deployment, TenantId};
use orlog_store::PinCounts;
use prometheus_client::metrics::counter::Counter;

use super::change::{DefinitionLocks, DeployError, pins};
use crate::background::BackgroundTasks;
use crate::definitions::{DefinitionSet, UsageContext};

/// Name of the background task.
const TASK: &str = "definition garbage collection";
/// Delay between the start of a node and the first garbage collection.
const STARTUP_DELAY: Duration = Duration::from_mins(1);
/// Poll interval while waiting until all shards use the active definitions.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout of that wait.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a commit in all shards, during which deployments and migrations wait. A store without
/// free space, or without its log, does not respond.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before a collection that was not completed is repeated.
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// Result of a garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectResult {
    /// Dropped definitions.
    pub dropped: Vec<DefinitionRef>,
    /// Number of retired definitions that stay: instances are pinned to them, or the collection was
    /// not completed and is repeated.
    pub retained: usize,
}

impl CollectResult {
    /// Returns the result of a collection that drops nothing.
    fn all_retained(retired: &[DefinitionRef]) -> Self {
        Self {
            dropped: Vec::new(),
            retained: retired.len(),
        }
    }
}

/// Collector of unused definitions.
pub struct Collector {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) definitions: Arc<DefinitionSet>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) locks: Arc<DefinitionLocks>,
    pub(crate) background: Arc<BackgroundTasks>,
    pub(crate) collected: Counter,
    /// Whether a repetition is planned: one is enough for all collections that were not completed.
    pub(crate) is_retry_planned: AtomicBool,
}

impl Collector {
    /// Drops the unused definitions of all owners, or only those of a context.
    ///
    /// # Errors
    /// Fails if a shard is not available or a store cannot be read. Definitions dropped until then
    /// were unused.
    pub async fn collect(
        self: &Arc<Self>,
        context: Option<TenantId>,
    ) -> Result<CollectResult, DeployError> {
        let collector = Arc::clone(self);
        // A task of its own: it completes if the caller disconnects between two shards.
        let whole = tokio::spawn(async move { collector.collect_whole(context.as_ref()).await });
        whole.await.unwrap_or(Err(DeployError::ShuttingDown))
    }

    /// Schedules a garbage collection after the startup delay.
    pub(crate) fn collect_after_start(self: &Arc<Self>) {
        self.collect_later(STARTUP_DELAY);
    }

    /// Starts a garbage collection in the background.
    pub(crate) fn collect_soon(self: &Arc<Self>) {
        self.collect_later(Duration::ZERO);
    }

    fn collect_later(self: &Arc<Self>, after: Duration) {
        // A weak reference: a collection that is planned must not keep a stopped node alive.
        let collector = Arc::downgrade(self);
        self.background.spawn(TASK, after, async move {
            let Some(collector) = collector.upgrade() else {
                return;
            };
            collector.collect_in_background().await;
        });
    }

    /// Plans another collection, unless one is planned.
    fn retry_later(self: &Arc<Self>) {
        if self.is_retry_planned.swap(true, Ordering::AcqRel) {
            return;
        }

        let collector = Arc::downgrade(self);
        self.background.spawn(TASK, RETRY_DELAY, async move {
            let Some(collector) = collector.upgrade() else {
                return;
            };
            // Before the collection, which may plan the next one.
            collector.is_retry_planned.store(false, Ordering::Release);
            collector.collect_in_background().await;
        });
    }

    async fn collect_in_background(self: &Arc<Self>) {
        if let Err(error) = self.collect_whole(None).await {
            tracing::warn!(
                %error,
                "definition garbage collection failed; retrying in {RETRY_DELAY:?}"
            );
            self.retry_later();
        }
    }

    async fn collect_whole(
        self: &Arc<Self>,
        context: Option<&TenantId>,
    ) -> Result<CollectResult, DeployError> {
        // Before the lock: deployments and migrations must not wait for a transition that hangs.
        self.wait_until_quiescent().await;
        // Prevents a deployment or a migration in between.
        let _deploying = self.locks.deploying.lock().await;

        // A takeover after this moment may activate a definition that is retired now.
        let takeovers_before = *self.locks.activating.lock().await;
        let retired = self.retired_in(context)?;
        if retired.is_empty() {
            return Ok(CollectResult::default());
        }
        // Also after the wait: a deployment may have used the time before the lock.
        if !self.programs.is_quiescent() {
            tracing::info!(
                retained = retired.len(),
                "a shard does not use the active definitions yet; unused definitions are removed \
                 later"
            );
            self.retry_later();
            return Ok(CollectResult::all_retained(&retired));
        }

        let pins = self.count_pins().await?;

        // Held until the definitions are dropped: no shard that may use one is taken over
        // meanwhile.
        let takeovers = self.locks.activating.lock().await;
        if *takeovers != takeovers_before {
            // The instances of the new shard are not counted.
            self.retry_later();
            return Ok(CollectResult::all_retained(&retired));
        }
        if !pins.complete {
            tracing::warn!(
                "an unreadable instance was deleted, so the counts of instances are not exact \
                 until the next start; unused definitions stay"
            );
            return Ok(CollectResult::all_retained(&retired));
        }

        self.warn_of_unmet_needs(context, &pins);
        let (used, unused): (Vec<_>, Vec<_>) = retired
            .into_iter()
            .partition(|program| pins.by_hash.contains_key(&program.hash));
        self.drop_all(&unused).await?;

        let names: Vec<_> = unused
            .iter()
            .map(|one| format!("{} version {}", one.saga, one.version))
            .collect();
        tracing::info!(dropped = ?names, retained = used.len(), "unused definitions removed");

        Ok(CollectResult {
            dropped: unused,
            retained: used.len(),
        })
    }

    /// Returns the retired definitions; with a context, only its own.
    fn retired_in(&self, context: Option<&TenantId>) -> Result<Vec<DefinitionRef>, DeployError> {
        let mut retired = self.retired()?;
        if context.is_some() {
            let own = self.definitions.of(context).deployment;
            retired.retain(|program| {
                own.iter()
                    .any(|deployment| deployment.find(&program.hash).is_some())
            });
        }
        Ok(retired)
    }

    /// Counts the instances of each definition.
    async fn count_pins(&self) -> Result<PinCounts, DeployError> {
        // The counts are read from the store; an instance whose start is applied and not yet
        // committed would be missed.
        in_time(self.runtime.commit_barrier()).await?;

        let runtime = Arc::clone(&self.runtime);
        let counted = tokio::task::spawn_blocking(move || pins(runtime.readers(), None)).await;
        Ok(counted.map_err(|_| DeployError::ShuttingDown)??)
    }

    fn warn_of_unmet_needs(&self, context: Option<&TenantId>, pins: &PinCounts) {
        let loaded = self.programs.all();
        let usage = UsageContext {
            context,
            catalog: &self.catalog,
            loaded: &loaded,
            pins,
        };
        for warning in self.definitions.unmet_needs(&usage) {
            tracing::warn!("{warning}");
        }
    }

    /// Drops definitions that no instance uses.
    async fn drop_all(&self, unused: &[DefinitionRef]) -> Result<(), DeployError> {
        // From memory first: no instance can start with a definition whose source is being dropped.
        self.programs
            .remove(&unused.iter().map(|program| program.hash).collect());
        for program in unused {
            let change = Change::DropDefinition { hash: program.hash };
            in_time(self.runtime.apply_to_all_shards(&change)).await?;
            self.collected.inc();
        }

        // Otherwise the metrics would grow with each version that was ever deployed.
        self.remove_counters(unused);
        Ok(())
    }

    /// Removes the counters of dropped definitions, unless another context has the same version.
    fn remove_counters(&self, dropped: &[DefinitionRef]) {
        let loaded = self.programs.all();
        for DefinitionRef { saga, version, .. } in dropped {
            let is_loaded = loaded.iter().any(|owned| {
                let other = owned.program.definition_ref();
                other.saga == *saga && other.version == *version
            });
            if !is_loaded {
                self.runtime.metrics().remove_definition(saga, *version);
            }
        }
    }

    /// Returns the definitions that a shard stores and that accept no new instances.
    fn retired(&self) -> Result<Vec<DefinitionRef>, orlog_store::Error> {
        let mut seen = BTreeSet::new();
        for (_, owned) in self.definitions.owners() {
            seen.extend(
                owned
                    .definitions
                    .iter()
                    .map(|definition| definition.program.definition_ref().hash),
            );
        }

        // A deployment with an unknown result becomes active at the next start.
        for reader in self.runtime.readers() {
            let stored = reader
                .deployment()?
                .into_iter()
                .chain(reader.context_deployments()?);
            let stored: Vec<_> = stored.collect();
            seen.extend(
                stored
                    .iter()
                    .flat_map(Deployment::active)
                    .map(|deployed| deployed.program.hash),
            );
        }

        let mut retired = Vec::new();
        for reader in self.runtime.readers() {
            let retained = reader
                .definitions()?
                .into_iter()
                .map(|(program, _)| program);
            // Several shards store the same definition.
            retired.extend(retained.filter(|program| seen.insert(program.hash)));
        }

        Ok(retired)
    }

    /// Waits until all shards use the active definitions, up to the timeout.
    async fn wait_until_quiescent(&self) {
        let quiescent = async {
            while !self.programs.is_quiescent() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        drop(tokio::time::timeout(TIMEOUT, quiescent).await);
    }
}

/// Waits for a commit in all shards, up to [`COMMIT_TIMEOUT`].
async fn in_time(
    commits: impl Future<Output = Result<(), ControlError>>,
) -> Result<(), ControlError> {
    let committed = tokio::time::timeout(COMMIT_TIMEOUT, commits).await;
    committed.unwrap_or(Err(ControlError::Unavailable))
}
