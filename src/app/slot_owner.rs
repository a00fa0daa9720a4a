//! Routing in a cluster: the owner of each slot.

use std::sync::Arc;

use orlog_bus::membership::Pod;
use orlog_model::{Slot, SlotAssigner, TenantId};

use super::cluster::{Cluster, ShardHost};
use super::{App, component_config};
use crate::config::ClusterMode;

/// Owner of a slot.
pub enum SlotOwner {
    /// This process.
    Local,
    /// Another pod.
    Pod(Pod),
    /// No owner at this moment: the shard is moving.
    None,
}

impl App {
    /// Joins the cluster if it is configured.
    pub(crate) async fn join(self: &Arc<Self>) -> anyhow::Result<()> {
        let several = self.config.cluster.mode != ClusterMode::Standalone && self.config.role.runs_sagas();
        if several && let Some(connection) = self.transport.connection() {
            let host: Arc<dyn ShardHost> = Arc::clone(self) as Arc<dyn ShardHost>;
            let cluster = Cluster::join(&host, connection).await?;
            // This is the only call that joins.
            drop(self.cluster.set(cluster));
        }
        Ok(())
    }

    /// Returns whether the node is part of a cluster.
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        self.cluster.get().is_some()
    }

    /// Returns the shards whose lease belongs to this node.
    #[must_use]
    pub fn leased_shards(&self) -> Vec<u16> {
        self.cluster.get().map(Cluster::leased_shards).unwrap_or_default()
    }

    /// Returns the other live pods.
    #[must_use]
    pub fn other_pods(&self) -> Vec<Pod> {
        self.cluster.get().map(Cluster::other_pods).unwrap_or_default()
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

    /// Returns the owner of a slot.
    #[must_use]
    pub fn slot_owner(&self, slot: Slot) -> SlotOwner {
        let shard = component_config::shard_of(slot, self.config.shards);
        if self.runtime.owned_shards().contains(&shard) {
            return SlotOwner::Local;
        }
        let holder = self.cluster.get().and_then(|cluster| cluster.owner(shard));
        holder.filter(|pod| pod.name != self.config.node_name()).map_or(SlotOwner::None, SlotOwner::Pod)
    }
}
