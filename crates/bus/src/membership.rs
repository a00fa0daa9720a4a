//! Contract of cluster membership: the live pods and the owners of the shards.
//!
//! A pod stays a member while it renews its announcement. The record of a shard names its owner and
//! is valid while the owner is alive. One message of a pod therefore renews all its shards, and the
//! loss of its messages releases them. A stale view is safe: a record is only replaced if it is
//! still the record that was read. The record contains the epoch under which the owner commits. It
//! grows with every owner, also if the records are lost: a new owner that finds a later epoch in
//! the log of its shard acquires the shard again, with a later one.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use uuid::Uuid;

use crate::Error;

/// Pod of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Unique name of the pod.
    pub name: String,
    /// Id of the process; changes at every start.
    pub incarnation: Uuid,
    /// URL of its HTTP API for other pods.
    pub url: String,
    /// Whether it drains: it hands over its shards and acquires none.
    pub draining: bool,
    /// Ids of its keys of the node, the current one first; empty: it has none.
    pub node_keys: Vec<String>,
}

/// Ownership of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardOwnership {
    /// Name and incarnation of the owner; `None`: the shard was released.
    pub owner: Option<(String, Uuid)>,
    /// Its current or last lease.
    pub lease: ShardLease,
}

/// Lease of a shard. The default is that of a shard without a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardLease {
    /// Epoch under which the owner commits.
    pub epoch: u64,
    /// Number of the record, which changes with every write.
    pub revision: u64,
}

/// State of the cluster at a point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Pods by name.
    pub pods: BTreeMap<String, Pod>,
    /// Shards by number; a shard that never had an owner is absent.
    pub shards: BTreeMap<u16, ShardOwnership>,
    /// Whether it is the current state of the servers; false while they are unavailable.
    pub current: bool,
}

impl ClusterView {
    /// Returns the owner of a shard, if it is alive.
    #[must_use]
    pub fn owner_of(&self, shard: u16) -> Option<&Pod> {
        // The name is not sufficient: a restarted pod has the name of its previous process, but
        // none of its shards.
        let (name, incarnation) = self.shards.get(&shard)?.owner.as_ref()?;
        self.pods
            .get(name)
            .filter(|pod| pod.incarnation == *incarnation)
    }
}

/// Store of the membership records.
///
/// # Errors
/// Each request fails if it is unknown whether it was received.
#[async_trait]
pub trait Membership: Send + Sync + 'static {
    /// Returns a receiver of the cluster view and its changes.
    fn view(&self) -> watch::Receiver<Arc<ClusterView>>;

    /// Announces a pod for one time to live from now. Returns `false` if another process uses the
    /// name.
    async fn announce(&self, pod: &Pod) -> Result<bool, Error>;

    /// Removes a pod. Other pods need not wait until its announcement expires.
    async fn leave(&self, pod: &Pod) -> Result<(), Error>;

    /// Makes a pod the owner of a shard if its record is still that of the lease `seen`. The epoch
    /// of the new lease is larger than that of `seen` and than `log_epoch`, the last known epoch in
    /// the log of the shard. Returns the new lease; `None`: another pod was faster.
    async fn acquire(
        &self,
        shard: u16,
        pod: &Pod,
        seen: ShardLease,
        log_epoch: u64,
    ) -> Result<Option<ShardLease>, Error>;

    /// Releases a shard that is owned under this lease. No-op if another pod owns it now.
    async fn release(&self, shard: u16, lease: ShardLease) -> Result<(), Error>;
}
