//! Backend: the durable state of instances, their claims and their signals.
//!
//! One conformance suite verifies the contract below for all implementations.

#[cfg(feature = "embedded")]
mod embedded;
mod hub;
mod memory;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "postgres")]
mod postgres;
mod table;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

#[cfg(feature = "embedded")]
pub use self::embedded::EmbeddedBackend;
pub use self::hub::{Hub, InstanceId, Watcher};
pub use self::memory::MemoryBackend;
#[cfg(feature = "nats")]
pub use self::nats::NatsBackend;
#[cfg(feature = "postgres")]
pub use self::postgres::PostgresBackend;

/// Time at which nothing is due, in milliseconds since the Unix epoch.
pub const NEVER_MS: u64 = i64::MAX.cast_unsigned();

/// Storage of instances.
///
/// Contract:
/// - A method that returns `Ok` has made its change durable, as far as the backend is durable.
/// - The *epoch* of an instance grows with each claim. [`Backend::save`] and [`Backend::extend`]
///   have no effect for another epoch than the current one: a former holder cannot write.
/// - An instance is *available* at a time if it has not ended, and it is unclaimed and due or its
///   claim has expired. [`Backend::fetch`] lists available instances and does not change them.
/// - A signal makes an unclaimed instance due. The numbers of signals grow. A signal is stored
///   until a save consumes it.
/// - The [`Hub`] reports each change that a worker, an instance or a client may wait for, including
///   changes by other processes.
///
/// Times are passed as arguments. Claims compare the clocks of workers, so these may differ by less
/// than the time to live.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Stores a new instance, unless the id exists; returns whether it was stored.
    async fn create(&self, instance: NewInstance) -> Result<bool, BackendError>;

    /// Returns an instance.
    async fn load(&self, id: &str) -> Result<Option<StoredInstance>, BackendError>;

    /// Replaces the snapshot of an instance.
    ///
    /// # Errors
    /// [`BackendError::Fenced`] if the epoch is not the current one.
    async fn save(&self, save: Save) -> Result<(), BackendError>;

    /// Returns instances that are available, the longest due first, and the next time at which one
    /// becomes available.
    async fn fetch(&self, limit: usize, now_ms: u64) -> Result<Fetched, BackendError>;

    /// Claims those of the instances that are available, and returns them.
    async fn claim(
        &self,
        ids: &[InstanceId],
        claim: &Claim,
    ) -> Result<Vec<StoredInstance>, BackendError>;

    /// Claims an instance that has not ended, also if another holder has a valid claim; `None` if
    /// there is no such instance.
    async fn take_over(
        &self,
        id: &str,
        holder: &str,
    ) -> Result<Option<StoredInstance>, BackendError>;

    /// Extends claims, given by id and epoch; returns those that are lost.
    async fn extend(
        &self,
        claims: &[(InstanceId, u64)],
        until_ms: u64,
    ) -> Result<Vec<InstanceId>, BackendError>;

    /// Stores a signal; returns `false` if the instance does not exist or has ended.
    async fn send_signal(&self, id: &str, name: &str, payload: Bytes)
    -> Result<bool, BackendError>;

    /// Returns the signals of an instance after a number.
    async fn signals(&self, id: &str, after: u64) -> Result<Vec<Signal>, BackendError>;

    /// Returns ids of instances that have not ended, in the order of the ids, after an id.
    async fn unended(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<InstanceId>, BackendError>;

    /// Stores the graph of a workflow under its hash.
    async fn put_graph(&self, hash: &str, graph: Bytes) -> Result<(), BackendError>;

    /// Returns a graph.
    async fn graph(&self, hash: &str) -> Result<Option<Bytes>, BackendError>;

    /// Deletes instances that ended before a time; returns their number.
    async fn purge(&self, ended_before_ms: u64) -> Result<u64, BackendError>;

    /// Returns the hub.
    fn hub(&self) -> &Hub;
}

/// Instance to store.
#[derive(Debug, Clone)]
pub struct NewInstance {
    /// Id, chosen by the caller.
    pub id: InstanceId,
    /// Name of the workflow.
    pub workflow: Arc<str>,
    /// Hash of the graph.
    pub hash: Arc<str>,
    /// Snapshot.
    pub state: Bytes,
    /// Time at which the instance is due.
    pub wake_ms: u64,
    /// Holder that has the first claim, which does not expire; `None` for an unclaimed instance.
    pub holder: Option<Arc<str>>,
}

/// Stored instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredInstance {
    /// Id.
    pub id: InstanceId,
    /// Name of the workflow.
    pub workflow: Arc<str>,
    /// Hash of the graph.
    pub hash: Arc<str>,
    /// Epoch of the current or last claim.
    pub epoch: u64,
    /// Snapshot.
    pub state: Bytes,
    /// Number of the last signal.
    pub last_signal: u64,
}

/// New snapshot of an instance.
#[derive(Debug, Clone)]
pub struct Save {
    /// Id.
    pub id: InstanceId,
    /// Epoch of the claim.
    pub epoch: u64,
    /// Hash of the graph; it changes if steps are renamed.
    pub hash: Arc<str>,
    /// Snapshot.
    pub state: Bytes,
    /// Number of the last signal that the snapshot contains.
    pub last_signal: u64,
    /// What happens to the claim.
    pub then: After,
}

/// Claim after a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The holder keeps the claim.
    Keep,
    /// The claim is released; the instance is due at a time, or at once if it has signals that the
    /// snapshot does not contain.
    Release {
        /// Time at which the instance is due.
        wake_ms: u64,
    },
    /// The instance has ended.
    End {
        /// Time of the end.
        at_ms: u64,
    },
}

/// Available instances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Ids.
    pub ids: Vec<InstanceId>,
    /// Next time at which another instance becomes available; [`NEVER_MS`] if none is known.
    pub next_ms: u64,
}

/// Request for claims.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Name of the worker.
    pub holder: Arc<str>,
    /// Current time.
    pub now_ms: u64,
    /// End of the claim.
    pub until_ms: u64,
}

/// Stored signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Number, larger than those of earlier signals of the instance.
    pub number: u64,
    /// Name of the step that receives it.
    pub name: String,
    /// Payload.
    pub payload: Bytes,
}

/// Error of a backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// Another holder has claimed the instance since.
    #[error("the claim of instance \"{id}\" is lost: another worker has claimed it")]
    Fenced {
        /// Id of the instance.
        id: InstanceId,
    },
    /// The storage failed. The change may or may not be durable.
    #[error("the backend cannot {action}: {reason}")]
    Unavailable {
        /// Attempted action, a verb.
        action: &'static str,
        /// Error of the storage.
        reason: String,
    },
    /// Stored data cannot be read.
    #[error("the backend has damaged data: {reason}; restore a backup")]
    Corrupt {
        /// Description.
        reason: String,
    },
}
