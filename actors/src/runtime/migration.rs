//! Moving instances from one definition to another: what would become of each, and the instruction to do it.

use orlog_engine::{Plan, Subject, plan};
use orlog_model::{Instance, InstanceKey, SagaName, TenantId};
use orlog_program::Program;
use orlog_store::{Error, InstanceQuery};

use crate::instance::registry::Context;
use crate::runtime::handle::Runtime;

/// An instance and what would become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Which instance.
    pub key: InstanceKey,
    /// The state version it stands at: given to [`Runtime::control`] with `Action::Migrate` as `expected_version`, it makes
    /// sure that what was planned is done.
    pub version: u64,
    /// What would become of it.
    pub plan: Plan,
}

impl Runtime {
    /// What would become of the instances of a saga that have not ended and go by another definition, were each told to
    /// migrate to `to`. Changes nothing. Reads all instances of the saga.
    ///
    /// # Errors
    /// When a store cannot be read.
    pub fn plan_migration(
        &self,
        tenant: &TenantId,
        saga: &SagaName,
        to: &dyn Program,
    ) -> Result<Vec<Planned>, Error> {
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
                    !instance.status.is_final() && instance.program.hash != to.reference().hash
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

    /// What would become of one instance, were it told to migrate to `to`. Changes nothing. `None` where another process owns
    /// its shard.
    #[must_use]
    pub fn plan_one(&self, key: InstanceKey, instance: &Instance, to: &dyn Program) -> Option<Planned> {
        let context = self.context(&key)?;
        Some(planned_for(&context, key, instance, to))
    }
}

fn planned_for(context: &Context, key: InstanceKey, instance: &Instance, to: &dyn Program) -> Planned {
    let plan = match context.programs.pinned(&instance.program.hash) {
        None => Plan::Blocked(vec!["the definition that it goes by is not loaded".to_owned()]),
        Some(program) => {
            let subject = Subject {
                key: &key,
                instance: Some(instance),
                program: program.as_ref(),
                now: context.clock.now(),
                node: &context.node,
                early: &[],
            };
            plan(&subject, to)
        }
    };
    Planned { version: instance.version, key, plan }
}
