//! Deployment: validates all files, stores their sources, then activates them with one record.
//!
//! The record of the first shard decides. A crash before it is durable leaves the old definitions
//! active; a crash after it activates the new ones. The other shards follow immediately or at the
//! next start.

use std::sync::Arc;
use std::time::Duration;

use orlog_actors::{ProgramRegistry, Runtime, WorkerPool};
use orlog_effect::{Catalog, EffectsConfig};
use orlog_model::{Change, Clock, Deployment, TenantId, Timestamp};
use orlog_program::Diagnostic;
use orlog_store::Reader;
use parking_lot::RwLock;
use tokio::sync::MutexGuard;

use super::change::{self, ContextLimits, DefinitionLocks, DeployError};
use super::gc::Collector;
use super::numbers::DeploymentNumbers;
pub use super::plan::DeployPolicy;
use super::plan::{self, ScheduleChange};
use super::target::TargetDefinitions;
use super::{initial, references};
use crate::definitions::schedules::deployed::DeployedSchedules;
use crate::definitions::{
    self, DefinitionErrors, DefinitionSet, DeploymentPlan, LoadedDefinition, SourceFile,
    UsageContext, ValidatedDefinitions,
};
use crate::upstreams::UpstreamSources;

/// Time to apply the schedules of a deployment, during which other changes of definitions wait. A
/// store without free space, or without its log, does not respond.
const SCHEDULES_TIMEOUT: Duration = Duration::from_secs(15);

/// Request to deploy definitions of one owner.
#[derive(Clone, Debug, Default)]
pub struct DeployRequest {
    /// Context that owns the definitions; `None`: they are shared.
    pub context: Option<TenantId>,
    /// Files of all definitions, or of those that change.
    pub files: Vec<SourceFile>,
    /// Whether active definitions and schedules that no file contains stay active.
    pub keep_others: bool,
    /// User for the deployment record.
    pub user: String,
    /// Whether to report the changes only.
    pub dry_run: bool,
    /// Changes that are accepted.
    pub policy: DeployPolicy,
    /// Number and time of the deployment of another pod that these files repeat. It applies if it
    /// is newer than the current one.
    pub repeats: Option<(u64, Timestamp)>,
}

/// Configuration that was read again.
pub struct ReloadedConfig {
    /// Configured upstreams.
    pub(crate) upstreams: EffectsConfig,
    /// Activates the rest of the configuration, together with the upstreams.
    pub(crate) activate: Box<dyn FnOnce() + Send>,
}

enum DeployOrigin {
    /// The directories of definitions and upstreams, or the one that exists, and the configuration
    /// if it was read again.
    Dirs { config: Option<Box<ReloadedConfig>> },
    /// Files of one owner.
    Files {
        context: Option<TenantId>,
        files: Vec<SourceFile>,
        keep_others: bool,
        repeats: Option<(u64, Timestamp)>,
    },
}

impl DeployOrigin {
    fn context(&self) -> Option<&TenantId> {
        match self {
            Self::Dirs { .. } => None,
            Self::Files { context, .. } => context.as_ref(),
        }
    }

    /// Returns whether it follows the last deployment of the owner on any pod. Pods do not repeat a
    /// directory of another pod, so the number of that says nothing about theirs.
    fn follows_other_pods(&self) -> bool {
        match self {
            Self::Dirs { .. } => false,
            Self::Files { repeats, .. } => repeats.is_none(),
        }
    }

    fn configured(&self) -> Option<&EffectsConfig> {
        match self {
            Self::Dirs { config } => config.as_ref().map(|config| &config.upstreams),
            Self::Files { .. } => None,
        }
    }

    fn into_config(self) -> Option<ReloadedConfig> {
        match self {
            Self::Dirs { config } => config.map(|config| *config),
            Self::Files { .. } => None,
        }
    }
}

struct PreparedDeployment {
    context: Option<TenantId>,
    plan: DeploymentPlan,
    definitions: Vec<LoadedDefinition>,
    /// Record to store; `None` if nothing changes.
    deployment: Option<Deployment>,
    /// Whether the record is that of another pod.
    repeats: bool,
    /// Catalog of the current upstream files.
    upstreams: Option<Arc<Catalog>>,
    /// Configuration of the catalog, if it was read again.
    config: Option<ReloadedConfig>,
}

