//! Migration: moves instances to another definition of their saga as its author defines, page by
//! page.
//!
//! Each instance moves by its own control request, applied and recorded like any other, so other
//! instances do not wait. An interrupted migration is repeated; instances that have moved are
//! skipped.

use std::sync::Arc;

use futures::StreamExt as _;
use orlog_actors::{ControlError, ProgramRegistry, Runtime};
use orlog_engine::{MigrationPlan, Rejection};
use orlog_model::{Clock, ControlAction, ControlRequest, EventId, Instance, InstanceKey};
use orlog_program::Program;

use super::change::{DefinitionLocks, DeployError};

/// Maximum number of concurrent control requests: enough to fill a group commit.
const MAX_CONCURRENT: usize = 64;

/// Request to migrate instances.
#[derive(Clone)]
pub struct MigrateRequest {
    /// Target definition.
    pub to: Arc<dyn Program>,
    /// User for the history entry.
    pub user: String,
    /// Whether to report the plan only.
    pub dry_run: bool,
}

/// Result of the migration of one instance, actual or planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrateResult {
    /// Key of the instance.
    pub key: InstanceKey,
    /// Migration plan, or the reason why the instance cannot migrate.
    pub plan: MigrationPlan,
    /// Whether the instance now uses the new definition.
    pub done: bool,
}

/// Migrations of instances.
#[derive(Clone)]
pub struct Migrations {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) locks: Arc<DefinitionLocks>,
}

impl Migrations {
    /// Moves instances that have not ended to another definition of their saga, or reports the plan
    /// of a dry run. The page completes even if the caller disconnects.
    ///
    /// # Errors
    /// Fails if a shard is not available. Instances that moved until then stay moved; repeat the
    /// call to continue.
    pub async fn migrate(
        &self,
        instances: Vec<(InstanceKey, Instance)>,
        to: MigrateRequest,
    ) -> Result<Vec<MigrateResult>, DeployError> {
        let migrations = self.clone();
        let whole = tokio::spawn(async move {
            // Prevents a garbage collection in between, which could drop the target definition.
            let _guard = migrations.locks.deploying.lock().await;

            // The target can have been dropped while this migration waited for the lock.
            if migrations
                .programs
                .by_hash(&to.to.definition_ref().hash)
                .is_none()
            {
                return Err(DeployError::Superseded(to.to.definition_ref().clone()));
            }

            let planned = migrations.planned(instances, &to).await?;
            if to.dry_run {
                return Ok(planned);
            }

            let moved = planned
                .into_iter()
                .map(|planned| migrations.migrate_instance(planned, &to));

            // Bounded: each migration is a commit, and the events of other instances share the
            // committer.
            let moved: Vec<_> = futures::stream::iter(moved)
                .buffered(MAX_CONCURRENT)
                .collect()
                .await;

            moved.into_iter().collect::<Result<Vec<_>, _>>()
        });

        whole.await.unwrap_or(Err(DeployError::ShuttingDown))
    }

    async fn planned(
        &self,
        instances: Vec<(InstanceKey, Instance)>,
        to: &MigrateRequest,
    ) -> Result<Vec<MigrateResult>, DeployError> {
        let runtime = Arc::clone(&self.runtime);
        let to = Arc::clone(&to.to);

        tokio::task::spawn_blocking(move || {
            let planned = instances.into_iter().filter_map(|(key, instance)| {
                let planned = runtime.plan_instance_migration(key, &instance, to.as_ref())?;
                Some(MigrateResult {
                    key: planned.key,
                    plan: planned.plan,
                    done: false,
                })
            });
            planned.collect()
        })
        .await
        .map_err(|_| DeployError::ShuttingDown)
    }

    /// Migrates one instance. Its own result counts, because it may have changed since the plan.
    async fn migrate_instance(
        &self,
        planned: MigrateResult,
        to: &MigrateRequest,
    ) -> Result<MigrateResult, DeployError> {
        if matches!(planned.plan, MigrationPlan::Blocked(_)) {
            return Ok(planned);
        }

        // A new id for each attempt: a repeated migration is a new decision about a changed
        // instance, not a duplicate.
        let id = format!("migrate:{}", uuid::Uuid::now_v7());
        let control = ControlRequest {
            id: EventId::new(id).expect("an id of this form is short ASCII"),
            action: ControlAction::Migrate {
                to: to.to.definition_ref().hash,
            },
            expected_version: None,
            at: self.clock.now(),
            user: Some(to.user.clone()),
            reason: None,
            trace: None,
            wait_token: None,
        };

        match self.runtime.control(&planned.key, control).await {
            Ok(_) => Ok(MigrateResult {
                done: true,
                ..planned
            }),
            Err(ControlError::Rejected(Rejection::MigrationBlocked { reasons })) => {
                Ok(MigrateResult {
                    plan: MigrationPlan::Blocked(reasons),
                    ..planned
                })
            }
            // The rejection concerns this instance only, so the page continues.
            Err(error @ (ControlError::Rejected(_) | ControlError::DeadLettered(_))) => {
                Ok(MigrateResult {
                    plan: MigrationPlan::Blocked(vec![error.to_string()]),
                    ..planned
                })
            }
            Err(error @ ControlError::Unavailable) => Err(error.into()),
        }
    }
}
