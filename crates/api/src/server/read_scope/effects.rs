//! Effects and jobs of the instances that a request reads: what is true of them now, besides the
//! stores.

use std::sync::Arc;

use orlog_actors::IgnoredEvent;
use orlog_effect::EffectExecutor;
use orlog_model::{Destination, InstanceKey, SteadyTime, TenantId};

use super::ReadScope;
use orlog_node::sagas::attempts::FailedAttemptRecord;

impl ReadScope {
    /// Returns the executor of the effects of a destination.
    pub(crate) fn executor_for(&self, destination: &Destination) -> Option<Arc<EffectExecutor>> {
        self.app.catalog.executor_for(destination)
    }

    /// Returns the executor of the jobs of a flow.
    pub(crate) fn executor_for_flow(
        &self,
        destination: &Destination,
    ) -> Option<Arc<EffectExecutor>> {
        self.app.catalog.executor_for_flow(destination)
    }

    /// Returns whether a runner for a kind of jobs is registered.
    pub(crate) fn has_runner(&self, tenant: &TenantId, kind: &str, now: SteadyTime) -> bool {
        self.app.runners.has(tenant, kind, now)
    }

    /// Returns whether lines of the jobs of an instance wait to be stored.
    pub(crate) fn has_unsaved_lines(&self, key: &InstanceKey) -> bool {
        self.app.services.lines.unsaved.has(key)
    }

    /// Returns the recent failed attempts of an instance.
    pub(crate) fn failed_attempts(&self, key: &InstanceKey) -> Vec<FailedAttemptRecord> {
        self.app.attempts.for_instance(key)
    }

    /// Returns the events that an instance ignored recently.
    pub(crate) fn ignored_events(&self, key: &InstanceKey) -> Vec<IgnoredEvent> {
        self.app.runtime.ignored_events(key)
    }
}
