//! Operation of the node: its description, diagnosis, backups and drain.

use std::sync::Arc;

use axum::extract::FromRef;
use orlog_actors::{AttemptMetrics, JobConsumer, Metrics};
use orlog_bus::Bus;
use orlog_model::{InstanceKey, Timestamp};
use serde::Serialize;

use crate::server::context::ApiState;
use orlog_node::app::App;
use orlog_node::backup::service::Backups;
use orlog_node::config::BusKind;
use orlog_node::definitions::closed::VisibleDefinitions;
use orlog_node::doctor::check::CheckResult;

/// The node as its operators see it.
#[derive(Clone)]
pub(crate) struct Operations {
    app: Arc<App>,
}

impl FromRef<ApiState> for Operations {
    fn from_ref(api: &ApiState) -> Self {
        Self {
            app: Arc::clone(&api.shared.app),
        }
    }
}

impl Operations {
    /// Returns the backups that clients can download.
    pub(crate) fn backups(&self) -> &Arc<Backups> {
        &self.app.services.backups
    }

    /// Returns the bus.
    pub(crate) fn bus(&self) -> &dyn Bus {
        self.app.bus.as_ref()
    }

    /// Returns the kind of the bus.
    pub(crate) fn bus_kind(&self) -> BusKind {
        self.app.config.bus.kind
    }

    /// Returns whether the node records a change feed.
    pub(crate) fn has_export(&self) -> bool {
        self.app.config.export.enabled
    }

    /// Checks the components for a caller who may know these definitions. Blocks.
    pub(crate) fn diagnose(
        &self,
        definitions: &VisibleDefinitions,
        last_sequence: Option<u64>,
    ) -> Vec<CheckResult> {
        self.app.diagnostics_for(definitions, last_sequence)
    }

    /// Reads the consumers of the effect workers, with their backlogs; empty if the node has none.
    pub(crate) async fn job_consumers(&self) -> Vec<JobConsumer> {
        self.app.job_consumers().await
    }

    /// Returns the consumers of the effect workers without their backlogs.
    pub(crate) fn job_consumer_states(&self) -> Vec<JobConsumer> {
        self.app.job_consumer_states()
    }

    /// Returns information about the node.
    pub(crate) fn info(&self, consumers: &[JobConsumer]) -> impl Serialize + use<> {
        self.app.info(consumers)
    }

    /// Returns the name of the node.
    pub(crate) fn node_name(&self) -> String {
        self.app.config.node_name()
    }

    /// Returns the start time of the node.
    pub(crate) fn started_at(&self) -> Timestamp {
        self.app.started_at
    }

    /// Returns the counters of the runtime.
    pub(crate) fn metrics(&self) -> &Metrics {
        self.app.runtime.metrics()
    }

    /// Returns the counters of attempts.
    pub(crate) fn attempt_metrics(&self) -> &AttemptMetrics {
        &self.app.attempt_metrics
    }

    /// Returns the deepest mailboxes, deepest first. Visits every live instance.
    pub(crate) fn deepest_mailboxes(&self, count: usize) -> Vec<(InstanceKey, usize)> {
        self.app.runtime.deepest_mailboxes(count)
    }

    /// Passes each live instance and its number of queued inputs to `visit`.
    pub(crate) fn for_each_mailbox(&self, visit: impl FnMut(&InstanceKey, usize)) {
        self.app.runtime.for_each_mailbox(visit);
    }

    /// Rejects new work and waits until no work is in flight. Returns `false` if work is still in
    /// flight after the configured time.
    pub(crate) async fn drain(&self) -> bool {
        self.app.drain().await
    }
}
