//! Numbers of deployments: in a cluster, all pods draw them from one counter for each owner.
//!
//! Without it, pods that missed a deployment would choose the same number again, and the clocks of
//! the pods would decide which of both is newer.

use orlog_bus::Error;
use orlog_bus::nats::{Connection, SharedNumbers};
use orlog_model::TenantId;

use crate::config::Config;

/// Counter of the shared definitions. Those of contexts have the tenant as a suffix.
const SHARED: &str = "deployment";

/// Numbers of the deployments of this node.
pub(crate) struct DeploymentNumbers {
    /// `None`: the node runs alone.
    cluster: Option<ClusterCounters>,
}

/// Counters of the cluster, in the bucket of its leases.
struct ClusterCounters {
    connection: Connection,
    bucket: String,
}

impl DeploymentNumbers {
    /// Returns the numbers of a node, which are those of its cluster if it is a pod.
    pub(crate) fn new(config: &Config, connection: Option<&Connection>) -> Self {
        let connection = connection.filter(|_| config.is_clustered());
        let cluster = connection.map(|connection| ClusterCounters {
            connection: connection.clone(),
            bucket: config.cluster.name.clone(),
        });
        Self { cluster }
    }

    /// Returns the last number that a pod has drawn for an owner; 0: none, or the node runs alone.
    ///
    /// # Errors
    /// If the servers do not respond.
    pub(super) async fn last(&self, owner: Option<&TenantId>) -> Result<u64, Error> {
        let Some(cluster) = &self.cluster else {
            return Ok(0);
        };
        cluster.open().await?.last(&counter(owner)).await
    }

    /// Returns a number that is larger than `seen` and than the numbers of all other deployments of
    /// the owner.
    ///
    /// # Errors
    /// If the servers do not respond.
    pub(super) async fn next(&self, owner: Option<&TenantId>, seen: u64) -> Result<u64, Error> {
        let Some(cluster) = &self.cluster else {
            return Ok(seen.saturating_add(1));
        };
        cluster.open().await?.next(&counter(owner), seen).await
    }

    /// Ensures that the number of each later deployment of the shared definitions is larger than
    /// this one, which a node has chosen from its own store: for a changed directory, or in an
    /// earlier release.
    pub(crate) async fn raise(&self, number: u64) {
        let Some(cluster) = &self.cluster else {
            return;
        };

        let raised = async { cluster.open().await?.raise(SHARED, number).await };
        if let Err(error) = raised.await {
            tracing::warn!(number, %error, "number of the deployment not announced to the cluster; \
                retrying at the next takeover");
        }
    }
}

impl ClusterCounters {
    async fn open(&self) -> Result<SharedNumbers, Error> {
        SharedNumbers::open(&self.connection, &self.bucket).await
    }
}

fn counter(owner: Option<&TenantId>) -> String {
    match owner {
        None => SHARED.to_owned(),
        Some(context) => format!("{SHARED}.{context}"),
    }
}