/// Deploys definitions and reloads upstreams.
pub struct Deployments {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) definitions: Arc<DefinitionSet>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) upstreams: UpstreamSources,
    pub(crate) workers: Option<Arc<WorkerPool>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) locks: Arc<DefinitionLocks>,
    pub(crate) collector: Arc<Collector>,
    pub(crate) schedules: Arc<DeployedSchedules>,
    /// A reload replaces them.
    pub(crate) context_limits: RwLock<ContextLimits>,
    pub(crate) numbers: Arc<DeploymentNumbers>,
}

impl Deployments {
    /// Deploys files, or reports the changes of a dry run. The deployment is atomic and completes
    /// even if the caller disconnects.
    ///
    /// # Errors
    /// See [`DeployError`].
    pub async fn deploy(
        self: &Arc<Self>,
        order: DeployRequest,
    ) -> Result<DeploymentPlan, DeployError> {
        let DeployRequest {
            context,
            files,
            keep_others,
            user: by,
            dry_run,
            policy,
            repeats,
        } = order;

        let origin = DeployOrigin::Files {
            context,
            files,
            keep_others,
            repeats,
        };
        self.deploy_whole(origin, by, policy, dry_run).await
    }

    /// Deploys the definitions directory and activates the upstreams of their files and the
    /// configuration (`None`: as before), atomically, even if the caller disconnects. Without a
    /// definitions directory the active definitions stay.
    ///
    /// # Errors
    /// See [`DeployError`].
    pub async fn reload(
        self: &Arc<Self>,
        by: String,
        policy: DeployPolicy,
        config: Option<ReloadedConfig>,
    ) -> Result<DeploymentPlan, DeployError> {
        let config = config.map(Box::new);
        self.deploy_whole(DeployOrigin::Dirs { config }, by, policy, false)
            .await
    }

    /// Applies the limits of a reload.
    pub(crate) fn replace_context_limits(&self, limits: ContextLimits) {
        *self.context_limits.write() = limits;
    }

    fn context_limits(&self) -> ContextLimits {
        *self.context_limits.read()
    }

    async fn deploy_whole(
        self: &Arc<Self>,
        origin: DeployOrigin,
        by: String,
        policy: DeployPolicy,
        dry_run: bool,
    ) -> Result<DeploymentPlan, DeployError> {
        let deployments = Arc::clone(self);

        // A task of its own: a caller that disconnects must not leave a deployment that some shards
        // have stored and others have not.
        let whole = tokio::spawn(async move {
            let _guard = deployments.locks.deploying.lock().await;

            if dry_run {
                let prepared = Arc::clone(&deployments)
                    .prepare(origin, by, policy, 0)
                    .await?;
                return Ok(prepared.plan);
            }

            let owner = origin.context().cloned();
            let last_number = if origin.follows_other_pods() {
                deployments.numbers.last(owner.as_ref()).await?
            } else {
                0
            };
            let prepared = Arc::clone(&deployments)
                .prepare(origin, by, policy, last_number)
                .await?;

            deployments.execute(prepared).await
        });

        whole.await.unwrap_or(Err(DeployError::ShuttingDown))
    }

