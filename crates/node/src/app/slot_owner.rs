//! Routing in a cluster: the owner of each slot.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use orlog_actors::Runtime;
use orlog_bus::membership::Pod;
use orlog_model::{Slot, SlotAssigner, TenantId};

use crate::cluster::{Cluster, ShardObstacles};
use crate::component_config;
use crate::config::Config;

/// Owner of a slot.
pub enum SlotOwner {
    /// This process.
    Local,
    /// Another pod.
    Pod(Pod),
    /// No owner at this moment: the shard is moving.
    None,
}

/// Owners of the slots. Without a cluster, this process owns all.
pub struct Routing {
    pub(crate) config: Arc<Config>,
    pub(crate) runtime: Arc<Runtime>,
    /// The cluster membership; `None` if the node runs alone.
    pub cluster: Option<Cluster>,
}

impl Routing {
    /// Returns whether the node is part of a cluster.
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns the shards whose lease belongs to this node.
    #[must_use]
    pub fn leased_shards(&self) -> Vec<u16> {
        self.cluster
            .as_ref()
            .map(Cluster::leased_shards)
            .unwrap_or_default()
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

    /// Returns the other live pods.
    #[must_use]
    pub fn other_pods(&self) -> Vec<Pod> {
        self.cluster
            .as_ref()
            .map(Cluster::other_pods)
            .unwrap_or_default()
    }

    /// Returns the mapping of instances to slots.
    #[must_use]
    pub fn slots(&self) -> SlotAssigner {
        component_config::slots(&self.config)
    }

    /// Returns the numbers of the shards that may store data of a tenant, or of all tenants.
    #[must_use]
    pub fn shards_of(&self, tenant: Option<&TenantId>) -> Vec<u16> {
        match tenant.and_then(|tenant| self.slots().tenant_slot(tenant)) {
            Some(slot) => vec![component_config::shard_of(slot, self.config.shards)],
            None => (0..self.config.shards).collect(),
        }
    }

    /// Returns the slots of each shard, if the instances of a tenant are in several shards;
    /// otherwise nothing.
    pub fn slots_of_shards(&self, tenant: &TenantId) -> Vec<Range<u16>> {
        let is_spread = self.config.shards > 1 && self.slots().is_key_sharded(tenant);
        if is_spread {
            component_config::ranges(self.config.shards).collect()
        } else {
            Vec::new()
        }
    }

    /// Returns whether this process owns all shards that may store data of a tenant.
    pub fn has_all_shards_of(&self, tenant: &TenantId) -> bool {
        let owned = self.runtime.owned_shards();
        self.shards_of(Some(tenant))
            .iter()
            .all(|shard| owned.contains(shard))
    }

    /// Returns the pods that have data of a tenant which this process does not have, and the shards
    /// without an owner.
    pub fn missing_parts(&self, tenant: &TenantId) -> BTreeSet<String> {
        // A shard that is assigned to this pod and does not run here counts as missing.
        let own_shards = self.runtime.owned_shards();
        let missing = self
            .shards_of(Some(tenant))
            .into_iter()
            .filter(|shard| !own_shards.contains(shard));

        missing
            .map(|shard| {
                let owner = self
                    .cluster
                    .as_ref()
                    .and_then(|cluster| cluster.owner(shard));
                owner
                    .filter(|pod| pod.name != self.config.node_name())
                    .map_or_else(|| format!("no owner of shard {shard}"), |pod| pod.name)
            })
            .collect()
    }

    /// Returns the owner of a slot.
    #[must_use]
    pub fn owner(&self, slot: Slot) -> SlotOwner {
        let shard = component_config::shard_of(slot, self.config.shards);

        // The running shard decides, not the view of the cluster: the view may still name this pod
        // when it has lost the shard.
        if self.runtime.owned_shards().contains(&shard) {
            return SlotOwner::Local;
        }

        let holder = self
            .cluster
            .as_ref()
            .and_then(|cluster| cluster.owner(shard));
        holder
            .filter(|pod| pod.name != self.config.node_name())
            // The view names this pod also before a shard runs here and after its loss.
            // A request must not be forwarded to its own pod.
            .map_or(SlotOwner::None, SlotOwner::Pod)
    }
}
