//! State of a running node: diagnostics, effect workers and information.

use orlog_actors::{JobConsumer, WorkerPool};

use super::App;
use crate::cluster::{Cluster, ShardObstacles};
use crate::definitions::closed::VisibleDefinitions;
use crate::doctor::check::CheckResult;
use crate::doctor::diagnostics::NodeParts;
use crate::node::info::{self, Info};

impl App {
    /// Checks the components of the running node. Blocks.
    #[must_use]
    pub fn diagnostics(&self, last_sequence: Option<u64>) -> Vec<CheckResult> {
        self.diagnostics_for(&VisibleDefinitions::all(&self.programs), last_sequence)
    }

    /// Checks the components for a caller who may know these definitions. Blocks.
    pub fn diagnostics_for(
        &self,
        definitions: &VisibleDefinitions,
        last_sequence: Option<u64>,
    ) -> Vec<CheckResult> {
        let parts = NodeParts {
            config: &self.config,
            runtime: &self.runtime,
            catalog: &self.catalog,
            cluster: self.cluster.as_ref().map(Cluster::info),
            obstacles: self.obstacles(),
            trend: self.services.trends.read(),
            limits: self.services.diagnosis,
            workers: self.workers.as_deref(),
            now: self.clock.now(),
            definitions,
        };
        parts.diagnose(last_sequence)
    }

    /// Returns why this node does not run the shards that it should run.
    #[must_use]
    pub fn obstacles(&self) -> ShardObstacles {
        if let Some(cluster) = &self.cluster {
            return cluster.obstacles();
        }
        if !self.config.role.runs_sagas() {
            return ShardObstacles::default();
        }

        // Without a cluster, a shard ends only if another process takes over its log.
        let owned = self.runtime.owned_shards();
        let reason = "another process has taken over its replicated log; run one node on these \
            logs, or set cluster.mode = \"leases\"";
        let shards = (0..self.config.shards)
            .filter(|shard| !owned.contains(shard))
            .map(|shard| (shard, reason.to_owned()))
            .collect();

        ShardObstacles {
            lease: None,
            shards,
        }
    }

    /// Returns whether the effect workers are running; `true` if the node has none.
    #[must_use]
    pub fn workers_running(&self) -> bool {
        self.workers.as_deref().is_none_or(WorkerPool::is_running)
    }

    /// Returns why the effect workers do not receive the jobs of an effect; `None`: they receive
    /// all, or the node has none.
    pub fn failing_subscription(&self) -> Option<String> {
        self.workers.as_deref()?.failing_subscription()
    }

    /// Reads the consumers of the effect workers, with their backlogs; empty if the node has none.
    pub async fn job_consumers(&self) -> Vec<JobConsumer> {
        match &self.workers {
            Some(workers) => workers.consumers().await,
            None => Vec::new(),
        }
    }

    /// Returns the consumers of the effect workers without their backlogs.
    pub fn job_consumer_states(&self) -> Vec<JobConsumer> {
        let workers = self.workers.as_deref();
        workers.map(WorkerPool::consumer_states).unwrap_or_default()
    }

    /// Returns information about the node, with the consumers of its effect workers.
    #[must_use]
    pub fn info(&self, consumers: &[JobConsumer]) -> Info {
        let reloaded = self.config_source.as_ref();
        let limits = reloaded.map_or_else(|| self.config.limits.clone(), |source| source.limits());

        info::collect(info::InfoSources {
            config: &self.config,
            limits,
            runtime: &self.runtime,
            catalog: &self.catalog,
            definitions: &self.definitions,
            stream: self.bus.stream_id().to_string(),
            bus: self.transport.info(),
            cluster: self.cluster.as_ref().map(Cluster::info),
            started_at: self.started_at,
            identity: self.peers.identity().ok(),
            consumers,
        })
    }
}
