//! Live instances: inputs for them, and waits for their progress.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use orlog_actors::{
    ControlError, ControlResult, InstanceWaiter, PlannedMigration, PreviewError, Redriven,
};
use orlog_engine::Decision;
use orlog_model::{Change, ControlRequest, DeadLetter, Input, Instance, InstanceKey};
use orlog_program::Program;
use orlog_store::Reader;

use crate::server::context::{ApiState, RequestContext};
use crate::server::parts::cluster::Cluster;
use orlog_node::app::App;

/// Instances, wherever they are: inputs for those of this pod, and the cluster for the others.
#[derive(Clone)]
pub(crate) struct Instances {
    app: Arc<App>,
    /// Context of the request, whose caller changes the instances.
    pub(crate) request: RequestContext,
    /// Pods that own the other instances.
    pub(crate) cluster: Cluster,
}

impl FromRequestParts<ApiState> for Instances {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Infallible> {
        let request = api.for_request(&parts.extensions);
        Ok(Self {
            app: Arc::clone(&api.shared.app),
            cluster: Cluster::in_name_of(api, request.scope.key),
            request,
        })
    }
}

impl Instances {
    /// Applies a control request to an instance.
    ///
    /// # Errors
    /// Those of [`orlog_actors::Runtime::control`].
    pub(crate) async fn control(
        &self,
        key: &InstanceKey,
        control: ControlRequest,
    ) -> Result<ControlResult, ControlError> {
        self.app.runtime.control(key, control).await
    }

    /// Applies a control request to an instance, once for the idempotency key that `record` states.
    ///
    /// # Errors
    /// Those of [`orlog_actors::Runtime::control_once`].
    pub(crate) async fn control_once(
        &self,
        key: &InstanceKey,
        control: ControlRequest,
        record: Change,
    ) -> Result<ControlResult, ControlError> {
        self.app.runtime.control_once(key, control, record).await
    }

    /// Applies a dead letter again.
    ///
    /// # Errors
    /// Those of [`orlog_actors::Runtime::redrive`].
    pub(crate) async fn redrive(&self, dead_letter: DeadLetter) -> Result<Redriven, ControlError> {
        self.app.runtime.redrive(dead_letter).await
    }

    /// Commits a change that belongs to no instance in every shard of this process.
    ///
    /// # Errors
    /// Those of [`orlog_actors::Runtime::apply_to_all_shards`].
    pub(crate) async fn apply_to_all_shards(&self, change: &Change) -> Result<(), ControlError> {
        self.app.runtime.apply_to_all_shards(change).await
    }

    /// Decides an input of an instance, and changes nothing.
    ///
    /// # Errors
    /// Those of [`orlog_actors::Runtime::preview`].
    pub(crate) fn preview(
        &self,
        key: &InstanceKey,
        instance: Option<&Instance>,
        input: &Input,
    ) -> Result<Decision, PreviewError> {
        self.app.runtime.preview(key, instance, input)
    }

    /// Plans the migration of an instance; `None` if its shard is not here.
    pub(crate) fn plan_migration(
        &self,
        key: InstanceKey,
        instance: &Instance,
        to: &dyn Program,
    ) -> Option<PlannedMigration> {
        self.app.runtime.plan_instance_migration(key, instance, to)
    }

    /// Registers a request that waits for the end of an instance.
    ///
    /// # Errors
    /// If the shard is unavailable, or the runtime drains.
    pub(crate) fn watch_end(&self, key: &InstanceKey) -> Result<InstanceWaiter, ControlError> {
        self.app.runtime.watch_end(key)
    }

    /// Registers a request that waits for lines of the jobs of an instance, or for its end.
    ///
    /// # Errors
    /// If the shard is unavailable, or the runtime drains.
    pub(crate) fn watch_lines(&self, key: &InstanceKey) -> Result<InstanceWaiter, ControlError> {
        self.app.runtime.watch_lines(key)
    }

    /// Returns the reader of the shard of an instance, for work that no request ends; `None` if
    /// another process owns it.
    pub(crate) fn reader(&self, key: &InstanceKey) -> Option<Reader> {
        self.app.runtime.reader(key)
    }
}