    async fn prepare(
        self: Arc<Self>,
        origin: DeployOrigin,
        by: String,
        policy: DeployPolicy,
        last_number: u64,
    ) -> Result<PreparedDeployment, DeployError> {
        // Compiles all files and reads the stores, which would block a thread of the runtime.
        tokio::task::spawn_blocking(move || {
            let (next, upstreams) = self.next_with_upstreams(&origin)?;
            let catalog = upstreams.as_ref().unwrap_or(&self.catalog);
            let context = origin.context();
            let loaded = self.programs.all();
            let pins = change::pins(self.runtime.readers(), context)?;
            let usage = UsageContext {
                context,
                catalog,
                loaded: &loaded,
                pins: &pins,
            };
            let mut plan = self.definitions.plan(next.definitions(), &usage);

            let problems = plan::version_conflicts(&plan, policy, &pins);
            if !problems.is_empty() {
                return Err(DefinitionErrors(problems).into());
            }

            plan.upstreams = self.catalog.changed_in(catalog);
            if !plan.upstreams.is_empty() {
                // Changed upstreams also concern the definitions of contexts, which have other
                // deployments.
                plan.warnings.extend(self.definitions.unmet_by(catalog));
            }

            let deployment = self.record(&next, &origin, &by, last_number)?;
            if let (Some(context), Some(deployment)) = (context, &deployment) {
                self.context_limits()
                    .check(context, deployment, next.definitions(), &pins)?;
            }

            let current = self.definitions.of(context).deployment;
            plan.schedules = ScheduleChange::of(current.as_deref(), next.schedules());
            plan.number = deployment
                .as_ref()
                .map_or(plan.number, |deployment| deployment.number);

            let definitions = next.into_definitions();
            let context = context.cloned();
            let repeats = matches!(
                origin,
                DeployOrigin::Files {
                    repeats: Some(_),
                    ..
                }
            );

            let config = origin.into_config();
            Ok(PreparedDeployment {
                context,
                plan,
                definitions,
                deployment,
                repeats,
                upstreams,
                config,
            })
        })
        .await
        .unwrap_or(Err(DeployError::ShuttingDown))
    }

    /// Returns the target definitions, and the catalog of the current upstream files if it is to be
    /// activated too: on a reload, and if shared definitions require an upstream that is not active
    /// yet.
    fn next_with_upstreams(
        &self,
        origin: &DeployOrigin,
    ) -> Result<(TargetDefinitions, Option<Arc<Catalog>>), DeployError> {
        // First with the active upstreams: files of definitions activate others only if they need
        // them.
        if matches!(origin, DeployOrigin::Files { .. }) {
            match self.next(origin, &self.catalog) {
                // A deployment of a context must not change the upstreams of the node.
                Err(DeployError::Rejected(_))
                    if self.upstreams.has_dir() && origin.context().is_none() => {}
                result => return Ok((result?, None)),
            }
        }

        let catalog = self
            .next_catalog(origin.configured())
            .map_err(DefinitionErrors)?;
        Ok((self.next(origin, &catalog)?, Some(catalog)))
    }

    /// Returns the catalog of the current upstream files without activating it.
    fn next_catalog(
        &self,
        configured: Option<&EffectsConfig>,
    ) -> Result<Arc<Catalog>, Vec<Diagnostic>> {
        let upstreams = configured.map_or_else(
            || self.upstreams.read(),
            |next| self.upstreams.read_with(next),
        )?;
        let next = self.catalog.rebuild(upstreams);
        next.map(Arc::new)
            .map_err(|error| vec![Diagnostic::of_file("the upstreams", error.to_string())])
    }

    /// Returns the target definitions. `catalog` must have an upstream for each of their effects.
    fn next(
        &self,
        origin: &DeployOrigin,
        catalog: &Catalog,
    ) -> Result<TargetDefinitions, DeployError> {
        let mut others = None;
        let context = origin.context();
        let (files, dir) = match origin {
            DeployOrigin::Files {
                files,
                keep_others: true,
                ..
            } => {
                others = self.definitions.of(context).deployment;
                (
                    [self.definitions.others(context, files), files.clone()].concat(),
                    None,
                )
            }
            DeployOrigin::Files {
                files,
                keep_others: false,
                ..
            } => (files.clone(), None),
            DeployOrigin::Dirs { config } => match self.definitions.dir() {
                Some(dir) => {
                    let files = definitions::read_dir(dir).map_err(DefinitionErrors)?;
                    let digest = definitions::digest(&files);
                    (files, Some(digest))
                }
                None if self.upstreams.has_dir() || config.is_some() => {
                    // Without a directory of definitions, only the upstreams change, and the active
                    // definitions must fit them.
                    let current = self
                        .definitions
                        .validate_active(catalog)
                        .map_err(DefinitionErrors)?;
                    return Ok(TargetDefinitions::Active(current));
                }
                None => return Err(DeployError::NoDir),
            },
        };

        let mut checked = self
            .definitions
            .validate(context, &files, catalog)
            .map_err(DefinitionErrors)?;

        // `files` has no schedules of the files that are kept: only the record has them.
        if let Some(others) = others {
            checked.schedules = plan::kept_schedules(&others, &checked.schedules);
        }

        let current = self.definitions.of(context).deployment;
        let consistent = match context {
            None => references::check(&checked.definitions, current.as_deref()),
            Some(context) => {
                let usable = self
                    .definitions
                    .usable_with(Some(context), &checked.definitions);
                references::check_context(context, &usable, current.as_deref())
            }
        };

        consistent.map_err(DefinitionErrors)?;
        Ok(TargetDefinitions::Validated(ValidatedDefinitions {
            digest: dir,
            ..checked
        }))
    }

