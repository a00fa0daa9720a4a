//! Routing in a cluster: the owner of each slot.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use orlog_actors::LocalShards;
use orlog_bus::membership::{ClusterView, Membership, Pod};
use orlog_model::{InstanceKey, Slot, SlotAssigner, TenantId};

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
///
/// It exists before the runtime, so that effects can use it: until a shard runs here, it has no
/// owner in this process.
pub struct Routing {
    config: Arc<Config>,
    shards: LocalShards,
    /// Records of the cluster; `None` if the node runs alone.
    membership: Option<Arc<dyn Membership>>,
}

impl Routing {
    pub(crate) fn new(
        config: Arc<Config>,
        shards: LocalShards,
        membership: Option<Arc<dyn Membership>>,
    ) -> Self {
        Self {
            config,
            shards,
            membership,
        }
    }

    /// Returns whether the node is part of a cluster.
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        self.membership.is_some()
    }

    /// Returns the state of the cluster, as far as this pod has received it.
    fn view(&self) -> Option<Arc<ClusterView>> {
        let membership = self.membership.as_ref()?;
        Some(Arc::clone(&membership.view().borrow()))
    }

    /// Returns the shards whose lease belongs to this node.
    #[must_use]
    pub fn leased_shards(&self) -> Vec<u16> {
        let Some(view) = self.view() else {
            return Vec::new();
        };

        let own_name = self.config.node_name();
        (0..self.config.shards)
            .filter(|shard| {
                view.owner_of(*shard)
                    .is_some_and(|pod| pod.name == own_name)
            })
            .collect()
    }

    /// Returns the other live pods.
    #[must_use]
    pub fn other_pods(&self) -> Vec<Pod> {
        let Some(view) = self.view() else {
            return Vec::new();
        };

        let own_name = self.config.node_name();
        view.pods
            .values()
            .filter(|pod| pod.name != own_name)
            .cloned()
            .collect()
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
    #[must_use]
    pub fn slots_of_shards(&self, tenant: &TenantId) -> Vec<Range<u16>> {
        let is_spread = self.config.shards > 1 && self.slots().is_key_sharded(tenant);
        if is_spread {
            component_config::ranges(self.config.shards).collect()
        } else {
            Vec::new()
        }
    }

    /// Returns whether this process owns all shards that may store data of a tenant.
    #[must_use]
    pub fn has_all_shards_of(&self, tenant: &TenantId) -> bool {
        self.shards_of(Some(tenant))
            .into_iter()
            .all(|shard| self.shards.runs(shard))
    }

    /// Returns the pods that have data of a tenant which this process does not have, and the shards
    /// without an owner.
    #[must_use]
    pub fn missing_parts(&self, tenant: &TenantId) -> BTreeSet<String> {
        // A shard that is assigned to this pod and does not run here counts as missing.
        let missing = self
            .shards_of(Some(tenant))
            .into_iter()
            .filter(|shard| !self.shards.runs(*shard));

        missing
            .map(|shard| {
                self.other_owner(shard)
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
        if self.shards.runs(shard) {
            return SlotOwner::Local;
        }
        self.other_owner(shard)
            .map_or(SlotOwner::None, SlotOwner::Pod)
    }

    /// Returns the owner of the shard of an instance.
    #[must_use]
    pub fn owner_of(&self, key: &InstanceKey) -> SlotOwner {
        self.owner(self.slots().slot_of(key))
    }

    /// Returns the pod that owns a shard, if it is another one. The view names this pod also before
    /// a shard runs here and after its loss; a request must not be forwarded to its own pod.
    fn other_owner(&self, shard: u16) -> Option<Pod> {
        let view = self.view()?;
        let owner = view.owner_of(shard)?;
        (owner.name != self.config.node_name()).then(|| owner.clone())
    }
}
