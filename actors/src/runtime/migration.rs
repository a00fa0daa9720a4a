//! Migration of instances to another definition: the plan of each instance.

use orlog_engine::{DecisionContext, MigrationPlan, plan_migration};
use orlog_model::{Instance, InstanceKey, SagaName, TenantId};
use orlog_program::Program;
use orlog_store::{Error, InstanceQuery};

use crate::instance::registry::ShardContext;
use crate::runtime::handle::Runtime;

/// Migration plan of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMigration {
    /// Key of the instance.
    pub key: InstanceKey,
    /// State version of the instance. Pass it to [`Runtime::control`] with `ControlAction::Migrate` as
    /// `expected_version`, so that exactly the planned migration is applied.
    pub version: u64,
    /// The plan.
    pub plan: MigrationPlan,
}

impl Runtime {
    /// Returns the migration plans to `to` of all active instances of a saga that use another definition.
    /// Changes nothing. Reads all instances of the saga.
    ///
    /// # Errors
    /// If a store cannot be read.
    pub fn plan_migration(
        &self,
        tenant: &TenantId,
        saga: &SagaName,
        to: &dyn Program,
    ) -> Result<Vec<PlannedMigration>, Error> {
        let mut planned = Vec::new();
        for context in self.contexts() {
            let mut query = InstanceQuery {
                tenant: tenant.clone(),
                saga: Some(saga.clone()),
                ..InstanceQuery::default()
            };
            loop {
                let page = context.reader.instances(&query)?;
                let concerned = page.items.into_iter().filter(|(_, instance)| {
                    !instance.status.is_final() && instance.definition.hash != to.definition_ref().hash
                });
                planned.extend(concerned.map(|(key, instance)| planned_for(&context, key, &instance, to)));
                query.cursor = page.next;
                if query.cursor.is_none() {
                    break;
                }
            }
        }
        Ok(planned)
    }

    /// Returns the migration plan of one instance to `to`. Changes nothing. Returns `None` if another
    /// process owns its shard.
    #[must_use]
    pub fn plan_instance_migration(
        &self,
        key: InstanceKey,
        instance: &Instance,
        to: &dyn Program,
    ) -> Option<PlannedMigration> {
        let context = self.context(&key)?;
        Some(planned_for(&context, key, instance, to))
    }
}

fn planned_for(
    context: &ShardContext,
    key: InstanceKey,
    instance: &Instance,
    to: &dyn Program,
) -> PlannedMigration {
    let plan = match context.programs.by_hash(&instance.definition.hash) {
        None => MigrationPlan::Blocked(vec!["the definition of the instance is not loaded".to_owned()]),
        Some(program) => {
            let subject = DecisionContext {
                key: &key,
                instance: Some(instance),
                program: program.as_ref(),
                now: context.clock.now(),
                node: &context.node,
                buffered: &[],
            };
            plan_migration(&subject, to)
        }
    };
    PlannedMigration { version: instance.version, key, plan }
}