    /// Returns the record to store; `None` if the stored record is equal, or newer than the one
    /// that it repeats. An equal record is not enough if this pod has missed a later deployment,
    /// which the other pods would keep.
    fn record(
        &self,
        next: &TargetDefinitions,
        origin: &DeployOrigin,
        by: &str,
        last_number: u64,
    ) -> Result<Option<Deployment>, DeployError> {
        let TargetDefinitions::Validated(checked) = next else {
            return Ok(None);
        };

        let is_stored = |hash: &[u8; 16]| self.programs.by_hash(hash).is_some();
        let context = origin.context();

        // The stored record may be newer: a deployment with an unknown result.
        let stored = self
            .first_store()
            .map(|store| store.deployment_of(context))
            .transpose()?
            .flatten();

        let current = self.definitions.of(context).deployment;
        let last = stored.as_ref().or(current.as_deref());
        if let DeployOrigin::Files {
            repeats: Some((number, at)),
            ..
        } = origin
        {
            let record = DefinitionSet::record(last, checked, *at, by, is_stored);
            let record = Deployment {
                number: *number,
                ..record
            };
            return Ok(Some(record).filter(|record| record.is_newer_than(current.as_deref())));
        }

        let record = DefinitionSet::record(last, checked, self.clock.now(), by, is_stored);

        // An equal record is stored nevertheless if another pod has deployed since: its definitions
        // would otherwise stay active there.
        let has_missed = current.as_ref().map_or(0, |current| current.number) < last_number;
        let is_needed = has_missed || !change::is_noop(current.as_deref(), &record);
        Ok(is_needed.then_some(record))
    }

    fn missing_sources(
        &self,
        definitions: &[LoadedDefinition],
    ) -> Result<Vec<Change>, orlog_store::Error> {
        let mut missing = Vec::new();
        for definition in definitions {
            // A program in Rust has no source; the start of the node stores its record.
            let Some(source) = &definition.source else {
                continue;
            };

            let program = definition.program.definition_ref();
            for reader in self.runtime.readers() {
                if reader.definition(&program.hash)?.is_none() {
                    missing.push(Change::PutDefinition {
                        program: program.clone(),
                        source: source.to_vec(),
                    });
                    // One store without the source is enough, because the change is applied to all
                    // of them.
                    break;
                }
            }
        }

        Ok(missing)
    }

