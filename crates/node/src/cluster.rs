//! Cluster membership: renews the lease of this pod, runs its shards and tracks the owners of the
//! other shards.

mod controller;
mod host;
mod lease_backoff;
mod node_keys;
mod placement;
pub mod pod_client;
pub(super) mod record;
mod routing;
mod shard_move;
#[cfg(test)]
mod simulation;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context as _;
use orlog_bus::membership::{ClusterView, Membership, Pod};
use orlog_bus::nats::{Connection, LeaseOptions, Leases};
use orlog_bus::registry::RegistryView;
use serde::Serialize;
use tokio::sync::{Mutex, watch};
use tokio::task::{AbortHandle, JoinHandle};
use uuid::Uuid;

use super::transport::with_startup_retry;
use crate::config::Config;
use controller::{ControllerCommand, ControllerStatus, ShardController};
pub(crate) use host::ShardHost;
pub use pod_client::PodClient;
pub use routing::{Routing, SlotOwner};

/// Cluster state for `/info`: pods and shards.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterInfo {
    /// Whether this is the current state of the servers; `false` while they are unreachable.
    pub current: bool,
    /// Live pods and their addresses.
    pub pods: BTreeMap<String, PodInfo>,
    /// Live pods with other keys of the node than this one; all pods need the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_node_keys: Vec<String>,
    /// Owner of each shard; `None`: the shard has no owner at this moment.
    pub shards: BTreeMap<u16, Option<String>>,
    /// Why this pod has no lease and runs no shard; absent while it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_failure: Option<String>,
    /// Shards that are assigned to this pod and that it cannot start, with the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failing_shards: BTreeMap<u16, String>,
}

/// State of a pod.
#[derive(Clone, Debug, Serialize)]
pub struct PodInfo {
    /// Base URL of its HTTP API.
    pub url: String,
    /// Whether the pod releases its shards and acquires none.
    pub draining: bool,
}

/// Why a node does not run the shards that it should run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardObstacles {
    /// Why the pod has no lease; `None`: it has one, or needs none.
    pub lease: Option<String>,
    /// Shards that the node cannot run, with the reason.
    pub shards: BTreeMap<u16, String>,
}

impl ShardObstacles {
    /// Returns the obstacles as one sentence; `None` if there are none.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        if let Some(reason) = &self.lease {
            return Some(format!("this pod has no lease and runs no shard: {reason}"));
        }

        let (shard, reason) = self.shards.first_key_value()?;
        let others = match self.shards.len() - 1 {
            0 => String::new(),
            count => format!(" (and {count} more)"),
        };

        Some(format!("shard {shard}{others} does not run: {reason}"))
    }
}

/// Membership of this pod in the cluster.
pub struct Cluster {
    membership: Arc<dyn Membership>,
    incarnation: Uuid,
    /// Ids of the keys of the node.
    own_keys: Vec<String>,
    shards: u16,
    orders: watch::Sender<ControllerCommand>,
    status: watch::Receiver<ControllerStatus>,
    keeper: Mutex<Option<JoinHandle<()>>>,
    /// Comparison with the record of the cluster.
    record_watch: AbortHandle,
}

/// Opens the records of the cluster: its pods, and the owners of the shards. `None` if the node runs
/// alone.
///
/// # Errors
/// If the servers do not respond, or reject the request.
pub(crate) async fn open_membership(
    config: &Config,
    connection: Option<&Connection>,
) -> anyhow::Result<Option<Arc<dyn Membership>>> {
    let Some(connection) = connection.filter(|_| config.is_clustered()) else {
        return Ok(None);
    };

    let options = LeaseOptions {
        bucket: config.cluster.name.clone(),
        ttl: config.cluster.lease_ttl,
    };
    let leases =
        with_startup_retry(|| async { Ok(Leases::open(connection, options.clone()).await?) }).await;
    let leases = leases.context("the leases cannot be opened")?;

    Ok(Some(Arc::new(leases)))
}

