//! A node among other pods: who answers for what.

use std::sync::Arc;

use orlog_bus::membership::Pod;
use orlog_model::{Slot, Slots, TenantId};

use super::cluster::{Cluster, Host};
use super::{App, part_config};
use crate::config::ClusterMode;

/// Who answers for a slot.
pub enum Whose {
    /// This process.
    Here,
    /// Another pod.
    Pod(Pod),
    /// Nobody at this moment: its shard is on its way.
    Nobody,
}

impl App {
    /// Joins the other pods, where this one is not alone.
    pub(super) async fn join(self: &Arc<Self>) -> anyhow::Result<()> {
        let several = self.config.cluster.mode != ClusterMode::Alone && self.config.roles.runs_sagas();
        if several && let Some(connection) = self.transport.connection() {
            let host: Arc<dyn Host> = Arc::clone(self) as Arc<dyn Host>;
            let cluster = Cluster::join(&host, connection).await?;
            // Nobody else joins.
            drop(self.cluster.set(cluster));
        }
        Ok(())
    }

    /// Whether there may be other pods.
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        self.cluster.get().is_some()
    }

    /// The other pods that are alive.
    #[must_use]
    pub fn other_pods(&self) -> Vec<Pod> {
        self.cluster.get().map(Cluster::others).unwrap_or_default()
    }

    /// How instances find their slots.
    #[must_use]
    pub fn slots(&self) -> Slots {
        part_config::slots(&self.config)
    }

    /// The numbers of the shards that may have something of a tenant, or of anybody.
    #[must_use]
    pub fn shards_of(&self, tenant: Option<&TenantId>) -> Vec<u16> {
        match tenant.and_then(|tenant| self.slots().of_tenant(tenant)) {
            Some(slot) => vec![part_config::shard_of(slot, self.config.shards)],
            None => (0..self.config.shards).collect(),
        }
    }

    /// Who answers for a slot.
    #[must_use]
    pub fn whose(&self, slot: Slot) -> Whose {
        let shard = part_config::shard_of(slot, self.config.shards);
        if self.runtime.owned().contains(&shard) {
            return Whose::Here;
        }
        let holder = self.cluster.get().and_then(|cluster| cluster.holder(shard));
        holder.filter(|pod| pod.name != self.config.node_name()).map_or(Whose::Nobody, Whose::Pod)
    }
}