    /// Executes a prepared deployment. The record comes first because it can fail; upstreams follow
    /// before an instance can start that needs a new one.
    async fn execute(&self, prepared: PreparedDeployment) -> Result<DeploymentPlan, DeployError> {
        let PreparedDeployment {
            context,
            mut plan,
            definitions,
            mut deployment,
            repeats,
            upstreams,
            config,
        } = prepared;

        plan.dry_run = false;
        // A shard that this pod takes over meanwhile adopts the definitions before or after all of
        // this.
        let activating = match deployment.as_mut() {
            None => self.locks.activating.lock().await,
            // A repetition keeps the number of the pod that received the deployment.
            Some(next) if repeats => {
                let activating = self.locks.activating.lock().await;
                let current = self.definitions.of(context.as_ref()).deployment;
                if !next.is_newer_than(current.as_deref()) {
                    return Ok(plan);
                }
                activating
            }
            Some(next) => {
                let activating = self.lock_with_number(next).await?;
                plan.number = next.number;
                activating
            }
        };

        // Sources first: a record must not name a definition that a store cannot load.
        for source in self.missing_sources(&definitions)? {
            self.runtime.apply_to_all_shards(&source).await?;
        }

        if let Some(deployment) = &deployment {
            self.decide(deployment).await?;
        }

        if let Some(next) = upstreams {
            if !plan.upstreams.is_empty() {
                self.runtime.reload_catalog(next).await?;
                if let Some(workers) = &self.workers {
                    workers.reload().await;
                }
                tracing::info!(changed = ?plan.upstreams, "upstreams reloaded");
            }
            // Also without changes, because providers keep data that they fetched from their
            // upstreams.
            self.catalog.refresh();
        }

        if let Some(ReloadedConfig {
            upstreams,
            activate,
        }) = config
        {
            // After the record, which can fail; the changes of the configuration cannot.
            self.upstreams.replace_configured(upstreams);
            activate();
        }

        let Some(deployment) = deployment else {
            return Ok(plan);
        };

        // Retired definitions stay loaded for the instances that are pinned to them.
        let stored = change::stored_definitions(&self.runtime, None)?;
        self.definitions
            .activate(context.as_ref(), definitions, Some(deployment));
        self.programs.replace(self.definitions.programs(&stored));

        for reader in self.runtime.readers() {
            let declared = initial::declare_indexes(&reader, &self.definitions);
            if let Err(error) = declared {
                tracing::warn!(%error, "indexes not declared in a shard; retrying at its next \
                    start");
            }
        }

        // The schedules wait for commits. A takeover needs the lock and must not wait for those,
        // too.
        drop(activating);

        // Last: a schedule starts instances of the definitions that are active now.
        plan.warnings.extend(self.apply_schedules().await);
        let number = plan.number;
        let warnings = plan.warnings.len();
        tracing::info!(
            context = plan.context,
            number,
            changes = plan.changes(),
            warnings,
            "definitions deployed"
        );

        self.collector.collect_soon();
        Ok(plan)
    }

    /// Draws a number for a deployment and waits for the lock of activations.
    async fn lock_with_number(
        &self,
        next: &mut Deployment,
    ) -> Result<MutexGuard<'_, u64>, DeployError> {
        // The record has the number after the last one that this pod has seen.
        let mut seen = next.number.saturating_sub(1);
        loop {
            let context = next.context.as_ref();
            next.number = self.numbers.next(context, seen).await?;

            let activating = self.locks.activating.lock().await;
            let current = self.definitions.of(context).deployment;
            if next.is_newer_than(current.as_deref()) {
                return Ok(activating);
            }

            // A shard that was taken over meanwhile has brought a newer deployment. The number
            // after it comes from the counter, too: another pod could choose the same one
            // otherwise.
            seen = current.map_or(0, |current| current.number);
        }
    }

    /// Applies the schedules of the deployment. Returns a warning if a shard does not commit them
    /// in time: the deployment is complete without them.
    async fn apply_schedules(&self) -> Option<String> {
        let applied = tokio::time::timeout(SCHEDULES_TIMEOUT, self.schedules.apply()).await;
        applied.is_err().then(|| {
            format!(
                "schedules not applied within {SCHEDULES_TIMEOUT:?}, because a shard does not \
                 commit; the node applies them as soon as it does"
            )
        })
    }

    /// Stores the record. The record of the first shard decides, even if another shard is
    /// restarting.
    async fn decide(&self, deployment: &Deployment) -> Result<(), DeployError> {
        let Err(error) = self
            .runtime
            .apply_to_all_shards(&Change::Deploy(Box::new(deployment.clone())))
            .await
        else {
            return Ok(());
        };

        // A shard has failed. If the first one has the record, it decides, and the others follow
        // later.
        let context = deployment.context.as_ref();
        let decided = self
            .first_store()
            .map(|store| store.deployment_of(context))
            .transpose()?
            .flatten();
        if decided.as_ref() != Some(deployment) {
            return Err(error.into());
        }

        tracing::warn!(%error, number = deployment.number, "deployment not stored in a shard; \
            retrying at the next start");
        Ok(())
    }

    /// Returns the store that decides the active definitions; `None` while other pods own all
    /// shards.
    fn first_store(&self) -> Option<Reader> {
        self.runtime.readers().next()
    }
}