impl Cluster {
    /// Joins the cluster. From then on shards are acquired and released. `registry` has the record
    /// of the cluster; `node_keys` are the ids of the keys of the node.
    pub(crate) fn join(
        host: &Arc<dyn ShardHost>,
        membership: Arc<dyn Membership>,
        registry: watch::Receiver<Arc<RegistryView>>,
        node_keys: Vec<String>,
    ) -> Self {
        let config = host.config();
        let (orders, ordered) = watch::channel(ControllerCommand::Run);
        let (status_sender, status) = watch::channel(ControllerStatus::default());

        let me = me(config, node_keys);

        let record_watch = tokio::spawn(stop_if_replaced(Arc::downgrade(host), registry));

        // For its peers the pods are one node, so a pod with other keys is an error of the
        // operator.
        tokio::spawn(node_keys::report(me.clone(), membership.view()));

        let own_keys = me.node_keys.clone();
        let incarnation = me.incarnation;
        let shard_controller =
            ShardController::new(host, Arc::clone(&membership), me, ordered, status_sender);
        let shard_controller = tokio::spawn(shard_controller.run());
        let shards = config.shards;
        let shard_controller = Mutex::new(Some(shard_controller));

        Self {
            membership,
            incarnation,
            own_keys,
            shards,
            orders,
            status,
            keeper: shard_controller,
            record_watch: record_watch.abort_handle(),
        }
    }

    /// Returns the random id of this process, which only the lease bucket contains.
    pub fn incarnation(&self) -> Uuid {
        self.incarnation
    }

    /// Returns why this pod does not run the shards that it should run.
    pub(crate) fn obstacles(&self) -> ShardObstacles {
        let status = self.status.borrow();
        ShardObstacles {
            lease: status.lease_failure.clone(),
            shards: status.start_failures.clone(),
        }
    }

    fn view(&self) -> Arc<ClusterView> {
        Arc::clone(&self.membership.view().borrow())
    }

    /// Releases every shard that another pod can acquire. Returns when that is done or `timeout`
    /// has elapsed.
    pub(crate) async fn drain(&self, deadline: Duration) {
        self.orders.send_replace(ControllerCommand::HandOver);
        let mut status = self.status.clone();
        // Before the controller has received the command, `is_complete` is false.
        let over = status.wait_for(|status| status.handover.is_complete());

        // After the timeout the remaining shards stop without a handover; other pods acquire them
        // when this pod leaves.
        drop(tokio::time::timeout(deadline, over).await);
    }

    /// Stops the remaining shards and announces the departure of this pod.
    pub(crate) async fn leave(&self) {
        // After the departure another pod may replace the values of the record.
        self.record_watch.abort();
        self.orders.send_replace(ControllerCommand::Leave);
        if let Some(shard_controller) = self.keeper.lock().await.take() {
            // An error is a panic of the task, which was already logged.
            drop(shard_controller.await);
        }
    }

    /// Returns the cluster state.
    pub(crate) fn info(&self) -> ClusterInfo {
        let view = self.view();
        let status = self.status.borrow().clone();
        let pod = |pod: &Pod| {
            (
                pod.name.clone(),
                PodInfo {
                    url: pod.url.clone(),
                    draining: pod.draining,
                },
            )
        };

        ClusterInfo {
            current: view.current,
            pods: view.pods.values().map(pod).collect(),
            other_node_keys: node_keys::different(&self.own_keys, &view)
                .map(|pod| pod.name.clone())
                .collect(),
            shards: (0..self.shards)
                .map(|shard| (shard, view.owner_of(shard).map(|pod| pod.name.clone())))
                .collect(),
            lease_failure: status.lease_failure,
            failing_shards: status.start_failures,
        }
    }
}

/// Stops the process as soon as the record of the cluster has other values than this pod: two pods
/// with different values must not run at the same time.
async fn stop_if_replaced(
    // Weak: the comparison must not keep a stopped node alive.
    host: Weak<dyn ShardHost>,
    registry: watch::Receiver<Arc<RegistryView>>,
) {
    let Some(config) = host.upgrade().map(|host| host.config().clone()) else {
        return;
    };

    let replaced = record::replaced(&config, registry).await;
    if let (Some(error), Some(host)) = (replaced, host.upgrade()) {
        tracing::error!(
            "configuration of the cluster replaced by another pod; stopping: {error:#}"
        );
        host.abort("another pod has replaced the configuration of the cluster");
    }
}

fn me(config: &Config, node_keys: Vec<String>) -> Pod {
    let url = config
        .cluster
        .url(config.listen, config.http.tls.is_enabled());
    Pod {
        name: config.node_name(),
        incarnation: Uuid::new_v4(),
        url,
        draining: false,
        node_keys,
    }
}
