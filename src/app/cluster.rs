//! Many pods: this one says that it is there, runs the shards that belong to it, and knows who runs the others.

mod controller;
mod host;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use orlog_bus::membership::{Membership, Pod, View};
use orlog_bus::nats::{Connection, LeaseOptions, Leases};
use serde::Serialize;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::transport::patiently;
use crate::config::Config;
use controller::{Keeper, Order};
pub(super) use host::Host;

/// What a node says about the pods and the shards.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterInfo {
    /// Whether this is what the servers say now; not while they cannot be reached.
    pub current: bool,
    /// The pods that are alive, and where they are reached.
    pub pods: BTreeMap<String, PodInfo>,
    /// Who runs each shard; `None`: nobody at this moment.
    pub shards: BTreeMap<u16, Option<String>>,
}

/// A pod.
#[derive(Clone, Debug, Serialize)]
pub struct PodInfo {
    /// Where its HTTP API is.
    pub url: String,
    /// It hands over what it has and takes nothing.
    pub draining: bool,
}

/// This pod among the others.
pub(super) struct Cluster {
    membership: Arc<dyn Membership>,
    name: String,
    shards: u16,
    orders: watch::Sender<Order>,
    /// How many shards run here, and whether any could go to somebody else.
    rest: watch::Receiver<controller::Rest>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl Cluster {
    /// Joins: from now on shards come and go.
    pub(super) async fn join(host: &Arc<dyn Host>, connection: &Connection) -> anyhow::Result<Self> {
        let config = host.config();
        let options = LeaseOptions { bucket: config.cluster.name.clone(), ttl: config.cluster.ttl };
        let leases = patiently(|| async { Ok(Leases::open(connection, options.clone()).await?) }).await;
        let membership: Arc<dyn Membership> = Arc::new(leases.context("the leases cannot be kept")?);
        let (orders, ordered) = watch::channel(Order::Run);
        let (shown, rest) = watch::channel(controller::Rest::default());
        let keeper = Keeper::new(host, Arc::clone(&membership), me(config), ordered, shown);
        let keeper = tokio::spawn(keeper.run());
        let (name, shards, keeper) = (config.node_name(), config.shards, Mutex::new(Some(keeper)));
        Ok(Self { membership, name, shards, orders, rest, keeper })
    }

    /// The pod that runs a shard, as far as this one knows.
    pub(super) fn holder(&self, shard: u16) -> Option<Pod> {
        self.view().holder(shard).cloned()
    }

    /// The other pods that are alive.
    pub(super) fn others(&self) -> Vec<Pod> {
        self.view().pods.values().filter(|pod| pod.name != self.name).cloned().collect()
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.membership.view().borrow())
    }

    /// Hands over every shard that somebody else can take; returns when that is done, or `deadline` is over.
    pub(super) async fn hand_over(&self, deadline: Duration) {
        self.orders.send_replace(Order::HandOver);
        let mut rest = self.rest.clone();
        let over = rest.wait_for(|rest| rest.is_over());
        drop(tokio::time::timeout(deadline, over).await);
    }

    /// Stops the shards that are still here, and says that this pod is gone.
    pub(super) async fn leave(&self) {
        self.orders.send_replace(Order::Leave);
        if let Some(keeper) = self.keeper.lock().await.take() {
            // An error means that it panicked, which was told.
            drop(keeper.await);
        }
    }

    /// What it knows.
    pub(super) fn info(&self) -> ClusterInfo {
        let view = self.view();
        let pod = |pod: &Pod| (pod.name.clone(), PodInfo { url: pod.url.clone(), draining: pod.draining });
        ClusterInfo {
            current: view.current,
            pods: view.pods.values().map(pod).collect(),
            shards: (0..self.shards)
                .map(|shard| (shard, view.holder(shard).map(|pod| pod.name.clone())))
                .collect(),
        }
    }
}

fn me(config: &Config) -> Pod {
    let url = match config.cluster.advertise.as_str() {
        "" => format!("http://{}", config.listen),
        url => url.trim_end_matches('/').to_owned(),
    };
    Pod { name: config.node_name(), incarnation: uuid::Uuid::new_v4(), url, draining: false }
}
