//! Pods of the cluster: which one owns a shard, and requests to them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, Method};
use orlog_bus::membership::Pod;
use orlog_model::{InstanceKey, Slot, SlotAssigner, TenantId};
use orlog_signature::KeyId;
use orlog_store::Reader;

use crate::server::context::{ApiState, RequestScope};
use orlog_node::app::App;
use orlog_node::auth::Authenticator;
use orlog_node::cluster::{SlotOwner, pod_client};

/// Owners of the shards, and requests to other pods. It belongs to a request, because another pod
/// receives a request in the name of the caller.
#[derive(Clone)]
pub(crate) struct Cluster {
    app: Arc<App>,
    /// Key that signed the request; another pod receives a grant for it.
    pub(in crate::server) key: Option<KeyId>,
}

/// Reference to the cluster that does not keep the node.
pub(crate) struct WeakCluster {
    app: Weak<App>,
}

impl WeakCluster {
    /// Returns the cluster for requests in the name of the owner of a key; `None` if the node has
    /// stopped.
    pub(crate) fn upgrade(&self, key: Option<KeyId>) -> Option<Cluster> {
        Some(Cluster {
            app: self.app.upgrade()?,
            key,
        })
    }
}

impl FromRequestParts<ApiState> for Cluster {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Infallible> {
        Ok(Self::for_request(api, &parts.extensions))
    }
}

impl Cluster {
    /// Returns the cluster for requests in the name of the caller of a request.
    pub(crate) fn for_request(api: &ApiState, extensions: &Extensions) -> Self {
        let scope = extensions.get::<RequestScope>();
        let key = scope.and_then(|scope| scope.key);
        Self::in_name_of(api, key)
    }

    /// Returns the cluster for requests in the name of the owner of a key; `None`: the headers of a
    /// request authenticate its caller, or this pod itself sends it.
    pub(super) fn in_name_of(api: &ApiState, key: Option<KeyId>) -> Self {
        Self {
            app: Arc::clone(&api.shared.app),
            key,
        }
    }

    /// Returns a reference that does not keep the node.
    pub(crate) fn downgrade(&self) -> WeakCluster {
        WeakCluster {
            app: Arc::downgrade(&self.app),
        }
    }

    /// Waits until this node is drained.
    pub(crate) async fn drained(&self) {
        self.app.drained().await;
    }

    /// Creates a request to another pod, with a timeout.
    ///
    /// # Errors
    /// If the address of the pod does not permit it.
    pub(crate) fn request_to(
        &self,
        pod: &Pod,
        method: Method,
        target: &str,
    ) -> Result<reqwest::RequestBuilder, pod_client::Error> {
        self.app.pod_client.request(pod, method, target)
    }

    /// Returns the time within which a request must be received, and within which it is handled.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.app.config.http.request_timeout
    }

    /// Returns the authentication that issues the grants for forwarded requests.
    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.app.authenticator
    }

    /// Returns the name of this pod.
    pub(crate) fn node_name(&self) -> String {
        self.app.config.node_name()
    }

    /// Returns whether the node is part of a cluster.
    pub(crate) fn is_clustered(&self) -> bool {
        self.app.routing.is_clustered()
    }

    /// Returns the other live pods.
    pub(crate) fn other_pods(&self) -> Vec<Pod> {
        self.app.routing.other_pods()
    }

    /// Returns the mapping of instances to slots.
    pub(crate) fn slots(&self) -> SlotAssigner {
        self.app.routing.slots()
    }

    /// Returns the owner of a slot.
    pub(crate) fn owner(&self, slot: Slot) -> SlotOwner {
        self.app.routing.owner(slot)
    }

    /// Returns the owner of the shard of an instance.
    pub(crate) fn owner_of(&self, key: &InstanceKey) -> SlotOwner {
        self.app.routing.owner_of(key)
    }

    /// Returns the shards of this process, ordered by number. A scan ends with the request only
    /// through [`crate::server::read_scope::ReadScope::cancelling`].
    pub(crate) fn local_shards(&self) -> impl Iterator<Item = (u16, Reader)> {
        self.app.runtime.numbered_readers()
    }

    /// Returns the shards that may store data of a tenant, or of all tenants.
    pub(crate) fn shards_of(&self, tenant: Option<&TenantId>) -> Vec<u16> {
        self.app.routing.shards_of(tenant)
    }

    /// Returns the slots of each shard, if the instances of a tenant are in several shards;
    /// otherwise nothing.
    pub(crate) fn slots_of_shards(&self, tenant: &TenantId) -> Vec<Range<u16>> {
        self.app.routing.slots_of_shards(tenant)
    }

    /// Returns whether this process owns all shards that may store data of a tenant.
    pub(crate) fn has_all_shards_of(&self, tenant: &TenantId) -> bool {
        self.app.routing.has_all_shards_of(tenant)
    }

    /// Returns the pods that have data of a tenant which this process does not have, and the shards
    /// without an owner.
    pub(crate) fn missing_parts(&self, tenant: &TenantId) -> BTreeSet<String> {
        self.app.routing.missing_parts(tenant)
    }
}
